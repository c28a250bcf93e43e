"""What the user, the tools and the policy's programs have put into a conversation so far: the possible sources of arguments and answers.

The policy's own texts are no source. `verify.py` decides what needs one; `grounding.py` checks the claims of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import JSON, leaves, parse_arguments
from synth.context.marks import is_mark
from synth.tasks.grounding import Sources
from synth.text.claims import Number, dates_in, has_word, minutes_in, normalise, numbers_in
from synth.worlds.base import World

_POINT_IN_TIME = re.compile(r"\d{4}-\d\d-\d\dt\d\d:\d\d(?::\d\d)?")


@dataclass(slots=True)
class ConversationContext:
    """The texts of a conversation so far; numbers in them are read when first needed.

    forms: canonical forms of the request, normalised.
    texts: requests, results and computed figures, normalised.
    requests: texts of the user, normalised.
    results: results of the world's tools, unchanged.
    computed: figures that programs printed and do not spell out, normalised.
    """

    forms: frozenset[str]
    texts: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    _numbers: list[Number] = field(default_factory=list)
    _texts_read: int = 0

    @property
    def observed(self) -> set[str]:
        """Every value in the results, normalised."""
        values = (value for text in self.results for _, value in leaves(parse_arguments(text) or {}))
        return {normalise(str(value)) for value in values if value is not None and not isinstance(value, bool) and not is_mark(value)} - {
            ""
        }

    def sources(self, world: type[World], system: Sequence[str]) -> Sources:
        return Sources(world, self.texts, self.results, (*self.requests, *self.computed, *system), self.forms)

    def numbers(self) -> list[Number]:
        if self._texts_read == 0:
            self._numbers += [number for form in self.forms for number in numbers_in(form)]
        for text in self.texts[self._texts_read :]:
            self._numbers += numbers_in(text, also_parts=True)
        self._texts_read = len(self.texts)
        return self._numbers

    def has(self, needle: str) -> bool:
        return needle in self.forms or any(has_word(text, needle) for text in self.texts)

    def has_datetime(self, datetime: str) -> bool:
        """Whether the user stated both the day and the time of day."""
        day, minute = datetime[:10], minute_of(datetime[11:16])
        requests = (*self.requests, *self.forms)
        return any(day in dates_in(text) for text in requests) and any(minute in minutes_in(text) for text in requests)

    def supports(self, value: JSON) -> bool:
        """Whether an argument's value has a source: a string literally, a point in time also by its day and its time of day, a number
        exactly or in a larger unit, a list item by item."""
        if value is None or isinstance(value, bool):
            return True
        if isinstance(value, (int, float)):
            return any(value == reading for number in self.numbers() for reading in number.readings)
        if isinstance(value, str):
            text = normalise(value.strip())
            return self.has(text) or (
                _POINT_IN_TIME.fullmatch(text) is not None and (self.has(text.replace("t", " ")) or self.has_datetime(text))
            )
        return all(self.supports(item) for item in (value.values() if isinstance(value, Mapping) else value))


def minute_of(value: str) -> int:
    """Minute of the day of a time such as `09:30`."""
    hour, minute = value.split(":")[:2]
    return int(hour[-2:]) * 60 + int(minute[:2])
