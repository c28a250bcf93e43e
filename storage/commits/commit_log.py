"""The log of commits: which parts were committed together, when, and how their files looked then.

One idea: the catalogue can be lost, because the log and the parts are enough to build it again. Each commit appends one line, synced to
disk before the catalogue commits. So after a kill in between the log has a commit that the catalogue lacks; its parts are whole, and the
resumed run commits the same ones.
Size and time of a file tell without reading it that it was cut or altered. A copied store has other times: its parts are read once, and
then stamped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storage.files import sync_dir
from storage.parts import Part, part_of_path


@dataclass(frozen=True)
class LoggedPart:
    """A committed part. at_us: microseconds since 1970. size: bytes of its file; changed_ns: its last change, ns; both 0 if unknown."""

    part: Part
    at_us: int
    size: int
    changed_ns: int


class CommitLog:
    """The file `lake/_commits.jsonl` of the store at `root`. Only the holder of the store's lock appends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = root / "lake" / "_commits.jsonl"

    def add(self, at_us: int, parts: Iterable[Part]) -> None:
        """Appends a commit. at_us: its time, microseconds since 1970."""
        self._append({"at_us": at_us, "parts": [[str(part.path), part.rows, *self._stamp(part.path)] for part in parts]})

    def forget(self, paths: Iterable[str]) -> None:
        """Takes parts out, by their paths relative to the store; a later commit may add them again."""
        self._append({"forgotten": sorted(paths)})

    def stamp(self, paths: Iterable[str]) -> None:
        """Notes size and time of files that were found to be what they should be."""
        self._append({"stamps": [[path, *self._stamp(Path(path))] for path in sorted(paths)]})

    def parts(self) -> list[LoggedPart]:
        """The committed parts in the order of their commits; of several entries with one id, the last. Incomplete lines are skipped."""
        found: dict[str, LoggedPart] = {}
        for entry in self._entries():
            for path, rows, size, changed_ns in entry.get("parts", ()):
                part = part_of_path(Path(path), int(rows))
                found.pop(part.part_id, None)
                found[part.part_id] = LoggedPart(part, entry["at_us"], size, changed_ns)
            for path in entry.get("forgotten", ()):
                part = part_of_path(Path(path), 0)
                if part.part_id in found and found[part.part_id].part.path == part.path:
                    del found[part.part_id]
            for path, size, changed_ns in entry.get("stamps", ()):
                known = found.get(part_of_path(Path(path), 0).part_id)
                if known is not None:
                    found[known.part.part_id] = replace(known, size=size, changed_ns=changed_ns)
        return list(found.values())

    def _entries(self) -> Iterable[dict[str, Any]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry

    def _append(self, entry: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        with self.path.open("ab+") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_dir(self.path.parent)

    def _stamp(self, path: Path) -> tuple[int, int]:
        try:
            status = (self._root / path).stat()
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns


def by_commit(parts: Sequence[LoggedPart]) -> list[tuple[int, list[Part]]]:
    """The parts of each commit, in the order of the commits."""
    commits: dict[int, list[Part]] = {}
    for logged in parts:
        commits.setdefault(logged.at_us, []).append(logged.part)
    return list(commits.items())
