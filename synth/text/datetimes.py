"""Finds points in time in an answer: times of day, days with and without a year, weekdays.

One idea: a time of day is a set of possible readings (`half past three` is 03:30 or 15:30 where the text does not say which). A source
supports the time if it shows one of them. Input is a text from `number_words.words_to_digits`.
Not read: days relative to today ("tomorrow").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from synth.text.number_words import WORDED_MARK

_DAY_MINUTES = 1440
_PART_OF_DAY = r"(?: ?(?:in the (morning|afternoon|evening)|(at night|tonight|this evening|this afternoon)))?"
_TIME = re.compile(
    rf"(?<![\d.])(?<!\d:){WORDED_MARK}?([01]?\d|2[0-4])[:.]([0-5]\d)(?::[0-5]\d)?(?![\d%]) ?([ap])\.? ?m(?![a-z])\.?"
    rf"|(?<![\d.])(?<!\d:)({WORDED_MARK})?([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?(?!\d)(?! ?(?:hours?|hrs?|h|小时)\b){_PART_OF_DAY}"
    rf"|(?<![\d:.a-z]){WORDED_MARK}?([01]?\d|2[0-4]) ?([ap])\.? ?m(?![a-z])\.?"
)
_RANGE_START = re.compile(r"(?<![\d:.a-z])(1[0-2]|[1-9])(:[0-5]\d)?(?= ?(?:-|–|to|until|till) ?\d{1,2}(?::\d\d)? ?([ap])\.?m(?![a-z]))")
_EARLY_ZH, _LATE_ZH = "凌晨|清晨|早上|早晨|上午|今早|明早|早", "下午|傍晚|晚上|夜里|夜间|今晚|明晚|当晚|晚|中午"
_ZH_TIME = re.compile(
    rf"({_EARLY_ZH})?({_LATE_ZH})?({WORDED_MARK})?(?<!\d)([01]?\d|2[0-4])(?:点|时(?!间|段|长|速|候|尚))(钟|整)?(?:{WORDED_MARK}?0?{WORDED_MARK}?([0-5]?\d)(?!\d)分?)?"
    r"(出发|到达|到|开|关|离|抵|发车|前|后|之前|之后|起|停|闭|结束|入场|营业)?"
)
_NIGHT_ZH = frozenset({"晚上", "夜里", "夜间", "今晚", "明晚", "当晚", "晚"})
_MORNING_ZH = frozenset({"上午", "早上", "早晨", "今早", "明早", "早"})
"""Twelve o'clock is midnight at night, and noon in the morning."""
_BEFORE_TIME_ZH = tuple("于到从至自在为是:")
"""Characters before a Chinese hour (`从3点`) that make it a time of day."""
_ZH_CLOCK = re.compile(rf"(?:({_EARLY_ZH})|({_LATE_ZH})) ?{WORDED_MARK}?((?:0?[1-9]|1[0-2]):[0-5]\d)(?!\d)")
_NAMED_TIME = re.compile(r"\b(?:12 )?(noon|midday|midnight)\b|(正午)|(午夜|零点|半夜12点)")

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_MONTHS = {name: number for number, month in enumerate(MONTHS, 1) for name in (month.lower(), month[:3].lower())} | {"sept": 9}
MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
"""Pattern of a month's English name or abbreviation, in lower case."""
_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})(?:[-/.]| ?年 ?)(\d{1,2})(?:[-/.]| ?月 ?)(\d{1,2})(?!\d)(?: ?[日号])?")
_YEAR_LAST = re.compile(r"(?<![\d./-])(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?!\d)")
_MONTH_DAY = re.compile(rf"\b({MONTH})\b\.? (?:the )?(\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d|%)(?:,? (\d{{4}})\b)?")
_DAY_MONTH = re.compile(rf"(?<![\d:.])(\d{{1,2}})(?:st|nd|rd|th)?(?: of)?[ -]?({MONTH})\b\.?(?:(?:,? |-)(\d{{4}})\b)?")
_ZH_DAY = re.compile(rf"(?<!\d){WORDED_MARK}?(\d{{1,2}}) ?月 ?{WORDED_MARK}?(\d{{1,2}})(?: ?[日号])?")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZH_WEEKDAYS = "一二三四五六日"
_WEEKDAYS = {name[:3].lower(): number for number, name in enumerate(WEEKDAYS)}
_WEEKDAY = re.compile(
    rf"\b({'|'.join(WEEKDAYS).lower()})s?\b|\b(mon|tues?|wed|thurs?|fri|sat|sun)\b(?=[,.)]? \d|,|\))"
    rf"|(?:周|星期|礼拜){WORDED_MARK}?([一二三四五六日天1-6])(?!\d|[天周个月]|共)"
)
_ZH_WEEKDAYS = {
    **{character: number for number, character in enumerate(ZH_WEEKDAYS)},
    "天": 6,
    **{str(number + 1): number for number in range(6)},
}


class Datetimes(NamedTuple):
    """The points in time of a text.

    times: for each time of day, all minutes since midnight that it may mean.
    days: (year or None, month, day).
    weekdays: 0 is Monday.
    remaining_text: the text without its points in time.
    """

    times: tuple[frozenset[int], ...]
    days: frozenset[tuple[int | None, int, int]]
    weekdays: frozenset[int]
    remaining_text: str

    def minutes(self) -> Iterable[int]:
        """All possible times of day, in minutes since midnight."""
        return (minute for readings in self.times for minute in readings)


@lru_cache(maxsize=2048)
def datetimes_in(text: str) -> Datetimes:
    """The points in time of a text from `words_to_digits`."""
    text, days = _extract_days(text)
    text, weekdays = _extract_weekdays(text)
    text, times = _extract_times(text)
    return Datetimes(times, days, weekdays, text)


def _extract_days(text: str) -> tuple[str, frozenset[tuple[int | None, int, int]]]:
    """The text without its days, and the days: (year or None, month, day)."""
    days: set[tuple[int | None, int, int]] = set()

    def add(year: str | None, month: int, day: int, matched: str) -> str:
        if not (1 <= month <= 12 and 1 <= day <= 31):
            return matched
        days.add((int(year) if year else None, month, day))
        return " ; "

    text = _YEAR_FIRST.sub(lambda match: add(match[1], int(match[2]), int(match[3]), match[0]), text)
    text = _YEAR_LAST.sub(lambda match: add(match[4], *_month_and_day(int(match[1]), int(match[3]), match[2]), match[0]), text)
    text = _MONTH_DAY.sub(lambda match: add(match[3], _MONTHS[match[1]], int(match[2]), match[0]), text)
    text = _DAY_MONTH.sub(lambda match: add(match[3], _MONTHS[match[2]], int(match[1]), match[0]), text)
    if "月" in text:
        text = _ZH_DAY.sub(lambda match: add(None, int(match[1]), int(match[2]), match[0]), text)
    return text, frozenset(days)


def _extract_weekdays(text: str) -> tuple[str, frozenset[int]]:
    """The text without its weekdays, and the weekdays: 0 is Monday."""
    weekdays = set()

    def add(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        weekdays.add(_WEEKDAYS[name[:3]] if name else _ZH_WEEKDAYS[match[3]])
        return " ; "

    return _WEEKDAY.sub(add, text), frozenset(weekdays)


def _month_and_day(first: int, second: int, separator: str) -> tuple[int, int]:
    """Month and day of 17.05.2026 and 17/5/2026. With a slash the month comes first if it can (5/6/2026 is May 6)."""
    return (first, second) if second > 12 or (separator == "/" and first <= 12) else (second, first)


def _extract_times(text: str) -> tuple[str, tuple[frozenset[int], ...]]:
    """The text without its times of day, and for each time all minutes since midnight that it may mean."""
    times: list[frozenset[int]] = []

    def add_clock_time(match: re.Match[str]) -> str:
        hour, minute, half, worded, bare_hour, bare_minute, part, night, only_hour, only_half = match.groups()
        if bare_hour:
            half = "a" if part == "morning" else "p" if part or night else ""
            is_ambiguous = bool(worded) or (len(bare_hour) == 1 and bare_hour != "0")
            times.append(_possible_minutes(int(bare_hour), int(bare_minute), half, is_ambiguous=is_ambiguous))
        else:
            times.append(_possible_minutes(int(hour or only_hour), int(minute or 0), half or only_half, is_ambiguous=False))
        return " ; "

    def add_range_start(match: re.Match[str]) -> str:
        times.append(_possible_minutes(int(match[1]), int((match[2] or ":0")[1:]), "", is_ambiguous=True))
        return " ; "

    def add_chinese_time(match: re.Match[str]) -> str:
        early, late, worded, hour, whole, minute, after = match.groups()
        before = text[: match.start()].rstrip(WORDED_MARK + " ")
        has_cue = early or late or whole or minute or after or before.endswith(_BEFORE_TIME_ZH)
        if not (has_cue or (not worded and not before[-1:].isdigit())):
            return match[0]
        times.append(_possible_minutes(int(hour), int(minute or 0), early or late or "", is_ambiguous=True))
        return " ; "

    def add_named_time(match: re.Match[str]) -> str:
        times.append(frozenset({0, _DAY_MINUTES} if match[1] == "midnight" or match[3] else {_DAY_MINUTES // 2}))
        return " ; "

    text = _NAMED_TIME.sub(add_named_time, text)
    if "m" in text:
        text = _RANGE_START.sub(add_range_start, text)
    if ":" in text or "m" in text:
        text = _TIME.sub(add_clock_time, _ZH_CLOCK.sub(_to_24_hours, text))
    if "点" in text or "时" in text:
        text = _ZH_TIME.sub(add_chinese_time, text)
    return text, tuple(times)


def _to_24_hours(match: re.Match[str]) -> str:
    """`下午3:20` as `15:20`."""
    hour, minute = match[3].split(":")
    return f" {hour_of_day(int(hour), match[1] or match[2]):02d}:{minute} "


def hour_of_day(hour: int, part: str) -> int:
    """The hour on a 24-hour clock.

    part: `a` (am), `p` (pm), a Chinese part of the day (下午), or empty for an hour that is on that clock already.
    """
    if not part or hour > 12:
        return hour
    if part == "中午":
        return hour if hour >= 10 else hour + 12
    if hour == 12 and (part in _NIGHT_ZH or part in _MORNING_ZH):
        return 0 if part in _NIGHT_ZH else 12
    is_early = part == "a" or part in _EARLY_ZH.split("|") or (part in ("夜里", "夜间") and hour < 6)
    return hour % 12 + (0 if is_early else 12)


def _possible_minutes(hour: int, minute: int, half: str, *, is_ambiguous: bool) -> frozenset[int]:
    """All minutes since midnight that a time of day may mean. Midnight is both 0 and 1440.

    half: see `hour_of_day`. is_ambiguous: without `half`, hours 1 to 12 may be in either half of the day.
    """
    minutes = hour * 60 + minute
    if half and hour <= 12:
        minutes = hour_of_day(hour, half) * 60 + minute
        return frozenset({minutes, _DAY_MINUTES}) if minutes == 0 else frozenset({minutes})
    if not half and is_ambiguous and 1 <= hour <= 12:
        return frozenset({minutes, hour % 12 * 60 + minute + _DAY_MINUTES // 2})
    return frozenset({0, _DAY_MINUTES}) if minutes in (0, _DAY_MINUTES) else frozenset({minutes})


def weekday_of(day: tuple[int | None, int, int]) -> int | None:
    """The weekday of a day with a year: 0 is Monday. None without a year, or where the day does not exist."""
    year, month, number = day
    try:
        return None if year is None else date(year, month, number).weekday()
    except ValueError:
        return None
