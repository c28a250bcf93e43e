"""Finds what is damaged in a store: its catalogue, parts, models, journals and notes.

One idea: everything that lasts says what it should be. A part's name has the hash of its rows, a policy's row the hash of its weights, and
the log of commits the size and time of each file. `look` compares what costs no reading, at the start of every flow; `check` reads
everything.
It changes nothing, except that `look` stamps files that it had to read, and writes the lines that the log lacks once it has read their
parts (`storage/commits/commit_log.py`).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
import polars as pl

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog, LoggedPart
from storage.errors import BadInput, HeadraceError, OtherVersion
from storage.execution import Progress
from storage.files import file_lock
from storage.health.weights import PRUNED, weights_hash
from storage.journal import journal_at
from storage.parts import DamagedPart, Part, check_part, rows_on_disk
from storage.store import LOCK_WAIT_S, Store
from storage.tables import TABLES

_STAMPED_AT_ONCE = 100
Kind = Literal["part", "catalogue", "model", "journal", "work", "note"]


@dataclass(frozen=True)
class Damage:
    """One damaged thing. path: relative to the store. problem: in words, such as `is missing`."""

    kind: Kind
    path: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


def look(store: Store, progress: Progress = lambda *_: None) -> list[Damage]:
    """What is damaged, as far as names, sizes and times of files tell; a file with another time is read once, and so is one that the log
    has no line of, as after a restore that was killed."""
    found, seen_well = list(_folders(store.root)), list[str]()
    logged = store.log.parts()
    if found or (found := _lacking(store, logged)):
        return found
    for number, one in enumerate(logged, 1):
        problem = _look_at_part(store, one)
        if problem:
            found.append(Damage("part", one.part.path, problem))
        elif problem is None:
            seen_well.append(str(one.part.path))
            progress("reading parts with another time", number, len(logged))
        if seen_well and (len(seen_well) == _STAMPED_AT_ONCE or number == len(logged)):
            store.log.stamp(seen_well)
            seen_well.clear()
    return found + _look_at_unlogged(store, {one.part.part_id for one in logged}, progress)


def _look_at_unlogged(store: Store, logged: Collection[str], progress: Progress) -> list[Damage]:
    """Reads the committed parts that the log has no line of; if all are whole, writes the log again with theirs."""
    unlogged = [one for one in _committed(store) if one.part.part_id not in logged]
    found = check_parts(store.root, unlogged, progress)
    if unlogged and not found:
        with file_lock(store.root / "catalog.lock", wait_s=LOCK_WAIT_S), closing(store.connect()) as connection:
            write_log(store.root, connection)
    return found


def write_log(root: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Writes the log of commits from the catalogue in use, of whatever version. The caller holds `catalog.lock`, or works alone."""
    CommitLog(root).rewrite(duckdb_catalog.list_commits(connection), duckdb_catalog.versions(connection)[:-1])


def _lacking(store: Store, logged: Sequence[LoggedPart]) -> list[Damage]:
    """The catalogue, if it lacks commits that the log has."""
    lacking = {one.part.part_id for one in logged} - set(store.query("SELECT part_id FROM parts")["part_id"])
    name = Path("catalog.duckdb")
    return [Damage("catalogue", name, f"lacks {len(lacking):,} logged parts, {min(lacking)} among them")] if lacking else []


def _look_at_part(store: Store, logged: LoggedPart) -> str | None:
    """The problem of a part's file; empty: it looks as it did; None: it does not, but its rows are right."""
    path = store.root / logged.part.path
    try:
        status = path.stat()
    except OSError:
        return "is missing"
    if logged.size and status.st_size != logged.size:
        return f"has {status.st_size:,} bytes; it had {logged.size:,}"
    if status.st_mtime_ns == logged.changed_ns or not logged.changed_ns:
        return ""
    try:
        check_part(store.root, logged.part)
    except DamagedPart as damaged:
        return damaged.problem
    return None


def check_is_store(root: Path) -> None:
    """Raises BadInput: the folder has nothing of a store."""
    if not (root / "lake").is_dir() and not any(root.glob("catalog.*duckdb")):
        raise BadInput(f"{root} is no store: it has neither a catalogue nor a lake; name one with --store")


def check(root: Path, progress: Progress = lambda *_: None) -> list[Damage]:
    """Reads the whole store at `root`; everything in it that is not what it should be, catalogue first.

    Raises:
        BadInput: there is no store. OtherVersion: it has another schema version.
    """
    check_is_store(root)
    found = check_catalogue(root)
    if not found:
        found += _check_log(Store(root))
    store = None if any(one.path.suffix == ".duckdb" for one in found) else Store(root)
    found += check_parts(root, CommitLog(root).parts() if store is None else _committed(store), progress)
    if store is not None:
        found += check_models(store, progress)
    return [*found, *_check_files(root)]


def check_parts(root: Path, parts: Sequence[LoggedPart], progress: Progress) -> list[Damage]:
    """Those of these parts whose file is missing, damaged or altered. Raises BadInput: one is of a table that this Headrace has not."""
    found = []
    for one in parts:
        if one.part.table not in TABLES:
            raise BadInput(f"{root / one.part.path} is of no table that this Headrace has: a newer one wrote it, use that")
    for number, one in enumerate(parts, 1):
        progress("parts", number, len(parts))
        try:
            check_part(root, one.part)
        except DamagedPart as damaged:
            found.append(Damage("part", one.part.path, damaged.problem))
    return found


def check_catalogue(root: Path) -> list[Damage]:
    """Whether both files of the catalogue can be read, every table of them. A missing read copy is made by whoever opens the store.

    Copies are read, so that commits go on meanwhile.

    Raises:
        OtherVersion: a file has another schema version.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as scratch:
        with file_lock(root / "catalog.lock", wait_s=LOCK_WAIT_S):
            copies = {name: _copy(root / name, Path(scratch) / name) for name in CATALOGUE}
        for name, copied in copies.items():
            problem = _problem_of_catalogue(copied, root) if copied is not None else "is missing" if name == CATALOGUE[0] else ""
            if problem and (copied is not None or any((root / "lake").glob("[!_]*/*.parquet"))):
                found.append(Damage("catalogue", Path(name), problem))
    return found


def _copy(source: Path, target: Path) -> Path | None:
    """A copy of a file of the catalogue and its write-ahead log; None: it is not there."""
    if not source.is_file():
        return None
    for suffix in ("", ".wal"):
        if (path := source.with_name(source.name + suffix)).is_file():
            shutil.copyfile(path, target.with_name(target.name + suffix))
    return target


def _problem_of_catalogue(path: Path, root: Path) -> str:
    try:
        if path.with_name(f"{path.name}.wal").exists():  # of a commit that was killed
            duckdb_catalog.open_for_writing(path, root).close()
        with closing(duckdb_catalog.open_for_reading(path, root)) as connection:
            for table in duckdb_catalog.catalogue_tables(connection):
                connection.execute(f"SELECT count(COLUMNS(*)) FROM {table}").fetchall()
    except OtherVersion:
        raise
    except (BadInput, duckdb.Error, OSError) as error:
        reason = str(error).partition(": ")[2].rpartition("; ")[0] or str(error)
        return f"cannot be read: {reason.splitlines()[0][:160]}"
    return ""


def _check_log(store: Store) -> list[Damage]:
    """Whether log and catalogue have the same parts, but for the last commit; a store of an older version has no log."""
    if not store.log.path.exists() or store.log.path.is_dir():
        return []
    logged, last_us = store.log.parts(), store.log.last_us()
    rows = store.query("SELECT part_id, epoch_us(committed_at) AS at_us FROM parts")
    unlogged = rows.filter(pl.col("at_us") > last_us)["at_us"].n_unique()
    compared = rows if unlogged > 1 else rows.filter(pl.col("at_us") <= last_us)  # a kill leaves one commit without its line
    lacking = set(compared["part_id"]) - {one.part.part_id for one in logged}
    name = store.log.path.relative_to(store.root)
    found = [Damage("catalogue", name, f"lacks {len(lacking):,} committed parts, {min(lacking)} among them")] if lacking else []
    return found or _lacking(store, logged)


def _committed(store: Store) -> list[LoggedPart]:
    """The parts that the catalogue has; nothing is known of their files."""
    sql = "SELECT part_id, table_name, path, rows, content_hash, epoch_us(committed_at) FROM parts ORDER BY 6, rowid"
    rows = store.query(sql).iter_rows()
    return [LoggedPart(Part(part, table, Path(path), count, digest), at_us, 0, 0) for part, table, path, count, digest, at_us in rows]


def parts_of(connection: duckdb.DuckDBPyConnection) -> list[LoggedPart]:
    """The parts that the catalogue in use, of whatever version, has; nothing is known of their files."""
    commits = duckdb_catalog.list_commits(connection)
    return [LoggedPart(part, at_us, 0, 0) for at_us, parts in commits.items() for part in parts]


def check_models(store: Store, progress: Progress) -> Iterator[Damage]:
    """Policies whose model folder lacks its weights, or has others than the policy's row says; a pruned one has said so."""
    rows = store.query("SELECT path, weights_hash FROM policies WHERE NOT contains(path, ':') ORDER BY path")
    for number, (path, expected) in enumerate(rows.iter_rows(), 1):
        progress("models", number, rows.height)
        folder = store.root / path
        if (folder.parent / PRUNED).exists():
            continue
        try:
            problem = "" if weights_hash(folder) == expected else "has other weights than it was committed with"
        except HeadraceError:
            problem = "has no weights"
        broken = [file.name for file in sorted(folder.glob("*.json")) if not _is_json(file)]
        problem = problem or (f"has a damaged {broken[0]}" if broken else "")
        if problem:
            yield Damage("model", Path(path), problem)


CATALOGUE = ("catalog.duckdb", "catalog.read.duckdb")


def _check_files(root: Path) -> Iterator[Damage]:
    """The log of commits, journals, intermediate rows, and notes of runs."""
    yield from _folders(root)
    for path in sorted((root / "lake" / "_journal").glob("*")):
        if not path.is_dir() and (bad := _bad_lines(path)):
            yield Damage("journal", path.relative_to(root), f"has {bad:,} unreadable lines, which are skipped")
    for path in sorted((root / "lake" / "_work").glob("*/*.parquet")):
        if rows_on_disk(path) is None:
            yield Damage("work", path.relative_to(root), "is damaged")
    for name in ("run.json", "working.json"):
        path = root / ".headrace" / name
        if path.exists() and not _is_json(path):
            yield Damage("note", path.relative_to(root), "is no JSON object")


def _folders(root: Path) -> Iterator[Damage]:
    """The log of commits and the journals, where they are folders."""
    log = CommitLog(root).path
    for path in (log, *sorted(root.glob("lake/_journal/*"))):
        if path.is_dir():
            yield Damage("catalogue" if path == log else "journal", path.relative_to(root), "is a folder, not a file")


def _bad_lines(path: Path) -> int:
    with path.open("rb") as file:
        lines = sum(1 for line in file if line.endswith(b"\n"))
    return lines - journal_at(path).whole_lines()


def _is_json(path: Path) -> bool:
    """Whether the file holds a JSON object."""
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (OSError, ValueError):
        return False
