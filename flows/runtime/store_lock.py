"""One flow at a time on a store, with the worlds of its own known: what every flow does before it works.

One idea: one lock a store, `STORE/.headrace/flow.lock`, held by the process that works, so that hand calls and deployments exclude each
other and a killed process leaves nothing to clear away. Flows inside a flow share their process's hold. A run of a deployment waits for
its turn; a call by hand is refused, with who is at work. Readers, and the library below `flows/`, need no lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from flows.runtime import events
from flows.runtime.daemon import end_with_keeper
from flows.runtime.locks import Busy, lock
from storage.errors import HeadraceError
from storage.store import Store

_mutex = threading.Lock()
_users: dict[Path, int] = {}
"""How many flows of this process work on a store, by its lock."""
_locks: dict[Path, contextlib.ExitStack] = {}


@contextlib.contextmanager
def at_work(flow: str, store: Path) -> Iterator[None]:
    """Around the whole body of a flow. Raises HeadraceError: see `holding`."""
    end_with_keeper()
    with holding(flow, store, wait=events.is_root_of_a_deployment()):
        from synth.worlds.stored_worlds import register_stored

        register_stored(Store(store))
        yield


@contextlib.contextmanager
def holding(flow: str, store: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the store for `flow`, as one of this process's flows.

    Raises HeadraceError where another process works on the store and `wait` is false.
    """
    path = notes_of(store) / "flow.lock"
    with _mutex:
        if path not in _locks:
            _locks[path] = _taken(flow, path, wait)
        _users[path] = _users.get(path, 0) + 1
    try:
        yield
    finally:
        with _mutex:
            _users[path] -= 1
            if not _users[path]:
                del _users[path]
                _locks.pop(path).close()


def notes_of(store: Path) -> Path:
    """The folder in a store where flows leave what is not data."""
    return store.absolute() / ".headrace"


def _taken(flow: str, path: Path, wait: bool) -> contextlib.ExitStack:
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock(path, wait=False))
        except Busy:
            store, holder = path.parent.parent, path.read_text(errors="replace").strip() or "another process"
            if not wait:
                raise HeadraceError(f"{store} is being worked on by {holder}; wait for it, or give another --store") from None
            print(f"waiting for {holder}, which works on {store}")
            held.enter_context(lock(path))
        path.write_text(f"{flow} (process {os.getpid()} on {os.uname().nodename})\n")
        return held.pop_all()
