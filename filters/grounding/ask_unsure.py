"""Asks a language model about texts of which the reader was unsure: which of its few likeliest intents is meant, and with which values.

One idea: the reader has found every place of the text that may be a value (`PossibleFrame`), so an answer is checked against these. A value
must stand in the text, at a place that may fill its slot, or be a name that the text has letter by letter; a place fills one slot. So a
model chooses among what was read, and adds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from filters.grounding.frame_check import Problem, form_problems
from filters.grounding.ground_model import Question, Reading, no_intent, request_of, said_slots
from filters.reading import readings
from filters.reading.complete import missing_slots
from filters.reading.log.log_reader import frame_of
from filters.reading.of_world import canonical
from filters.reading.readings import PossibleFrame, ReadValue
from filters.reading.world_reader import WorldReader
from storage.records import JSON
from synth.tasks.wording import slot_kinds
from synth.text.slot_kinds import Date, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds import WORLDS
from synth.worlds.base import World

Filling = tuple[ReadValue, ...]


def questions(texts: Sequence[str], reader: WorldReader, *, completes: bool) -> list[Question]:
    """A question about each text, with the intents that the reader thinks likeliest. completes: as of `read_chunk`."""
    asked = []
    for text, frames in zip(texts, reader.possible(texts), strict=True):
        intents = tuple(sorted({(frame.world, frame.intent) for frame in frames}))
        request = request_of(text, tuple((WORLDS[world], intent) for world, intent in intents))
        asked.append(Question(request, partial(judge, text=text, frames=frames, completes=completes)))
    return asked


def judge(answer: Any, text: str, frames: Sequence[PossibleFrame], *, completes: bool) -> Reading | list[Problem]:
    """The reading of an answer, or all that is wrong with it: no_such_slot, missing_slot, illegal_value, invented_value, malformed."""
    if (none := no_intent(answer)) is not None:
        return none
    frame = next(each for each in frames if f"{each.world}/{each.intent}" == answer["intent"])
    world, slots = WORLDS[frame.world], said_slots(answer)
    declared = world.intents[frame.intent]
    if problems := form_problems(declared, [name for name, _ in slots], may_miss=completes):
        return problems
    options = {name: list(_places(world, frame, name, said, text)) for name, said in slots}
    said = dict(slots)
    unsaid = [name for name, places in options.items() if not places]
    filling = None if unsaid else next(_fillings(list(options.values())), None)
    if filling is None:
        return [_invented(name, said[name]) for name in unsaid or options]
    places = [place for place in frame.places if not any(_overlap(place, (value.start, value.end)) for value in filling)]
    reading = readings.Reading(frame.world, frame.intent, filling, 0.0, frame.foreign, len(places))
    found, task_text = frame_of(text, reading, completes=completes)
    if found is None:
        missing = missing_slots(world, frame.intent, said)
        wrong = [Problem("missing_slot", f"{frame.intent} needs the slot {name}") for name in missing]
        return wrong or [Problem("illegal_value", f"a value is none of its kind: {', '.join(map(str, said.values()))}")]
    return Reading(found, unexplained=len(places), text=task_text, foreign=" ".join(frame.foreign).lower())


def _invented(slot: str, value: JSON) -> Problem:
    return Problem("invented_value", f"{slot}: the text does not say {value!r}, or says it for another slot only")


def _places(world: type[World], frame: PossibleFrame, slot: str, said: str | float, text: str) -> Iterator[ReadValue]:
    """The places of the text where a slot may have the value that an answer gives."""
    kind = world.kinds[slot_kinds(world, frame.intent)[slot]]
    verbatim = [match.span() for match in re.finditer(rf"(?<![a-z0-9]){re.escape(str(said).casefold())}(?![a-z0-9])", text.casefold())]
    for value in frame.values:
        covered = any(start <= value.start and value.end <= end for start, end in verbatim)
        if value.slot == slot and (covered or _is_said(world, kind, value.value, said)):
            yield value
    if isinstance(kind, Vocabulary) and kind.is_open:
        yield from (ReadValue(slot, text[start:end], text[start:end], start, end, 0.0) for start, end in verbatim)


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


def _fillings(options: Sequence[Sequence[ReadValue]]) -> Iterator[Filling]:
    """The ways to give each slot one of its places such that none is taken twice, but by two bounds of one range."""
    if not options:
        yield ()
        return
    for value in options[0]:
        for rest in _fillings(options[1:]):
            if all(_may_stand_beside(value, other) for other in rest):
                yield (value, *rest)


def _may_stand_beside(one: ReadValue, other: ReadValue) -> bool:
    place, others = (one.start, one.end), (other.start, other.end)
    return not _overlap(place, others) or (place == others and one.value != other.value)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
