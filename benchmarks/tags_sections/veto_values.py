"""How values of a conversation are told, and which numbers, times and names it supports: for the benchmark of the grounding veto.

One idea: a value has the *forms* in which the contract of the veto still calls it the same (1493 m is about 1.5 km, as it is less than 1 %
off); a style of `veto_measure.yaml` or `veto_development.yaml` is a text with forms in it, and suits a value that has them all. What a
conversation supports is read from its raw messages alone, with twice the contract's margin, so that what is invented is so beyond doubt.
Nothing here knows the rules of `synth/tasks/verify.py`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from storage.records import JSON, Language, Message

Forms = dict[str, str]
PLACE = re.compile(r"\{(\w+)\}")
KindOf = Callable[[str, Mapping[str, JSON]], tuple[str, float]]
"""(key, the object that has it) -> the kind of a number there, empty where it has none, and how much of the kind's unit its unit is."""
CURRENCIES: Mapping[str, Forms] = {
    "yuan": {"sym": "¥", "code": "CNY", "unit": "yuan", "unit_zh": "元", "kuai": "", "rmb": ""},
    "dollars": {"sym": "$", "code": "USD", "unit": "dollars", "unit_zh": "美元", "usd": ""},
    "euros": {"sym": "€", "code": "EUR", "unit": "euros", "unit_zh": "欧元"},
    "pounds": {"sym": "£", "code": "GBP", "unit": "pounds", "unit_zh": "英镑"},
}


@dataclass(frozen=True, slots=True)
class Value:
    """kind: distance (metres), duration (minutes), clock (HH:MM), date (ISO), price, temperature, percent, rating, number, count (with its
    unit in both languages), or text, which is told as it is. unit: of a count in English and Chinese; the currency of a price."""

    kind: str
    value: float | str
    unit: tuple[str, str] = ("", "")


# ---- forms ---------------------------------------------------------------------------------------------------------------------

_ONES = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DIGITS = "零一二三四五六七八九"
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]


def english(number: int) -> str:
    """0 to 9999 in words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = number % size
    joint = " and " if rest < 100 else " "
    return f"{english(number // size)} {name}" + (joint + english(rest) if rest else "")


def chinese(number: int) -> str:
    """0 to 9999 in words."""
    if number < 10:
        return _DIGITS[number]
    if number < 20:
        return "十" + (_DIGITS[number % 10] if number % 10 else "")
    if number < 100:
        return _DIGITS[number // 10] + "十" + (_DIGITS[number % 10] if number % 10 else "")
    size, name = (1000, "千") if number >= 1000 else (100, "百")
    rest = number % size
    if not rest:
        return _DIGITS[number // size] + name
    tail = chinese(rest) if rest >= 20 or size == 1000 else f"一{chinese(rest)}" if rest >= 10 else chinese(rest)
    tail = f"一{tail}" if size == 1000 and 10 <= rest < 20 else tail
    return _DIGITS[number // size] + name + ("零" if rest < size // 10 else "") + tail


def _is_same(told: float, value: float) -> bool:
    return abs(told - value) <= 0.01 * abs(value)


def _is_said_in_words(number: float) -> bool:
    return 0 <= number <= 20 or (number <= 100 and number % 10 == 0) or (number < 1000 and number % 100 == 0)


def _plain(number: float, language: Language) -> Forms:
    is_whole = float(number).is_integer()
    forms = {"n": str(int(number)) if is_whole else f"{number:g}"}
    if is_whole and number >= 1000:
        forms["n_sep"] = f"{int(number):,}"
        forms["n_thin"] = f"{int(number):,}".replace(",", " ")
    if is_whole and _is_said_in_words(number):
        forms["n_word"] = english(int(number)) if language == "en" else chinese(int(number))
    if number >= 10_000 and _is_same(round(number / 10_000, 1) * 10_000, number):
        forms["wan"] = f"{number / 10_000:.1f}".removesuffix(".0")
    if number >= 1000 and float(number / 1000).is_integer():
        forms["k"] = str(int(number / 1000))
    return forms


def _counted(number: float, language: Language) -> Forms:
    """As it stands before a unit."""
    return _plain(number, language) | ({"n_word": "两"} if language == "zh" and number == 2 else {})


def _distance(value: Value, language: Language) -> Forms:
    metres = float(value.value)
    forms = _plain(metres, language)
    for places in (1, 2, 3):
        if metres >= 500 and _is_same(round(metres / 1000, places), metres / 1000):
            forms[f"km{places}"] = f"{metres / 1000:.{places}f}"
    if metres >= 1000 and _is_same(round(metres / 1000), metres / 1000):
        forms["km0"] = str(round(metres / 1000))
    if _is_same(round(metres, -1), metres):
        forms["tens"] = str(int(round(metres, -1)))
    if _is_same(round(metres, -2), metres):
        forms["hundreds"] = f"{int(round(metres, -2)):,}"
    return forms


def _duration(value: Value, language: Language) -> Forms:
    minutes = int(float(value.value))
    forms = _counted(minutes, language) | {f"is_{minutes}": ""}
    if minutes < 100:
        forms["under_100"] = ""
    hours, rest = divmod(minutes, 60)
    word = english if language == "en" else chinese
    if hours and rest:
        forms |= {"h": str(hours), "m": str(rest), "mm": f"{rest:02d}", "s": "" if hours == 1 else "s"}
        forms["h_word"] = "两" if language == "zh" and hours == 2 else word(hours)
        if _is_said_in_words(rest):
            forms["m_word"] = word(rest)
    if hours and not rest:
        forms |= {
            "h_only": str(hours),
            "h_only_word": "两" if language == "zh" and hours == 2 else word(hours),
            "s": "" if hours == 1 else "s",
        }
    if hours and rest == 30:
        forms["and_a_half"] = "两" if language == "zh" and hours == 2 else word(hours)
    for places in (1, 2):
        if hours and _is_same(round(minutes / 60, places), minutes / 60):
            forms[f"h{places}"] = f"{minutes / 60:.{places}f}"
    return forms


def _clock(value: Value, language: Language) -> Forms:
    text = str(value.value)
    hour, minute = int(text[:2]), int(text[3:])
    if hour in (0, 24):
        return {"t": text} | ({"is_midnight": ""} if minute == 0 else {})
    h12 = (hour - 1) % 12 + 1
    forms = {"t": text, "h24": str(hour), "mm": text[3:], "h12": str(h12), "m": str(minute)}
    forms |= {"ampm": "am" if hour < 12 else "pm", "a_m": "a.m." if hour < 12 else "p.m.", "AM": "AM" if hour < 12 else "PM"}
    forms["day"] = "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"
    forms["part"] = next(name for until, name in _PARTS if hour < until)
    word = english if language == "en" else chinese
    forms |= {"h12_word": word(h12), "h24_word": word(hour)}
    if language == "zh":
        forms |= {name: "两" for name in ("h12_word", "h24_word") if forms[name] == "二"}
    if text == "12:00":
        forms["is_noon"] = ""
    special = {0: "on_hour", 15: "quarter_past", 30: "half_past", 45: "quarter_to"}.get(minute)
    if special:
        forms |= {special: "", "next_word": word(h12 % 12 + 1)}
    if special != "on_hour":
        forms["off_hour"] = ""
    if minute >= 10:
        forms["m_word"] = word(minute)
    return forms


_PARTS = ((6, "凌晨"), (9, "早上"), (12, "上午"), (13, "中午"), (18, "下午"), (24, "晚上"))


def _date(value: Value, language: Language) -> Forms:
    day = date.fromisoformat(str(value.value))
    ending = "th" if 11 <= day.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    forms = {
        "iso": day.isoformat(),
        "y": str(day.year),
        "mo": str(day.month),
        "d": str(day.day),
        "dd": f"{day.day:02d}",
        "mm": f"{day.month:02d}",
    }
    month = _MONTHS[day.month - 1]
    return forms | {
        "ord": f"{day.day}{ending}",
        "month": month,
        "mon": month[:3],
        "mo_word": chinese(day.month),
        "d_word": chinese(day.day),
        "weekday": day.strftime("%A") if language == "en" else f"星期{'一二三四五六日'[day.weekday()]}",
    }


def _price(value: Value, language: Language) -> Forms:
    number, currency = float(value.value), CURRENCIES[value.unit[0]]
    forms = _counted(number, language) | currency | {"two": f"{number:.2f}"}
    if number == 1:
        forms["unit"] = forms["unit"].removesuffix("s")
    return forms


def _count(value: Value, language: Language) -> Forms:
    number = float(value.value)
    unit = value.unit[0] if number != 1 else {"people": "person"}.get(value.unit[0], value.unit[0].removesuffix("s"))
    unit = {"gb": "GB"}.get(unit, unit)
    return _counted(number, language) | {"unit": unit, "unit_zh": value.unit[1]}


_FORMS: Mapping[str, Callable[[Value, Language], Forms]] = {
    "distance": _distance, "duration": _duration, "clock": _clock, "date": _date, "price": _price, "count": _count,
}  # fmt: skip


def forms_of(value: Value, language: Language) -> Forms:
    if value.kind == "text":
        return {"text": str(value.value)}
    if value.kind in _FORMS:
        return _FORMS[value.kind](value, language)
    return _plain(float(value.value), language)


def told(value: Value, language: Language, styles: Mapping[str, Sequence[str]], rng: random.Random) -> tuple[str, str]:
    """The value in one of the styles that suit it, and this style. Every kind has a style that suits all values."""
    if value.kind == "text":
        return str(value.value), ""
    forms = forms_of(value, language)
    suiting = [style for style in styles[value.kind] if all(name in forms for name in PLACE.findall(style))]
    style = rng.choice(suiting)
    return style.format_map(forms), style


# ---- what a conversation supports ----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![A-Za-z\d.])\d+(?:,\d{3})*(?:\.\d+)?")
_TIME = re.compile(r"(?<!\d)(\d{1,2}):(\d\d)(?!\d)")
_NUMERALS = re.compile("[一二两三四五六七八九十百]+")
_ENGLISH = {english(number): number for number in range(1, 100)}
_CHINESE = {chinese(number): number for number in range(1, 1000)}
_RATIOS = (24.0, 60.0, 1000.0, 10_000.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What anybody said or showed before the answer. typed: numbers by their kind; untyped: those that may be of any kind."""

    text: str
    typed: Mapping[str, frozenset[float]]
    untyped: frozenset[float]
    minutes: frozenset[int]
    hours: frozenset[int] = field(default_factory=frozenset)

    @property
    def numbers(self) -> frozenset[float]:
        return self.untyped.union(*self.typed.values())

    def has_number(self, value: float) -> bool:
        return _is_near_any(value, self.numbers)

    def has_of_kind(self, value: float, kind: str) -> bool:
        """Whether it may have been seen as that kind, or as none in particular."""
        return _is_near_any(value, self.untyped | self.typed.get(kind, frozenset()))

    def has_time(self, text: str) -> bool:
        hour, minute = int(text[:2]), int(text[3:])
        at = 60 * hour + minute
        return hour % 12 in self.hours or any(abs(at - other) % 720 <= 10 or abs(at - other) % 720 >= 710 for other in self.minutes)

    def has_name(self, spellings: Iterable[str]) -> bool:
        text = self.text.casefold()
        return any(stem(each).casefold() in text for each in spellings)


def stem(name: str) -> str:
    """A place's name without the number of the branch."""
    return re.sub(r" No\. \d+$|[一二三四五六七八九十]+号店$", "", name)


def _is_near_any(value: float, others: Iterable[float]) -> bool:
    return any(
        abs(value - other) <= max(2.0, 0.03 * other)
        or any(abs(a * ratio - b) <= max(2.0, 0.03 * b) for ratio in _RATIOS for a, b in ((value, other), (other, value)))
        for other in others
    )


def seen_in(messages: Sequence[Message], rules: str, kind_of: KindOf) -> Seen:
    """rules: other text that may count as said (what the tools say of themselves)."""
    typed: dict[str, set[float]] = {}
    texts: list[str] = [rules]
    said = ""
    for message in messages:
        texts += [call.function.arguments for call in message.tool_calls or ()]
        if message.role == "tool" and isinstance(found := _json(message.content or ""), (dict, list)):
            for key, holder, leaf in leaves(found):
                kind, size = kind_of(key, holder)
                if kind and isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
                    typed.setdefault(kind, set()).add(float(leaf) * size)
                else:
                    texts.append(str(leaf))
        else:
            texts.append(message.content or "")
            said += f" {message.content}" if message.role == "user" else ""
    everything = "\n".join(texts)
    untyped = {float(match.replace(",", "")) for match in _NUMBER.findall(everything)} | {float(number) for number in _in_words(everything)}
    hours = {int(number) % 12 for number in {*map(float, _NUMBER.findall(said)), *_in_words(said)} if number <= 24}
    whole = "\n".join((rules, *(message.content or "" for message in messages), everything))
    minutes = frozenset(60 * int(hour) + int(minute) for hour, minute in _TIME.findall(whole))
    return Seen(whole, {kind: frozenset(found) for kind, found in typed.items()}, frozenset(untyped), minutes, frozenset(hours))


def leaves(value: JSON, key: str = "", holder: Mapping[str, JSON] | None = None) -> Iterator[tuple[str, Mapping[str, JSON], JSON]]:
    """(key, the object that has it, value) of everything that is no list or object."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name, value)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, key, holder)
    else:
        yield key, holder or {}, value


def _json(text: str) -> JSON:
    try:
        found: JSON = json.loads(text)
    except ValueError:
        return None
    return found


def _in_words(text: str) -> Iterator[int]:
    for word in re.findall(r"[a-z]+(?:-[a-z]+)?", text.casefold()):
        if word in _ENGLISH:
            yield _ENGLISH[word]
    for word in _NUMERALS.findall(text):
        if (plain := word.replace("两", "二")) in _CHINESE:
            yield _CHINESE[plain]
