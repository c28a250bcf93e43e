"""The log of commits of a store that several machines share: `store.object_store` names the URL of it.

One idea: each machine has a whole store in a folder of its own, and a commit is an object `log/N.json` that names its parts. N is created
once (`UrlFiles.create`), so of two machines that commit at the same time one is first, and the other takes over that commit and is N+1.
No lock is held, so none is left by a kill: before its entry is there a commit never was, afterwards it is everybody's. The catalogue of
each machine follows from the log, because it is made by the same commits in the same order.
The store's schema version is that of the last entry. An upgrade is an entry without parts; a machine that is still of the version before
meets it, and is refused.

Under the URL: `lake/` (parts, immutable), `models/STAGE-NONCE/` (the folder of a stage as it was committed), `log/`, `lease/`
(`flow_lease.py`), `spent/` (`synth/engines/spending/other_machines.py`). In the folder: `catalog.shared.json`, with the URL and the number
of log entries that its catalogue has.

What it does not do: open a catalogue (`storage/store.py` does), share journals (`lake/_journal`: answers that are not committed yet) or
the work of a flow that is under way, or remove anything under the URL.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from storage.object_store.url_files import UrlFiles, damage_told
from storage.parts import Part, rows_on_disk
from storage.tables import schema_version

STATE = "catalog.shared.json"
_CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Entry:
    """A commit: its parts, and the folders of stages that come with them.

    at_us: when it was made, in microseconds since 1970.
    models: folder of a stage, relative to the store -> its name under the URL.
    nonce: whose entry this is.
    versions: the schema versions that the store has had, the present one last.
    """

    at_us: int
    parts: tuple[Part, ...]
    models: dict[str, str]
    nonce: str
    versions: tuple[str, ...]

    def to_json(self) -> bytes:
        parts = [[part.part_id, part.table, str(part.path), part.rows, part.content_hash] for part in self.parts]
        text = {"schema": self.versions[-1], "earlier": self.versions[:-1], "at_us": self.at_us, "nonce": self.nonce}
        return json.dumps(text | {"models": self.models, "parts": parts}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Entry:
        fields = json.loads(content)
        versions = (*fields.get("earlier", ()), fields["schema"])
        parts = tuple(Part(part_id, table, Path(path), rows, digest) for part_id, table, path, rows, digest in fields["parts"])
        return cls(fields["at_us"], parts, fields["models"], fields["nonce"], versions)


class SharedLog:
    """The log under a URL, as the store in folder `root` has read it so far. Call what writes `root` with the catalogue's lock held."""

    def __init__(self, root: Path, url: str, machine: str, applied: int) -> None:
        self.files, self.machine, self.applied = UrlFiles(url), machine, applied
        self._root, self._nonce = root, secrets.token_hex(8)

    @classmethod
    def of(cls, root: Path) -> SharedLog | None:
        """The log that a store shares; None: the store is this folder alone."""
        if not (root / STATE).exists():
            return None
        with damage_told(str(root / STATE), "name a new folder with the same `object_store`, which gets what was committed"):
            state = json.loads((root / STATE).read_text())
            return cls(root, str(state["url"]), str(state["machine"]), int(state["applied"]))

    def save(self) -> None:
        state = {"url": self.files.url, "machine": self.machine, "applied": self.applied}
        replace_atomically(self._root / STATE, lambda draft: draft.write_text(json.dumps(state)))

    def read(self, number: int) -> Entry | None:
        """The entry of this number, from 0; None: there is none yet."""
        name = _name(number)
        content = self.files.read(name)
        with damage_told(f"{self.files.url}/{name}", "take this object from an earlier version or a copy of the bucket"):
            return None if content is None else Entry.from_json(content)

    def newest(self) -> tuple[int, Entry] | None:
        """The last entry, with its number; None: there is none yet."""
        names = [name for name in self.files.names("log") if Path(name).stem.isdigit()]
        number = int(Path(names[-1]).stem) if names else -1
        entry = self.read(number) if names else None
        return None if entry is None else (number, entry)

    def missed(self, versions: Sequence[str]) -> Iterator[Entry]:
        """The entries that the catalogue does not have yet, in order, each with its files in the folder.

        versions: schema versions that the catalogue has had, the present one last.

        Raises:
            BadInput: the store has another schema version than these.
        """
        checked = -1
        while (entry := self.read(self.applied)) is not None:
            if self.applied > checked:
                checked = self._check_version(versions)
            self._fetch(entry)
            yield entry

    def _check_version(self, versions: Sequence[str]) -> int:
        """The number of the last entry, -1 if there is none. Raises BadInput: it has another schema version than these."""
        number, entry = self.newest() or (-1, None)
        if entry is not None and entry.versions[-1] not in versions:
            raise BadInput(
                f"{self.files.url} has schema version {entry.versions[-1]}, this Headrace has {schema_version()}: use the same Headrace on "
                "all machines; `headrace store upgrade --yes` on one that has a copy brings the store to a newer one"
            )
        return number

    def reload(self) -> None:
        """Reads again how far the catalogue is."""
        self.applied = json.loads((self._root / STATE).read_text())["applied"]

    def mark_applied(self) -> None:
        """The catalogue has the next entry."""
        self.applied += 1
        self.save()

    def send(self, parts: Sequence[Part]) -> None:
        """Sends the files of a commit, parts and models, which do not count before its entry is there."""
        for part in parts:
            if not (self._root / part.path).exists():
                raise HeadraceError(
                    f"part {part.part_id} has no file {self._root / part.path}; it was removed after it was written, write it again"
                )
            self.files.send_once(self._root / part.path, str(part.path))
            for folder in _stage_folders(self._root, part):
                self.files.send_folder(self._root / folder, f"{folder}-{self._nonce}", skip=_is_left_out)

    def append(self, parts: Sequence[Part], at_us: int, versions: Sequence[str]) -> bool:
        """Makes a commit of parts that were sent the next entry; False: another machine was first. versions: see `Entry`."""
        folders = [folder for part in parts for folder in _stage_folders(self._root, part)]
        models = {folder: f"{folder}-{self._nonce}" for folder in folders}
        entry = Entry(at_us, tuple(parts), models, self._nonce, tuple(versions))
        if self.files.create(_name(self.applied), entry.to_json()):
            return True
        taken = self.read(self.applied)  # by this very call, if the driver asked twice because an answer was lost
        return taken is not None and taken == entry

    def adopt(self, commits: Mapping[int, Sequence[Part]], versions: Sequence[str]) -> None:
        """Appends the commits of a store that was not shared before: time in microseconds -> parts. versions: see `missed`.

        Raises:
            BadInput: the log begins with other commits, or has another schema version.
        """
        self._check_version(versions)
        for at_us, parts in commits.items():
            while (entry := self.read(self.applied)) is not None and not entry.parts:
                self.applied += 1
            if entry is None:
                self.send(parts)
                entry = None if self.append(parts, at_us, versions) else self.read(self.applied)
            if entry is not None and {part.part_id for part in entry.parts} != {part.part_id for part in parts}:
                raise BadInput(f"{self._root} and {self.files.url} hold different stores; name a new folder, or another URL")
            self.applied += 1

    def entries(self) -> list[Entry]:
        """All entries that the catalogue has, in order."""
        return [entry for number in range(self.applied) if (entry := self.read(number)) is not None]

    def _fetch(self, entry: Entry) -> None:
        for part in entry.parts:
            if rows_on_disk(self._root / part.path) is None:
                self.files.fetch_whole(str(part.path), self._root / part.path)
        for folder, name in entry.models.items():
            draft, target = self._root / f"{folder}.fetched", self._root / folder
            shutil.rmtree(draft, ignore_errors=True)
            self.files.fetch_folder(name, draft)
            shutil.rmtree(target, ignore_errors=True)
            draft.rename(target)


def open_log(root: Path, url: str) -> SharedLog:
    """The log under `url`, which folder `root` has read nothing of.

    Raises:
        BadInput: the URL is not that of an object store, cannot be written, or does not refuse to create an object a second time.
    """
    scheme, _, rest = url.partition("://")
    if not rest or scheme in ("file", "local"):
        raise BadInput(f"object_store is {url}: name the URL of an object store, such as s3://BUCKET/PATH; a folder is named by `store`")
    if "@" in rest:
        raise BadInput("object_store has a user or password in it; give them to the driver instead (AWS_SHARED_CREDENTIALS_FILE)")
    log = SharedLog(root, url, secrets.token_hex(8), 0)
    log.files.check()
    probe = f"probe/{log.machine}"
    created = [log.files.create(probe, b"") for _ in range(2)]
    log.files.remove(probe)
    if created != [True, False]:
        raise BadInput(f"{url} creates an object that is there already, so two machines would lose commits: it needs conditional writes")
    return log


def _name(number: int) -> str:
    return f"log/{number:08d}.json"


def _stage_folders(root: Path, part: Part) -> list[str]:
    """Folders of the stages whose policies are in this part, relative to the store. A policy of an engine has none."""
    if part.table != "policies":
        return []
    paths = pl.read_parquet(root / part.path, glob=False)["path"].drop_nulls().to_list()
    return [str(Path(path).parent) for path in paths if ":" not in path and (root / path).is_dir()]


def _is_left_out(path: Path) -> bool:
    return path.parts[0] == _CHECKPOINTS or path.parts[0].startswith(".")
