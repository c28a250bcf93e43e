"""Checks a language model's reading of a text by code, and builds its frame.

The tagger (`tagger.py`) finds every value that a text mentions. A reading is accepted if its intent exists, it has all required slots and
no unknown ones, each value is legal for its slot's kind, and each slot has its own mention: one mention fills one slot, as in the parser.
So a model chooses the intent and the slot of each mention; it cannot add values that the text does not mention. A value may be its
canonical name or number, or the words of the text.

This module cannot check that the intent is right, or that origin and destination are not swapped. Mentions outside the frame are counted
(`unexplained`) and lower the quality, as in the parser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import polars as pl

from filters.grounding.lexicon import GAP, Kind
from filters.grounding.tagger import read, token_values
from filters.lexicon_worlds import Worlds
from filters.normalised_text import languages, normalise_text
from storage.records import Frame, canonical_json
from synth.text.slot_kinds import Date, Identifier, Quantity, Vocabulary
from synth.worlds.base import Intent, World


@dataclass(frozen=True, slots=True)
class Mention:
    """A value that a text mentions.

    values: slot kind that it may be of -> its canonical value, as JSON text.
    is_plain: whether wordings write it so; a number without a unit, or a word that is also a cue, is not plain.
    """

    values: Mapping[Kind, str]
    is_plain: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a reading.

    reason: no_such_intent, no_such_slot, missing_slot, illegal_value or invented_value.
    text: the reason as a message to the model.
    """

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Supported:
    """An accepted reading. unexplained: number of plain mentions that are not in the frame."""

    frame: Frame
    unexplained: int


def mentions(norm: Sequence[str], worlds: Worlds) -> list[tuple[Mention, ...]]:
    """The values that each normalised text mentions, in their order."""
    rows = pl.DataFrame({"norm": list(norm)}, schema={"norm": pl.String})
    symbols = read(rows.with_columns(language=languages(rows["norm"])), worlds)
    codes, tokens, classes = symbols.codes.tolist(), symbols.tokens.tolist(), symbols.lexicon.classes

    def mention(place: int) -> Mention | None:
        if codes[place] == GAP or not (symbol := classes[codes[place]]).kinds:
            return None
        return Mention(token_values(symbols, tokens[place]), bool(symbol.written) and not symbol.cues)

    return [tuple(filter(None, map(mention, range(start, end)))) for start, end in pairwise(symbols.offsets.tolist())]


def check_frame(
    intent: str, slots: Sequence[tuple[str, str | float]], in_text: Sequence[Mention], worlds: Worlds
) -> Supported | list[Problem]:
    """The frame of a reading, or all that is wrong with it.

    Args:
        intent: `world/intent`.
        slots: names with values, as the model gave them.
        in_text: the mentions of the text.
    """
    world_name, _, name = intent.partition("/")
    world = next((world for world in worlds if world.name == world_name), None)
    if world is None or name not in world.intents:
        return [Problem("no_such_intent", f"there is no intent {intent!r}")]
    declared = world.intents[name]
    if problems := form_problems(declared, [slot for slot, _ in slots]):
        return problems
    kinds = {slot.name: slot.kind for slot in declared.slots}
    values: dict[str, str] = {}
    for slot, given in slots:
        value = legal_value(world, kinds[slot], given, worlds)
        if value is None:
            problems.append(Problem("illegal_value", f"{slot}: {given!r} is no {kinds[slot]}"))
        else:
            values[slot] = value
    places = _match_mentions({slot: ((world_name, kinds[slot]), value) for slot, value in values.items()}, in_text)
    problems += [
        Problem("invented_value", f"{slot}: the text does not say {dict(slots)[slot]!r}, or says it for another slot only")
        for slot in values
        if slot not in places
    ]
    if problems:
        return problems
    frame = Frame(world=world_name, intent=name, slots={slot: json.loads(value) for slot, value in sorted(values.items())})
    read_values = {((world_name, kinds[slot]), value) for slot, value in values.items()}
    left = (one for place, one in enumerate(in_text) if place not in places.values() and one.is_plain)
    return Supported(frame, sum(read_values.isdisjoint(one.values.items()) for one in left))


def form_problems(intent: Intent, slot_names: Sequence[str], *, may_miss: bool = False) -> list[Problem]:
    """What is wrong with the names of a reading's slots. may_miss: whether required ones may be missing."""
    declared = [slot.name for slot in intent.slots]
    problems = [
        Problem("no_such_slot", f"{intent.name} has no slot {name!r}; its slots are {', '.join(declared) or 'none'}")
        for name in dict.fromkeys(slot_names)
        if name not in declared
    ]
    problems += [Problem("no_such_slot", f"{name} stands twice; name a slot once") for name in declared if slot_names.count(name) > 1]
    missing = [slot.name for slot in intent.slots if slot.is_required and slot.name not in slot_names and not may_miss]
    return problems + [Problem("missing_slot", f"{intent.name} needs the slot {name}") for name in missing]


@lru_cache(maxsize=1 << 16)
def legal_value(world: type[World], kind: str, given: str | float, worlds: Worlds) -> str | None:
    """The canonical value, as JSON text, of a name, number or words; None if it is not legal for the kind, or if the words name several
    values."""
    declared = world.kinds[kind]
    if isinstance(declared, Vocabulary) and given in declared.names:
        return canonical_json(given)
    if isinstance(declared, Identifier) and str(given).lower() in declared.choices:
        return canonical_json(str(given).lower())
    number = _number(given)
    if number is not None and isinstance(declared, Quantity):
        return canonical_json(declared.canonical(number)) if declared.low <= number <= declared.high else None
    if number is not None and isinstance(declared, Date):
        is_day = number.is_integer() and 0 <= number <= declared.horizon_days
        return canonical_json(int(number)) if is_day else None
    norm = pl.select(normalise_text(pl.lit(str(given).replace("_", " ")))).item()
    values = {one.values[world.name, kind] for one in mentions([norm], worlds)[0] if (world.name, kind) in one.values}
    return values.pop() if len(values) == 1 else None


def _number(given: str | float) -> float | None:
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None


def _match_mentions(values: Mapping[str, tuple[Kind, str]], in_text: Sequence[Mention]) -> dict[str, int]:
    """Slot -> position of its mention; no mention serves two slots, and slots without one are missing (augmenting paths)."""
    holder: dict[int, str] = {}

    def place(slot: str, tried: set[int]) -> bool:
        kind, value = values[slot]
        for number, one in enumerate(in_text):
            if number not in tried and one.values.get(kind) == value:
                tried.add(number)
                if number not in holder or place(holder[number], tried):
                    holder[number] = slot
                    return True
        return False

    for slot in values:
        place(slot, set())
    return {slot: number for number, slot in holder.items()}
