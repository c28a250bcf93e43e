"""Copies of a private folder, in memory: what a snapshot holds.

One idea: a server may be hostile while the host reads and writes its folder, so nothing follows a link: every step goes through descriptors
of folders, and only plain files are read. A file that has not changed since the last look is not read again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from synth.sandbox.box import NOBODY
from synth.worlds.live.copies.copy_errors import ServerSpoke

MOST_ENTRIES, MOST_DEPTH = 20_000, 48
_TOO_MUCH = "the private folder holds more than {} MiB, or too many files; raise `limits.disk_mib` if that is meant"
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """A file (data), a link (its target), another thing such as a pipe (is_special), or a folder (none of these).

    mode: permissions. mtime_ns: of files. mark: to tell whether it changed.
    """

    data: bytes | None = None
    link: str | None = None
    mode: int = 0o755
    mtime_ns: int = 0
    mark: tuple[int, ...] = ()
    is_special: bool = False

    @property
    def is_folder(self) -> bool:
        return self.data is None and self.link is None and not self.is_special

    def same_as(self, other: Entry) -> bool:
        return (self.data, self.link, self.mode, self.is_special) == (other.data, other.link, other.mode, other.is_special)


Contents = Mapping[str, Entry]
"""Entries by path, folders before what they hold."""


def read_folder(root: Path, most_bytes: int, before: Contents | None = None) -> dict[str, Entry]:
    """What a folder holds.

    Args:
        before: as it was; unchanged files are taken from there.

    Raises:
        ServerSpoke: it holds more than `most_bytes`, more than 20,000 entries, folders more than 48 deep, or what cannot be read.
    """
    found: dict[str, Entry] = {}
    known, total = before or {}, 0
    try:
        for here, folders, files, descriptor in os.fwalk(root, follow_symlinks=False):
            prefix = "" if here == str(root) else f"{Path(here).relative_to(root)}/"
            for name in sorted((*folders, *files)):
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size if name in files else 0
                    if total > most_bytes or len(found) > MOST_ENTRIES:
                        raise ServerSpoke(_TOO_MUCH.format(most_bytes >> 20))
                    found[prefix + name] = _entry(name, descriptor, known.get(prefix + name))
            folders[:] = sorted(folders) if prefix.count("/") < MOST_DEPTH else []
            if prefix.count("/") >= MOST_DEPTH:
                raise ServerSpoke(f"the private folder has folders more than {MOST_DEPTH} deep")
    except OSError as error:
        raise ServerSpoke(f"the private folder cannot be read: {error}") from None
    return found


def folder_bytes(root: Path, most_bytes: int) -> int:
    """The size of all plain files; stops counting above `most_bytes`."""
    total = entries = 0
    for here, folders, files, descriptor in os.fwalk(root, follow_symlinks=False):
        for name in files:
            with contextlib.suppress(OSError):
                seen = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                total += max(seen.st_size, seen.st_blocks * 512)
        entries += len(files) + len(folders)
        is_deep = here.count("/") - str(root).count("/") > MOST_DEPTH
        if total > most_bytes or entries > MOST_ENTRIES or is_deep:
            return max(total, most_bytes + 1)
    return total


def write_folder(root: Path, wanted: Contents, now: Contents | None = None) -> None:
    """Makes the folder hold exactly this. now: what it holds, if that is known."""
    now = read_folder(root, 1 << 62) if now is None else now
    gone = [path for path, entry in now.items() if path not in wanted or not entry.same_as(wanted[path])]
    for path in reversed(gone):
        with contextlib.suppress(FileNotFoundError):
            _remove(root, path, is_folder=now[path].is_folder, keeps=path in wanted and wanted[path].is_folder)
    for path, entry in wanted.items():
        if not entry.is_special and (path not in now or not now[path].same_as(entry)):
            _write(root, path, entry)


def copy_in(source: Path) -> dict[str, Entry]:
    """What a folder of the user holds, as the start of a private folder: with the rights that the server needs."""
    return {
        path: Entry(entry.data, entry.link, 0o755 if entry.data is None or entry.mode & 0o111 else 0o644, entry.mtime_ns)
        for path, entry in read_folder(source, 1 << 40).items()
    }


def _entry(name: str, folder: int, before: Entry | None) -> Entry:
    seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode = stat.S_IMODE(seen.st_mode)
    if stat.S_ISDIR(seen.st_mode):
        return Entry(mode=mode)
    if stat.S_ISLNK(seen.st_mode):
        return Entry(link=os.readlink(name, dir_fd=folder), mode=mode)
    if not stat.S_ISREG(seen.st_mode):
        return Entry(mode=mode, is_special=True)
    mark = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    if before is not None and before.mark == mark:
        return before
    descriptor = os.open(name, _PLAIN, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Entry(mode=mode, is_special=True)
        return Entry(file.read(), None, mode, seen.st_mtime_ns, mark)


def remove_folder(path: Path) -> None:
    """Removes a folder with all that is in it, as far as that can be done; also one that is nested deeper than Python can follow."""
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(path)], stderr=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def _folder_of(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that holds `path`, without following a link, and the name in it."""
    *folders, name = path.split("/")
    descriptor = os.open(root, _FOLDER)
    try:
        for each in folders:
            inner = os.open(each, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _remove(root: Path, path: str, *, is_folder: bool, keeps: bool) -> None:
    with _folder_of(root, path) as (folder, name):
        if not is_folder:
            os.unlink(name, dir_fd=folder)
        elif not keeps:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=folder)


def _write(root: Path, path: str, entry: Entry) -> None:
    with _folder_of(root, path) as (folder, name):
        if entry.link is not None:
            os.symlink(entry.link, name, dir_fd=folder)
        elif entry.data is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, entry.mode, dir_fd=folder)
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
            _own(descriptor, entry.mode)
            os.close(descriptor)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                _own(descriptor, entry.mode)
                file.write(entry.data)
                file.flush()
                os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))


def _own(descriptor: int, mode: int) -> None:
    os.fchmod(descriptor, mode)
    if os.geteuid() == 0:
        os.fchown(descriptor, NOBODY, NOBODY)
