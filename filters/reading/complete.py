"""What a request leaves out: drawn from its world, and added to the request in so many words.

One idea: a user who says "a table at Sino for four" would be asked when; a task of one message must say it at once. So the values that
its intent needs are drawn such that they go with the said ones, and stand at the end of the request: "(day: May 16; time: 18:45)".
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from storage.records import JSON, Language, content_id
from synth.tasks.solver import training_seed
from synth.tasks.wording import load_templates, slot_kinds, spellings
from synth.worlds.base import World

ASKED = frozenset({"aspect", "pick", "topic"})
"""Slots of questions that say what is asked for."""
_SEEDS = 8
"""World seeds from which values are drawn: few, as each is kept in memory."""


def missing_slots(world: type[World], intent: str, slots: Mapping[str, JSON]) -> tuple[str, ...]:
    """The slots that the intent needs and a request leaves out."""
    return tuple(slot.name for slot in world.intents[intent].slots if slot.is_required and slot.name not in slots)


def draw_missing(world: type[World], intent: str, slots: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Values for the slots that are missing; equal slots give equal values.

    None where one of them says what is asked for, or where more would be drawn than is said and one: little of the request would be left.
    """
    missing = missing_slots(world, intent, slots)
    if not missing:
        return {}
    if not ASKED.isdisjoint(missing) or len(missing) > len(slots) + 1:
        return None
    key = content_id("missing", world.name, intent, dict(slots))
    rng = random.Random(key)
    drawn = world(training_seed(rng.randrange(_SEEDS))).draw_rest(intent, slots, rng)
    return {name: drawn[name] for name in missing}


def say(world: type[World], intent: str, slots: Mapping[str, JSON], language: Language) -> str:
    """Values of slots, as a user adds them to a request."""
    joint, colon, (left, right) = ("; ", ": ", ("(", ")")) if language == "en" else ("；", "：", ("（", "）"))
    nouns = {name: _noun(world, intent, name, language) for name in slots}
    said = (f"{nouns[name]}{colon}{spellings(world, intent, name, value, language)[0]}" for name, value in slots.items())
    return f"{left}{joint.join(said)}{right}"


def _noun(world: type[World], intent: str, slot: str, language: Language) -> str:
    kind = slot_kinds(world, intent)[slot]
    nouns = load_templates(world).kinds.get(kind, {}).get("nouns", {}).get(language)
    return nouns[0] if nouns else slot.replace("_", " ")
