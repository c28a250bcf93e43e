"""Spells slot values as people write them: quantities, days and times of day, in English and Chinese.

One idea: a slot kind and a canonical value give a list of spellings, the plainest first; wording picks one of them. The parser
(`read_values.py`) reads them back by rules of its own.
Names of vocabulary values and their synonyms are data (`World.kinds`, `grounding.yaml`); this module does not change them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from storage.records import JSON, Language
from synth.text.datetimes import MONTHS, WEEKDAYS, ZH_WEEKDAYS
from synth.text.number_words import ZH_DIGITS
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary

_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_CLOCK = re.compile(r"\d\d:\d\d")

_UNITS: Mapping[str, tuple[str, str, str]] = {
    "euros": ("euro", "euros", "欧元"),
    "pounds": ("pound", "pounds", "英镑"),
    "days": ("day", "days", "天"),
    "nights": ("night", "nights", "晚"),
    "weeks": ("week", "weeks", "周"),
    "months": ("month", "months", "个月"),
    "years": ("year", "years", "年"),
    "hours": ("hour", "hours", "小时"),
    "people": ("person", "people", "人"),
    "items": ("item", "items", "件"),
    "pages": ("page", "pages", "页"),
    "points": ("point", "points", "分"),
    "percent": ("percent", "percent", "%"),
    "kg": ("kg", "kg", "公斤"),
    "km": ("km", "km", "公里"),
    "gb": ("GB", "GB", "GB"),
}
"""Units with one spelling each: English singular, English plural, Chinese."""

Synonyms = Mapping[str, Mapping[Language, Sequence[str]]]
"""Canonical value -> language -> other names."""


def chinese_number(value: int, *, before_measure: bool = True) -> str:
    """A number from 0 to 9999 in Chinese numerals: 105 is 一百零五, 2 is 两 before a measure word, else 二."""
    if value == 2 and before_measure:
        return "两"
    if value < 10:
        return ZH_DIGITS[value]
    out, is_gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, unit)
        if digit:
            out += ("零" if is_gap else "") + ZH_DIGITS[digit] + name
        is_gap = bool(out) and not digit and value > 0
    return out[1:] if out.startswith("一十") else out


def value_spellings(kind: SlotKind, value: JSON, language: Language, synonyms: Synonyms | None = None) -> list[str]:
    """All spellings of a canonical value in a language, the plainest first; never empty."""
    if isinstance(kind, Vocabulary):
        if _CLOCK.fullmatch(str(value)):
            return _clock(str(value), language)
        return [kind.names[value][language], *(synonyms or {}).get(value, {}).get(language, ())]
    if isinstance(kind, Identifier):
        return [str(value)]
    if isinstance(kind, Date):
        return _day(kind, int(value), language)
    return _quantity(kind, float(value), language)


def _quantity(kind: Quantity, value: float, language: Language) -> list[str]:
    number = f"{value:g}" if value < 1e6 else str(int(value))
    spellings = {
        "m": _metres,
        "minutes": _minutes,
        "yuan": lambda v, n, zh: [f"{n}元", f"{n}块", f"{n}块钱", f"¥{n}"] if zh else [f"{n} yuan", f"¥{n}", f"{n} rmb", f"{n} CNY"],
        "dollars": lambda v, n, zh: [f"{n}美元", f"{n}刀", f"{n}美金"] if zh else [f"{n} dollars", f"${n}", f"{n} bucks", f"{n} USD"],
        "stars": lambda v, n, zh: [f"{n}分", f"{n}星", n] if zh else [f"{n} stars", n, f"{n} points"],
        "count": _count,
    }.get(kind.unit)
    if spellings is not None:
        return spellings(value, number, language == "zh")
    singular, plural, chinese = _UNITS[kind.unit]
    return [f"{number}{chinese}"] if language == "zh" else [f"{number} {singular if value == 1 else plural}"]


def _metres(value: float, number: str, is_zh: bool) -> list[str]:
    kilometres = f"{value / 1000:g}"
    whole, metres = divmod(int(value), 1000)
    if is_zh:
        out = [f"{number}米"] + ([f"{kilometres}公里"] if value >= 1000 else [])
        if metres == 500:
            out.append(f"{chinese_number(whole)}公里半" if whole else "半公里")
        if metres == 0:
            out.append(f"{chinese_number(whole)}公里")
        return out
    out = [f"{number} m", f"{number} meters", f"{number} metres"]
    if value >= 1000:
        out += [f"{kilometres} km", f"{kilometres} kilometers", f"{kilometres} kilometres"]
    if value == 500:
        out.append("half a kilometre")
    if metres == 0 and 1 <= whole <= 10:
        out.append(f"{_NUMBER_WORDS[whole]} kilometres" if whole > 1 else "one kilometre")
    return out


def _minutes(value: float, number: str, is_zh: bool) -> list[str]:
    hours, minutes = divmod(int(value), 60)
    if is_zh:
        out = [f"{number}分钟"]
        if value == 30:
            out += ["半小时", "半个小时"]
        if hours and minutes == 0:
            out += [f"{hours}小时", f"{chinese_number(hours)}个小时", f"{chinese_number(hours)}小时"]
        if hours and minutes == 30:
            out += [f"{hours}.5小时", f"{chinese_number(hours)}个半小时"]
        return out
    out = [f"{number} minutes", f"{number} min", f"{number} mins"]
    if value == 30:
        out.append("half an hour")
    if hours and minutes == 0:
        out += ["an hour", "1 hour"] if hours == 1 else [f"{hours} hours", *([f"{_NUMBER_WORDS[hours]} hours"] if hours <= 10 else [])]
    if hours and minutes == 30:
        out += [f"{hours}.5 hours"] + (["an hour and a half"] if hours == 1 else [])
    return out


def _count(value: float, number: str, is_zh: bool) -> list[str]:
    whole = int(value)
    if whole > 10:
        return [number]
    return [number, chinese_number(whole)] if is_zh else [number, _NUMBER_WORDS[whole]]


def _day(kind: Date, days: int, language: Language) -> list[str]:
    day = kind.today + timedelta(days=days)
    if language == "zh":
        out = [f"{day.month}月{day.day}日", f"{day.month}月{day.day}号"]
        out += [("今天", "明天", "后天", "大后天")[days]] if days < 4 else [f"{days}天后", f"{chinese_number(days)}天后"]
        if 0 < days < 7:
            out += [f"周{ZH_WEEKDAYS[day.weekday()]}", f"星期{ZH_WEEKDAYS[day.weekday()]}"]
        return out
    month = MONTHS[day.month - 1]
    out = [f"on {month} {day.day}", f"on {day.day} {month}", f"on {month} {day.day}{_ordinal(day.day)}"]
    out += [("today", "tomorrow", "the day after tomorrow")[days]] if days < 3 else [f"in {days} days", f"{days} days from now"]
    if 0 < days < 7:
        out += [f"on {WEEKDAYS[day.weekday()]}", f"this {WEEKDAYS[day.weekday()]}"]
    if kind.is_bare:
        return [text.removeprefix("on ") for text in out if not text.endswith("from now") and not text.startswith("in ")]
    return out


def _ordinal(day: int) -> str:
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _clock(value: str, language: Language) -> list[str]:
    hour, minute = int(value[:2]), int(value[3:])
    half = "pm" if hour >= 12 else "am"
    hour_of_half = hour - 12 if hour > 12 else hour
    if language == "zh":
        part = "上午" if hour < 12 else "中午" if hour == 12 else "下午" if hour < 18 else "晚上"
        return [value, f"{hour}点{'半' if minute else ''}", f"{part}{hour_of_half}点{'半' if minute else ''}"]
    return (
        [value, f"{hour_of_half}:{minute:02d} {half}", f"{hour_of_half}:{minute:02d}{half}"]
        if minute
        else [value, f"{hour_of_half} {half}", f"{hour_of_half}{half}"]
    )
