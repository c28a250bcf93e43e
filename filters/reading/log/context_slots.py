"""Fills slots of a reading from what is known beside the request (`filters/ingest/in_context.py`): the column `city` fills the slot `city`.

One idea: the request counts first. A context fills a slot that the request leaves open, whose name or noun has the words of the column's
name, if no other open slot has them, and if its cell is a value of the slot's kind; all else is only told to the policy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from filters.ingest.in_context import Cell
from filters.reading.chinese.chinese_spans import typed_spans
from filters.reading.chinese.chinese_words import plain
from filters.reading.declaration import split_name
from filters.reading.english_words import FUNCTION_WORDS, stem
from filters.reading.of_world import canonical, today_of
from filters.reading.readings import Reading, ReadValue
from synth.tasks.wording import load_grounding, load_templates, slot_kinds
from synth.text.mentions import mentions_in
from synth.text.slot_kinds import Date, Identifier, Quantity, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds.base import World

_CLOCK = re.compile(r"\d\d:\d\d")


def fill_from_context(reading: Reading, world: type[World], context: Sequence[Cell]) -> Reading:
    """The reading, with the values that its context gives to slots which the request leaves open."""
    values = list(reading.values)
    for cell in context:
        taken = {value.slot for value in values}
        names = [slot.name for slot in world.intents[reading.intent].slots if slot.name not in taken]
        called = [name for name in names if _is_called(world, reading.intent, name, cell.label)]
        exact = [name for name in called if name == cell.label.lower()]
        if len(found := exact or called) == 1 and (value := _value(world, reading.intent, found[0], cell.value)) is not None:
            values.append(ReadValue(found[0], value, cell.value, cell.start, cell.start + len(cell.value), 1.0))
    return replace(reading, values=tuple(values))


def _is_called(world: type[World], intent: str, slot: str, label: str) -> bool:
    """Whether a slot has all words of a column's name."""
    nouns = load_templates(world).kinds.get(slot_kinds(world, intent)[slot], {}).get("nouns", {})
    if label in nouns.get("zh", ()):
        return True
    said = _stems(label)
    return bool(said) and any(said <= _stems(name) for name in (slot, *nouns.get("en", ())))


def _stems(name: str) -> set[str]:
    return {stem(word) for word in split_name(name) if word not in FUNCTION_WORDS}


def _value(world: type[World], intent: str, slot: str, said: str) -> Any:
    """What a cell says, as a reader would have it; None for what is no value of the slot's kind."""
    name = slot_kinds(world, intent)[slot]
    kind, value = world.kinds[name], None
    if isinstance(kind, Identifier):
        value = said.lower() if re.fullmatch(kind.pattern, said.lower()) else None
    elif isinstance(kind, Vocabulary) and not all(_CLOCK.fullmatch(str(each)) for each in kind.names):
        synonyms = load_grounding(world).synonyms.get(name)
        spelled = {
            text.casefold(): each
            for each in kind.names
            for language in world.languages
            for text in (each, *value_spellings(kind, each, language, synonyms))
        }
        value = spelled.get(said.casefold(), said if kind.is_open else None)
    else:
        wanted = ("day",) if isinstance(kind, Date) else ("number", "money", "amount") if isinstance(kind, Quantity) else ("time",)
        value = _typed(said, world, wanted)
    return value if value is not None and canonical(kind, value) is not None else None


def _typed(said: str, world: type[World], wanted: Sequence[str]) -> Any:
    """The first day, time or number of a cell."""
    today = today_of(world)
    found: list[tuple[str, Any]] = [(mention.kind, mention.value) for mention in mentions_in(said, today)]
    found += [(span.kind, span.value) for span in typed_spans(plain(said), said, today)]
    return next((value for kind, value in found if kind in wanted), None)
