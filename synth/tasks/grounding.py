"""The grounding veto: does an answer state a number, time, day, identifier or name that has no source in the conversation?

One idea: the answer is read as *claims* (`number_words.py`, `datetimes.py`, `quantities.py`, `claims.NameIndex`), and each claim needs a
source of its own kind: 22 minutes need a duration of 22 minutes or a number without a known unit, not 22 m. Sources are requests, results
with the units of their fields, figures that a program computed, and the canonical forms of the request. The system message is a source of
numbers, times and days, but not of names (it names everything).

Claims: numbers (within 1 %, or rounded), counts of things (also the length of a list that was shown or that the answer makes), times of
day, days with and without a year, weekdays, identifiers, names that the world knows or that its kind may draw, and in English capitalised
names without a source. Not claims: list marks, ordinals to ten, figures of speech, "one of them".
Not detected: invented names in Chinese that no world of the kind could draw. Sums that the answer computes itself count as invented.
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
from synth.context.marks import full_length, is_mark, without_marks
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
"""A day of the month, a month or a year, stated alone."""
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
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?|\d\d:\d\d(?:-\d\d:\d\d)?")
_FEW = 10


class ShownFigures(NamedTuple):
    """Figures in one text.

    numbers: number as written -> its possible units, one tuple for each occurrence; an empty tuple if the unit is unknown.
    datetimes: points in time.
    lengths: lengths of lists.
    """

    numbers: Mapping[float, tuple[tuple[Unit, ...], ...]]
    datetimes: Datetimes
    lengths: frozenset[int] = frozenset()


@dataclass(slots=True)
class Sources:
    """The possible sources of an answer's claims.

    world: the task's world.
    texts: requests, results and computed figures, normalised.
    results: results of the world's tools, unchanged.
    other_texts: texts that are no results, and system messages; normalised.
    forms: see `World.slot_forms`.
    """

    world: type[World]
    texts: Sequence[str]
    results: Sequence[str]
    other_texts: Sequence[str]
    forms: frozenset[str]
    _shown: list[ShownFigures] = field(default_factory=list)

    @property
    def shown(self) -> Sequence[ShownFigures]:
        if not self._shown:
            self._shown += [_figures_in_result(self.world, text) for text in self.results]
            self._shown += [_figures_in_text(text) for text in (*self.other_texts, *self.forms)]
        return self._shown

    def has(self, needle: str) -> bool:
        return needle in self.forms or any(has_word(text, needle) for text in self.texts)

    def has_anywhere(self, needle: str) -> bool:
        return self.has(needle) or any(has_word(text, needle) for text in self.other_texts)


def is_grounded(answer: str, sources: Sources, names: Sequence[NameIndex]) -> bool:
    """Whether every claim of an answer (unchanged text) has a source."""
    answer = _THIN_SPACE.sub(",", answer.replace("º", "°"))
    written = normalize("NFKC", answer).replace("’", "'")
    text = normalise(answer)
    mentions = _mentions(text, names)
    if not all(any(sources.has(spelling) for spelling in spellings) for _, _, spellings in mentions):
        return False
    if len(written) != len(text):  # letters such as ß become longer when casefolded
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
    datetimes = _stated_datetimes(text)
    if not _are_shown(datetimes, sources):
        return False
    remaining = _without_known_clocks(_without_known_days(datetimes.remaining_text, sources), sources)
    remaining = _SPACED.sub(lambda match: _as_one_number(match[0], sources), remaining)
    return all(_is_supported(each, remaining, sources, listed) for each in quantities_in(remaining))


def stated_claims(answer: str) -> Claims:
    """The claims of an answer, for the search of facts: figures, also in words and in smaller units; times in all their readings; days,
    without a year as `--05-17`."""
    text = normalise(answer)
    plain, datetimes = read_claims(text), _stated_datetimes(text)
    numbers = [
        Number(each.value, (each.value, *(each.value * factor for name, factor in each.units if name in _LIKELY and factor > 1)))
        for each in quantities_in(datetimes.remaining_text)
    ]
    days = {f"{year or '-'}-{month:02d}-{day:02d}" for year, month, day in datetimes.days}
    return Claims([*plain.numbers, *numbers], plain.minutes.union(datetimes.minutes()), plain.dates | days, plain.ids)


@lru_cache(maxsize=2048)
def _stated_datetimes(text: str) -> Datetimes:
    return datetimes_in(_ORDINAL.sub(" ", words_to_digits(_LIST_MARK.sub(" ", text))))


# ---- figures in sources ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _figures_in_text(text: str) -> ShownFigures:
    datetimes = datetimes_in(words_to_digits(text))
    numbers: dict[float, tuple[tuple[Unit, ...], ...]] = {}
    for each in quantities_in(datetimes.remaining_text):
        if each.is_worded and each.value <= 1 and not each.units:  # an idiom such as `one of them`
            continue
        numbers[each.value] = (*numbers.get(each.value, ()), each.units)
    return ShownFigures(numbers, datetimes)


@cached_per_world(maxsize=512)
def _figures_in_result(world: type[World], text: str) -> ShownFigures:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, (dict, list)):
        return _figures_in_text(normalise(without_marks(text)))
    reader = _ResultReader(world.units)
    reader.collect(value, "")
    numbers = {number: tuple(units) for number, units in reader.numbers.items()}
    return ShownFigures(
        numbers, datetimes_in(words_to_digits(normalise(" ; ".join(dict.fromkeys(reader.texts))))), frozenset(reader.lengths)
    )


class _ResultReader:
    """Collects figures from a JSON result. units: field name -> unit, of the world."""

    def __init__(self, units: Mapping[str, str]) -> None:
        self.units = units
        self.numbers: dict[float, set[tuple[Unit, ...]]] = {}
        self.texts: list[str] = []
        self.lengths: set[int] = set()

    def collect(self, value: JSON, name: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self.collect(each, key)
        elif isinstance(value, list):
            self.lengths.add(full_length(value))
            for each in value:
                self.collect(each, name)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            self.numbers.setdefault(float(value), set()).add(units_of_field(name, self.units.get(name)))
        elif isinstance(value, str) and not is_mark(value) and not _ID.fullmatch(value) and MAY_CLAIM.search(value):
            value = without_marks(value)
            field_units = units_of_field(name, self.units.get(name))
            if field_units and field_units[0][0] == LABEL:
                return
            self.texts.append(value)
            if _DATETIME.fullmatch(value):
                return
            for number, units_of_number in _figures_in_text(normalise(value)).numbers.items():
                self.numbers.setdefault(number, set()).update(units or field_units for units in units_of_number)


# ---- points in time -------------------------------------------------------------------------------------------------------------


def _are_shown(stated: Datetimes, sources: Sources) -> bool:
    if not (stated.times or stated.days or stated.weekdays):
        return True
    shown = [source.datetimes for source in sources.shown]
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
    days = {day for source in sources.shown for day in source.datetimes.days}
    of_month, months = {day for _, _, day in days}, {month for _, month, _ in days}
    parts: tuple[Set[int | None], ...] = (of_month, of_month, months, {year for year, _, _ in days})

    def drop_if_known(match: re.Match[str]) -> str:
        is_known = any(part is not None and int(part) in source for part, source in zip(match.groups(), parts, strict=True))
        return " ; " if is_known else match[0]

    return _PART_OF_DAY.sub(drop_if_known, text)


def _without_known_clocks(text: str, sources: Sources) -> str:
    """The text without `18:30 h`, `at 18.30` and `1830 hrs` if that time of day was shown; otherwise they count as numbers."""
    if not _CLOCK_OR_NOT.search(text):
        return text
    shown = {minute for source in sources.shown for minute in source.datetimes.minutes()}

    def drop_if_shown(match: re.Match[str]) -> str:
        hour, minute = (int(part) for part in match.groups() if part is not None)
        return " ; " if hour * 60 + minute in shown else match[0]

    return _CLOCK_OR_NOT.sub(drop_if_shown, text)


# ---- numbers --------------------------------------------------------------------------------------------------------------------


def _as_one_number(text: str, sources: Sources) -> str:
    """`36 848` without its space if that number was shown, else unchanged: it may be two numbers."""
    joined = text.replace(" ", "")
    return joined if any(float(joined) in source.numbers for source in sources.shown) else text


def _is_supported(stated: StatedQuantity, text: str, sources: Sources, listed: Set[int]) -> bool:
    """Whether a number was shown with the meaning that the answer gives it. listed: numbers of things that the answer lists."""
    is_count = bool(stated.units) and all(name == COUNT for name, _ in stated.units)
    if stated.is_worded and (not stated.units or (stated.value == 1 and not _is_measured(stated))):
        return True
    if is_count and stated.value <= _FEW and _is_few_of_them(stated, text):
        return True
    shown = sources.shown
    if any(_is_source_of(stated, units, stated.value) for source in shown for units in source.numbers.get(stated.value, ())):
        return True
    if any(_is_source_of(stated, units, value) for source in shown for value, each in source.numbers.items() for units in each):
        return True
    if any(name == COUNT for name, _ in stated.units):
        return any(stated.value in source.lengths for source in shown) or (is_count and stated.value in listed)
    return not stated.units and (any(stated.value in source.lengths for source in shown) or _is_quoted(stated, text, sources))


def _is_measured(stated: StatedQuantity) -> bool:
    """Whether `one` of this unit, in words, is a claim: one kilometre, one hour; not one day, one person."""
    return any(name not in (COUNT, RATING) and (name != "duration" or factor == 60) for name, factor in stated.units)


def _is_few_of_them(stated: StatedQuantity, text: str) -> bool:
    """Whether a count refers to things in the answer itself and needs no source: `the two hotels`, `three options`."""
    end = _end_of_digits(stated, text)
    return _THE_FEW.search(text[max(0, stated.start - 12) : stated.start + 1].rstrip("0123456789")) is not None or (
        _CHOICE.match(text, end) is not None
    )


def _end_of_digits(stated: StatedQuantity, text: str) -> int:
    place = stated.start
    while place < len(text) and (text[place].isdigit() or text[place] in f"{WORDED_MARK}.,-$€£¥"):
        place += 1
    return place


def _is_source_of(stated: StatedQuantity, units: tuple[Unit, ...], value: float) -> bool:
    """Whether a shown number with these units supports the stated quantity."""
    if not units:
        return _is_source_without_unit(stated, value)
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
"""Units whose numbers may be stated without a unit in the next smaller one: 1.5 km as 1500."""
_LIKELY: Mapping[str, tuple[float, ...]] = {"length": (1000.0,), "duration": (1 / 60, 60.0)}
"""Dimension -> factors of the other units that a number of unknown unit may have."""


def _is_source_without_unit(stated: StatedQuantity, value: float) -> bool:
    if not stated.units:
        return may_state(stated, 1.0, value)
    if any(may_state(stated, factor, value * other) for name, factor in stated.units for other in (factor, 1.0, *_LIKELY.get(name, ()))):
        return True
    return stated.units[0][0] == SHARE and 0 < abs(value) <= 1 and may_state(stated, 1.0, value * 100)


def _is_quoted(stated: StatedQuantity, text: str, sources: Sources) -> bool:
    """Whether a bare number (a house or telephone number) stands next to the same characters in a source."""
    end = _end_of_digits(stated, text)
    pieces = [
        text[start:stop].strip(" .,") for start, stop in ((max(0, stated.start - 4), end), (stated.start, end + 3), (stated.start, end))
    ]
    with_context = [piece for piece in pieces if _LETTER.search(piece) or "-" in piece]
    return any(piece in source for piece in with_context for source in (*sources.texts, *sources.other_texts))


# ---- names ----------------------------------------------------------------------------------------------------------------------


def _mentions(text: str, names: Sequence[NameIndex]) -> list[tuple[int, int, tuple[str, ...]]]:
    """(start, end, spellings) of known names in a text; of overlapping ones, the first and longest."""
    spans = sorted((each for index in names for each in index.spans(text)), key=lambda each: (each[0], -each[1]))
    merged: list[tuple[int, int, tuple[str, ...]]] = []
    for each in spans:
        if not merged or each[0] >= merged[-1][1]:
            merged.append(each)
    return merged
