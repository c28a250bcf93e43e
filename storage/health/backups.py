"""Backs a store up into a folder or an object store, and restores it.

One idea: parts and models never change, so a backup copies only those that it lacks. It begins with the published catalogue, which is
whole at any moment, and copies what that catalogue names: flows may go on meanwhile. Its manifest is written last, so a backup that was
killed is no backup, and the next one goes on with what it has.
A target is a folder, or any URL that fsspec knows (`s3://`, with the driver of that kind installed).
"""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import fsspec

from storage import duckdb_catalog
from storage.errors import BadInput, HeadraceError
from storage.health.damage import Progress
from storage.store import Store

_CATALOGUE = "catalog.duckdb"
_BACKUPS = "backups"
"""Folder of a backup with a catalogue and a manifest for each time."""


@dataclass(frozen=True)
class Backup:
    """One state of a store in a backup. name: its time, UTC. content_hash: of the store. copied: files that were copied for it; bytes."""

    name: str
    content_hash: str
    files: int
    copied: int
    copied_bytes: int


class Target:
    """Where backups lie. Raises BadInput if no driver for the URL is installed."""

    def __init__(self, where: str) -> None:
        self.where = where
        try:
            self.files, root = fsspec.core.url_to_fs(where if "://" in where else str(Path(where).absolute()))
        except (ImportError, ValueError) as error:
            raise BadInput(f"{where}: {' '.join(str(error).split())}") from error
        self.root = str(root).rstrip("/")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def size(self, name: str) -> int | None:
        """Bytes of a file; None if it is not there."""
        try:
            return int(self.files.info(self.path(name))["size"])
        except FileNotFoundError:
            return None

    def put(self, source: Path, name: str) -> None:
        """Copies a file there, under another name first, so that a file is whole or absent."""
        target, draft = self.path(name), self.path(f"{name}.draft")
        self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self.files.put_file(str(source), draft)
        self.files.mv(draft, target)

    def get(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files.get_file(self.path(name), str(target))

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if it is not there."""
        try:
            return sorted(str(path).rpartition("/")[2] for path in self.files.ls(self.path(folder), detail=False))
        except FileNotFoundError:
            return []


def back_up(store: Store, where: str, *, at: datetime.datetime | None = None, progress: Progress = lambda *_: None) -> Backup:
    """Backs up what is committed now, with the answers that journals hold. at: its name; None: now.

    Raises:
        BadInput: the store has no commit, or the URL cannot be used.
        HeadraceError: a part or a model is missing, or the target cannot be written.
    """
    if not store.exists():
        raise BadInput(f"{store.root} has no commit yet, so there is nothing to back up")
    target = Target(where)
    name = (at or datetime.datetime.now(datetime.UTC)).strftime("%Y-%m-%dT%H%M%SZ")
    with tempfile.TemporaryDirectory(prefix="headrace-backup-") as scratch:
        catalogue = Path(scratch) / _CATALOGUE
        try:
            shutil.copyfile(store.root / "catalog.read.duckdb", catalogue)
            names, content_hash = _named_by(catalogue, store.root)
            copied, copied_bytes = _copy(store.root, target, names, progress)
            for journal in sorted((store.root / "lake").glob("_journal/*.jsonl")):
                target.put(journal, f"{_BACKUPS}/{name}/{journal.name}")
            target.put(catalogue, f"{_BACKUPS}/{name}/{_CATALOGUE}")
            manifest = Path(scratch) / "manifest.json"
            manifest.write_text(json.dumps({"content_hash": content_hash, "files": names}))
            target.put(manifest, f"{_BACKUPS}/{name}/manifest.json")
        except OSError as error:
            raise HeadraceError(f"{where}: the backup was not finished ({error}); call it again, and it goes on") from error
    return Backup(name, content_hash, len(names), copied, copied_bytes)


def _named_by(catalogue: Path, root: Path) -> tuple[list[str], str]:
    """Paths of the files that a catalogue names, relative to the store at `root`, and the content hash of the store."""
    connection = duckdb_catalog.open_for_reading(catalogue, root)
    try:
        parts = [path for (path,) in connection.execute("SELECT path FROM parts ORDER BY path").fetchall()]
        digest = duckdb_catalog.content_hash(connection)
        models = [
            path for (path,) in connection.execute("SELECT path FROM policies WHERE NOT contains(path, ':') ORDER BY path").fetchall()
        ]
    finally:
        connection.close()
    stages = [root / Path(path).parent for path in models]
    files = [file for stage in stages for file in sorted(stage.rglob("*")) if file.is_file() and "checkpoints" not in file.parts]
    return [*parts, *(str(file.relative_to(root)) for file in files)], digest


def _copy(root: Path, target: Target, names: Iterable[str], progress: Progress) -> tuple[int, int]:
    """Copies the files that the target lacks; how many, and their bytes."""
    names, copied, copied_bytes = list(names), 0, 0
    for number, name in enumerate(names, 1):
        progress("files", number, len(names))
        size = (root / name).stat().st_size
        if target.size(name) != size:
            target.put(root / name, name)
            copied, copied_bytes = copied + 1, copied_bytes + size
    return copied, copied_bytes


def backups(where: str) -> list[str]:
    """Names of the finished backups, oldest first. Raises BadInput: the URL cannot be used."""
    target = Target(where)
    return [name for name in target.names(_BACKUPS) if target.size(f"{_BACKUPS}/{name}/manifest.json") is not None]


def restore(where: str, root: Path, *, name: str | None = None, progress: Progress = lambda *_: None) -> Backup:
    """Restores a backup into a new store at `root`. name: of the backup; None: the newest.

    A restore that was killed leaves no catalogue, and can be called again.

    Raises:
        BadInput: there is no such backup, or there is a store already.
        HeadraceError: what was restored is not what was backed up.
    """
    target, known = Target(where), backups(where)
    if not known or (name is not None and name not in known):
        raise BadInput(f"{where} has no backup{f' {name}' if name else ''}; it has {', '.join(known) or 'none'}")
    if any(root.glob("catalog.*")):
        raise BadInput(f"{root} is a store already; name a new folder")
    name = name or known[-1]
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-restore-") as scratch:
        target.get(f"{_BACKUPS}/{name}/manifest.json", Path(scratch) / "manifest.json")
        manifest = json.loads((Path(scratch) / "manifest.json").read_text())
    copied = 0
    for number, file in enumerate(manifest["files"], 1):
        progress("files", number, len(manifest["files"]))
        if target.size(file) != (size := (root / file).stat().st_size if (root / file).exists() else -1):
            target.get(file, root / file)
            size = (root / file).stat().st_size
        copied += size
    for file in target.names(f"{_BACKUPS}/{name}"):
        if file.endswith(".jsonl"):
            target.get(f"{_BACKUPS}/{name}/{file}", root / "lake" / "_journal" / file)
    target.get(f"{_BACKUPS}/{name}/{_CATALOGUE}", root / ".tmp-catalog.restored")
    (root / ".tmp-catalog.restored").replace(root / _CATALOGUE)
    store = Store(root)
    if store.content_hash() != manifest["content_hash"]:
        raise HeadraceError(f"{root} has another content than its backup {name}; `headrace store check --store {root}` says what differs")
    return Backup(name, manifest["content_hash"], len(manifest["files"]), len(manifest["files"]), copied)
