"""Warm copies of a live world's server, leased to world instances.

One idea: a lease gives a copy in the start state of a seed; what comes back is set back when it is leased again, and ended where it is
broken, or where enough copies wait. A start state is taken once a seed: its snapshot, and the state as JSON.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.records import JSON, canonical_json
from synth.worlds.live.copies.copy_errors import ServerFailed
from synth.worlds.live.copies.live_server import SEED, LiveServer, Snapshot, remove_orphans
from synth.worlds.live.live_spec import LiveSpec
from synth.worlds.live.lock import Lock

MOST_STARTS = 64
MOST_IDLE = 16
"""Copies that wait; more are started where more are in use."""
TRIES = 2


@dataclass(frozen=True)
class Start:
    snapshot: Snapshot
    state: dict[str, JSON]


@dataclass(eq=False)
class Pool:
    """Safe for threads."""

    spec: LiveSpec
    measured: Lock
    is_writer: Callable[[str], bool]
    errors_change: bool = True
    _idle: list[LiveServer] = field(default_factory=list)
    _starts: OrderedDict[int, Start] = field(default_factory=OrderedDict)
    _all: weakref.WeakSet[LiveServer] = field(default_factory=weakref.WeakSet)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _start_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.is_seeded = bool(self.spec.python) or SEED in canonical_json(self.spec.model_dump(mode="json"))
        self.is_closed = False
        _pools.add(self)

    def start(self, seed: int) -> Start:
        """The start state of a seed. Raises ServerFailed."""
        with self._start_lock:
            if seed not in self._starts:
                server = self._new(seed)
                try:
                    self._starts[seed] = Start(server.snapshot(), server.state())
                except BaseException:
                    server.close()
                    raise
                self.give_back(server)
                if len(self._starts) > MOST_STARTS:
                    self._starts.popitem(last=False)
            self._starts.move_to_end(seed)
            return self._starts[seed]

    def lease(self, seed: int) -> LiveServer:
        """A copy in the start state of a seed. Raises ServerFailed."""
        start = self.start(seed)
        for attempt in range(TRIES):
            with self._lock:
                server = next((each for each in reversed(self._idle) if each.seed == seed), None)
                if server is not None:
                    self._idle.remove(server)
            try:
                if server is None:
                    return self._new(seed)
                server.restore(start.snapshot, self.measured.restore)
                return server
            except ServerFailed:
                if server is not None:
                    server.close()
                if attempt == TRIES - 1:
                    raise
        raise AssertionError

    def give_back(self, server: LiveServer) -> None:
        """Takes a copy back. May be called while memory is being collected, in any thread."""
        if self.is_closed:
            return
        if server.is_broken or self.measured.restore == "none":
            threading.Thread(target=server.close, daemon=True).start()
            return
        self._idle.append(server)
        if len(self._idle) > MOST_IDLE:  # the one that has waited longest goes: its seed is wanted least
            threading.Thread(target=self._idle.pop(0).close, daemon=True).start()

    def close(self, *, leased_too: bool = False) -> None:
        """Ends the copies that wait; with leased_too also those in use, and none is taken back any more."""
        self.is_closed = leased_too
        with self._lock:
            idle, self._idle = self._idle, []
        for server in [*idle, *(self._all if leased_too else ())]:
            server.close()

    def _new(self, seed: int) -> LiveServer:
        server = LiveServer(self.spec, seed, is_writer=self.is_writer, errors_change=self.errors_change)
        self._all.add(server)
        return server


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


@atexit.register
def _close_pools() -> None:
    for pool in list(_pools):
        pool.close(leased_too=True)
    remove_orphans()
