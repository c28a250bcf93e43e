"""The grounding veto: does an answer tell a number, time, day, identifier or name that nobody said and no result showed?

One idea: the answer is read as *claims* (`number_words.py`, `datetimes.py`, `quantities.py`, `reading.NameIndex`), and each claim needs a
source of its own kind among what was heard: 22 minutes need a duration of 22 minutes or a number of which nothing tells what it is, not
22 m. What counts as heard: requests, results with the units of their fields, figures that a program computed, the canonical forms of the
request; numbers, times and days also from the system message, names not (it speaks of everything).

Claims: numbers (told within 1 %, or rounded), counts of things (also by the length of a list that was shown, or that the answer itself
makes), times of day, days with and without a year, weekdays, identifiers, names that the world knows or that its kind may draw, and in
English capitalised names that nobody wrote. Not claims: list marks, ordinals to ten, figures of speech, "one of them".
Not seen: invented names in Chinese that no world of the kind could draw; figures that the answer adds up itself are invented.
Source: definition P8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from storage.records import JSON
from synth.text.claims import Claims, NameIndex, Number, has_word, normalise, read_claims
from synth.text.datetimes import Datetimes, datetimes_in, weekday_of
from synth.text.number_words import MAY_CLAIM, WORDED_MARK, words_to_digits
from synth.text.proper_names import unknown_names
from synth.text.quantities import (
    COUNT,
    LABEL,
    RATING,
    SHARE,
    StatedQuantity,
    Unit,
    are_comparable,
    may_state,
    quantities_in,
    units_of_field,
)
from synth.worlds.base import World, cached_per_world

_ID = re.compile(r"(?<![a-z0-9])(?![2-6]g\b)[a-z]{1,4}-?\d[a-z0-9]*(?![a-z0-9])")
_NO_ID = re.compile(
    r"(?:rmb|cny|usd|eur|gbp|no|h|at|to|top|day)-?\d+(?:st|nd|rd|th|k|m|min)?|(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)-\d+"
)
_LIST_MARK = re.compile(
    r"^[ \t>*#|-]*[(\[【]?\d{1,2}(?:[)\]】、]|[.](?!\d)|\ufe0f?\u20e3| [–—-] )|(?<=[\s;:,：；，。])\(?\d\)(?= )", re.MULTILINE
)
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d.,])")
_BULLET = re.compile(r"^[ \t]*[-*•]\s", re.MULTILINE)
_ORDINAL = re.compile(rf"第{WORDED_MARK}?(?:[1-9]|10)(?!\d)|\b(?:[1-9]|10)(?:st|nd|rd|th)\b|\btop[ -]{WORDED_MARK}?(?:[1-9]|10)\b(?! ?%)")
_PART_OF_DAY = re.compile(
    r"(?<![\d.])(\d{1,2})(?:th|st|nd|rd)\b|(?<![\d.])(\d{1,2})[日号](?![线楼店口路])|(?<![\d.])(\d{1,2})月|(?<![\d.])(\d{4})(?![\d.])年?"
)
"""A day of the month, a month or a year, told alone."""
_CLOCK_OR_NOT = re.compile(
    r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d) ?(?:hours|hrs?|h)\b|(?<=\bat )([01]?\d|2[0-4])\.([0-5]\d)(?![\d%])"
    r"|(?<![\d:.])([01]\d|2[0-3])([0-5]\d) ?(?:hours|hrs)\b"
)
_THE_FEW = re.compile(
    rf"(?:\b(?:the|these|those|all|first|last|best|following|other|next|my|your|our|only|of) {WORDED_MARK}?"
    rf"|(?:这|那|前|其中|以上|以下|上述|后|头|另外|另|任|哪|各|仅|有)的?{WORDED_MARK}?)$"
)
_CHOICE = re.compile(
    r" ?(?:[a-z]+ )?(?:options?|choices?|candidates?|suggestions?|picks|alternatives|possibilities|ways|steps|things|points|parts|legs)\b"
    r"|[个种项条点](?:选择|选项|建议|方案|办法|方式|步骤|候选|部分|因素|方面)"
)
_NUMERAL = re.compile(r"[\d零一二两三四五六七八九十百千]|first|one|two|three|hundred|dozen")
_LETTER = re.compile(r"[a-z\u3400-\u9fff]")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?|\d\d:\d\d(?:-\d\d:\d\d)?")
_FEW = 10


class Seen(NamedTuple):
    """What one text shows: its numbers as they stand there, each with the units that it may be in (empty where nothing tells), points
    in time, and lengths of lists."""

    numbers: Mapping[float, tuple[tuple[Unit, ...], ...]]
    moments: Datetimes
    lengths: frozenset[int] = frozenset()


@dataclass(slots=True)
class Sources:
    """What an answer may draw on.

    world: that of the task.
    texts: everything that was heard, normalised.
    results: of the world's tools, as they came.
    said: the texts that are no results, and system messages.
    forms: see `World.slot_forms`.
    """

    world: type[World]
    texts: Sequence[str]
    results: Sequence[str]
    said: Sequence[str]
    forms: frozenset[str]
    _shown: list[Seen] = field(default_factory=list)

    @property
    def shown(self) -> Sequence[Seen]:
        if not self._shown:
            self._shown += [_seen_in_result(self.world, text) for text in self.results]
            self._shown += [_seen_in_text(text) for text in (*self.said, *self.forms)]
        return self._shown

    def has(self, needle: str) -> bool:
        return needle in self.forms or any(has_word(text, needle) for text in self.texts)

    def has_anywhere(self, needle: str) -> bool:
        return self.has(needle) or any(has_word(text, needle) for text in self.said)


def is_grounded(answer: str, sources: Sources, names: Sequence[NameIndex]) -> bool:
    """Whether everything that an answer (as it was written) claims has its source."""
    answer = _THIN_SPACE.sub(",", answer.replace("º", "°"))
    written = normalize("NFKC", answer).replace("’", "'")
    text = normalise(answer)
    mentions = _mentions(text, names)
    if not all(any(sources.has(spelling) for spelling in spellings) for _, _, spellings in mentions):
        return False
    if len(written) != len(text):  # ß and its like are longer in lower case
        written = "".join(each if len(each.casefold()) == 1 else each.casefold() for each in written)
    for start, end, _ in mentions:
        written = f"{written[:start]}{'_' * (end - start)}{written[end:]}"
    if not all(sources.has_anywhere(name) for name in unknown_names(written, sources.has_anywhere)):
        return False
    for start, end, _ in sorted(mentions, reverse=True):
        if _NUMERAL.search(text, start, end):
            text = f"{text[:start]} {text[end:]}"
    if not MAY_CLAIM.search(text):
        return True
    identifiers = [each for each in _ID.findall(text) if not _NO_ID.fullmatch(each)]
    if not all(sources.has_anywhere(identifier) for identifier in identifiers):
        return False
    if identifiers:
        text = _ID.sub(lambda match: match[0] if _NO_ID.fullmatch(match[0]) else " ", text)
        if not MAY_CLAIM.search(text):
            return True
    listed = frozenset((len(mentions), len(set(identifiers)), len(_LIST_MARK.findall(text)), len(_BULLET.findall(text)))) - {0}
    moments = _told_moments(text)
    if not _are_known(moments, sources):
        return False
    remaining = _without_known_clocks(_without_known_days(moments.rest, sources), sources)
    remaining = _SPACED.sub(lambda match: _as_one_number(match[0], sources), remaining)
    return all(_is_supported(each, remaining, sources, listed) for each in quantities_in(remaining))


def stated_claims(answer: str) -> Claims:
    """What an answer tells, for whoever looks for a fact in it: figures in words too, and in smaller units; times with all that they may
    mean; days, those without a year as `--05-17`."""
    text = normalise(answer)
    plain, moments = read_claims(text), _told_moments(text)
    numbers = [
        Number(each.value, (each.value, *(each.value * factor for name, factor in each.units if name in _LIKELY and factor > 1)))
        for each in quantities_in(moments.rest)
    ]
    days = {f"{year or '-'}-{month:02d}-{day:02d}" for year, month, day in moments.days}
    return Claims([*plain.numbers, *numbers], plain.minutes.union(moments.minutes()), plain.dates | days, plain.ids)


@lru_cache(maxsize=2048)
def _told_moments(text: str) -> Datetimes:
    return datetimes_in(_ORDINAL.sub(" ", words_to_digits(_LIST_MARK.sub(" ", text))))


# ---- what was shown -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _seen_in_text(text: str) -> Seen:
    moments = datetimes_in(words_to_digits(text))
    numbers: dict[float, tuple[tuple[Unit, ...], ...]] = {}
    for each in quantities_in(moments.rest):
        if each.is_worded and each.value <= 1 and not each.units:  # one says so
            continue
        numbers[each.value] = (*numbers.get(each.value, ()), each.units)
    return Seen(numbers, moments)


@cached_per_world(maxsize=512)
def _seen_in_result(world: type[World], text: str) -> Seen:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, (dict, list)):
        return _seen_in_text(normalise(text))
    reader = _Reader(world.units)
    reader.walk(value, "")
    numbers = {number: tuple(units) for number, units in reader.numbers.items()}
    return Seen(numbers, datetimes_in(words_to_digits(normalise(" ; ".join(dict.fromkeys(reader.texts))))), frozenset(reader.lengths))


class _Reader:
    """Walks a result. units: of its fields, as the world tells them."""

    def __init__(self, units: Mapping[str, str]) -> None:
        self.units = units
        self.numbers: dict[float, set[tuple[Unit, ...]]] = {}
        self.texts: list[str] = []
        self.lengths: set[int] = set()

    def walk(self, value: JSON, name: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self.walk(each, key)
        elif isinstance(value, list):
            self.lengths.add(len(value))
            for each in value:
                self.walk(each, name)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            self.numbers.setdefault(float(value), set()).add(units_of_field(name, self.units.get(name)))
        elif isinstance(value, str) and not _ID.fullmatch(value) and MAY_CLAIM.search(value):
            field_units = units_of_field(name, self.units.get(name))
            if field_units and field_units[0][0] == LABEL:
                return
            self.texts.append(value)
            if _MOMENT.fullmatch(value):
                return
            for number, units_of_number in _seen_in_text(normalise(value)).numbers.items():
                self.numbers.setdefault(number, set()).update(units or field_units for units in units_of_number)


# ---- points in time -------------------------------------------------------------------------------------------------------------


def _are_known(stated: Datetimes, sources: Sources) -> bool:
    if not (stated.times or stated.days or stated.weekdays):
        return True
    shown = [known_times.moments for known_times in sources.shown]
    if stated.times:
        minutes = {minute for each in shown for minutes in each.times for minute in minutes}
        if not all(each & minutes for each in stated.times):
            return False
    days = {day for each in shown for day in each.days}
    if not all(any(_is_same_day(day, other) for other in days) for day in stated.days):
        return False
    return stated.weekdays <= {weekday_of(day) for day in days} | {weekday for each in shown for weekday in each.weekdays}


def _is_same_day(stated: tuple[int | None, int, int], known_day: tuple[int | None, int, int]) -> bool:
    return stated[1:] == known_day[1:] and (stated[0] is None or known_day[0] is None or stated[0] == known_day[0])


def _without_known_days(text: str, sources: Sources) -> str:
    if not _PART_OF_DAY.search(text):
        return text
    days = {day for source in sources.shown for day in source.moments.days}
    of_month, months = {day for _, _, day in days}, {month for _, month, _ in days}
    parts: tuple[Set[int | None], ...] = (of_month, of_month, months, {year for year, _, _ in days})

    def known(found: re.Match[str]) -> str:
        is_known = any(part is not None and int(part) in source for part, source in zip(found.groups(), parts, strict=True))
        return " ; " if is_known else found[0]

    return _PART_OF_DAY.sub(known, text)


def _without_known_clocks(text: str, sources: Sources) -> str:
    """`18:30 h`, `at 18.30` and `1830 hrs` may be times of day; where none such was shown, they are left to be numbers."""
    if not _CLOCK_OR_NOT.search(text):
        return text
    shown = {minute for source in sources.shown for minute in source.moments.minutes()}

    def known(found: re.Match[str]) -> str:
        hour, minute = (int(part) for part in found.groups() if part is not None)
        return " ; " if hour * 60 + minute in shown else found[0]

    return _CLOCK_OR_NOT.sub(known, text)


# ---- numbers --------------------------------------------------------------------------------------------------------------------


def _as_one_number(text: str, sources: Sources) -> str:
    """`36 848` without its space where that number was shown, else as it is: it may be two."""
    joined = text.replace(" ", "")
    return joined if any(float(joined) in source.numbers for source in sources.shown) else text


def _is_supported(stated: StatedQuantity, text: str, sources: Sources, listed: Set[int]) -> bool:
    """Whether a number was shown as what it is told to be. listed: how many things the answer lists."""
    is_count = bool(stated.units) and all(name == COUNT for name, _ in stated.units)
    if stated.is_worded and (not stated.units or (stated.value == 1 and not _is_measured(stated))):
        return True
    if is_count and stated.value <= _FEW and _is_few_of_them(stated, text):
        return True
    shown = sources.shown
    if any(_is_told_of(stated, units, stated.value) for source in shown for units in source.numbers.get(stated.value, ())):
        return True
    if any(_is_told_of(stated, units, value) for source in shown for value, each in source.numbers.items() for units in each):
        return True
    if any(name == COUNT for name, _ in stated.units):
        return any(stated.value in source.lengths for source in shown) or (is_count and stated.value in listed)
    return not stated.units and (any(stated.value in source.lengths for source in shown) or _is_quoted(stated, text, sources))


def _is_measured(stated: StatedQuantity) -> bool:
    """Whether one of it, in words, is a claim: one kilometre, one hour; not one day, one person."""
    return any(name not in (COUNT, RATING) and (name != "duration" or factor == 60) for name, factor in stated.units)


def _is_few_of_them(stated: StatedQuantity, text: str) -> bool:
    """`the two hotels`, `three options`: speaks of what the answer itself tells, and counts nothing that could be looked up."""
    end = _end_of_digits(stated, text)
    return _THE_FEW.search(text[max(0, stated.start - 12) : stated.start + 1].rstrip("0123456789")) is not None or (
        _CHOICE.match(text, end) is not None
    )


def _end_of_digits(stated: StatedQuantity, text: str) -> int:
    place = stated.start
    while place < len(text) and (text[place].isdigit() or text[place] in f"{WORDED_MARK}.,-$€£¥"):
        place += 1
    return place


def _is_told_of(stated: StatedQuantity, units: tuple[Unit, ...], value: float) -> bool:
    """Whether a number may be told of one that was seen with these units."""
    if not units:
        return _is_told_of_unknown(stated, value)
    if not stated.units:
        return may_state(stated, 1.0, value) or any(
            may_state(stated, 1.0, value * factor) for unit, factor in units if (unit, factor) in _SMALLER
        )
    return any(
        may_state(stated, factor, value * other)
        for name, factor in stated.units
        for source_unit, other in units
        if are_comparable(name, source_unit)
    )


_SMALLER = frozenset({("length", 1000.0), ("duration", 60.0)})
"""Units whose numbers are told as such of the next smaller one, without it: 1.5 km as 1500."""
_LIKELY: Mapping[str, tuple[float, ...]] = {"length": (1000.0,), "duration": (1 / 60, 60.0)}
"""Other units in which a number may be, by its dimension, where nothing tells its unit."""


def _is_told_of_unknown(stated: StatedQuantity, value: float) -> bool:
    if not stated.units:
        return may_state(stated, 1.0, value)
    if any(may_state(stated, factor, value * other) for name, factor in stated.units for other in (factor, 1.0, *_LIKELY.get(name, ()))):
        return True
    return stated.units[0][0] == SHARE and 0 < abs(value) <= 1 and may_state(stated, 1.0, value * 100)


def _is_quoted(stated: StatedQuantity, text: str, sources: Sources) -> bool:
    """Whether a bare number (a house number, a telephone number) has a neighbour that it has in what was heard."""
    end = _end_of_digits(stated, text)
    pieces = [
        text[start:stop].strip(" .,") for start, stop in ((max(0, stated.start - 4), end), (stated.start, end + 3), (stated.start, end))
    ]
    return any(piece in source for piece in pieces if _LETTER.search(piece) or "-" in piece for source in (*sources.texts, *sources.said))


# ---- names ----------------------------------------------------------------------------------------------------------------------


def _mentions(text: str, names: Sequence[NameIndex]) -> list[tuple[int, int, tuple[str, ...]]]:
    """Where known names stand, the longest of overlapping ones."""
    spans = sorted((each for index in names for each in index.spans(text)), key=lambda each: (each[0], -each[1]))
    merged: list[tuple[int, int, tuple[str, ...]]] = []
    for each in spans:
        if not merged or each[0] >= merged[-1][1]:
            merged.append(each)
    return merged
