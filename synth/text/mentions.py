"""Finds days, times of day, amounts of money and numbers in an English text, with their places.

One idea: one regular expression a kind, tried in the order time, address, day, number, and a place belongs to the first that takes it
("half past 2" is no number). Days are resolved against a given today; an hour without a half of the day is taken as people mean it after
"at" (1 to 7 are afternoon).

`datetimes.py` and `quantities.py` answer another question: what an *answer* may claim, in both languages, without places.
Not read: ranges, fractions, and days such as "next month" that are no single day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from synth.text.datetimes import MONTH, MONTHS, WEEKDAYS
from synth.text.number_words import WORDED_MARK, words_to_digits

MentionKind = Literal["address", "time", "day", "money", "number"]

_DAY_MINUTES = 1440
_ORDINALS = {
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10},
    **{"eleventh": 11, "twelfth": 12},
}
_ORDINAL = "|".join(_ORDINALS)
_NUMERAL = r"\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten"
_WEEKDAY = "|".join(WEEKDAYS).lower()
_NO_DAY = r"(?!\s*(?:street|st\b|avenue|ave\b|floor|time|grade|edition|one|birthday|anniversary))"
_DAY = re.compile(
    rf"""\b(?:
  (?P<iso>\d{{4}}-\d\d?-\d\d?)
| (?P<slashed>\d\d?/\d\d?(?:/\d{{2,4}})?)
| (?:the\s+)?(?P<day_of>\d{{1,2}}(?:st|nd|rd|th)?|{_ORDINAL})\s+(?:day\s+)?of\s+(?P<of>{MONTH}|this\s+month|next\s+month)
| (?:the\s+)?(?P<day_before>\d{{1,2}}(?:st|nd|rd|th)?)\s+(?P<before>{MONTH})
| (?P<after>{MONTH})\.?\s+(?:the\s+)?(?P<day_after>\d{{1,2}}(?:st|nd|rd|th)?|{_ORDINAL})\b(?!\s*:\d)
| the\s+(?P<day_alone>\d{{1,2}}(?:st|nd|rd|th))\b{_NO_DAY}
| (?P<near>(?:the\s+)?day\s+after\s+tomorrow|later\s+today|today|tonight|tomorrow)
| (?P<weekday_of>{_WEEKDAY}),?\s+(?P<week>this|next)\s+week
| (?:(?:this\s+coming|next|this|coming)\s+)?(?P<weekday>{_WEEKDAY})(?!s)
| in\s+(?P<count>{_NUMERAL})\s+(?P<unit>days?|weeks?)(?:\s+time)?
| (?P<count_from>{_NUMERAL}|a)\s+(?P<unit_from>days?|weeks?)\s+from\s+(?:now|today)
)\b""",
    re.VERBOSE | re.IGNORECASE,
)
_HOUR = r"(?:\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_HALF = r"[ap]\.?\s?m\b\.?|in\s+the\s+(?:morning|afternoon|evening|night)|at\s+night|noon"
_OCLOCK = r"o\s?[\"'’]?\s?clock"
_NO_HOUR = r"(?!\s*(?:people|persons?|of\s+us|tickets?|seats?|adults?|guests?))"
_TIME = re.compile(
    rf"""\b(?:
  (?:a\s+)?(?P<part>half|quarter)\s+(?P<to>past|to)\s+(?P<hour_part>{_HOUR})(?:\s+(?P<half_part>{_HALF}))?
| (?P<half_first>morning|afternoon|evening|night)\s*,?\s+(?:at\s+)?
  (?P<hour_first>{_HOUR})(?:[:.](?P<minute_first>\d\d))?(?:\s*{_OCLOCK})?\b{_NO_HOUR}
| (?P<hour_clock>\d{{1,2}})[:.](?P<minute_clock>[0-5]\d)(?!\d)(?:\s*(?P<half_clock>{_HALF}))?
| (?P<hour_plain>{_HOUR})\s*(?P<half_plain>{_HALF})
| (?P<hour_oclock>{_HOUR})\s*{_OCLOCK}(?:\s+(?P<half_oclock>{_HALF}))?
| (?P<named>(?:12\s+)?(?:noon|midnight)|midday)
| (?<=at\s)(?P<hour_at>{_HOUR})(?=\s*(?:[,.?!;]|$|\b(?:on|for|please|tomorrow|today|tonight)\b))
)""",
    re.VERBOSE | re.IGNORECASE,
)
_ONES = "one|two|three|four|five|six|seven|eight|nine"
_TEENS = "ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
_SMALL = rf"(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:[\s-](?:{_ONES}))?|{_TEENS}|{_ONES})"
_IN_WORDS = rf"{_SMALL}(?:\s(?:hundred|thousand)\s(?:and\s)?{_SMALL})*(?:\s(?:hundred|thousand))*\b"
_NUMBER = re.compile(
    rf"""(?P<symbol>[$€£¥])?\s?(?<![\w.])(?P<number>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|{_IN_WORDS})
    (?!\w|[.,]\d)(?!\s?(?:st|nd|rd|th)\b)(?:\s?(?P<unit>dollars?|bucks|usd|euros?|pounds?|yuan|rmb)\b)?""",
    re.VERBOSE | re.IGNORECASE,
)
_STREET = (
    "street|st|avenue|ave|road|rd|boulevard|blvd|drive|dr|lane|ln|way|court|ct|plaza|place|pl|parkway|pkwy|highway|hwy|square|circle|"
    "terrace|alley|real|broadway"
)
_ADDRESS = re.compile(
    rf"\b\d{{1,5}}\s+(?:[a-z0-9][\w.'-]*\s+){{1,5}}?(?:{_STREET})\b\.?(?:,?\s(?:apartment|apt|suite|ste|unit|#)\.?\s?[\w-]+)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A value in a text.

    start, end: its place, in characters.
    value: a date, minutes after midnight, a number, or the text of an address.
    """

    kind: MentionKind
    start: int
    end: int
    value: date | float | str


def mentions_in(text: str, today: date) -> list[Mention]:
    """All values of an English text, none in the place of another. today: the day that "tomorrow" and a day without a year refer to."""
    mentions: list[Mention] = []
    for found in (_times(text), _addresses(text), _days(text, today), _numbers(text)):
        taken = tuple(mentions)
        mentions += [each for each in found if all(each.end <= other.start or each.start >= other.end for other in taken)]
    return mentions


def _addresses(text: str) -> Iterator[Mention]:
    return (Mention("address", match.start(), match.end(), match[0]) for match in _ADDRESS.finditer(text))


# ---- times ------------------------------------------------------------------------------------------------------------------


def _times(text: str) -> Iterator[Mention]:
    for match in _TIME.finditer(text):
        minutes = _minutes(match)
        if minutes is not None:
            yield Mention("time", match.start(), match.end(), minutes)


def _minutes(match: re.Match[str]) -> int | None:
    """Minutes after midnight; None where the hour is no hour."""
    if match["named"]:
        return 0 if "midnight" in match["named"].lower() else _DAY_MINUTES // 2
    form = next(name for name in ("part", "first", "clock", "plain", "oclock", "at") if match[f"hour_{name}"])
    hour = _number(match[f"hour_{form}"])
    half = "" if form == "at" else (match[f"half_{form}"] or "").lower()
    if hour > 24:
        return None
    if half and hour <= 12:
        is_late = half[0] == "p" or any(word in half for word in ("afternoon", "evening", "night", "noon"))
        hour = hour % 12 + (0 if not is_late or ("night" in half and hour == 12) else 12)
    elif form in ("oclock", "at") and 1 <= hour <= 7:
        hour += 12
    minutes = hour * 60
    if form == "part":
        step = 30 if match["part"].lower() == "half" else 15
        minutes += -step if match["to"].lower() == "to" else step
    elif form in ("first", "clock"):
        minutes += int(match[f"minute_{form}"] or 0)
    return int(minutes % _DAY_MINUTES)


# ---- days -------------------------------------------------------------------------------------------------------------------


def _days(text: str, today: date) -> Iterator[Mention]:
    for match in _DAY.finditer(text):
        day = _day(match, today)
        if day is not None:
            yield Mention("day", match.start(), match.end(), day)


def _day(match: re.Match[str], today: date) -> date | None:
    """The day of a match; None where there is no such day."""
    try:
        if match["iso"]:
            return date(*map(int, match["iso"].split("-")))
        if match["slashed"]:
            month, day, *year = map(int, match["slashed"].split("/"))
            return date(year[0] + (2000 if year[0] < 100 else 0), month, day) if year else _coming(month, day, today)
        for name in ("of", "before", "after"):
            if match[f"day_{name}"]:
                return _coming(_month(match[name], today), _day_of_month(match[f"day_{name}"]), today)
        if match["day_alone"]:
            day = _day_of_month(match["day_alone"])
            return date(today.year, today.month, day) if day >= today.day else _coming(today.month % 12 + 1, day, today)
    except ValueError:
        return None
    return today + timedelta(days=_days_ahead(match, today))


def _days_ahead(match: re.Match[str], today: date) -> int:
    if match["near"]:
        words = match["near"].lower()
        return 2 if "after" in words else 1 if "tomorrow" in words else 0
    if match["weekday_of"]:
        return _weekday(match["weekday_of"]) - today.weekday() + (7 if match["week"].lower() == "next" else 0)
    if match["weekday"]:
        return (_weekday(match["weekday"]) - today.weekday()) % 7 or 7
    count, unit = match["count"] or match["count_from"], match["unit"] or match["unit_from"]
    return int(1 if count.lower() == "a" else _number(count)) * (7 if unit.lower().startswith("week") else 1)


def _coming(month: int, day: int, today: date) -> date:
    """This day of the year; of the next one if it has been over for more than two months."""
    this_year = date(today.year, month, day)
    return date(today.year + 1, month, day) if (today - this_year).days > 60 else this_year


def _month(words: str, today: date) -> int:
    words = words.lower()
    if words.endswith("month"):
        return today.month if words.startswith("this") else today.month % 12 + 1
    return next(number for number, month in enumerate(MONTHS, 1) if month.lower().startswith(words[:3]))


def _day_of_month(words: str) -> int:
    digits = re.match(r"\d+", words)
    return int(digits[0]) if digits else _ORDINALS[words.lower()]


def _weekday(name: str) -> int:
    return [each.lower() for each in WEEKDAYS].index(name.lower())


# ---- numbers ----------------------------------------------------------------------------------------------------------------


def _numbers(text: str) -> Iterable[Mention]:
    for match in _NUMBER.finditer(text):
        is_money = bool(match["symbol"] or match["unit"])
        start, end = match.span() if is_money else match.span("number")
        yield Mention("money" if is_money else "number", start + (text[start] == " "), end, _number(match["number"]))


def _number(words: str) -> float:
    """The value of digits or of a number in words."""
    plain = words.replace(",", "")
    if plain[0].isdigit():
        return float(plain)
    return float(words_to_digits(words.lower().replace("-", " ")).replace(WORDED_MARK, "").strip())
