"""Whether calls of an engine are open, in whatever process: a lock on a file, which all that have open calls share.

One idea: the kernel frees the lock of a process that ends, however it ends; so a killed process has no open calls, and no process ids are
compared. What its calls may have cost stays in the ledger.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class OpenCalls:
    """The open calls of one engine of one process. path: the engine's lock. count: of open calls. For one event loop.

    Every method raises OSError if the file cannot be locked.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1
        self.count = 0

    def begin(self) -> None:
        """Opens a call. Waits while another process looks (`none_is_open`), some milliseconds."""
        if self.count == 0:
            self._descriptor = self._open(fcntl.LOCK_SH)
        self.count += 1

    def end(self) -> None:
        """Ends a call."""
        self.count -= 1
        if self.count == 0:
            os.close(self._descriptor)

    @contextmanager
    def none_is_open(self) -> Iterator[bool]:
        """Whether no call is open, neither here nor in another process. If so, none is opened within the block."""
        try:
            descriptor = self._open(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            os.close(descriptor)

    def _open(self, operation: int) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, operation)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
