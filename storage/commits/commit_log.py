"""The log of commits: which parts were committed together, when, and how their files looked then.

One idea: the catalogue can be lost, because the log and the parts are enough to build it again. The log follows the catalogue: a commit
is logged once it is in the catalogue, and one whose line a kill prevented is logged by the next commit. So the catalogue never lacks what
the log has, unless it was damaged or an older one was put back.
Size and time of a file tell without reading it that it was cut or altered. A copied store has other times: its parts are read once, and
then stamped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from storage.errors import HeadraceError
from storage.files import replace_atomically
from storage.parts import Part, part_of_path

_TAIL_BYTES = 1 << 18


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

    def last_us(self) -> int:
        """Time of the last logged commit, microseconds since 1970; -1 if none is logged."""
        try:
            with self.path.open("rb") as file:
                file.seek(-min(_TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
                tail = file.read().splitlines()
        except (FileNotFoundError, IsADirectoryError):
            return -1
        last = next((entry["at_us"] for line in reversed(tail) if "at_us" in (entry := _parse(line))), None)
        return max((entry["at_us"] for entry in self._entries() if "at_us" in entry), default=-1) if last is None else int(last)

    def add(self, commits: Mapping[int, Sequence[Part]]) -> None:
        """Appends commits: time of each, microseconds since 1970 -> its parts. The first lines of a log are written all or none."""
        self._append(*({"at_us": at_us, "parts": [self._line(part) for part in parts]} for at_us, parts in commits.items()))

    def rewrite(self, commits: Mapping[int, Sequence[Part]], versions: Sequence[str], forgotten: Collection[str] | None = None) -> None:
        """Replaces the log by these commits. versions: the schema versions before the present one. forgotten: see `forgotten`; None: those
        of the log; of these only what is in none of the commits stays."""
        gone = set(self.forgotten() if forgotten is None else forgotten) - {str(part.path) for parts in commits.values() for part in parts}
        lines: list[dict[str, Any]] = [{"versions": list(versions)}] if versions else []
        lines += [{"forgotten": sorted(gone)}] if gone else []
        lines += [{"at_us": at_us, "parts": [self._line(part) for part in parts]} for at_us, parts in commits.items()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_atomically(self.path, lambda draft: draft.write_bytes(_bytes(lines)))

    def note_versions(self, versions: Sequence[str]) -> None:
        """Notes the schema versions that the store had before the present one."""
        self._append({"versions": list(versions)})

    def versions(self) -> list[str]:
        """The schema versions that the store had before the present one."""
        return next((list(entry["versions"]) for entry in reversed(list(self._entries())) if "versions" in entry), [])

    def forget(self, paths: Iterable[str]) -> None:
        """Takes parts out, by their paths relative to the store; a later commit may add them again."""
        self._append({"forgotten": sorted(paths)})

    def forgotten(self) -> set[str]:
        """Paths of the parts that were taken out; a later commit may have added them again."""
        return {path for entry in self._entries() for path in entry.get("forgotten", ())}

    def stamp(self, paths: Iterable[str]) -> None:
        """Notes size and time of files that were found to be what they should be."""
        self._append({"stamps": [[path, *self._stamp(Path(path))] for path in sorted(paths)]})

    def parts(self) -> list[LoggedPart]:
        """The committed parts in the order of their commits; of several entries with one id, the last. Incomplete lines are skipped."""
        found: dict[str, LoggedPart] = {}
        for entry in self._entries():
            with suppress(KeyError, TypeError, ValueError):  # an altered line is an unreadable one
                _apply(entry, found)
        return list(found.values())

    def _entries(self) -> Iterable[dict[str, Any]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except (FileNotFoundError, IsADirectoryError):
            return
        yield from filter(None, map(_parse, lines))

    def _line(self, part: Part) -> list[Any]:
        return [str(part.path), part.rows, *self._stamp(part.path)]

    def _append(self, *entries: dict[str, Any]) -> None:
        if not entries:
            return
        if self.path.is_dir():
            raise HeadraceError(
                f"{self.path} is a folder, not the log of commits: `headrace store repair --store {self._root}` sets it aside"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            replace_atomically(self.path, lambda draft: draft.write_bytes(_bytes(entries)))
            return
        with self.path.open("ab+") as file:
            is_torn = file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write((b"\n" if is_torn else b"") + _bytes(entries))
            file.flush()
            os.fsync(file.fileno())

    def _stamp(self, path: Path) -> tuple[int, int]:
        try:
            status = (self._root / path).stat()
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns


def _apply(entry: Mapping[str, Any], found: dict[str, LoggedPart]) -> None:
    """Applies a line to the parts of the lines before it."""
    for path, rows, size, changed_ns in entry.get("parts", ()):
        part = part_of_path(Path(path), int(rows))
        at_us = int(entry["at_us"])
        found.pop(part.part_id, None)
        found[part.part_id] = LoggedPart(part, at_us, size, changed_ns)
    for path in entry.get("forgotten", ()):
        part = part_of_path(Path(path), 0)
        if part.part_id in found and found[part.part_id].part.path == part.path:
            del found[part.part_id]
    for path, size, changed_ns in entry.get("stamps", ()):
        known = found.get(part_of_path(Path(path), 0).part_id)
        if known is not None:
            found[known.part.part_id] = replace(known, size=size, changed_ns=changed_ns)


def _parse(line: bytes) -> dict[str, Any]:
    """The entry of a line; empty if it cannot be read, or its time, versions or forgotten paths are none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(entry, dict) or not isinstance(entry.get("at_us", 0), int):
        return {}
    texts = [entry.get(key, []) for key in ("versions", "forgotten")]
    is_whole = all(isinstance(each, list) and all(isinstance(text, str) for text in each) for each in texts)
    return entry if is_whole else {}


def _bytes(entries: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def by_commit(parts: Sequence[LoggedPart]) -> dict[int, list[Part]]:
    """Time of each commit -> its parts, in the order of the commits."""
    commits: dict[int, list[Part]] = {}
    for logged in parts:
        commits.setdefault(logged.at_us, []).append(logged.part)
    return commits
