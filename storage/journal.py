"""A journal: keeps answers that were paid for from their arrival until they are committed as a part.

One idea: one JSON line per entry, appended with a single write. An appended entry survives a kill of the process at once, and a power cut
after at most 100 ms (the interval of fsync). A kill can leave one incomplete last line, which readers skip.
The caller writes the entries into a part, commits it, and then discards these entries; entries appended meanwhile stay.
Writers exclude each other by a lock on the file. A writer that finds the file replaced or removed opens it again.
Known secrets are masked (`storage/outside`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from storage.errors import HeadraceError
from storage.files import disk_errors, replace_atomically, sweep, sync_dir
from storage.outside.known_secrets import mask_values
from storage.records import JSON

SYNC_INTERVAL_S = 0.1
_ANSWERS = "answers.jsonl"


class Journal:
    """Append-only key-value log in one file; safe to use from several threads and processes.

    The first value of a key wins, because a reader may have used it already.

    is_value: whether a value has the shape of this journal's; a line with another counts as unreadable. None: any JSON value has it.
    """

    def __init__(self, path: Path, is_value: Callable[[JSON], bool] | None = None) -> None:
        self.path = path
        self._is_value = is_value
        self._mutex = threading.Lock()
        self._descriptor: int | None = None
        self._synced_at = 0.0
        self._timer: threading.Timer | None = None

    def append(self, key: str, value: JSON) -> None:
        """Adds an entry.

        Raises:
            HeadraceError: the disk is full; the entries before are intact.
        """
        self.append_all([(key, value)])

    def append_all(self, entries: Iterable[tuple[str, JSON]]) -> None:
        """Adds entries with a single write. After a kill the file may contain only the first few of them.

        Raises:
            HeadraceError: the disk is full; the file may contain the first few of these entries.
        """
        line = b"".join(_line(key, value) for key, value in entries)
        with self._mutex, disk_errors(f"appending to {self.path.name}", self.path.parent):
            with self._lock() as descriptor:
                _end_torn_line(descriptor)
                if os.write(descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if time.monotonic() - self._synced_at >= SYNC_INTERVAL_S:
                self._sync()
            elif self._timer is None:
                self._timer = threading.Timer(SYNC_INTERVAL_S, self._sync_late)
                self._timer.daemon = True
                self._timer.start()

    def entries(self) -> dict[str, JSON]:
        """All whole entries, in the order in which they were first appended. Raises HeadraceError: the journal is a folder."""
        entries: dict[str, JSON] = {}
        for key, value in self._whole():
            entries.setdefault(key, value)
        return entries

    def whole_lines(self) -> int:
        """How many lines can be read; a key may have several."""
        return sum(1 for _ in self._whole())

    def _whole(self) -> Iterator[tuple[str, JSON]]:
        self._refuse_folder()
        if self.path.exists():
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n") and (entry := self._parse(line)) is not None:
                        yield entry

    def discard(self, keys: Collection[str]) -> None:
        """Removes the entries of these keys, once they are committed. Deletes the file with its last entry.

        Raises:
            HeadraceError: the disk is full; all entries are intact.
        """
        if self.path.exists():
            with self._mutex, disk_errors(f"discarding entries of {self.path.name}", self.path.parent):
                with self._lock():
                    lines = [
                        line for line in self.path.read_bytes().splitlines(True) if (entry := self._parse(line)) and entry[0] not in keys
                    ]
                    if lines:
                        replace_atomically(self.path, lambda temporary: temporary.write_bytes(b"".join(lines)))
                    else:
                        self.path.unlink()
                self._close()
            sweep(self.path.parent)

    def close(self) -> None:
        with self._mutex:
            self._close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _lock(self) -> Iterator[int]:
        """A descriptor of the file now at the path, locked against other writers. Call with the mutex held."""
        descriptor = self._open()
        while True:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                break
            self._close()
            descriptor = self._open()
        try:
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _parse(self, line: bytes) -> tuple[str, JSON] | None:
        entry = _parse(line)
        return entry if entry is None or self._is_value is None or self._is_value(entry[1]) else None

    def _refuse_folder(self) -> None:
        if self.path.is_dir():
            raise HeadraceError(f"{self.path} is a folder, not a journal: `headrace store repair` sets it aside")

    def _open(self) -> int:
        if self._descriptor is None:
            self._refuse_folder()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            sync_dir(self.path.parent)
        return self._descriptor

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._descriptor is not None:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _sync(self) -> None:
        if self._descriptor is not None:
            os.fsync(self._descriptor)
            self._synced_at = time.monotonic()

    def _sync_late(self) -> None:
        with self._mutex:
            self._timer = None
            self._sync()


def _end_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")


def _line(key: str, value: JSON) -> bytes:
    text = json.dumps({"key": key, "value": mask_values(value)}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _parse(line: bytes) -> tuple[str, JSON] | None:
    try:
        entry = json.loads(line.decode("utf-8", "surrogatepass"))
        return (entry["key"], entry["value"]) if isinstance(entry["key"], str) else None
    except (ValueError, KeyError, TypeError):
        return None


def journal_at(path: Path) -> Journal:
    """The journal at `path`, with the shape of values that its name tells."""
    return Journal(path, _is_answer if path.name == _ANSWERS else None)


def _is_answer(value: JSON) -> bool:
    """Whether a value is what `synth/engines/cache.py` keeps of an answer."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("engine"), str) and isinstance(value.get("request"), str) and isinstance(value.get("answer"), dict)
