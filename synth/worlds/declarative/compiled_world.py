"""The world class of a compiled domain: calls, snapshots, changes, and drawing of slots.

One idea: a class per domain (`compile.py`) holds everything that is the same in every seed. An instance has only the shared rows of its
seed and an overlay (`state.py`), so it costs little to create, fork and reset a world.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from storage.records import CODE_TOOL, JSON, Given, canonical_json
from synth.text.slot_kinds import Date
from synth.worlds.base import Intent, Observation
from synth.worlds.declarative.common_names import possible_names
from synth.worlds.declarative.domain import Domain
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.intents.base import SpecIntent, StateWorld, any_value
from synth.worlds.declarative.intents.computing import ComputeIntent
from synth.worlds.declarative.rows.given_rows import names_given
from synth.worlds.declarative.rows.state import NOTHING_GIVEN, State, fresh_state
from synth.worlds.declarative.tools import Callee, error_observation
from synth.worlds.run_python import missing, run_python

_decode = json.JSONDecoder().decode


class SpecWorld(StateWorld):
    """A world of one spec.

    source: the values that the spec was compiled from.
    callees: the domain's tools, by public name; `run_python` of worlds with combined jobs is not among them.
    person_names: proper names of the domain: each spelling -> all spellings.
    unsolvable: intents that the world does not offer, because their tasks could not be solved, with the reason.
    """

    domain: ClassVar[Domain]
    source: ClassVar[Any]
    callees: ClassVar[Mapping[str, Callee]]
    person_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    unsolvable: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def jobs(cls) -> tuple[Intent, ...]:
        """All intents; without a sandbox, only those that need no program."""
        plain = tuple(intent for intent in cls.intents.values() if not isinstance(intent, ComputeIntent))
        return plain if len(plain) == len(cls.intents) or missing() else tuple(cls.intents.values())

    def reset(self, seed: int) -> None:
        self.seed = seed
        self.now = State(fresh_state(self.domain, seed, canonical_json(self.given) if self.given else NOTHING_GIVEN))

    def call(self, tool: str, arguments: str | Mapping[str, JSON]) -> Observation:
        callee = self.callees.get(tool)
        if callee is None:
            is_program = tool == CODE_TOOL and self.domain.spec.head.combined
            return run_python(arguments) if is_program else error_observation("no such tool")
        if isinstance(arguments, str):
            try:
                arguments = _decode(arguments)
            except (ValueError, RecursionError):
                return error_observation("arguments are not JSON")
        if not isinstance(arguments, Mapping):
            return error_observation("arguments are not an object")
        return callee.call(self.now, arguments)

    def state(self) -> dict[str, JSON]:
        return self.now.to_json()

    def snapshot(self) -> object:
        return self.now.snapshot()

    def restore(self, snapshot: object) -> None:
        if not (isinstance(snapshot, tuple) and len(snapshot) == 4):
            raise TypeError("not a snapshot of such a world")
        base = self.now.base
        if snapshot[0] != (base.seed, base.given):
            self.now = State(fresh_state(self.domain, *snapshot[0]))
            self.seed, self.given = snapshot[0][0], json.loads(snapshot[0][1])
        self.now.restore(snapshot)

    def changes(self) -> dict[str, JSON]:
        return self.now.changes()

    def known_names(self) -> Mapping[str, tuple[str, ...]]:
        """Proper names only: values of choices are ordinary words, and facts check them in answers."""
        return {**self.person_names, **self.names_given(self.given)} if self.given else self.person_names

    @classmethod
    def given_for(cls, intent: str, slots: Mapping[str, JSON]) -> Given:
        declared = cls.intents[intent]
        assert isinstance(declared, SpecIntent)
        return declared.given(slots)

    @classmethod
    def names_given(cls, given: Given) -> Mapping[str, tuple[str, ...]]:
        return names_given(cls.domain, given)

    @staticmethod
    def possible_names() -> Mapping[str, tuple[str, ...]]:
        """The names of all lists that domains draw from."""
        return possible_names()

    def slot_forms(self, intent: str, slots: Mapping[str, JSON]) -> frozenset[str]:
        """Also the ISO dates of days, as calls contain them."""
        forms = set(super().slot_forms(intent, slots))
        for slot in self.intents[intent].slots:
            if slot.name in slots and isinstance(self.kinds[slot.kind], Date):
                forms.add(self.domain.iso(slots[slot.name]))
        return frozenset(forms)

    def draw_slots(self, intent: str, slot_names: frozenset[str], rng: random.Random) -> dict[str, JSON]:
        return self._draw_frame_slots(intent, slot_names, {}, rng)

    def draw_such(
        self, intent: str, slot_names: frozenset[str], rng: random.Random, is_wanted: Callable[[Mapping[str, JSON]], bool]
    ) -> dict[str, JSON] | None:
        declared = self.intents[intent]
        if not isinstance(declared, ActIntent):
            return super().draw_such(intent, slot_names, rng, is_wanted)
        return declared.draw(self.now, slot_names, {}, rng, is_wanted)

    def draw_entities(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        fixed = {slot.name: slots[slot.name] for slot in self.intents[intent].slots if slot.name in slots and not slot.is_entity}
        return self._draw_frame_slots(intent, frozenset(slots), fixed, rng)

    def draw_rest(self, intent: str, slots: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        names = {slot.name for slot in self.intents[intent].slots if slot.is_required} | slots.keys()
        fixed = {slot.name: slots[slot.name] for slot in self.intents[intent].slots if slot.name in slots and not slot.is_entity}
        return {**self._draw_frame_slots(intent, frozenset(names), fixed, rng), **slots}

    def _draw_frame_slots(self, intent: str, names: frozenset[str], given: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        declared = self.intents[intent]
        assert isinstance(declared, SpecIntent)
        slots = declared.draw(self.now, names, given, rng)
        return slots if slots is not None else self._random_slots(declared, names, given, rng)

    def _random_slots(self, intent: SpecIntent, names: frozenset[str], given: Mapping[str, JSON], rng: random.Random) -> dict[str, JSON]:
        """Random values if no rows of this seed fit: the caller finds that they cannot be solved, and takes another seed."""
        slots = (slot for slot in intent.slots if slot.name in names)
        return {slot.name: given[slot.name] if slot.name in given else any_value(self.kinds[slot.kind], rng) for slot in slots}
