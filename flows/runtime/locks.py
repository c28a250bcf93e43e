"""File locks: they show whether another process is alive, and end this process when that one ends.

One idea: the kernel releases an advisory lock (`flock`) when its holder ends, even by `kill -9`. So "does the server run?" becomes
"is its lock held?", and "stop when the parent ends" becomes a thread that waits for the parent's lock. No process ids are compared, so
none can be confused. It works where `flock` works: on local disks, but not on every network file system.

This module starts no process and stops only the calling one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path


class Busy(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def lock(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock on `path`; the file is created if missing. Child processes do not inherit the lock.

    Raises Busy if `wait` is false and another process holds the lock.
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


@contextlib.contextmanager
def lock_soon(path: Path) -> Iterator[None]:
    """Hold the lock on `path`; tries for half a second, because a process that asks `is_held` has it for a moment.

    Raises Busy.
    """
    end = time.monotonic() + 0.5
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock(path, wait=False))
                break
            except Busy:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        yield


def is_held(path: Path) -> bool:
    """Whether some process holds the exclusive lock on `path`."""
    if not path.exists():
        return False
    try:
        with lock(path, shared=True, wait=False):
            return False
    except Busy:
        return True


def call_when_released(path: Path, callback: Callable[[], None]) -> None:
    """Call `callback` in a thread once the lock on `path` is free. This process holds the lock meanwhile, so no other process gets it."""

    def watch() -> None:
        with lock(path):
            callback()

    threading.Thread(target=watch, name=f"watch {path.name}", daemon=True).start()


def die_with(path: Path) -> None:
    """Kill this process and its process group as soon as the lock on `path` is free."""
    call_when_released(path, lambda: os.killpg(0, signal.SIGKILL))
