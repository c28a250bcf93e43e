"""Finds the claims of a text: numbers, times of day, dates, identifiers and known names.

One idea: a caller normalises a text once (`normalise`); plain scans and a few regular expressions then search it. No expression is compiled
per value, because verification reads tens of thousands of answers. Results are cached: verification reads the same observations for every
goal, and the same system message in every conversation of a world.
Chinese forms read like their English ones: full-width digits, `1.5公里`, `9点半`, `1小时20分钟`, `2026年3月2日`.
Not read: numbers in words. A day without a year (`3月2日`, `May 17`) gives its numbers, but no date. `synth/tasks/grounding.py` reads both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from synth.text.datetimes import hour_of_day
from synth.text.quantities import UNITS

_NUMBER = re.compile(
    r"(?<![a-z0-9_.])(-?)(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)(?: ?(%|[a-z°]+|公里|千米|小时|分钟|分|米|秒|元))?"
)
_TIME = re.compile(
    r"(?<!\d)(?<!\d:)([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?!\d)(?: ?([ap])\.?m\b)?"
    r"|(下午|晚上|傍晚|中午)?(?<!\d)([01]?\d|2[0-4])[点时](?:([0-5]?\d)分?|(半))?"
)
_BARE_HOUR = re.compile(r"(?<![\d:.a-z])(1[0-2]|[1-9]) ?([ap])\.?m\b")
_DATE = re.compile(r"(?<!\d)(\d{4})[-/年](\d{1,2})[-/月](\d{1,2})(?!\d)日?")
_DURATION = re.compile(r"(?<![a-z\d.])(\d{1,6}) ?(?:hours?|hrs?|h|小时)(?: and|,)? ?(\d{1,2}) ?(?:minutes?|mins?|m|分钟?)(?![a-z])")
_IDENTIFIER = re.compile(r"(?<![a-z0-9])[a-z]{1,4}-?\d[a-z0-9]*(?![a-z0-9])")
_LIST_MARK = re.compile(r"^[ \t]*\d{1,2}[.)、]\s", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
_CHINESE_CHARACTER = re.compile(r"[\u3400-\u9fff]")
_CHINESE_RUN = re.compile(r"[\u3400-\u9fff](?:[\u3400-\u9fff0-9·]*[\u3400-\u9fff])?")

_CACHED_TEXTS = 1024
"""Texts whose claims are kept in memory."""

_SCALES: Mapping[str, tuple[float, ...]] = {
    word: {"length": (factor,), "duration": (60.0,) if factor == 1 else (factor, 60 * factor)}[dimension]
    for word, ((dimension, factor), *_) in UNITS.items()
    if (dimension == "length" and factor > 1) or (dimension == "duration" and 1 <= factor <= 60)
}
"""Unit -> factors to smaller units: metres; minutes and seconds."""


def normalise(text: str) -> str:
    """The text in lower case, with compatibility forms (full-width digits and punctuation) folded, one minus sign and one apostrophe."""
    return text.lower() if text.isascii() else _normalise_unicode(text)


@lru_cache(maxsize=_CACHED_TEXTS)
def _normalise_unicode(text: str) -> str:
    return normalize("NFKC", text).casefold().replace("−", "-").replace("’", "'")


def has_chinese(text: str) -> bool:
    """Whether the text contains a Chinese character."""
    return _CHINESE_CHARACTER.search(text) is not None


def has_word(text: str, needle: str) -> bool:
    """Whether the normalised text contains `needle` (lower case) as a whole word; in scripts without spaces, as a substring."""
    start = text.find(needle) if needle else -1
    while start >= 0:
        end = start + len(needle)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (_is_ascii_alnum(before) and _is_ascii_alnum(needle[0])) and not (_is_ascii_alnum(after) and _is_ascii_alnum(needle[-1])):
            return True
        start = text.find(needle, start + 1)
    return False


def _is_ascii_alnum(character: str) -> bool:
    return character.isascii() and character.isalnum()


class Number(NamedTuple):
    """A number in a text.

    value: the number as written.
    readings: all values that it may mean: the number as written, then the number in smaller units (1.5 km is also 1500).
    """

    value: float
    readings: tuple[float, ...]


@dataclass(slots=True)
class Claims:
    """The claims of a normalised text.

    minutes: times of day, in minutes since midnight.
    dates: ISO dates (`2026-03-02`).
    ids: identifiers: words of letters and digits, such as `o17`.
    """

    numbers: list[Number] = field(default_factory=list)
    minutes: frozenset[int] = frozenset()
    dates: frozenset[str] = frozenset()
    ids: set[str] = field(default_factory=set)


@lru_cache(maxsize=_CACHED_TEXTS)
def numbers_in(text: str, *, also_parts: bool = False) -> tuple[Number, ...]:
    """All numbers of a normalised text. `12,500` is one number; with `also_parts` (for JSON lists) also 12 and 500."""
    numbers = []
    for sign, digits, unit in _NUMBER.findall(text):
        value = float(digits.replace(",", "")) * (-1 if sign else 1)
        numbers.append(Number(value, (value, *(value * scale for scale in _SCALES.get(unit, ())))))
        if also_parts and "," in digits:
            numbers += [Number(float(part), (float(part),)) for part in digits.split(",")]
    return tuple(numbers)


@lru_cache(maxsize=_CACHED_TEXTS)
def minutes_in(text: str) -> frozenset[int]:
    """All times of day of a normalised text, in minutes since midnight."""
    minutes = set()
    if ":" in text or "点" in text or "时" in text:
        for hour, minute, half, late_zh, hour_zh, minute_zh, half_zh in _TIME.findall(text):
            if hour:
                minutes.add(hour_of_day(int(hour), half) * 60 + int(minute))
            else:
                minutes.add(hour_of_day(int(hour_zh), late_zh) * 60 + (30 if half_zh else int(minute_zh or 0)))
    if "m" in text:
        minutes.update(hour_of_day(int(hour), half) * 60 for hour, half in _BARE_HOUR.findall(text))
    return frozenset(minutes)


@lru_cache(maxsize=_CACHED_TEXTS)
def dates_in(text: str) -> frozenset[str]:
    """All dates with a year of a normalised text, in ISO form."""
    return frozenset(f"{year}-{int(month):02d}-{int(day):02d}" for year, month, day in _DATE.findall(text))


def read_claims(text: str) -> Claims:
    """All claims of a normalised text, except names. A list mark (`1.` at the start of a line) is no claim."""
    if not any(character.isdigit() for character in text):
        return Claims()
    reading = Claims(minutes=minutes_in(text), dates=dates_in(text), ids=set(_IDENTIFIER.findall(text)))
    remaining = _LIST_MARK.sub("", text)
    for pattern in (_DATE, _TIME, _BARE_HOUR, _IDENTIFIER):
        remaining = pattern.sub(" ", remaining)
    for hours, minutes in _DURATION.findall(remaining):
        total = 60.0 * int(hours) + int(minutes)
        reading.numbers.append(Number(total, (total, total * 60)))
    reading.numbers += numbers_in(_DURATION.sub(" ", remaining))
    return reading


def is_near(left: float, right: float) -> bool:
    """Whether `left` is less than 1 from `right`, or within 1 % of it: 12.6 and 13, or 1498 and 1500, but not 34 and 35.

    From a million on (telephone and document numbers) the 1 % does not apply.
    """
    return abs(left - right) < 1 or abs(left - right) <= 0.01 * abs(right) < 10_000


class NameIndex:
    """Finds known names in a text: at each position the longest, so that `Willow Park Hotel` is not also `Willow Park`.

    Args:
        names: spelling -> all spellings of the same thing.
    """

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        self._by_word: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self._unspaced: dict[str, tuple[str, ...]] = {}
        for name, spellings in names.items():
            key, normalised_spellings = normalise(name), tuple(normalise(spelling) for spelling in spellings)
            first_word = _WORD.match(key)
            if first_word is not None:
                self._by_word.setdefault(first_word.group(), []).append((key, normalised_spellings))
            elif key:
                self._unspaced[key] = normalised_spellings
        for candidates in self._by_word.values():
            candidates.sort(key=lambda pair: -len(pair[0]))
        self._lengths = sorted({len(name) for name in self._unspaced}, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._by_word or self._unspaced)

    def spans(self, text: str) -> Iterable[tuple[int, int, tuple[str, ...]]]:
        """Start, end and all spellings of each known name in the normalised text, also of names in the plural."""
        end = 0
        for word in _WORD.finditer(text):
            if word.start() < end:
                continue
            for name, spellings in self._by_word.get(word.group(), self._by_word.get(word.group().removesuffix("s"), ())):
                if text.startswith(name, word.start()) and not _is_ascii_alnum(
                    text[(stop := _end_of_plural(text, word.start() + len(name))) : stop + 1]
                ):
                    end = stop
                    yield word.start(), end, spellings
                    break
        if self._unspaced:
            yield from self._unspaced_spans(text)

    def _unspaced_spans(self, text: str) -> Iterable[tuple[int, int, tuple[str, ...]]]:
        for run in _CHINESE_RUN.finditer(text):
            position, characters = 0, run.group()
            while position < len(characters):
                for length in self._lengths:
                    spellings = self._unspaced.get(characters[position : position + length])
                    if spellings is not None and position + length <= len(characters):
                        yield run.start() + position, run.start() + position + length, spellings
                        position += length
                        break
                else:
                    position += 1


def _end_of_plural(text: str, end: int) -> int:
    """The end of a name's plural ending, or `end` where the name has none."""
    for ending in ("es", "s"):
        if text.startswith(ending, end) and not _is_ascii_alnum(text[end + len(ending) : end + len(ending) + 1]):
            return end + len(ending)
    return end
