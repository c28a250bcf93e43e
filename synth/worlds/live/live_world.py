"""The world class of a live world: one class for a spec and its lock, one leased copy of the server for an instance.

One idea: an instance starts nothing until it is first called, so the many instances that only look at tools cost nothing; a copy comes from
a pool of warm ones, and goes back when the instance is closed or collected. A failure of the server is an exception, so that no
conversation's failure is blamed on the policy.
"""

from __future__ import annotations

import json
import random
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from storage.records import JSON, Tool, content_id
from synth.text.slot_kinds import SlotKind
from synth.worlds.arguments import BadArgument, Checker, compile_checker
from synth.worlds.base import Intent, Observation, World
from synth.worlds.live.copies.copy_pool import Pool
from synth.worlds.live.copies.live_server import LiveServer, Snapshot
from synth.worlds.live.live_intents import LiveIntent, kinds_of, wording_of
from synth.worlds.live.live_spec import LiveSpec
from synth.worlds.live.live_state import differences
from synth.worlds.live.lock import Lock

T = TypeVar("T")


class LiveWorld(World):
    """A world of real tools.

    spec, lock: what it was made from. pool: of its copies.
    """

    version: ClassVar[int] = 1
    languages = ("en",)
    spec: ClassVar[LiveSpec]
    lock: ClassVar[Lock]
    pool: ClassVar[Pool]
    source: ClassVar[Any]
    kinds: ClassVar[Mapping[str, SlotKind]]
    checkers: ClassVar[Mapping[str, Checker]]

    def reset(self, seed: int) -> None:
        self.seed = seed
        self._release()
        self._server: LiveServer | None = None
        self._giver: weakref.finalize[Any, Any] | None = None

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        checker = self.checkers.get(tool)
        if checker is None:
            return _error("no such tool")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                return _error("arguments are not JSON")
        if not isinstance(arguments, Mapping):
            return _error("arguments are not an object")
        try:
            checker(arguments)
        except BadArgument as bad:
            return _error(str(bad))
        return self._use(lambda server: server.call(tool, arguments))

    def state(self) -> dict[str, JSON]:
        if self._server is None:
            return self.pool.start(self._start_seed()).state
        return self._use(lambda server: server.state())

    def snapshot(self) -> object:
        if self._server is None:
            return self.pool.start(self._start_seed()).snapshot
        return self._use(lambda server: server.snapshot())

    def restore(self, snapshot: object) -> None:
        if not isinstance(snapshot, Snapshot):
            raise TypeError("not a snapshot of such a world")
        if self._server is None and not snapshot.calls:
            return
        self._use(lambda server: server.restore(snapshot, self.lock.restore))

    def changes(self) -> dict[str, JSON]:
        if self._server is None or self._server.is_at_start:
            return {}
        return differences(self.pool.start(self._start_seed()).state, self.state())

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        declared = self.intents[intent]
        assert isinstance(declared, LiveIntent)
        example = rng.choice(declared.found.examples)
        return {name: example[name] for name in sorted(slot_names)}

    def slot_forms(self, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
        """None: what a call holds must be in the conversation as it stands."""
        return frozenset()

    def known_names(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def close(self) -> None:
        self._release()
        self._server = None

    def _start_seed(self) -> int:
        return self.seed if self.pool.is_seeded else 0

    def _use(self, work: Callable[[LiveServer], T]) -> T:
        """Does something with the copy, and drops it if it fails. Raises ServerFailed."""
        if self._server is None:
            self._server = self.pool.lease(self._start_seed())
            self._giver = weakref.finalize(self, self.pool.give_back, self._server)
        try:
            return work(self._server)
        except BaseException:  # a call that was cut off may have had its effect
            self._server.is_broken = True
            self._release()
            self._server = None
            raise

    def _release(self) -> None:
        giver = getattr(self, "_giver", None)
        if giver is not None:
            giver()
            self._giver = None


def _error(text: str) -> Observation:
    return Observation(json.dumps({"error": text}), True)


_made: dict[str, type[LiveWorld]] = {}
_lock = threading.Lock()


def live_name(spec: LiveSpec, lock: Lock) -> str:
    """`shop@1a2b3c4d`: the world's name says its content."""
    return f"{spec.live}@{content_id('live', spec.id, lock.model_dump(mode='json'))[5:13]}"


def make_live_world(spec: LiveSpec, lock: Lock) -> type[LiveWorld]:
    """The class of a live world; the same one for the same spec and lock."""
    name = live_name(spec, lock)
    with _lock:
        if name not in _made:
            _made[name] = _make(name, spec, lock)
        return _made[name]


def _make(name: str, spec: LiveSpec, lock: Lock) -> type[LiveWorld]:
    tools = tuple(
        Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            server=spec.live,
            domain=spec.live,
            world=name,
            output=tool.output,
            changes_state=tool.changes_state,
        )
        for tool in lock.tools
    )
    writers = {tool.name for tool in tools if tool.changes_state}
    intents: dict[str, Intent] = {found.name: LiveIntent(spec.live, found) for found in lock.intents}
    about = spec.about or lock.instructions
    body = {
        "name": name,
        "spec": spec,
        "lock": lock,
        "pool": Pool(spec, lock, lambda tool: tool in writers, errors_change=not lock.holds("errors_change_nothing")),
        "source": {"live": spec.model_dump(mode="json", by_alias=True, exclude_defaults=True), "lock": lock.model_dump(mode="json")},
        "tools": tools,
        "intents": intents,
        "kinds": kinds_of(lock.intents),
        "checkers": {tool.name: compile_checker(tool.parameters) for tool in tools},
        "wording": wording_of(lock.intents),
        "system_prompt": about,
    }
    return type(f"LiveWorld_{spec.live}", (LiveWorld,), body)
