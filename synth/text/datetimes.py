"""Points in time as answers tell them: times of day with all that they may mean, days with and without a year, weekdays.

One idea: what is told claims one of several readings (`half past three` is 03:30 or 15:30 where nothing says which), and is supported
where one of them was heard. Texts come from `spelling.in_digits`. Days relative to today ("tomorrow") claim nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from synth.text.number_words import MARK

_DAY_MINUTES = 1440
_PART_OF_DAY = r"(?: ?(?:in the (morning|afternoon|evening)|(at night|tonight|this evening|this afternoon)))?"
_TIME = re.compile(
    rf"(?<![\d.])(?<!\d:){MARK}?([01]?\d|2[0-4])[:.]([0-5]\d)(?::[0-5]\d)?(?![\d%]) ?([ap])\.? ?m(?![a-z])\.?"
    rf"|(?<![\d.])(?<!\d:)({MARK})?([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?!\d)(?! ?(?:hours?|hrs?|h|小时)\b){_PART_OF_DAY}"
    rf"|(?<![\d:.a-z]){MARK}?(1[0-2]|0?[1-9]) ?([ap])\.? ?m(?![a-z])\.?"
)
_RANGE = re.compile(r"(?<![\d:.a-z])(1[0-2]|[1-9])(:[0-5]\d)?(?= ?(?:-|–|to|until|till) ?\d{1,2}(?::\d\d)? ?([ap])\.?m(?![a-z]))")
_EARLY_ZH, _LATE_ZH = "凌晨|清晨|早上|早晨|上午|今早|明早|早", "下午|傍晚|晚上|夜里|夜间|今晚|明晚|当晚|晚|中午"
_ZH_TIME = re.compile(
    rf"({_EARLY_ZH})?({_LATE_ZH})?({MARK})?(?<!\d)([01]?\d|2[0-4])(?:点|时(?!间|段|长|速|候|尚))(钟|整)?(?:{MARK}?0?{MARK}?([0-5]?\d)(?!\d)分?)?"
    r"(出发|到达|到|开|关|离|抵|发车|前|后|之前|之后|起|停|闭|结束|入场|营业)?"
)
_MARKED = tuple("于到从至自在为是:")
_ZH_CLOCK = re.compile(rf"(?:({_EARLY_ZH})|({_LATE_ZH})) ?{MARK}?((?:0?[1-9]|1[0-2]):[0-5]\d)(?!\d)")
_NAMED = re.compile(r"\b(?:12 )?(noon|midday|midnight)\b|(正午)|(午夜|零点|半夜12点)")

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sept sep", "october oct", "november nov", "december dec",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO = re.compile(r"(?<!\d)(\d{4})(?:[-/.]| ?年 ?)(\d{1,2})(?:[-/.]| ?月 ?)(\d{1,2})(?!\d)(?: ?[日号])?")
_YEAR_LAST = re.compile(r"(?<![\d./-])(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?!\d)")
_MONTH_DAY = re.compile(rf"\b({_MONTH})\b\.? (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d|%)(?:,? (\d{{4}})\b)?")
_DAY_MONTH = re.compile(rf"(?<![\d:.])(\d{{1,2}})(?:st|nd|rd|th)?(?: of)?[ -]({_MONTH})\b\.?(?:(?:,? |-)(\d{{4}})\b)?")
_ZH_DAY = re.compile(rf"(?<!\d){MARK}?(\d{{1,2}}) ?月 ?{MARK}?(\d{{1,2}})(?: ?[日号])?")
_WEEKDAYS = {
    name: number
    for number, names in enumerate(
        ("monday mon", "tuesday tues tue", "wednesday wed", "thursday thurs thur thu", "friday fri", "saturday sat", "sunday sun")
    )
    for name in names.split()
}
_WEEKDAY = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b|\b(mon|tues?|wed|thurs?|fri|sat|sun)\b(?=[,.)]? \d|,|\))"
    rf"|(?:周|星期|礼拜){MARK}?([一二三四五六日天1-6])(?!\d|[天周个月]|共)"
)
_ZH_WEEKDAYS = {
    **{each: number for number, each in enumerate("一二三四五六日")},
    "天": 6,
    **{str(number + 1): number for number in range(6)},
}


class Moments(NamedTuple):
    """times: each told time with all minutes since midnight that it may mean. days: (year or None, month, day). rest: the text without."""

    times: tuple[frozenset[int], ...]
    days: frozenset[tuple[int | None, int, int]]
    weekdays: frozenset[int]
    rest: str

    def minutes(self) -> Iterable[int]:
        return (minute for each in self.times for minute in each)


@lru_cache(maxsize=2048)
def moments_in(text: str) -> Moments:
    """What a text that `in_digits` gave says of points in time."""
    days: set[tuple[int | None, int, int]] = set()

    def add(year: str | None, month: int, day: int, whole: str) -> str:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return whole
        days.add((int(year) if year else None, month, day))
        return " ; "

    text = _ISO.sub(lambda found: add(found[1], int(found[2]), int(found[3]), found[0]), text)
    text = _YEAR_LAST.sub(lambda found: add(found[4], *_month_and_day(int(found[1]), int(found[3]), found[2]), found[0]), text)
    text = _MONTH_DAY.sub(lambda found: add(found[3], _MONTHS[found[1]], int(found[2]), found[0]), text)
    text = _DAY_MONTH.sub(lambda found: add(found[3], _MONTHS[found[2]], int(found[1]), found[0]), text)
    if "月" in text:
        text = _ZH_DAY.sub(lambda found: add(None, int(found[1]), int(found[2]), found[0]), text)
    weekdays = set()

    def weekday(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        weekdays.add(_WEEKDAYS[name] if name else _ZH_WEEKDAYS[found[3]])
        return " ; "

    text = _WEEKDAY.sub(weekday, text)
    times: list[frozenset[int]] = []
    text = _read_times(text, times)
    return Moments(tuple(times), frozenset(days), frozenset(weekdays), text)


def _month_and_day(first: int, second: int, separator: str) -> tuple[int, int]:
    """Of 17.05.2026 and 17/5/2026; with a stroke the month comes first where it can (5/6/2026)."""
    return (first, second) if second > 12 or (separator == "/" and first <= 12) else (second, first)


def _read_times(text: str, times: list[frozenset[int]]) -> str:
    def clock(found: re.Match[str]) -> str:
        hour, minute, half, worded, bare_hour, bare_minute, part, night, only_hour, only_half = found.groups()
        if bare_hour:
            half = "a" if part == "morning" else "p" if part or night else ""
            is_open = bool(worded) or (len(bare_hour) == 1 and bare_hour != "0")
            times.append(_readings(int(bare_hour), int(bare_minute), half, is_open=is_open))
        else:
            times.append(_readings(int(hour or only_hour), int(minute or 0), half or only_half, is_open=False))
        return " ; "

    def shared(found: re.Match[str]) -> str:
        times.append(_readings(int(found[1]), int((found[2] or ":0")[1:]), "", is_open=True))
        return " ; "

    def chinese(found: re.Match[str]) -> str:
        early, late, worded, hour, whole, minute, after = found.groups()
        before = text[: found.start()].rstrip(MARK + " ")
        if not (early or late or whole or minute or after or before.endswith(_MARKED) or (not worded and not before[-1:].isdigit())):
            return found[0]
        times.append(_readings(int(hour), int(minute or 0), "p" if late else "a" if early else "", is_open=True))
        return " ; "

    def named(found: re.Match[str]) -> str:
        times.append(frozenset({0, _DAY_MINUTES} if found[1] == "midnight" or found[3] else {_DAY_MINUTES // 2}))
        return " ; "

    text = _NAMED.sub(named, text)
    if "m" in text:
        text = _RANGE.sub(shared, text)
    if ":" in text or "m" in text:
        text = _TIME.sub(clock, _ZH_CLOCK.sub(_with_half, text))
    if "点" in text or "时" in text:
        text = _ZH_TIME.sub(chinese, text)
    return text


def _with_half(found: re.Match[str]) -> str:
    """`下午3:20` as `3:20 pm`."""
    is_midnight = found[2] is not None and found[2] != "中午" and found[3].startswith("12")
    return f" {found[3]} {'a' if found[1] or is_midnight else 'p'}m"


def _readings(hour: int, minute: int, half: str, *, is_open: bool) -> frozenset[int]:
    """All minutes of the day that a time may mean. is_open: it may be in either half of the day where nothing says in which."""
    at = hour * 60 + minute
    if half and hour <= 12:
        at = (hour % 12 + (12 if half == "p" else 0)) * 60 + minute
        return frozenset({at, _DAY_MINUTES}) if at == 0 else frozenset({at})
    if not half and is_open and 1 <= hour <= 12:
        return frozenset({at, hour % 12 * 60 + minute + _DAY_MINUTES // 2})
    return frozenset({0, _DAY_MINUTES}) if at in (0, _DAY_MINUTES) else frozenset({at})


def weekday_of(day: tuple[int | None, int, int]) -> int | None:
    """Of a day with a year: 0 is Monday."""
    year, month, number = day
    try:
        return None if year is None else date(year, month, number).weekday()
    except ValueError:
        return None
