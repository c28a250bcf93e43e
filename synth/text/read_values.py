"""Reads a short amount in English or Chinese: a number with its unit, a day, or a time of day.

One idea: `amount_pattern` finds amounts in columns of text (Rust's regular expressions); each distinct amount is then read once, by the
modules that also read answers: `number_words.py` (numerals), `datetimes.py` (days and times) and `quantities.py` (numbers and units).
The text is lower case, with COLON in place of `:` between digits. Not read: fractions other than halves, ranges ("2-3 km").
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from synth.text.datetimes import MONTH, WEEKDAYS, ZH_WEEKDAYS, datetimes_in
from synth.text.number_words import WORDED_MARK, words_to_digits
from synth.text.quantities import UNITS, quantities_in

COLON = "\ue010"
_S, BOUNDARY = " *", r"(?-u:\b)"
NUMBER = r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_ZH = "[零〇一二两三四五六七八九十百千]+"
_ZH_MINUTES = "[二三四五]?十[一二三四五六七八九]?"
CLOCK = (
    rf"[0-9]{{1,2}}{COLON}[0-9]{{2}}(?:{_S}[ap]\.?m{BOUNDARY}\.?)?|[0-9]{{1,2}}{_S}[ap]m{BOUNDARY}|[0-9]{{1,2}}{_S}o'clock"
    rf"|(?:凌晨|上午|早上|中午|下午|傍晚|晚上){_S}(?:[0-9]{{1,2}}|{_ZH}){_S}[点时]"
    rf"(?:{_S}半|{_S}[一三]刻|{_S}[0-9]{{1,2}}{_S}分?|{_S}{_ZH_MINUTES}{_S}分?)?"
    rf"|(?:[0-9]{{1,2}}|{_ZH}){_S}点(?:{_S}半|{_S}[一三]刻|{_S}(?:[0-9]{{1,2}}|{_ZH_MINUTES}){_S}分|{_S}整)?"
)
_WEEKDAY = "|".join(WEEKDAYS).lower()
DAY = (
    rf"(?:{BOUNDARY}on{_S})?{BOUNDARY}(?:the{_S}day{_S}after{_S}tomorrow|tomorrow|today){BOUNDARY}"
    rf"|(?:{BOUNDARY}on{_S})?(?:{BOUNDARY}the{_S})?[0-9]{{1,2}}(?:st|nd|rd|th)?{_S}(?:of{_S})?(?:{MONTH}){BOUNDARY}"
    rf"|(?:{BOUNDARY}on{_S})?{BOUNDARY}(?:{MONTH}){_S}(?:the{_S})?[0-9]{{1,2}}(?:st|nd|rd|th)?{BOUNDARY}"
    rf"|{BOUNDARY}in{_S}[0-9]+{_S}(?:days?|weeks?)(?:')?(?:{_S}time)?{BOUNDARY}"
    rf"|[0-9]+{_S}(?:days?|weeks?){_S}(?:from{_S}(?:now|today)|later|ahead){BOUNDARY}"
    rf"|(?:{BOUNDARY}(?:on|this|next|coming){_S})*{BOUNDARY}(?:{_WEEKDAY}){BOUNDARY}"
    rf"|大后天|后天|明天|明日|今天|今日|(?:[0-9]{{1,2}}|{_ZH}){_S}月{_S}(?:[0-9]{{1,2}}|{_ZH}){_S}[日号]"
    rf"|(?:[0-9]+|{_ZH}){_S}天{_S}(?:以后|之后|过后|后)|(?:这|下|本)?(?:周|星期|礼拜)[{ZH_WEEKDAYS}天]"
)
_SLOT_UNITS = {"rating": "stars", "length": "m", "duration": "minutes", "yuan": "yuan", "money": "yuan", "dollars": "dollars"}
"""Dimension -> the unit of slot kinds; in this order where a word has several ("4分" is a rating)."""
_LONGEST_MINUTES = 60
"""Factor of the largest unit whose durations become minutes; days, nights and weeks are counts instead."""
_RATING_WORDS = ("point", "points")
_UNIT_WORDS = {
    word
    for word, units in UNITS.items()
    for dimension, factor in units
    if dimension in _SLOT_UNITS and factor >= 1 and (dimension != "duration" or factor <= _LONGEST_MINUTES)
} - {"刻"}


def any_of(words: Iterable[str]) -> str:
    """A pattern of Rust for one of the words, the longest first."""
    return "|".join(re.escape(word).replace("\\ ", _S) for word in sorted(set(words), key=lambda word: (-len(word), word)))


_EN_UNITS = any_of((*(word for word in _UNIT_WORDS if word.isascii() and word.isalpha()), *_RATING_WORDS))
_ZH_UNITS = any_of(word for word in _UNIT_WORDS if not word.isascii() and word != "¥")
MEASURE = (
    rf"{NUMBER}{_S}(?:hours?|hrs?|h){_S}(?:and{_S})?{NUMBER}{_S}(?:minutes?|mins?){BOUNDARY}"
    rf"|(?:{NUMBER}{_S}|{_ZH})个?(?:小时|钟头){_S}(?:{NUMBER}{_S}|{_ZH})分钟?"
    rf"|[¥$]{_S}{NUMBER}|{NUMBER}{_S}(?:{_EN_UNITS}){BOUNDARY}|(?:{NUMBER}{_S}|{_ZH}|半)个?半?(?:{_ZH_UNITS})半?"
)


def amount_pattern(nouns: Iterable[str]) -> str:
    """The pattern of Rust of every amount. nouns: what numbers may count ("days", 个人)."""
    nouns = tuple(nouns)
    counted = rf"{NUMBER}{_S}(?:{any_of(noun for noun in nouns if noun.isascii())}){BOUNDARY}"
    zh_nouns = any_of(noun for noun in nouns if not noun.isascii())
    return f"(?:{CLOCK})|(?:{DAY})|(?:{MEASURE})|(?:{counted}|(?:{NUMBER}{_S}|[二两三四五六七八九十百]+)(?:{zh_nouns}))|(?:{NUMBER})"


_CLOCK, _DAY = (re.compile(pattern.replace(BOUNDARY, r"\b")) for pattern in (CLOCK, DAY))
_COUNTED = re.compile(rf"({NUMBER}|{_ZH}|半) ?(.*)")


class Amount(NamedTuple):
    """An amount in a text.

    unit: m, minutes, yuan, dollars, stars, count, clock (minutes after midnight) or day.
    value: in the unit; 0 for a day.
    words: the counted noun of a count, or the words of a day (see `day_offset`); else empty.
    """

    unit: str
    value: float
    words: str


@lru_cache(maxsize=65536)
def read_amount(raw: str) -> Amount | None:
    """The amount in a match of `amount_pattern`; None where the words give no one number ("三四公里" is three or four)."""
    text = re.sub(" +", " ", raw.strip())
    if _CLOCK.fullmatch(text):
        times = datetimes_in(_digits(text)).times
        return Amount("clock", float(min(times[0])), "") if times else None
    if _DAY.fullmatch(text):
        return Amount("day", 0.0, text)
    if (measured := _read_measure(_digits(text))) is not None:
        return measured
    counted = _COUNTED.match(text)
    number = _digits(counted[1]) if counted else ""
    if counted is None or not re.fullmatch(NUMBER, number):
        return None
    return Amount("stars" if counted[2] in _RATING_WORDS else "count", float(number.replace(",", "")), _noun(counted[2]))


def _noun(words: str) -> str:
    return "" if words in _RATING_WORDS else words


def _digits(text: str) -> str:
    return words_to_digits(text.replace(COLON, ":")).replace(WORDED_MARK, "").strip()


def _read_measure(text: str) -> Amount | None:
    """The amount of a text in digits with a unit of slot kinds; None where it has none."""
    quantities = quantities_in(re.sub(r"(?<=[¥$]) ", "", text))
    if len(quantities) != 1:
        return None
    factors = dict(reversed(quantities[0].units))
    for dimension, unit in _SLOT_UNITS.items():
        factor = factors.get(dimension)
        if factor is not None and factor >= 1 and (dimension != "duration" or factor <= _LONGEST_MINUTES):
            value = quantities[0].value * factor
            return Amount(unit, round(value, 3) if float(factor).is_integer() else float(round(value)), "")
    return None


@lru_cache(maxsize=4096)
def day_offset(text: str, today: date) -> int:
    """The number of days from `today` to the day of an amount; -1 where the day is past or does not exist."""
    words = {"today": 0, "今天": 0, "今日": 0, "tomorrow": 1, "明天": 1, "明日": 1, "后天": 2, "大后天": 3}
    plain = _digits(re.sub(r"(?<=[a-z])(?=\d)", " ", re.sub("^on ", "", text)))
    if plain in words or "day after tomorrow" in plain:
        return words.get(plain, 2)
    dates = datetimes_in(plain)
    for weekday in dates.weekdays:
        days = (weekday - today.weekday()) % 7 or 7
        return days + 7 if text.startswith(("next", "下")) and weekday > today.weekday() else days
    for _, month, day in dates.days:
        try:
            return max((date(today.year, month, day) - today).days, -1)
        except ValueError:
            return -1
    match = re.search(r"(\d+) ?(?:天|days?|(weeks?))", plain)
    return int(match[1]) * (7 if match[2] else 1) if match else -1
