"""A world as the reader sees it: compiled from what every world declares, its intents, slot kinds and wording.

One idea: a template without its slots says what an intent is about, as a description does in a tool's schema. Of intents of one wording,
of which a rule forbids one, the act is read: whether the rule forbids it is a question of state, not of words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from filters.reading.declaration import ReadableIntent, ReadableKind, ReadableSlot, ReadableWorld
from filters.reading.reader import ReadValue
from storage.records import JSON, Frame, Language, RefusalReason, content_id
from synth.tasks.wording import load_grounding, load_templates, parse_template, render, slot_kinds
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds.base import Intent, World

_CLOCK = re.compile(r"\d\d:\d\d")
_MONEY = frozenset({"yuan", "dollars", "euros", "pounds"})
_TODAY = date(2026, 5, 13)
_UNIT_NOUNS: Mapping[str, frozenset[str]] = {
    "m": frozenset({"m", "meter", "metre", "km", "kilometer", "kilometre"}),
    "minutes": frozenset({"minute", "min", "hour"}),
    "stars": frozenset({"star", "point"}),
    "people": frozenset({"people", "person", "guest", "adult", "us"}),
}
_EXAMPLES = 6
_SEED, _REQUESTS = 0, 4
MAX_NAME = 120
"""Characters of the longest name that a world is given."""


def readable_world(world: type[World], language: Language = "en") -> ReadableWorld | None:
    """The world, for requests in this language; None where it does not speak it."""
    if language not in world.languages:
        return None
    intents = {}
    for name, intent in read_intents(world).items():
        texts = _plain_templates(world, name, language)
        slots = {slot.name: _slot(world, name, slot.name, language) for slot in intent.slots}
        required = frozenset(slot.name for slot in intent.slots if slot.is_required)
        intents[name] = ReadableIntent(name, texts[0], slots, required, examples=texts[1:_EXAMPLES])
    return ReadableWorld(world.name, _about(world), intents, today_of(world))


def read_intents(world: type[World]) -> dict[str, Intent]:
    """The intents that are read: all but those that only the state of the world tells from another, and those in which something is not
    said: nearly every remark about the subject would be read as one of them."""
    unread = (RefusalReason.RULE, RefusalReason.MISSING_INFORMATION)
    return {name: intent for name, intent in world.intents.items() if intent.refusal not in unread}


def requests_of(world: type[World], language: Language = "en") -> list[str]:
    """Some requests for each of the intents that are read, in the world's own wording; in lower case."""
    state, rng, texts = world(_SEED), random.Random(_SEED), list[str]()
    for name, intent in read_intents(world).items():
        slots = frozenset(slot.name for slot in intent.slots if slot.is_required)
        frames = (Frame(world=world.name, intent=name, slots=state.draw_slots(name, slots, rng)) for _ in range(_REQUESTS))
        texts += [render(world, frame, language, rng).lower() for frame in frames]
    return list(dict.fromkeys(texts))


def today_of(world: type[World]) -> date:
    """The world's today; of worlds whose requests name no day, any."""
    return next((kind.today for kind in world.kinds.values() if isinstance(kind, Date)), _TODAY)


def _about(world: type[World]) -> str:
    domain = getattr(world, "domain", None)
    return str(domain.spec.head.about.en or domain.spec.head.about.zh) if domain is not None else world.name


def _plain_templates(world: type[World], intent: str, language: Language) -> tuple[str, ...]:
    """The templates of an intent without slots and optional parts, each once."""
    templates = load_templates(world).of_intent(intent, language)
    texts = ("".join(piece.text for piece in parse_template(template) if not piece.slots) for template in templates)
    return tuple(dict.fromkeys(re.sub(r"\s+", " ", text).strip(" ,") for text in texts))


def _slot(world: type[World], intent: str, name: str, language: Language) -> ReadableSlot:
    kind_name = slot_kinds(world, intent)[name]
    kind = world.kinds[kind_name]
    about = " ".join(_words_beside(world, intent, name, language))
    if isinstance(kind, Identifier):
        return ReadableSlot(name, "id", about, pattern=kind.pattern)
    if isinstance(kind, Date):
        return ReadableSlot(name, "day", about)
    if isinstance(kind, Quantity):
        holds: ReadableKind = "money" if kind.unit in _MONEY else "count"
        nouns = _UNIT_NOUNS.get(kind.unit, frozenset({kind.unit}) - {"count"})
        return ReadableSlot(name, holds, about, low=kind.low, high=kind.high, nouns=nouns)
    if all(_CLOCK.fullmatch(str(value)) for value in kind.names):
        return ReadableSlot(name, "time", about)
    if kind.is_open:
        return ReadableSlot(name, "name", about)
    synonyms = load_grounding(world).synonyms.get(kind_name)
    values = {value: tuple(value_spellings(kind, value, language, synonyms)) for value in kind.names}
    return ReadableSlot(name, "choice", about, values, key=kind_name)


def _words_beside(world: type[World], intent: str, slot: str, language: Language) -> Iterator[str]:
    """The words before a slot in the templates of an intent: `to`, `room`, of `to room {other}`."""
    for template in load_templates(world).of_intent(intent, language)[:2]:
        before = re.search(rf"((?:[\w-]+ ){{0,2}})\{{{slot}\}}", template)
        if before is not None:
            yield from before[1].split()


# ---- values ---------------------------------------------------------------------------------------------------------------------


def slots_of(world: type[World], intent: str, values: tuple[ReadValue, ...]) -> dict[str, JSON] | None:
    """The values in the canonical form of the world; None where one of them is none of its kind."""
    slots: dict[str, JSON] = {}
    for value in values:
        canonical = _canonical(world.kinds[slot_kinds(world, intent)[value.slot]], value.value)
        if canonical is None:
            return None
        slots[value.slot] = canonical
    return slots


def _canonical(kind: SlotKind, value: Any) -> JSON:
    if isinstance(kind, Date):
        days = (value - kind.today) // timedelta(days=1)
        return days if 0 <= days <= kind.horizon_days else None
    if isinstance(kind, Quantity):
        is_whole = kind.has_decimals or float(value).is_integer()
        return kind.canonical(value) if is_whole and kind.low <= value <= kind.high else None
    if isinstance(kind, Vocabulary):
        text = f"{value // 60:02d}:{value % 60:02d}" if isinstance(value, int) and not isinstance(value, bool) else value
        return text if text in kind.names else _open_name(kind, str(text)) if kind.is_open else None
    return _existing_id(kind, str(value))


def _open_name(kind: Vocabulary, said: str) -> str | None:
    """The name as it is said, or the known one that it spells; None for what no name can be."""
    known = {spelling.casefold(): value for value, spellings in kind.names.items() for spelling in (*spellings.values(), value)}
    return known.get(said.casefold(), said if len(said) <= MAX_NAME and said.isprintable() else None)


def _existing_id(kind: Identifier, said: str) -> str:
    """The identifier; one that no seed of the world has is a user's own, and stands for one that is there, always for the same."""
    return said if said in kind.choices else kind.choices[int(content_id("id", said)[-8:], 16) % len(kind.choices)]


def reword(text: str, world: type[World], intent: str, values: tuple[ReadValue, ...]) -> str:
    """The text with identifiers that the world has in place of the user's own."""
    for value in sorted(values, key=lambda value: -value.start):
        kind = world.kinds[slot_kinds(world, intent)[value.slot]]
        if isinstance(kind, Identifier) and (key := _existing_id(kind, str(value.value))) != value.value:
            text = text[: value.start] + key + text[value.end :]
    return text
