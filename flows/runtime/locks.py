"""File locks that outlive no process: how Headrace knows that another process is alive, and dies with it.

One idea: the kernel drops an advisory lock (`flock`) the moment its holder ends, `kill -9` included. So "is the server there?" is
"is its lock held?", and "stop when the parent is gone" is a thread that waits for the parent's lock. No process ids are
compared, none can be mistaken for another, and it works wherever `flock` does (local disks; not every network file system).

This module does not start or stop anything but the calling process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


class Busy(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def lock(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock on `path` (made if it is not there). Children that are exec'ed do not hold it.

    Raises Busy where `wait` is false and another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy(str(path)) from None
            raise
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether some process holds the exclusive lock on `path`."""
    if not path.exists():
        return False
    try:
        with lock(path, shared=True, wait=False):
            return False
    except Busy:
        return True


def when_released(path: Path, then: Callable[[], None]) -> None:
    """Call `then` in a thread once nobody holds the lock on `path`; the lock is ours while it runs, so no newcomer slips in."""

    def watch() -> None:
        with lock(path):
            then()

    threading.Thread(target=watch, name=f"watch {path.name}", daemon=True).start()


def die_with(path: Path) -> None:
    """End this process's whole group, at once, when the holder of the lock on `path` is gone."""
    when_released(path, lambda: os.killpg(0, signal.SIGKILL))
