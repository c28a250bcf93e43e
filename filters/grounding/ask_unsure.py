"""Asks a language model about texts of which the reader was unsure: which of its few likeliest intents is meant, and with which values.

One idea: the reader has found every place of the text that may be a value (`PossibleFrame`), so an answer is checked against these. A value
must stand in the text, at a place that may fill its slot, or be a name that the text has letter by letter; a place fills one slot. So a
model chooses among what was read, and adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from filters.grounding.frame_check import Problem, form_problems
from filters.grounding.ground_model import Question, Reading, no_intent, request_of, said_slots
from filters.ingest.in_context import Cell, split_context
from filters.reading import readings
from filters.reading.complete import missing_slots
from filters.reading.english_words import FUNCTION_WORDS, SMALL_TALK, words
from filters.reading.log.context_slots import fill_from_context
from filters.reading.log.log_reader import frame_of
from filters.reading.of_world import canonical
from filters.reading.readings import PossibleFrame, ReadValue
from filters.reading.world_reader import WorldReader, language_of
from storage.records import JSON, Language
from synth.tasks.wording import slot_kinds
from synth.text.slot_kinds import Date, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds import WORLDS
from synth.worlds.base import World

Filling = tuple[ReadValue, ...]
_MOST_PLACES = 12
"""Places of the text that are tried for a value."""
_NO_NAMES = FUNCTION_WORDS | SMALL_TALK
_BESIDE = words("articles") | words("prepositions")


@dataclass(frozen=True, slots=True)
class Asked:
    """A text that a model is asked about. text: with its context. frames: what the text alone may ask for. context: its cells."""

    text: str
    frames: tuple[PossibleFrame, ...]
    context: tuple[Cell, ...]
    language: Language


def questions(texts: Sequence[str], reader: WorldReader, *, completes: bool, labels: Sequence[str] = ()) -> list[Question]:
    """A question about each text, with the intents that the reader thinks likeliest. completes, labels: as of `read_chunk`."""
    apart = [split_context(text, labels) for text in texts]
    asked = []
    for text, (alone, context), frames in zip(texts, apart, reader.possible([alone for alone, _ in apart]), strict=True):
        intents = tuple(sorted({(frame.world, frame.intent) for frame in frames}))
        request = request_of(text, tuple((WORLDS[world], intent) for world, intent in intents), may_be_new=True)
        about = Asked(text, tuple(frames), tuple(context), language_of(alone))
        asked.append(Question(request, partial(judge, asked=about, completes=completes)))
    return asked


def judge(answer: Any, asked: Asked, *, completes: bool) -> Reading | list[Problem]:
    """The reading of an answer, or all that is wrong with it: no_such_slot, missing_slot, illegal_value, invented_value, malformed."""
    if (none := no_intent(answer)) is not None:
        return none
    frame = next(each for each in asked.frames if f"{each.world}/{each.intent}" == answer["intent"])
    world, slots = WORLDS[frame.world], said_slots(answer)
    if problems := form_problems(world.intents[frame.intent], [name for name, _ in slots], may_miss=completes):
        return problems
    said = dict(slots)
    nothing = readings.Reading(frame.world, frame.intent, (), 0.0, (), 0)
    beside = {value.slot: value for value in fill_from_context(nothing, world, asked.context).values}
    options = {name: _places(world, frame, name, value, asked.text, beside.get(name)) for name, value in slots}
    unsaid = [name for name, places in options.items() if not places]
    filling = None if unsaid else next(_fillings(sorted(options.values(), key=len)), None)
    if filling is None:
        return [_invented(name, said[name]) for name in unsaid or options]
    left = sum(not any(_overlap(place, (value.start, value.end)) for value in filling) for place in frame.places)
    explained = " ".join(value.said for value in filling)
    foreign = tuple(word for word in frame.foreign if not _verbatim(word, explained))
    reading = fill_from_context(readings.Reading(frame.world, frame.intent, filling, 0.0, foreign, left), world, asked.context)
    found, task_text = frame_of(asked.text, reading, completes=completes, language=asked.language)
    if found is None:
        missing = missing_slots(world, frame.intent, {value.slot: value.value for value in reading.values})
        wrong = [Problem("missing_slot", f"{frame.intent} needs the slot {name}") for name in missing]
        return wrong or [Problem("illegal_value", f"a value is none of its kind: {', '.join(map(str, said.values()))}")]
    return Reading(found, unexplained=left, text=task_text, foreign=" ".join(foreign).lower())


def _invented(slot: str, value: JSON) -> Problem:
    return Problem("invented_value", f"{slot}: the text does not say {value!r}, or says it for another slot only")


def _places(world: type[World], frame: PossibleFrame, slot: str, said: str | float, text: str, beside: ReadValue | None) -> list[ReadValue]:
    """The places of the text where a slot may have the value that an answer gives. beside: what the context says for the slot."""
    kind = world.kinds[slot_kinds(world, frame.intent)[slot]]
    verbatim = _verbatim(str(said).strip(), text)
    named = (value for value in (*frame.values, *((beside,) if beside is not None else ())) if value.slot == slot)
    found = [value for value in named if _is_at(value, verbatim, text) or _is_said(world, kind, value.value, said)]
    if isinstance(kind, Vocabulary) and kind.is_open:
        found += [ReadValue(slot, text[start:end], text[start:end], start, end, 0.0) for start, end in verbatim]
    return found[:_MOST_PLACES]


def _verbatim(said: str, text: str) -> list[tuple[int, int]]:
    """Where the text has these words, letter by letter; nowhere if they are none that could be a value."""
    if not any(character.isalnum() for character in said) or all(word in _NO_NAMES for word in said.lower().split()):
        return []
    pattern = rf"(?<![A-Za-z0-9]){re.escape(said)}(?![A-Za-z0-9])"
    return [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]


def _is_at(value: ReadValue, verbatim: Sequence[tuple[int, int]], text: str) -> bool:
    """Whether one of these places is that of the value, but for articles and prepositions before it."""
    return any(
        start <= value.start and value.end == end and set(text[start : value.start].lower().split()) <= _BESIDE for start, end in verbatim
    )


def _is_said(world: type[World], kind: SlotKind, value: Any, said: str | float) -> bool:
    """Whether an answer gives this value, in its canonical form or in one of its spellings."""
    legal = canonical(kind, value)
    if legal is None:
        return False
    if isinstance(legal, float | int) and re.fullmatch(r"\d+(\.\d+)?", str(said)):
        return float(said) == legal
    if isinstance(kind, Date) and str(said) == value.isoformat():
        return True
    if isinstance(kind, Vocabulary) and legal not in kind.names:
        return str(said).casefold() == str(legal).casefold()
    spelled = (text.casefold() for language in world.languages for text in value_spellings(kind, legal, language))
    return str(said).casefold() in {str(legal).casefold(), *spelled}


def _fillings(options: Sequence[Sequence[ReadValue]], taken: Filling = ()) -> Iterator[Filling]:
    """The ways to give each slot one of its places such that none is taken twice, but by two bounds of one range."""
    if not options:
        yield taken
        return
    for value in options[0]:
        if all(_may_stand_beside(value, other) for other in taken):
            yield from _fillings(options[1:], (*taken, value))


def _may_stand_beside(one: ReadValue, other: ReadValue) -> bool:
    place, others = (one.start, one.end), (other.start, other.end)
    return not _overlap(place, others) or (place == others and one.value != other.value)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
