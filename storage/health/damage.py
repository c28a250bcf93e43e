"""Finds what is damaged in a store: its catalogue, parts, models, journals and notes.

One idea: everything that lasts says what it should be. A part's name has the hash of its rows, a policy's row the hash of its weights, and
the log of commits the size and time of each file. `look` compares what costs no reading, at the start of every flow; `check` reads
everything.
It changes nothing, except that `look` stamps files that it had to read (`storage/commits/commit_log.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog, LoggedPart
from storage.errors import BadInput, HeadraceError
from storage.health.weights import weights_hash
from storage.parts import DamagedPart, Part, check_part, rows_on_disk
from storage.store import Journal, Store

Progress = Callable[[str, int, int], None]
"""Called with what is read, the count so far, and the total."""
Kind = Literal["part", "catalogue", "model", "journal", "work", "note"]


@dataclass(frozen=True)
class Damage:
    """One damaged thing. path: relative to the store. problem: in words, such as `is missing`."""

    kind: Kind
    path: Path
    problem: str

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"


def look(store: Store) -> list[Damage]:
    """What is damaged, as far as names, sizes and times of files tell; a file with another time is read."""
    found, seen_well = list[Damage](), list[str]()
    logged = store.log.parts() if store.log.path.exists() else _committed(store)
    if len(logged) > 1 and store.query("SELECT 1 FROM parts LIMIT 1").is_empty():
        return [Damage("catalogue", Path("catalog.duckdb"), "is missing or empty, but the log of commits is not")]
    for one in logged:
        problem = _look_at_part(store, one)
        if problem:
            found.append(Damage("part", one.part.path, problem))
        elif problem is None:
            seen_well.append(str(one.part.path))
    if seen_well:
        store.log.stamp(seen_well)
    return found


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


def check(root: Path, progress: Progress = lambda *_: None) -> list[Damage]:
    """Reads the whole store at `root`; everything in it that is not what it should be, catalogue first.

    Raises:
        BadInput: there is no store.
    """
    if not (root / "lake").is_dir() and not any(root.glob("catalog.*")):
        raise BadInput(f"{root} is no store: it has neither a catalogue nor a lake; name one with --store")
    found = check_catalogue(root)
    if not found:
        found += _check_log(Store(root))
    store = None if any(one.path.suffix == ".duckdb" for one in found) else Store(root)
    found += check_parts(root, CommitLog(root).parts() if store is None else _committed(store), progress)
    if store is not None:
        found += check_models(store, progress)
    return [*found, *_check_files(root)]


def check_parts(root: Path, parts: Sequence[LoggedPart], progress: Progress) -> list[Damage]:
    """Those of these parts whose file is missing, damaged or altered."""
    found = []
    for number, one in enumerate(parts, 1):
        progress("parts", number, len(parts))
        try:
            check_part(root, one.part)
        except DamagedPart as damaged:
            found.append(Damage("part", one.part.path, damaged.problem))
    return found


def check_catalogue(root: Path) -> list[Damage]:
    """Whether both files of the catalogue can be opened, and have the same parts unless a commit was cut off."""
    found = []
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        path = root / name
        try:
            if not path.exists():
                if any((root / "lake").glob("[!_]*/*.parquet")):
                    found.append(Damage("catalogue", Path(name), "is missing"))
                continue
            connection = duckdb_catalog.open_for_reading(path, root)
            try:
                for table in duckdb_catalog.catalogue_tables(connection):
                    connection.execute(f"SELECT count(COLUMNS(*)) FROM {table}").fetchall()
            finally:
                connection.close()
        except (BadInput, duckdb.Error, OSError) as error:
            found.append(
                Damage("catalogue", Path(name), f"cannot be read: {str(error).partition('; `headrace')[0].splitlines()[0][-160:]}")
            )
    return found


def _check_log(store: Store) -> list[Damage]:
    """Whether the log has every committed part; a store of a version without a log has none."""
    if not store.log.path.exists():
        return []
    lacking = set(store.query("SELECT part_id FROM parts")["part_id"]) - {one.part.part_id for one in store.log.parts()}
    name = store.log.path.relative_to(store.root)
    return [Damage("catalogue", name, f"lacks {len(lacking):,} committed parts, {min(lacking)} among them")] if lacking else []


def _committed(store: Store) -> list[LoggedPart]:
    """The parts that the catalogue has; nothing is known of their files."""
    sql = "SELECT part_id, table_name, path, rows, content_hash, epoch_us(committed_at) FROM parts ORDER BY 6, 1"
    rows = store.query(sql).iter_rows()
    return [LoggedPart(Part(part, table, Path(path), count, digest), at_us, 0, 0) for part, table, path, count, digest, at_us in rows]


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


PRUNED = "pruned.json"
"""File of a stage's folder whose model `headrace store prune` removed."""


def _check_files(root: Path) -> Iterator[Damage]:
    """Journals, intermediate rows, and notes of runs."""
    for path in sorted((root / "lake" / "_journal").glob("*")):
        if path.is_dir():
            yield Damage("journal", path.relative_to(root), "is a folder, not a file")
        elif bad := _bad_lines(path):
            yield Damage("journal", path.relative_to(root), f"has {bad:,} unreadable lines, which are skipped")
    for path in sorted((root / "lake" / "_work").glob("*/*.parquet")):
        if rows_on_disk(path) is None:
            yield Damage("work", path.relative_to(root), "is damaged")
    for name in ("run.json", "working.json"):
        path = root / ".headrace" / name
        if path.exists() and not _is_json(path):
            yield Damage("note", path.relative_to(root), "is no JSON object")


def _bad_lines(path: Path) -> int:
    with path.open("rb") as file:
        lines = sum(1 for line in file if line.endswith(b"\n"))
    return lines - Journal(path).whole_lines()


def _is_json(path: Path) -> bool:
    """Whether the file holds a JSON object."""
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (OSError, ValueError):
        return False
