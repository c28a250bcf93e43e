"""The need of a frame: what it asks for, individuals aside.

One idea: "cancel order o17" and "cancel order o42" are one need. Their tasks are about equally hard, and training on one gives away the
other. So held-out frames are compared by need (`train/data/task_pool.py`), and so is difficulty measured
(`filters/certainty/difficulty_prior.py`).
"""

from __future__ import annotations

from storage.records import Frame, canonical_json
from synth.worlds import WORLDS


def need(frame: Frame) -> str:
    """World, intent, and the slots that name no individual, as JSON: frames with equal needs have siblings of one distribution."""
    names = individual_slots(frame)
    return canonical_json([frame.world, frame.intent, {name: value for name, value in frame.slots.items() if name not in names}])


def individual_slots(frame: Frame) -> set[str]:
    """Names of the intent's slots that name an individual."""
    return {slot.name for slot in WORLDS[frame.world].intents[frame.intent].slots if slot.is_entity}
