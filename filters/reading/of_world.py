"""A world as the reader sees it: compiled from what every world declares, its intents, slot kinds and wording.

One idea: a template without its slots says what an intent is about, as a description does in a tool's schema. Of intents of one wording,
of which a rule forbids one, the act is read: whether the rule forbids it is a question of state, not of words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from filters.reading.chinese.chinese_words import UNITS, cues
from filters.reading.declaration import ReadableIntent, ReadableKind, ReadableSlot, ReadableWorld
from filters.reading.readings import ReadValue
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
    intents, declare = {}, _slot if language == "en" else _chinese_slot
    for name, intent in read_intents(world).items():
        texts = _plain_templates(world, name, language)
        slots = {slot.name: declare(world, name, slot.name) for slot in intent.slots}
        required = frozenset(slot.name for slot in intent.slots if slot.is_required)
        intents[name] = ReadableIntent(name, texts[0], slots, required, examples=texts[1:_EXAMPLES])
    return ReadableWorld(world.name, _about(world, language), intents, today_of(world))


def read_intents(world: type[World]) -> dict[str, Intent]:
    """The intents that are read: all but those that only the state of the world tells from another, and those in which something is not
    said: nearly every remark about the subject would be read as one of them."""
    unread = (RefusalReason.RULE, RefusalReason.MISSING_INFORMATION)
    return {name: intent for name, intent in world.intents.items() if intent.refusal not in unread}


def requests_of(world: type[World]) -> list[list[str]]:
    """Some requests for each of the intents that are read, in the world's own wording, in its languages; in lower case."""
    state, rng, requests = world(_SEED), random.Random(_SEED), list[list[str]]()
    for name, intent in read_intents(world).items():
        slots = frozenset(slot.name for slot in intent.slots if slot.is_required)
        frames = [Frame(world=world.name, intent=name, slots=state.draw_slots(name, slots, rng)) for _ in range(_REQUESTS)]
        texts = [render(world, frame, language, rng).lower() for language in world.languages for frame in frames]
        requests.append(list(dict.fromkeys(texts)))
    return requests


def today_of(world: type[World]) -> date:
    """The world's today; of worlds whose requests name no day, any."""
    return next((kind.today for kind in world.kinds.values() if isinstance(kind, Date)), _TODAY)


def _about(world: type[World], language: Language) -> str:
    domain = getattr(world, "domain", None)
    return str(getattr(domain.spec.head.about, language)) if domain is not None else world.name


def _plain_templates(world: type[World], intent: str, language: Language) -> tuple[str, ...]:
    """The templates of an intent without slots and optional parts, each once."""
    templates = load_templates(world).of_intent(intent, language)
    texts = ("".join(piece.text for piece in parse_template(template) if not piece.slots) for template in templates)
    return tuple(dict.fromkeys(re.sub(r"\s+", " ", text).strip(" ,") for text in texts))


def _slot(world: type[World], intent: str, name: str) -> ReadableSlot:
    kind_name = slot_kinds(world, intent)[name]
    kind = world.kinds[kind_name]
    about = " ".join(_words_beside(world, intent, name))
    if isinstance(kind, Identifier):
        return ReadableSlot(name, "id", about, pattern=kind.pattern)
    if isinstance(kind, Date):
        return ReadableSlot(name, "day", about)
    if isinstance(kind, Quantity):
        holds: ReadableKind = "money" if kind.unit in _MONEY else "count"
        nouns = _UNIT_NOUNS.get(kind.unit, frozenset({kind.unit}) - {"count"})
        return ReadableSlot(name, holds, about, low=kind.low, high=kind.high, nouns=nouns)
    if _holds_times(kind):
        return ReadableSlot(name, "time", about)
    if kind.is_open:
        return ReadableSlot(name, "name", about)
    return ReadableSlot(name, "choice", about, _values(world, kind_name, kind, "en"), key=kind_name)


def _holds_times(kind: Vocabulary) -> bool:
    return all(_CLOCK.fullmatch(str(value)) for value in kind.names)


def _values(world: type[World], name: str, kind: Vocabulary, language: Language) -> dict[str, tuple[str, ...]]:
    synonyms = load_grounding(world).synonyms.get(name)
    return {value: tuple(value_spellings(kind, value, language, synonyms)) for value in kind.names}


def _words_beside(world: type[World], intent: str, slot: str) -> Iterator[str]:
    """The words before a slot in the templates of an intent: `to`, `room`, of `to room {other}`."""
    for template in load_templates(world).of_intent(intent, "en")[:2]:
        before = re.search(rf"((?:[\w-]+ ){{0,2}})\{{{slot}\}}", template)
        if before is not None:
            yield from before[1].split()


def _chinese_slot(world: type[World], intent: str, name: str) -> ReadableSlot:
    kind_name = slot_kinds(world, intent)[name]
    kind = world.kinds[kind_name]
    beside = tuple(dict.fromkeys(_texts_beside(world, intent, name)))
    about = next(iter(load_templates(world).kinds.get(kind_name, {}).get("nouns", {}).get("zh", ())), "")
    if isinstance(kind, Identifier):
        return ReadableSlot(name, "id", about, pattern=kind.pattern, beside=beside)
    if isinstance(kind, Date):
        return ReadableSlot(name, "day", about, beside=beside)
    if isinstance(kind, Quantity):
        units = {unit: 1.0 for choice in kind.choices for unit in _written_units(kind, choice)} | dict(UNITS.get(kind.unit, {}))
        if not units:  # what is counted stands behind it: 分{parts}期
            units = {after[:1]: 1.0 for _, after in beside if re.match(r"[^\W\d的]", after)}
        return ReadableSlot(
            name, "count", about, low=kind.low, high=kind.high, units=units, bound=_bound(name, beside), beside=beside, key=kind_name
        )
    if _holds_times(kind):
        return ReadableSlot(name, "time", about, beside=beside)
    values = _values(world, kind_name, kind, "zh")
    if kind.is_open:
        return ReadableSlot(name, "name", about, values, beside=beside, key=kind_name)
    if len(values) == 1 and not next(iter(values.values()))[0].endswith("的"):
        ((label, *_),) = values.values()
        return ReadableSlot(name, "mark", label, values, key=kind_name)
    return ReadableSlot(name, "choice", about, values, beside=beside, key=kind_name)


def _texts_beside(world: type[World], intent: str, slot: str) -> Iterator[tuple[str, str]]:
    """What stands before and after a slot in the templates of an intent, up to another slot."""
    for template in load_templates(world).of_intent(intent, "zh"):
        for match in re.finditer(rf"([^{{}}\[\]，。]*)\{{{slot}\}}([^{{}}\[\]，。]*)", template):
            yield match[1], match[2]


def _written_units(kind: Quantity, value: float) -> Iterator[str]:
    """The units of an amount in Chinese, as they stand behind its number; ¥ and its like before it."""
    for spelling in value_spellings(kind, value, "zh", None):
        unit = re.sub(r"^[\d.,]+", "", spelling)
        if unit and not re.search(r"[\d零一二三四五六七八九十百千万两]", unit):
            yield unit.lower()


def _bound(name: str, beside: Sequence[tuple[str, str]]) -> int:
    """-1 for at least, 1 for at most, by the name of a slot or the words beside it; 0 for neither."""
    for prefix, bound in (("max_", 1), ("min_", -1)):
        if name.startswith(prefix):
            return bound
    for cue, bound in (("at_most", 1), ("at_least", -1)):
        if any(before.endswith(cues(cue, "before")) or after.startswith(cues(cue, "after")) for before, after in beside):
            return bound
    return 0


# ---- values ---------------------------------------------------------------------------------------------------------------------


def slots_of(world: type[World], intent: str, values: tuple[ReadValue, ...]) -> dict[str, JSON] | None:
    """The values in the canonical form of the world; None where one of them is none of its kind."""
    slots: dict[str, JSON] = {}
    for value in values:
        legal = canonical(world.kinds[slot_kinds(world, intent)[value.slot]], value.value)
        if legal is None:
            return None
        slots[value.slot] = legal
    return slots


def canonical(kind: SlotKind, value: Any) -> JSON:
    """A value that was read, in the canonical form of a kind; None where it is none of the kind."""
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
