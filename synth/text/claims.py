"""What a piece of text says: its numbers, times of day, dates, identifiers and known names.

One idea: text is normalised once (`normalise`), and then searched with plain scans and four regular expressions that are compiled
once; nothing is compiled per value, because a judge reads tens of thousands of answers. What the last texts said is remembered: the
same observations are read for every goal, and the same system message in every conversation of a world.
Both languages: full-width digits, `1.5公里`, `9点半`, `1小时20分钟`, `2026年3月2日` are read as their English forms are. Numbers written
out in words are not read, and a day without a year (`3月2日`, `May 17`) is no date, only the numbers in it: facts and arguments are told
in figures. What an answer may claim beyond that is `grounding.py`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

_NUMBER = re.compile(
    r"(?<![a-z0-9_.])(-?)(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)(?: ?(%|[a-z°]+|公里|千米|小时|分钟|分|米|秒|元))?"
)
_TIME = re.compile(
    r"(?<!\d)(?<!\d:)([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?!\d)(?: ?([ap])\.?m\b)?"
    r"|(下午|晚上|傍晚)?(?<!\d)([01]?\d|2[0-4])[点时](?:([0-5]?\d)分?|(半))?"
)
_BARE_HOUR = re.compile(r"(?<![\d:.a-z])(1[0-2]|[1-9]) ?([ap])\.?m\b")
_DATE = re.compile(r"(?<!\d)(\d{4})[-/年](\d{1,2})[-/月](\d{1,2})(?!\d)日?")
_DURATION = re.compile(r"(?<![a-z\d.])(\d{1,6}) ?(?:hours?|hrs?|h|小时)(?: and|,)? ?(\d{1,2}) ?(?:minutes?|mins?|m|分钟?)(?![a-z])")
_ID = re.compile(r"(?<![a-z0-9])[a-z]{1,4}-?\d[a-z0-9]*(?![a-z0-9])")
_LIST_MARK = re.compile(r"^[ \t]*\d{1,2}[.)、]\s", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9]+")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_UNSPACED = re.compile(r"[\u3400-\u9fff](?:[\u3400-\u9fff0-9·]*[\u3400-\u9fff])?")

_REMEMBERED = 1024
"""Texts of which it is remembered what they say."""

_SCALES: Mapping[str, tuple[float, ...]] = {
    **dict.fromkeys(("km", "kms", "kilometre", "kilometres", "kilometer", "kilometers", "公里", "千米"), (1000.0,)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时"), (60.0, 3600.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分钟", "分"), (60.0,)),
}


def normalise(text: str) -> str:
    """Lower case, compatibility forms (full-width digits and punctuation) folded, one minus sign, one apostrophe."""
    return text.lower() if text.isascii() else _normalised(text)


@lru_cache(maxsize=_REMEMBERED)
def _normalised(text: str) -> str:
    return normalize("NFKC", text).casefold().replace("−", "-").replace("’", "'")


def has_chinese(text: str) -> bool:
    """Whether a text holds a Chinese character."""
    return _CHINESE.search(text) is not None


def has_word(text: str, needle: str) -> bool:
    """Whether normalised `text` contains `needle` (lower case) as a word of its own; in unspaced scripts a substring counts."""
    start = text.find(needle) if needle else -1
    while start >= 0:
        end = start + len(needle)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (_is_word(before) and _is_word(needle[0])) and not (_is_word(after) and _is_word(needle[-1])):
            return True
        start = text.find(needle, start + 1)
    return False


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


class Number(NamedTuple):
    """A number as it was written, and every value it may stand for: itself, and itself in smaller units (1.5 km is 1500)."""

    value: float
    readings: tuple[float, ...]


@dataclass(slots=True)
class Reading:
    """What a normalised text says. `minutes` are times of day in minutes; `dates` ISO; `ids` letter-digit words such as `o17`."""

    numbers: list[Number] = field(default_factory=list)
    minutes: frozenset[int] = frozenset()
    dates: frozenset[str] = frozenset()
    ids: set[str] = field(default_factory=set)


@lru_cache(maxsize=_REMEMBERED)
def numbers_in(text: str, *, also_parts: bool = False) -> tuple[Number, ...]:
    """All numbers of a normalised text. `12,500` is one number; with `also_parts` (JSON lists) it is 12 and 500 besides."""
    found = []
    for sign, digits, unit in _NUMBER.findall(text):
        value = float(digits.replace(",", "")) * (-1 if sign else 1)
        found.append(Number(value, (value, *(value * scale for scale in _SCALES.get(unit, ())))))
        if also_parts and "," in digits:
            found += [Number(float(part), (float(part),)) for part in digits.split(",")]
    return tuple(found)


@lru_cache(maxsize=_REMEMBERED)
def minutes_in(text: str) -> frozenset[int]:
    """All times of day of a normalised text, in minutes since midnight."""
    found = set()
    if ":" in text or "点" in text or "时" in text:
        for hour, minute, half, late_zh, hour_zh, minute_zh, half_zh in _TIME.findall(text):
            if hour:
                found.add(_twelve(int(hour), half) * 60 + int(minute))
            else:
                found.add(
                    _twelve(int(hour_zh), "p" if late_zh and int(hour_zh) <= 12 else "") * 60 + (30 if half_zh else int(minute_zh or 0))
                )
    if "m" in text:
        found.update(_twelve(int(hour), half) * 60 for hour, half in _BARE_HOUR.findall(text))
    return frozenset(found)


def _twelve(hour: int, half: str) -> int:
    if not half:
        return hour
    return hour % 12 + (12 if half == "p" else 0)


@lru_cache(maxsize=_REMEMBERED)
def dates_in(text: str) -> frozenset[str]:
    return frozenset(f"{year}-{int(month):02d}-{int(day):02d}" for year, month, day in _DATE.findall(text))


def read(text: str) -> Reading:
    """Everything that a normalised text claims; list marks (`1.` at the start of a line) claim nothing."""
    if not any(character.isdigit() for character in text):
        return Reading()
    reading = Reading(minutes=minutes_in(text), dates=dates_in(text), ids=set(_ID.findall(text)))
    rest = _LIST_MARK.sub("", text)
    for pattern in (_DATE, _TIME, _BARE_HOUR, _ID):
        rest = pattern.sub(" ", rest)
    for hours, minutes in _DURATION.findall(rest):
        total = 60.0 * int(hours) + int(minutes)
        reading.numbers.append(Number(total, (total, total * 60)))
    reading.numbers += numbers_in(_DURATION.sub(" ", rest))
    return reading


def is_near(left: float, right: float) -> bool:
    """Within 1 %, or less than one unit apart: 12.6 may be told as 13, 1498 m as 1500 m, but 34 is not 35. From a million on (telephone
    and document numbers) only the latter."""
    return abs(left - right) < 1 or abs(left - right) <= 0.01 * abs(right) < 10_000


class NameIndex:
    """Finds known names in text: the longest at each position, so that `Willow Park Hotel` is not also `Willow Park`.

    Args:
        names: each spelling with all spellings of the same thing.
    """

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        self._by_word: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        self._unspaced: dict[str, tuple[str, ...]] = {}
        for name, spellings in names.items():
            plain, folded = normalise(name), tuple(normalise(spelling) for spelling in spellings)
            first = _WORD.match(plain)
            if first is not None:
                self._by_word.setdefault(first.group(), []).append((plain, folded))
            elif plain:
                self._unspaced[plain] = folded
        for found in self._by_word.values():
            found.sort(key=lambda pair: -len(pair[0]))
        self._lengths = sorted({len(name) for name in self._unspaced}, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._by_word or self._unspaced)

    def spans(self, text: str) -> Iterable[tuple[int, int, tuple[str, ...]]]:
        """Where every name stands that the normalised `text` mentions, its plural too, with all spellings of it."""
        end = 0
        for word in _WORD.finditer(text):
            if word.start() < end:
                continue
            for name, spellings in self._by_word.get(word.group(), self._by_word.get(word.group().removesuffix("s"), ())):
                if text.startswith(name, word.start()) and not _is_word(text[(stop := _end(text, word.start() + len(name))) : stop + 1]):
                    end = stop
                    yield word.start(), end, spellings
                    break
        if self._unspaced:
            yield from self._unspaced_spans(text)

    def _unspaced_spans(self, text: str) -> Iterable[tuple[int, int, tuple[str, ...]]]:
        for run in _UNSPACED.finditer(text):
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


def _end(text: str, end: int) -> int:
    """Where a name ends that may be in the plural."""
    for ending in ("es", "s"):
        if text.startswith(ending, end) and not _is_word(text[end + len(ending) : end + len(ending) + 1]):
            return end + len(ending)
    return end
