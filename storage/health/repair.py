"""Repairs a store: sets damaged files aside, forgets the commits that they belong to, and builds the catalogue again.

One idea: a part's id is made from its inputs, so what is forgotten is made again by the same commands, with the same content. All parts of
one commit are forgotten together, because a step looks at one of them to see whether it is done; those that are whole stay on disk and
are taken again. Later commits stay: they hold for the content that will be made again.
Nothing is forgotten that a backup has, or the object store through which machines share the store, or whose rows the catalogue has.
A store of another version is left to `storage/health/upgrade.py`, unless parts of it are damaged: then its catalogue is built again too.
"""

from __future__ import annotations

import datetime
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import duckdb

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog, by_commit
from storage.errors import BadInput, HeadraceError, OtherVersion
from storage.execution import Progress
from storage.files import file_lock, replace_atomically, sync_dir
from storage.health.backups import KeptFiles, newest_files
from storage.health.damage import Damage, check, check_is_store, check_models, check_parts
from storage.health.upgrade import check_older, prepare
from storage.health.weights import weights_hash
from storage.journal import journal_at
from storage.object_store.shared_log import Entry, SharedLog
from storage.parts import DamagedPart, Part, check_part, content_hash, part_of_path, rows_on_disk
from storage.store import LOCK_WAIT_S, Store
from storage.tables import TABLES

ASIDE = "damaged"
"""Folder of a store with what a repair set aside."""
_MADE_BY = {
    "headrace synthesize": ["tools", "worlds", "clusters", "blueprints", "decisions", "diversity", "focus", "trajectories", "provenance"],
    "headrace curate": (
        *("queries", "verdicts", "funnel", "frames", "query_fields", "unserved", "contaminated", "nearness"),
        *("segments", "seen", "asked", "bands", "tasks"),
    ),
    "headrace taxonomy": ["taxonomies"],
    "headrace train": ["releases", "release_items", "stages", "policies", "promotions"],
    "headrace tag": ["tags", "rollouts"],
    "headrace evaluate": ["evaluations"],
}
"""Command -> tables whose rows it makes again; `headrace run` calls all but the third."""
_BY_PEOPLE = ("by_hand",)
_TOMBSTONES = ("withdrawals", "withdrawn")
_PAID = ("answers",)


@dataclass(frozen=True)
class Repaired:
    """What a repair did.

    damages: what was damaged. aside: folder of the damaged files, if any. restored: paths that came from the catalogue, the object store
    or the backup.
    forgotten: table -> forgotten parts. commands: what makes them again. notes: what no command makes again.
    """

    damages: tuple[Damage, ...]
    aside: Path | None
    restored: tuple[Path, ...]
    forgotten: dict[str, int]
    commands: tuple[str, ...]
    notes: tuple[str, ...]


def repair(root: Path, *, backup: str | None = None, progress: Progress = lambda *_: None, at: datetime.datetime | None = None) -> Repaired:
    """Repairs the store at `root`, of which no flow may be at work. Killed anywhere, it can be called again.

    backup: folder or URL of `headrace store backup`, to take whole files from.
    at: for the name of the folder of what is set aside; None: now.

    Raises:
        BadInput: there is no store, the backup is none, or tombstones of a withdrawal are lost. OtherVersion: only the version is another.
        HeadraceError: the object store of a shared store is out of reach; nothing that may lie there was forgotten.
    """
    check_is_store(root)
    kept = None if backup is None else newest_files(backup)
    aside = root / ASIDE / (at or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%dT%H%M%SZ")
    is_older = False
    try:
        damages = check(root, progress)
    except OtherVersion:
        damages, is_older = check_older(root, progress), True
        if not damages:
            raise
    with file_lock(root / "catalog.lock", wait_s=LOCK_WAIT_S):
        if is_older:
            prepare(root)
        return _Repair(root, aside, damages, kept).run(progress, rebuilds=is_older)


class _Repair:
    """A repair under `catalog.lock`. kept: the newest backup, to take files from; the object store of a shared store comes first."""

    def __init__(self, root: Path, aside: Path, damages: Sequence[Damage], kept: KeptFiles | None) -> None:
        self.root, self.aside, self.kept, self.log = root, aside, kept, CommitLog(root)
        self.shared = SharedLog.of(root)
        self.damages = list(damages)
        self.restored: list[Path] = []
        self.forgotten: list[Part] = []

    def run(self, progress: Progress, *, rebuilds: bool) -> Repaired:
        """rebuilds: whether the catalogue is to be built again even if no file of it is damaged."""
        is_lost = self._mend_catalogue() or rebuilds
        if is_lost:
            self._add(check_parts(self.root, self.log.parts(), progress))
        self._mend([one for one in self.damages if one.kind not in ("catalogue", "model")], rebuilds=is_lost)
        if is_lost:
            self._add(check_models(Store(self.root), progress))
        self._mend([one for one in self.damages if one.kind == "model"], rebuilds=False)
        tables = {part.table for part in self.forgotten}
        counts = {table: sum(part.table == table for part in self.forgotten) for table in sorted(tables)}
        commands = tuple(command for command, made in _MADE_BY.items() if tables & set(made))
        aside = self.aside if self.aside.exists() else None
        return Repaired(tuple(self.damages), aside, tuple(self.restored), counts, commands, _notes(tables))

    def _add(self, found: Iterable[Damage]) -> None:
        self.damages += [one for one in found if one not in self.damages]

    def _mend(self, found: Sequence[Damage], *, rebuilds: bool) -> None:
        """Restores each of these or sets it aside, forgets the commits of what is lost, and builds the catalogue again if need be."""
        lost = [one for one in found if not self._restore(one)]
        commits = self._commits_of(lost)
        tombstones = [part for part in commits if part.table in _TOMBSTONES]
        if tombstones:
            raise BadInput(
                f"{self.root / tombstones[0].path} is lost with tombstones of a withdrawal, and without them the rows would come back: "
                "give --backup"
            )
        for one in lost:
            _set_aside(self.root, one, self.aside)
        if commits:
            self.log.forget(str(part.path) for part in commits)
            self.forgotten += commits
        if commits or rebuilds:
            Store.rebuild_catalogue(self.root)

    def _mend_catalogue(self) -> bool:
        """Sets damaged files of the catalogue aside, and lets a whole one replace the other; writes the log if it is lost. Whether the
        catalogue must be built again."""
        broken = {one.path.name: one for one in self.damages if one.kind == "catalogue"}
        if not broken and (self.log.path.exists() or not self.damages):
            return False
        writable, readable = self.root / "catalog.duckdb", self.root / "catalog.read.duckdb"
        is_whole = {path.name: path.is_file() and path.name not in broken for path in (writable, readable)}
        found = next((_list_commits(path, self.root) for path in (writable, readable) if is_whole[path.name]), None)
        is_log_lost = self.log.path.name in broken or not self.log.path.exists()
        commits, versions = found or (None, self.log.versions())
        if is_log_lost or (commits is None and self.shared is not None):
            self._write_log(commits, versions, is_log_lost)
        for name in broken.keys() - {self.log.path.name}:
            _move(self.root, Path(name), self.aside)
            _move(self.root, Path(f"{name}.wal"), self.aside)
        return "catalog.duckdb" in broken or "catalog.read.duckdb" in broken

    def _write_log(self, commits: dict[int, list[Part]] | None, versions: Sequence[str], is_log_lost: bool) -> None:
        """Writes the log again. commits: those of the catalogue; None: it is lost. versions: the schema versions before the present one.
        While the object store of a shared store is out of reach, a log that is not lost is enough."""
        forgotten = self.log.forgotten()
        if commits is None and self.shared is None:
            commits = _on_disk(self.root)
        elif commits is None:
            try:
                commits, earlier = self._commits_of_all()
            except HeadraceError:
                if is_log_lost:
                    raise
                return
            versions = versions or earlier
        if self.log.path.exists():
            _move(self.root, self.log.path.relative_to(self.root), self.aside)
        self.log.rewrite(commits, versions, forgotten)

    def _commits_of_all(self) -> tuple[dict[int, list[Part]], list[str]]:
        """The commits of the shared log, and the schema versions before the present one. Of several parts with one id, the first."""
        first = {part.part_id: part for entry in reversed(self._entries) for part in entry.parts}
        commits = {entry.at_us: [part for part in entry.parts if first[part.part_id] is part] for entry in self._entries if entry.parts}
        return commits, list(self._entries[-1].versions[:-1]) if self._entries else []

    @cached_property
    def _entries(self) -> list[Entry]:
        """The entries of the shared log."""
        return [] if self.shared is None else self.shared.entries()

    def _commits_of(self, lost: Sequence[Damage]) -> list[Part]:
        """The parts of every commit that has a lost part, or the policy of a lost model."""
        paths = {one.path for one in lost if one.kind == "part"}
        models = {str(one.path) for one in lost if one.kind == "model"}
        if models:
            rows = Store(self.root).query(
                "SELECT parts.path FROM policies p JOIN parts USING (part_id) WHERE p.path IN (SELECT unnest(?))", [sorted(models)]
            )
            paths |= {Path(path) for path in rows["path"]}
        commits = by_commit(self.log.parts()).values() if paths else ()
        return [part for parts in commits if any(part.path in paths for part in parts) for part in parts]

    def _restore(self, damage: Damage) -> bool:
        """Writes a damaged part of a catalogue table again from the catalogue's rows, or takes a whole copy of a part or a model."""
        is_restored = False
        if damage.kind == "part":
            is_restored = _write_again(self.root, damage.path) or any(self._take(damage, fetch) for fetch in self._copies(damage.path))
        elif damage.kind == "model":
            is_restored = any(self._take_model(damage, fetch) for fetch in self._copies(damage.path.parent))
        if is_restored:
            self.restored.append(damage.path)
        if is_restored and damage.kind == "part":
            self.log.stamp([str(damage.path)])  # another machine may have written the same rows with other bytes
        return is_restored

    def _copies(self, path: Path) -> Iterator[Callable[[Path], None]]:
        """What fetches a copy of a part, or of a stage's folder, to where it is called with: one for each copy that there may be."""
        name, is_part = str(path), path.suffix == ".parquet"
        if self.shared is not None:
            files = self.shared.files
            stage = next((entry.models[name] for entry in reversed(self._entries) if name in entry.models), None)
            if is_part and files.has(name):
                yield partial(files.fetch, name)
            elif stage is not None:
                yield partial(files.fetch_folder, stage)
        if self.kept is not None and (not is_part or name in self.kept.names):
            yield partial(self.kept.fetch if is_part else self.kept.fetch_folder, name)

    def _take(self, damage: Damage, fetch: Callable[[Path], None]) -> bool:
        """Takes a copy of a part, if it is whole."""
        with tempfile.TemporaryDirectory(prefix="headrace-repair-") as scratch:
            fetched = Path(scratch) / damage.path
            try:
                fetch(fetched)
                check_part(Path(scratch), part_of_path(damage.path, 0))
            except (FileNotFoundError, DamagedPart):
                return False
            _set_aside(self.root, damage, self.aside)
            replace_atomically(self.root / damage.path, lambda draft: shutil.copyfile(fetched, draft))
        return True

    def _take_model(self, damage: Damage, fetch: Callable[[Path], None]) -> bool:
        """Takes a copy of a stage's folder, if its weights are those of the policy's row."""
        rows = Store(self.root).query("SELECT weights_hash FROM policies WHERE path = ?", [str(damage.path)])  # none if it was forgotten
        draft = self.root / "models" / f".tmp-{damage.path.parent.name}"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            fetch(draft)
            is_whole = weights_hash(draft / damage.path.name) in rows["weights_hash"].to_list()
        except (FileNotFoundError, BadInput):
            is_whole = False
        if not is_whole:
            shutil.rmtree(draft, ignore_errors=True)
            return False
        _set_aside(self.root, damage, self.aside)
        draft.rename(self.root / damage.path.parent)
        sync_dir(self.root / "models")
        return True


def _write_again(root: Path, path: Path) -> bool:
    """Writes a part of a catalogue table from the rows that the catalogue has of it; False: it has not all of them."""
    part = part_of_path(path, 0)
    if TABLES[part.table].is_lake:
        return False
    columns = ", ".join(f'"{name}"' for name in TABLES[part.table].columns)
    try:
        rows = Store(root).query(f"SELECT {columns} FROM {part.table} WHERE part_id = ?", [part.part_id])
    except (HeadraceError, duckdb.Error):
        return False
    if content_hash(rows, part.table) != part.content_hash:
        return False
    replace_atomically(root / path, lambda draft: rows.write_parquet(draft, compression="zstd", statistics=True))
    return True


def _notes(tables: set[str]) -> tuple[str, ...]:
    by_people = sorted(tables & set(_BY_PEOPLE))
    notes = [f"no command makes table {', '.join(by_people)} again: take it from a backup with --backup"] if by_people else []
    if tables & set(_PAID):
        notes.append("answers of language models are lost: a run that asks for them again pays again, and other answers may come")
    return tuple(notes)


def _list_commits(path: Path, root: Path) -> tuple[dict[int, list[Part]], list[str]]:
    """The commits of a whole catalogue, and the schema versions before the present one."""
    with closing(duckdb_catalog.open_for_reading(path, root)) as connection:
        return duckdb_catalog.list_commits(connection), duckdb_catalog.versions(connection)[:-1]


def _on_disk(root: Path) -> dict[int, list[Part]]:
    """Every whole part on disk, by the times of the files: all that is left to go by without catalogue and log."""
    commits: dict[int, list[Part]] = {}
    for path in sorted((root / "lake").glob("[!_]*/*.parquet"), key=lambda file: (file.stat().st_mtime_ns, file.name)):
        count = rows_on_disk(path)
        if count is not None:
            commits.setdefault(path.stat().st_mtime_ns // 1_000, []).append(part_of_path(path.relative_to(root), count))
    return commits


def _set_aside(root: Path, damage: Damage, aside: Path) -> None:
    """Moves the damaged file away; of a model the whole folder of its stage, of intermediate rows the folder of their run. A journal is
    copied away, and loses its unreadable lines alone."""
    if damage.kind == "journal" and not (root / damage.path).is_dir():
        (aside / damage.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / damage.path, aside / damage.path)
        journal_at(root / damage.path).discard(())
        return
    _move(root, damage.path.parent if damage.kind in ("model", "work") else damage.path, aside)


def _move(root: Path, path: Path, aside: Path) -> None:
    if (root / path).exists():
        target = aside / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / path, target)
        sync_dir((root / path).parent)
