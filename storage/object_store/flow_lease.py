"""The lease of a shared store: one flow at a time works on it, on whichever machine. It is to machines what the file lock is to processes.

One idea: the holder of `lease/N.json` rewrites it every quarter of `LEASE_S`. Who finds that it has not changed for `LEASE_S`, by a clock
of its own, creates N+1 (`UrlFiles.create`: one of several succeeds). So machines need not agree on the time, and a killed holder is
replaced after `LEASE_S` at most; on its own machine at once, because there the file lock says that it is dead.
A holder that could not renew for so long commits nothing any more (`refuse_if_lost`). Even if it did, no commit would be lost or doubled:
commits are ordered by the log (`shared_log.py`), not by the lease.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storage.errors import HeadraceError
from storage.files import Busy
from storage.object_store.shared_log import SharedLog
from storage.object_store.url_files import UrlFiles, damage_told

LEASE_S = 60.0


@dataclass(frozen=True)
class _Seen:
    """What `lease/NUMBER.json` says. at: when it was written, by its holder's clock, in seconds since 1970."""

    number: int
    holder: str
    machine: str
    at: float
    is_released: bool


class Lease:
    """The lease under a URL, for a flow of this process. lease_s: seconds without renewal after which others take it."""

    def __init__(self, log: SharedLog, flow: str, lease_s: float) -> None:
        self._files, self._machine, self._lease_s = log.files, log.machine, lease_s
        self._holder = f"{flow} (process {os.getpid()} on {os.uname().nodename})"
        self._number = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def take(self, *, wait: bool, say: Callable[[str], None]) -> None:
        """Takes the lease, and renews it until `release`. Call with the file lock of the store's folder held.

        Raises:
            Busy: another machine holds it and `wait` is false.
        """
        seen, since, said = _newest(self._files), time.monotonic(), False
        while True:
            if self._is_free(seen) or time.monotonic() - since >= self._lease_s:
                if self._create(seen.number + 1 if seen else 0):
                    return
            elif seen and not wait and time.time() - seen.at < self._lease_s:
                raise self._busy(seen)
            elif seen and not said:
                say(f"waiting for {seen.holder}, which works on {self._files.url}")
                said = True
            self._stop.wait(self._lease_s / 50)
            now = _newest(self._files)
            if now != seen:
                if now and not wait and not self._is_free(now):
                    raise self._busy(now)
                seen, since = now, time.monotonic()

    def release(self) -> None:
        """Ends the lease. If the URL is out of reach, it runs out by itself."""
        self._stop.set()
        self._thread.join(self._lease_s / 4)
        with suppress(HeadraceError):
            if not self.is_lost():
                self._write(is_released=True)

    def is_lost(self) -> bool:
        """Whether another machine has taken it."""
        seen = _newest(self._files)
        return seen is None or seen.number != self._number

    def _busy(self, seen: _Seen) -> Busy:
        return Busy(f"{self._files.url} is being worked on by {seen.holder}; wait until it ends, or {self._lease_s:g} s if it was killed")

    def _is_free(self, seen: _Seen | None) -> bool:
        """Whether no process holds it, or one of this folder, which is dead because the caller has the folder's file lock."""
        return seen is None or seen.is_released or seen.machine == self._machine

    def _create(self, number: int) -> bool:
        """Whether the lease of this number is ours. One that was taken after it, and has removed its name, has a higher number."""
        if not self._files.create(_name(number), self._content(is_released=False)):
            return False
        self._number = number
        if self.is_lost():
            return False
        for name in self._files.names("lease"):
            if name < _name(number):
                self._files.remove(name)
        self._thread.start()
        return True

    def _content(self, *, is_released: bool) -> bytes:
        fields = {"holder": self._holder, "machine": self._machine, "at": time.time(), "is_released": is_released}
        return json.dumps(fields).encode()

    def _write(self, *, is_released: bool) -> None:
        self._files.write(_name(self._number), self._content(is_released=is_released))

    def _keep(self) -> None:
        while not self._stop.wait(self._lease_s / 4):
            with suppress(HeadraceError):
                if self.is_lost():
                    return
                self._write(is_released=False)


_held: dict[Path, Lease] = {}
"""Folder of a store -> the lease that this process holds for it."""


@contextmanager
def hold_lease(root: Path, flow: str, *, wait: bool, say: Callable[[str], None], lease_s: float = LEASE_S) -> Iterator[None]:
    """Holds the lease of the store in folder `root`, if it is shared. Call with the folder's file lock held.

    Raises:
        Busy: another machine works on the store, and `wait` is false.
        HeadraceError: the URL is out of reach.
    """
    log = SharedLog.of(root)
    if log is None:
        yield
        return
    lease = Lease(log, flow, lease_s)
    lease.take(wait=wait, say=say)
    _held[root] = lease
    try:
        yield
    finally:
        del _held[root]
        lease.release()


def refuse_if_lost(root: Path) -> None:
    """Raises HeadraceError: this process held the lease of the store in folder `root`, and another machine has taken it."""
    lease = _held.get(root)
    if lease is not None and lease.is_lost():
        raise HeadraceError(
            f"another machine works on {root} now, because this one did not answer for a while; what was committed before is intact, "
            "run the same command again"
        )


def _name(number: int) -> str:
    return f"lease/{number:08d}.json"


def _newest(files: UrlFiles) -> _Seen | None:
    """The lease with the highest number; None: the store was never worked on."""
    while names := files.names("lease"):
        content = files.read(names[-1])
        if content is not None:
            with damage_told(f"{files.url}/{names[-1]}", "delete it if no machine works on the store"):
                return _Seen(number=int(Path(names[-1]).stem), **json.loads(content))
    return None
