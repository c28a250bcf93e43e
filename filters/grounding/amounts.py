"""Numbers, days and times of day as people write them: what a stretch of normalised text says, and which slot values that may be.

One idea: one pattern (`AMOUNT`) finds every stretch; few distinct stretches occur in millions of rows, so each is read once, in plain
Python, and cached. A stretch is read as a unit and a value ("1.5 km" is 1500 m), and a value fits every slot kind of that unit whose
range it lies in: "3 days" may be a span or, after "in", a day.
Text has been prepared by `lexicon.prepared`: lower case, two blanks between words, `:` between digits as COLON, English number words
as digits. What it does not read: fractions other than halves, ranges ("2-3 km"), dates of another year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache

from storage.records import JSON
from synth.tasks.wording import load_grounding
from synth.text.slot_kinds import Date, Quantity, SlotKind, Vocabulary
from synth.worlds import GROUNDED, WORLDS

COLON = "\ue010"
_S, _B = " *", r"(?-u:\b)"
_N = r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_ZH = "[零〇一二两三四五六七八九十百千]+"
_MONTHS = (
    *("jan(?:uary)?", "feb(?:ruary)?", "mar(?:ch)?", "apr(?:il)?", "may", "june?"),
    *("july?", "aug(?:ust)?", "sept?(?:ember)?", "oct(?:ober)?", "nov(?:ember)?", "dec(?:ember)?"),
)
_MONTH = f"(?:{'|'.join(_MONTHS)})"
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ZH_WEEKDAYS = "一二三四五六日"

CLOCK = (
    rf"[0-9]{{1,2}}{COLON}[0-9]{{2}}(?:{_S}[ap]\.?m{_B}\.?)?|[0-9]{{1,2}}{_S}[ap]m{_B}|[0-9]{{1,2}}{_S}o'clock"
    rf"|(?:上午|早上|中午|下午|傍晚|晚上){_S}(?:[0-9]{{1,2}}|{_ZH}){_S}[点时](?:{_S}半|{_S}[0-9]{{1,2}}{_S}分?)?"
    rf"|(?:[0-9]{{1,2}}|{_ZH}){_S}点(?:{_S}半|{_S}[0-9]{{1,2}}{_S}分|{_S}整)?"
)
DAY = (
    rf"(?:{_B}on{_S})?{_B}(?:the{_S}day{_S}after{_S}tomorrow|tomorrow|today){_B}"
    rf"|(?:{_B}on{_S})?(?:{_B}the{_S})?[0-9]{{1,2}}(?:st|nd|rd|th)?{_S}(?:of{_S})?{_MONTH}{_B}"
    rf"|(?:{_B}on{_S})?{_B}{_MONTH}{_S}(?:the{_S})?[0-9]{{1,2}}(?:st|nd|rd|th)?{_B}"
    rf"|{_B}in{_S}[0-9]+{_S}(?:days?|weeks?)(?:')?(?:{_S}time)?{_B}|[0-9]+{_S}(?:days?|weeks?){_S}(?:from{_S}(?:now|today)|later|ahead){_B}"
    rf"|(?:{_B}(?:on|this|next|coming){_S})*{_B}(?:{'|'.join(_WEEKDAYS)}){_B}"
    rf"|大后天|后天|明天|明日|今天|今日|(?:[0-9]{{1,2}}|{_ZH}){_S}月{_S}(?:[0-9]{{1,2}}|{_ZH}){_S}[日号]"
    rf"|(?:[0-9]+|{_ZH}){_S}天{_S}(?:以后|之后|过后|后)|(?:这|下|本)?(?:周|星期|礼拜)[{_ZH_WEEKDAYS}天]"
)
_UNITS: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("km", "kms", "kilometer", "kilometers", "kilometre", "kilometres"), ("m", 1000.0)),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), ("m", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("minutes", 1.0)),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), ("minutes", 60.0)),
    **dict.fromkeys(("yuan", "rmb", "cny", "kuai"), ("yuan", 1.0)),
    **dict.fromkeys(("buck", "bucks", "dollar", "dollars", "usd"), ("dollars", 1.0)),
    **dict.fromkeys(("star", "stars", "point", "points"), ("stars", 1.0)),
}
_ZH_UNITS: Mapping[str, tuple[str, float]] = {
    **dict.fromkeys(("公里", "千米"), ("m", 1000.0)),
    **dict.fromkeys(("小时", "钟头"), ("minutes", 60.0)),
    **dict.fromkeys(("块钱", "块", "元", "人民币"), ("yuan", 1.0)),
    **dict.fromkeys(("美元", "美金", "刀"), ("dollars", 1.0)),
    **dict.fromkeys(("分", "星"), ("stars", 1.0)),
    "米": ("m", 1.0),
    "分钟": ("minutes", 1.0),
}


def _either(words: Iterable[str]) -> str:
    """A pattern for one of the words, the longest first."""
    return "|".join(re.escape(word).replace("\\ ", f"{_S}") for word in sorted(set(words), key=lambda word: (-len(word), word)))


_NOUNS: Mapping[str, frozenset[tuple[str, str]]] = {
    noun.lower(): frozenset(
        (world, kind)
        for world in GROUNDED
        for kind, phrases in load_grounding(WORLDS[world]).units.items()
        for nouns in phrases.values()
        if noun in nouns
    )
    for world in GROUNDED
    for phrases in load_grounding(WORLDS[world]).units.values()
    for nouns in phrases.values()
    for noun in nouns
}
"""Nouns that make a bare number a count of something, with the slot kinds that they count."""

_EN_NOUNS = _either(noun for noun in _NOUNS if noun.isascii())
_ZH_NOUNS = _either(noun for noun in _NOUNS if not noun.isascii())
MEASURE = (
    rf"[¥$]{_S}{_N}|{_N}{_S}(?:{_either(_UNITS)}){_B}"
    rf"|(?:{_N}{_S}|{_ZH}|半)个?半?(?:{_either(_ZH_UNITS)})半?"
    rf"|{_N}{_S}(?:{_EN_NOUNS}){_B}|(?:{_N}{_S}|[二两三四五六七八九十百]+)(?:{_ZH_NOUNS})"
)
AMOUNT = f"(?:{CLOCK})|(?:{DAY})|(?:{MEASURE})|(?:{_N})"
"""Every stretch of text that may be an amount, for Rust's regular expressions."""

_CLOCK, _DAY = (re.compile(pattern.replace(_B, r"\b")) for pattern in (CLOCK, DAY))
_QUANTITY = re.compile(rf"^({_N}|{_ZH}|半) ?(个?半?) ?({_either(_ZH_UNITS)})?(半?)(.*)$")
_ZH_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_ZH_POWERS = {"十": 10, "百": 100, "千": 1000}


def is_clock(value: str) -> bool:
    """Whether a canonical slot value is a time of day."""
    return re.fullmatch(r"[0-9]{2}:[0-9]{2}", value) is not None


def chinese_value(text: str) -> int:
    """The number that Chinese numerals say: 一百零五 is 105, 十五 is 15."""
    total, digit = 0, 0
    for character in text:
        if character in _ZH_POWERS:
            total += (digit or 1) * _ZH_POWERS[character]
            digit = 0
        else:
            digit = _ZH_DIGITS[character]
    return total + digit


def _number(text: str) -> float:
    return float(text.replace(",", "")) if text[0].isdigit() else float(chinese_value(text))


@lru_cache(maxsize=65536)
def reading(raw: str) -> tuple[str, float, str]:
    """What a matched stretch says: (unit, value, words). Units are those of `Quantity`, with the noun counted (or "") as the words of a
    `count`; `clock` (minutes after midnight); and `day`, whose words say which (see `day_offset`) and whose value is 0."""
    text = re.sub(" +", " ", raw.strip())
    if _CLOCK.fullmatch(text):
        return "clock", float(_minutes(text)), ""
    if _DAY.fullmatch(text):
        return "day", 0.0, text
    if text[0] in "¥$":
        return ("yuan" if text[0] == "¥" else "dollars"), _number(text[1:].strip()), ""
    match = _QUANTITY.match(text)
    assert match is not None, raw
    number, middle, unit, half, noun = match.groups()
    value = 0.5 if number == "半" else _number(number) + (0.5 if half or middle.endswith("半") else 0.0)
    if unit:
        name, scale = _ZH_UNITS[unit]
        return name, round(value * scale, 3), ""
    noun = (middle + noun).strip()
    name, scale = _UNITS.get(noun, ("count", 1.0))
    return name, round(value * scale, 3), noun if name == "count" else ""


def _minutes(text: str) -> int:
    numbers = [_number(found) for found in re.findall(rf"[0-9]+|{_ZH}", text)]
    hour, minute = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 30 if "半" in text else 0
    is_afternoon = re.search(r"p\.?m|下午|傍晚|晚上", text) is not None
    if is_afternoon and hour < 12:
        hour += 12
    return hour * 60 + minute


@lru_cache(maxsize=4096)
def day_offset(text: str, today: date) -> int:
    """How many days from `today` the day lies that a stretch of unit `day` names; -1 where it is past or no date."""
    words = {"today": 0, "今天": 0, "今日": 0, "tomorrow": 1, "明天": 1, "明日": 1, "后天": 2, "大后天": 3}
    plain = re.sub(r"^(?:on|this|next|coming) ", "", re.sub(r"^on ", "", text))
    if plain in words:
        return words[plain]
    if "day after tomorrow" in plain:
        return 2
    for weekday, name in enumerate(_WEEKDAYS):
        if plain.endswith(name):
            return _to_weekday(weekday, today, is_next=text.startswith("next"))
    if match := re.search(rf"(?:周|星期|礼拜)([{_ZH_WEEKDAYS}天])", plain):
        weekday = 6 if match.group(1) == "天" else _ZH_WEEKDAYS.index(match.group(1))
        return _to_weekday(weekday, today, is_next=plain.startswith("下"))
    if match := re.search(rf"([0-9]+|{_ZH}) ?(?:天|days?|weeks?)", plain):
        return int(_number(match.group(1))) * (7 if "week" in plain else 1)
    return _calendar_day(plain, today)


def _to_weekday(weekday: int, today: date, *, is_next: bool) -> int:
    days = (weekday - today.weekday()) % 7 or 7
    return days + 7 if is_next and weekday > today.weekday() else days


def _calendar_day(text: str, today: date) -> int:
    if match := re.search(rf"([0-9]+|{_ZH}) ?月 ?([0-9]+|{_ZH})", text):
        month, day = int(_number(match.group(1))), int(_number(match.group(2)))
    else:
        month = next((index for index, name in enumerate(_MONTHS, 1) if re.search(rf"\b{name}\b", text)), 0)
        day = int(re.findall("[0-9]+", text)[0])
    try:
        days = (date(today.year, month, day) - today).days
    except ValueError:
        return -1
    return days if days >= 0 else -1


@lru_cache(maxsize=65536)
def is_bare(raw: str) -> bool:
    """Whether a stretch is a mere number, which only its surroundings can make a value."""
    unit, _, words = reading(raw)
    return unit == "count" and not words


@lru_cache(maxsize=65536)
def values(raw: str) -> tuple[tuple[str, str, JSON], ...]:
    """Every slot value that a matched stretch may be: (world, kind name, canonical value), in a fixed order."""
    said = reading(raw)
    return tuple(
        (world, name, found)
        for world in GROUNDED
        for name, kind in WORLDS[world].kinds.items()
        if (found := _as_kind(world, name, kind, said)) is not None
    )


def _as_kind(world: str, name: str, kind: SlotKind, raw: tuple[str, float, str]) -> JSON:
    unit, value, words = raw
    if isinstance(kind, Quantity):
        if unit == "day":
            return _far(kind, name, words)
        fits = (world, name) in _NOUNS[words] if words else kind.unit == unit or (unit == "count" and kind.unit == "stars")
        whole = kind.unit != "count" or value.is_integer()
        return kind.canonical(value) if fits and whole and kind.low <= value <= kind.high else None
    if isinstance(kind, Date) and unit == "day":
        days = day_offset(words, kind.today)
        return days if 0 <= days <= kind.horizon_days else None
    if isinstance(kind, Vocabulary) and unit == "clock":
        text = f"{int(value) // 60:02d}:{int(value) % 60:02d}"
        return text if text in kind.names else None
    return None


def _far(kind: Quantity, name: str, text: str) -> JSON:
    """A day beyond the horizon ("in 30 days") is a number of days where a world has a kind for such."""
    if not name.startswith("far_") or not re.search("天|day|week", text) or any(weekday in text for weekday in _WEEKDAYS):
        return None
    days = day_offset(text, date(2026, 1, 1))
    return days if kind.low <= days <= kind.high else None
