"""Files that are whole or absent: atomic replacement, a lock with a bounded wait, a full disk as a one-line error.

Every write goes to a temporary name beside its target, is synced, renamed, and the folder synced: a kill at any moment leaves
either the old file or the new one. Leftover temporary files begin with `.tmp-`, are never read, and are removed after a day.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.errors import HeadraceError

_TEMPORARY = ".tmp-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Busy(HeadraceError):
    """Another process holds the lock."""


def sync_dir(folder: Path) -> None:
    """Makes renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file, then renames it to the target: readers see the old or the new file, never a part."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{target.name}"
    try:
        write(temporary)
        sync_file(temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_dir(target.parent)


def sweep(folder: Path, older_than_s: float = 86_400) -> None:
    """Removes old temporary files of killed processes."""
    if folder.is_dir():
        for path in folder.glob(f"{_TEMPORARY}*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - older_than_s:
                    path.unlink()


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of any library says that the disk or a quota is full."""
    text = str(error).casefold()
    return getattr(error, "errno", None) in _FULL or any(
        words in text for words in ("no space left", "disk quota", "out of disk", "disk full")
    )


@contextmanager
def disk_errors(doing: str, where: Path) -> Iterator[None]:
    """Turns a full disk, a read-only one or a missing permission into one line.

    Raises:
        HeadraceError: instead of the library's own error. Others pass through.
    """
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise HeadraceError(
                f"no space left on the disk of {where} while {doing}; what was committed before is intact. "
                "Free space, then run the same command again"
            ) from error
        if isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.EROFS:
            raise HeadraceError(f"no permission to write under {where} while {doing}: {error}") from error
        raise


@contextmanager
def file_lock(path: Path, *, wait_s: float) -> Iterator[None]:
    """Holds an exclusive lock on `path` that dies with this process (flock); the file says who holds it.

    Raises:
        Busy: the lock was not free within `wait_s` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "another process"
                    raise Busy(
                        f"{path.parent} is being written by {holder}, which did not finish within {wait_s:g} s; "
                        "wait for it, or end it, then run the same command again"
                    ) from None
                time.sleep(0.01)
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
