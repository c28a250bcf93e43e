"""Admitted retail tasks for tests, worded by their slots alone."""

from __future__ import annotations

import random
from functools import lru_cache

from storage.records import JSON, Frame, Language, Task
from synth.tasks.solver import NotAdmitted, admit
from synth.worlds import WORLDS

RetailWorld = WORLDS["retail"]

_NAMES = {"in_stock": "in stock", "tell_total": "tell me the total"}


def wording(slots: dict[str, JSON]) -> str:
    return "please " + " ".join(str(_NAMES.get(name, value)) for name, value in slots.items())


def frame_of(intent: str, seed: int, *, share_optional: float = 0.3) -> Frame:
    """A frame of that intent that suits the shop of `seed`."""
    world, rng = RetailWorld(seed), random.Random(f"{intent}/{seed}")
    names = frozenset(slot.name for slot in world.intents[intent].slots if slot.is_required or rng.random() < share_optional)
    return Frame(world="retail", intent=intent, slots=world.draw_slots(intent, names, rng))


def task_of(intent: str, seed: int, language: Language = "en") -> Task:
    """The first task of that intent from `seed` on."""
    for tried in range(seed, seed + 40):
        frame = frame_of(intent, tried)
        try:
            return admit(WORLDS[frame.world], frame, text=wording(frame.slots), language=language, seed=tried, division="seed")
        except NotAdmitted:
            continue
    raise AssertionError(f"no task of {intent}")


@lru_cache(maxsize=4)
def tasks(per_intent: int) -> tuple[Task, ...]:
    """`per_intent` tasks of every intent, both languages."""
    languages: tuple[Language, Language] = ("en", "zh")
    return tuple(task_of(intent, 50 * turn, languages[turn % 2]) for turn in range(per_intent) for intent in RetailWorld.intents)
