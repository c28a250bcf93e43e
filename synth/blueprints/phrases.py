"""Phrases of scripted roles around a request (`phrases.yaml`), and requests that leave a value out."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from storage.records import Frame, Language
from synth.blueprints.schedule import Cue
from synth.tasks.wording import load_templates, render, spellings
from synth.text.slot_kinds import Date, Identifier, Vocabulary
from synth.worlds.base import Slot, World, cached_per_world

PERSONAS: Mapping[str, tuple[bool, bool, bool]] = {
    "terse": (True, False, False),
    "plain": (False, False, False),
    "polite": (False, False, True),
    "chatty": (False, True, True),
}
"""Persona -> (short wordings only, small talk before a request, small talk after it)."""

_VAGUE_DRAWS = 4


@cache
def _phrases() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load(files("synth.blueprints").joinpath("phrases.yaml").read_text(encoding="utf-8"))
    return loaded


def phrase(key: str, language: Language, rng: random.Random, **values: str) -> str:
    """One of the phrases of `key`, filled."""
    return str(rng.choice(_phrases()[key][language])).format(**values)


def fault(rng: random.Random, *, is_lasting: bool = False) -> str:
    """The error of a tool that fails once, or (`is_lasting`) always."""
    return str(rng.choice(_phrases()["outages" if is_lasting else "faults"]))


def noise(rng: random.Random) -> str:
    """Irrelevant fields of a result, as a JSON object."""
    fields: dict[str, Any] = {}
    for field in rng.sample(_phrases()["noise"], rng.randint(2, 4)):
        fields.update(field)
    text = json.dumps(fields)
    while "{word}" in text:
        text = text.replace("{word}", "".join(rng.choices("bcdfghjkmnpqrstvwxz", k=7)), 1)
    return text


def can_withhold(world: type[World], slot: Slot) -> bool:
    """Whether a request can leave this slot open ("one of my orders"), so that an assistant sees that it must ask. An optional slot cannot
    be left open: a request without it asks for nothing more."""
    kind = load_templates(world).kinds.get(slot.kind)
    return kind is not None and slot.is_required and "ask" in kind and "vague" in kind


def can_point_at(world: type[World], slot: Slot) -> bool:
    """Whether a request can refer to a value of this slot as just mentioned."""
    return "that" in load_templates(world).kinds.get(slot.kind, {})


def question(world: type[World], slot: Slot, language: Language, rng: random.Random) -> str:
    return rng.choice(load_templates(world).kinds[slot.kind]["ask"][language])


def request(world: type[World], frame: Frame, language: Language, rng: random.Random, persona: str) -> str:
    """A frame in the words of a persona, without a full stop."""
    is_short, _, _ = PERSONAS[persona]
    return render(world, frame, language, rng, canonical=is_short)


def vague_request(world: type[World], frame: Frame, language: Language, rng: random.Random) -> str:
    """A frame in words: of a few drawn wordings, the one with the fewest plain names of values and tools."""
    plain = [spellings(world, frame.intent, slot, value, language)[0].casefold() for slot, value in frame.slots.items()]
    plain += [word for words in world.tool_words.values() for word in words]
    requests = [render(world, frame, language, rng) for _ in range(_VAGUE_DRAWS)]
    return min(requests, key=lambda text: sum(word in text.casefold() for word in plain))


def self_correction(
    world: type[World], text: str, frame: Frame, slots: Sequence[str], language: Language, rng: random.Random
) -> str | None:
    """The text in which the user says a wrong value and corrects it at once; None if the text contains no value of these slots."""
    kinds = world.kinds
    for name in rng.sample(slots, len(slots)):
        kind = kinds[slots_of(world, frame.intent)[name].kind]
        choices = list(kind.names) if isinstance(kind, Vocabulary) else [] if isinstance(kind, Date) else list(kind.choices)
        others = [value for value in choices if value not in frame.slots.values()]
        forms = sorted(spellings(world, frame.intent, name, frame.slots[name], language), key=len, reverse=True)
        right = next((spelling for spelling in forms if _is_word(spelling, text)), None)
        if right is not None and others:
            wrong = spellings(world, frame.intent, name, rng.choice(others), language)[0]
            at = next(_places(right, text))
            return text[:at] + phrase("correction", language, rng, wrong=wrong, right=right) + text[at + len(right) :]
    return None


def add_cues(text: str, cues: Sequence[Cue], language: Language, rng: random.Random) -> str:
    """A request, with a sentence for each cue."""
    stop = "" if not cues or text[-1:] in ".?!。？！" else "。" if language == "zh" else "."
    between = "" if language == "zh" else " "
    return text + stop + "".join(between + phrase(cue, language, rng) for cue in cues)


def says_cue(text: str, cue: Cue) -> bool:
    """Whether a user's message asks for this, in its own words."""
    words: Mapping[Cue, Sequence[str]] = _phrases()["cue_words"]
    plain = text.casefold()
    return any(_is_word(word, plain) for word in words[cue])


def add_small_talk(world: type[World], text: str, language: Language, rng: random.Random, persona: str) -> str:
    """A first request with the persona's small talk."""
    _, opens, closes = PERSONAS[persona]
    templates, comma = load_templates(world), "，" if language == "zh" else ", "
    before = rng.choice(templates.openers[language]) + comma if opens and templates.openers.get(language) else ""
    after = comma + rng.choice(templates.closers[language]) if closes and templates.closers.get(language) else ""
    return before + text + after


def request_without(
    world: type[World], frame: Frame, slot: Slot, language: Language, rng: random.Random, persona: str, *, style: str
) -> str | None:
    """The frame in words without the value of a slot; None if the wording needs it.

    style: `vague` ("one of my orders") or `that` ("that order").
    """
    text = request(world, frame, language, rng, persona)
    names = spellings(world, frame.intent, slot.name, frame.slots[slot.name], language)
    styles = load_templates(world).kinds[slot.kind]
    stand_in = rng.choice(styles[style][language])
    replaced = _replace(text, names, styles.get("nouns", {}).get(language, ()), stand_in, language)
    return None if replaced is None or any(name.casefold() in replaced.casefold() for name in names) else replaced


def _replace(text: str, names: Sequence[str], nouns: Sequence[str], stand_in: str, language: Language) -> str | None:
    plain = text.casefold()
    for name in sorted(names, key=len, reverse=True):
        if name.casefold() in plain and (replaced := _without(text, name, _lead(tuple(nouns)), stand_in, language)) != text:
            return replaced
    return None


def _without(text: str, name: str, lead: re.Pattern[str], stand_in: str, language: Language) -> str:
    """The text with `stand_in` for the name, as a word of its own, and what leads up to it. No pattern is compiled for the name."""
    plain = "".join(each.lower() if len(each.lower()) == 1 else each for each in text) if language == "en" else text
    form = name.lower() if language == "en" else name
    parts, begin = [], 0
    at = plain.find(form)
    while at >= 0:
        end = at + len(form)
        if not (name[:1].isascii() and _is_latin(text[at - 1 : at])) and not (name[-1:].isascii() and _is_latin(text[end : end + 1])):
            match = lead.search(text[begin:at])
            assert match is not None
            parts += [text[begin : begin + match.start()], stand_in]
            begin = end
        at = plain.find(form, max(begin, at + 1))
    return "".join((*parts, text[begin:]))


def _is_latin(beside: str) -> bool:
    return beside.isascii() and beside.isalnum()


@lru_cache(maxsize=1024)
def _lead(nouns: tuple[str, ...]) -> re.Pattern[str]:
    """A noun before a value, with its article, or nothing."""
    return re.compile(rf"(?:(?:the |my )?(?:{'|'.join(nouns)})s? ?)?\Z" if nouns else r"\Z", re.IGNORECASE)


def reveal(world: type[World], frame: Frame, slot: Slot, language: Language, rng: random.Random) -> str:
    """The user's reply with the withheld value."""
    return phrase("reveal", language, rng, value=rng.choice(spellings(world, frame.intent, slot.name, frame.slots[slot.name], language)))


@cached_per_world(1024)
def mentioned_values(world: type[World], text: str, intent: str, slot: str, language: Language) -> tuple[Any, ...]:
    """The possible values of a slot that a text names, in the order of the world's list; none for numbers and dates."""
    plain = text.casefold()
    return tuple(value for name, value in _plain_names(world, intent, slot, language) if name in plain and _is_word(name, plain))


@cached_per_world()
def _plain_names(world: type[World], intent: str, slot: str, language: Language) -> tuple[tuple[str, Any], ...]:
    """The plainest spelling of each value, with the value."""
    kind = world.kinds[slots_of(world, intent)[slot].kind]
    choices = tuple(kind.names) if isinstance(kind, Vocabulary) else kind.choices if isinstance(kind, Identifier) else ()
    return tuple((spellings(world, intent, slot, value, language)[0].casefold(), value) for value in choices)


def _is_word(name: str, text: str) -> bool:
    return next(_places(name, text), None) is not None


def _places(name: str, text: str) -> Iterator[int]:
    """Positions of a name in a text; an ASCII name must be a whole word. No pattern is compiled: there are as many names as rows."""
    at = text.find(name)
    while at >= 0:
        beside = text[at - 1 : at] + text[at + len(name) : at + len(name) + 1]
        if not name.isascii() or not any(map(_is_latin, beside)):
            yield at
        at = text.find(name, at + 1)


@cached_per_world()
def entities_of(world: type[World], intent: str) -> frozenset[str]:
    """Names of the slots that name individuals."""
    return frozenset(name for name, slot in slots_of(world, intent).items() if slot.is_entity)


@cached_per_world()
def slots_of(world: type[World], intent: str) -> Mapping[str, Slot]:
    return {slot.name: slot for slot in world.intents[intent].slots}
