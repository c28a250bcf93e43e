"""Backs a store up into a folder or an object store, and restores it.

One idea: parts and models never change, so a backup copies only those that it lacks. It begins with the published catalogue, which is
whole at any moment, and copies what that catalogue names: flows may go on meanwhile. Its manifest is written last, so a backup that was
killed is no backup, and the next one goes on with what it has.
A target is a folder, or any URL that fsspec knows (`s3://`, with the driver of that kind installed). In it, `lake/` has the parts by their
names, `models/STAGE.HASH/` each model with the hash of its weights, and `backups/TIME/` the rest of one state.
"""

from __future__ import annotations

import datetime
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from storage import duckdb_catalog
from storage.errors import BadInput, HeadraceError, OtherVersion
from storage.execution import Progress
from storage.health.damage import check, check_parts, look, parts_of, write_log
from storage.health.weights import PRUNED
from storage.object_store.url_files import UrlFiles, damage_told
from storage.parts import check_part, part_of_path
from storage.store import Store

_CATALOGUE, _MANIFEST = "catalog.duckdb", "manifest.json"
_LEDGER = "lake/_ledger/ledger.sqlite"
_BACKUPS = "backups"


@dataclass(frozen=True)
class Backup:
    """One state of a store in a backup. name: its time, UTC. content_hash: of the store. copied: files that were copied for it.
    is_other_version: whether the store has another schema version than this Headrace."""

    name: str
    content_hash: str
    files: int
    copied: int
    copied_bytes: int
    is_other_version: bool = False


class KeptFiles:
    """The files of one state in a backup. names: their paths in a store -> where they lie in the backup.

    Raises:
        HeadraceError: its manifest is damaged. BadInput: it names a file outside a store.
    """

    def __init__(self, target: UrlFiles, name: str) -> None:
        content = target.read(f"{_BACKUPS}/{name}/{_MANIFEST}")
        with damage_told(f"{target.url}/{_BACKUPS}/{name}/{_MANIFEST}", "name an earlier backup with --at, or make a new one"):
            manifest = json.loads(content or b"{}")
            self.name, self.content_hash = name, str(manifest["content_hash"])
            self.names: dict[str, str] = dict(manifest["files"].items())
            for each in (*self.names, *self.names.values()):
                if PurePosixPath(each).is_absolute() or ".." in PurePosixPath(each).parts:
                    raise BadInput(f"{target.url}: the manifest of {name} names {each}, which is outside a store")
        self._target = target

    def fetch(self, name: str, path: Path) -> None:
        """Raises FileNotFoundError: the backup lacks it."""
        self._target.fetch(self.names[name], path)

    def fetch_folder(self, name: str, folder: Path) -> None:
        """Fetches what the backup has of a folder of the store, perhaps nothing."""
        for each in self.names:
            if Path(each).is_relative_to(name):
                self.fetch(each, folder / Path(each).relative_to(name))


def back_up(store: Store, where: str, *, at: datetime.datetime | None = None, progress: Progress = lambda *_: None) -> Backup:
    """Backs up what is committed now, with the answers that journals hold and the ledger. at: its name; None: now.

    Raises:
        BadInput: the store has no commit, or the URL cannot be used.
        HeadraceError: the store is damaged, a model is missing, or the target cannot be written.
    """
    if not store.exists():
        raise BadInput(f"{store.root} has no commit yet, so there is nothing to back up")
    if damaged := look(store, progress):
        raise HeadraceError(f"{store.root} is damaged ({damaged[0]}), so it is not backed up; see `headrace store check`")
    target = _open(where)
    name = (at or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%dT%H%M%SZ")
    place = f"{_BACKUPS}/{name}"
    with tempfile.TemporaryDirectory(prefix="headrace-backup-") as scratch:
        journals = sorted((store.lake / "_journal").glob("*.jsonl"))  # first: an answer that is committed meanwhile is in the catalogue too
        for journal in journals:
            copied = Path(scratch) / journal.name
            if journal.is_file():
                shutil.copyfile(journal, copied)
                target.send(copied, f"{place}/{journal.name}")
        if (store.root / _LEDGER).exists():
            _copy_ledger(store.root / _LEDGER, Path(scratch) / "ledger.sqlite")
            target.send(Path(scratch) / "ledger.sqlite", f"{place}/ledger.sqlite")
        catalogue = Path(scratch) / _CATALOGUE
        shutil.copyfile(store.root / "catalog.read.duckdb", catalogue)
        names, content_hash = _named_by(catalogue, store.root)
        count, size = _copy(store.root, target, names, progress)
        target.send(catalogue, f"{place}/{_CATALOGUE}")
        target.write(f"{place}/{_MANIFEST}", json.dumps({"content_hash": content_hash, "files": names}).encode())
    return Backup(name, content_hash, len(names), count, size)


def _open(where: str) -> UrlFiles:
    return UrlFiles(where if "://" in where else str(Path(where).absolute()))


def _copy_ledger(source: Path, target: Path) -> None:
    """A copy of the ledger as it is at one moment, while others write it."""
    with closing(sqlite3.connect(source)) as ledger, closing(sqlite3.connect(target)) as copied:
        ledger.backup(copied)


def _named_by(catalogue: Path, root: Path) -> tuple[dict[str, str], str]:
    """The files that a catalogue names: path in the store at `root` -> name in a backup; and the content hash of the store.

    Raises:
        HeadraceError: a model is missing that was not pruned.
    """
    with closing(duckdb_catalog.open_for_reading(catalogue, root)) as connection:
        names = {path: path for (path,) in connection.execute("SELECT path FROM parts ORDER BY path").fetchall()}
        digest = duckdb_catalog.content_hash(connection)
        own = "SELECT path, weights_hash FROM policies WHERE NOT contains(path, ':') ORDER BY path"
        models = connection.execute(own).fetchall()
    for path, weights in models:
        stage = (root / path).parent
        if not (root / path).is_dir() and not (stage / PRUNED).exists():
            raise HeadraceError(f"{root / path} is missing, so the store is not backed up; see `headrace store check`")
        for file in sorted(stage.rglob("*")):
            inside = file.relative_to(stage)
            if file.is_file() and inside.parts[0] != "checkpoints":
                names[str(file.relative_to(root))] = f"models/{stage.name}.{weights[:16]}/{inside}"
    return names, digest


def _copy(root: Path, target: UrlFiles, names: Mapping[str, str], progress: Progress) -> tuple[int, int]:
    """Copies the files that the target lacks; how many, and their bytes."""
    there = target.sizes("lake") | target.sizes("models")
    copied = copied_bytes = 0
    for number, (name, kept_as) in enumerate(names.items(), 1):
        progress("files", number, len(names))
        size = (root / name).stat().st_size
        if there.get(kept_as) != size:
            if kept_as in there and name.startswith("lake/"):  # of two sizes, one is wrong
                check_part(root, part_of_path(Path(name), 0))
            target.send(root / name, kept_as)
            copied, copied_bytes = copied + 1, copied_bytes + size
    return copied, copied_bytes


def backups(where: str) -> list[str]:
    """Names of the finished backups, oldest first. Raises BadInput: the URL cannot be used."""
    found = [PurePosixPath(name) for name in _open(where).names(_BACKUPS)]
    return [name.parent.name for name in found if name.name == _MANIFEST]


def newest_files(where: str) -> KeptFiles:
    """The files of the newest backup. Raises BadInput: there is none, or the URL cannot be used."""
    return _files(where, None)


def _files(where: str, name: str | None) -> KeptFiles:
    known = backups(where)
    if not known or (name is not None and name not in known):
        raise BadInput(f"{where} has no backup{f' {name}' if name else ''}; it has {', '.join(known) or 'none'}")
    return KeptFiles(_open(where), name or known[-1])


def restore(where: str, root: Path, *, name: str | None = None, progress: Progress = lambda *_: None) -> Backup:
    """Restores a backup into a new store at `root`, and reads all of it. name: of the backup; None: the newest.

    A restore that was killed leaves no catalogue, and can be called again. Of a store of another version only the parts are read.

    Raises:
        BadInput: there is no such backup, or there is a store already.
        HeadraceError: the backup lacks a file, what was restored is damaged, or is not what was backed up.
    """
    kept, target = _files(where, name), _open(where)
    if any(root.glob("catalog.*duckdb")):
        raise BadInput(f"{root} is a store already; name a new folder")
    place = f"{_BACKUPS}/{kept.name}"
    try:
        for number, file in enumerate(kept.names, 1):
            progress("files", number, len(kept.names))
            kept.fetch(file, root / file)
        for file in target.names(place):
            if file.endswith(".jsonl"):
                target.fetch(file, root / "lake" / "_journal" / PurePosixPath(file).name)
            elif file.endswith(".sqlite"):
                target.fetch(file, root / _LEDGER)
        target.fetch_whole(f"{place}/{_CATALOGUE}", root / _CATALOGUE)
    except FileNotFoundError as error:
        raise HeadraceError(f"{where} lacks a file of its backup {kept.name}: {error.filename or error}; name another with --at") from error
    size = sum((root / file).stat().st_size for file in kept.names)
    return Backup(kept.name, kept.content_hash, len(kept.names), len(kept.names), size, _check_restored(root, kept, progress))


def _check_restored(root: Path, kept: KeptFiles, progress: Progress) -> bool:
    """Reads what was restored, and then writes its log of commits; whether it has another schema version.

    Raises:
        HeadraceError: it is damaged, or is not what was backed up.
    """
    is_other_version = False
    try:
        damaged = check(root, progress)
    except OtherVersion:
        with closing(duckdb_catalog.open_any_version(root / _CATALOGUE, root)) as connection:
            damaged, is_other_version = check_parts(root, parts_of(connection), progress), True
    if damaged:
        raise HeadraceError(f"{root} was restored, but is damaged: {damaged[0]}{f' and {len(damaged) - 1:,} more' * (len(damaged) > 1)}")
    with closing(duckdb_catalog.open_any_version(root / _CATALOGUE, root)) as connection:
        if duckdb_catalog.content_hash(connection) != kept.content_hash:
            raise HeadraceError(f"{root} has another content than its backup {kept.name} says")
        write_log(root, connection)
    return is_other_version
