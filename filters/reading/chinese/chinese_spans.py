"""Places of a Chinese text that may be the value of a slot: identifiers, days, times, amounts with bounds, values, names.

One idea: Chinese needs no segmenter here. Amounts have units, values are found as parts of the text, and a name stands between a word that
leads to it (从, 想吃, the words before the slot in the world's own wording) and one that ends it (的, 附近, a comma).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Literal

from filters.reading.chinese.chinese_words import UNITS, any_of, cues, words
from synth.text.number_words import chinese_value
from synth.text.read_values import BOUNDARY, CLOCK, COLON, DAY, day_offset, read_amount

SpanKind = Literal["day", "time", "amount", "choice", "mark", "name", "id"]
_NUMERAL = r"\d+(?:,\d{3})*(?:\.\d+)?"
_WORDED = "[零〇一二两三四五六七八九十百千万]+|半"
_QUOTED = re.compile(r"[《“「\"‘]([^》”」\"’]{1,40})[》”」\"’]")
_BREAK = re.compile(r"[。,!?;:\n]")
_CLAUSE = re.compile(r"^|[。,!?;]\s*")
_IN_NUMBER = re.compile(r"[\d.~-]")
_LONGEST_NAME, _MOST_ENDS = 24, 3
"""Characters of a name, and ends that are tried for it, at most."""
_NO_COUNT = frozenset({"个", "家", "间", "位", "本", "份", "件", "次", "分", "点", "月", "年", "日", "名", "星", "刀", "块", "天", "周"})
"""Units that say nothing behind a one in words: 一个, 一份."""


@dataclass(frozen=True, slots=True)
class ChineseSpan:
    """A place that may be a value.

    value: a date, minutes after midnight, a canonical value, a name, an identifier; of an amount its number.
    low, high: of an amount, what it allows; None where it is open. unit: of an amount, as it is written.
    key: of a choice, the slots that have the value; of an id, its form.
    core: of an amount, the place of the numbers alone.
    """

    kind: SpanKind
    start: int
    end: int
    text: str
    value: Any
    low: float | None = None
    high: float | None = None
    unit: str = ""
    key: str = ""
    core: tuple[int, int] = (0, 0)

    def overlaps(self, other: ChineseSpan) -> bool:
        return self.start < other.end and other.start < self.end


def typed_spans(text: str, original: str, today: date, units: frozenset[str] = frozenset()) -> list[ChineseSpan]:
    """Days, times and amounts of a plain text, none in the place of another. units: of the world, beside those of `UNITS`."""
    found: list[ChineseSpan] = []
    for spans in (_times(text, original), _days(text, original, today), _amounts(text, original, units)):
        found += [span for span in spans if not any(span.overlaps(other) for other in found)]
    return found


def _times(text: str, original: str) -> Iterator[ChineseSpan]:
    marked = re.sub(r"(?<=\d):(?=\d)", COLON, text)
    for match in _clock().finditer(marked):
        amount = read_amount(match[0])
        if amount is not None and amount.unit == "clock":
            yield ChineseSpan("time", match.start(), match.end(), original[match.start() : match.end()], int(amount.value))


def _days(text: str, original: str, today: date) -> Iterator[ChineseSpan]:
    for match in _day().finditer(text):
        days = day_offset(match[0].strip(), today)
        if days >= 0:
            yield ChineseSpan("day", match.start(), match.end(), original[match.start() : match.end()], today + timedelta(days=days))


@cache
def _clock() -> re.Pattern[str]:
    return re.compile(CLOCK.replace(BOUNDARY, r"\b"))


@cache
def _day() -> re.Pattern[str]:
    return re.compile(DAY.replace(BOUNDARY, r"\b"))


# ---- amounts --------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _amount(units: frozenset[str]) -> re.Pattern[str]:
    unit = any_of(text for text in (*units, *chain.from_iterable(UNITS.values())) if text not in "¥$€£")
    bounds = {name: any_of(cues(name, place)) for name, place in (("at_most", "before"), ("at_least", "before"))}
    ends = {name: any_of(cues(name, "after")) for name in ("at_most", "at_least")}
    number = f"{_NUMERAL}万?|{_WORDED}"
    return re.compile(
        rf"(?:(?P<most>{bounds['at_most']})|(?P<least>{bounds['at_least']}))?(?:在|是|为|到)?\s*"
        rf"(?P<core>(?P<sign>[¥$€£])?(?<![\d.a-z])(?P<a>{number})\s*(?P<ua>{unit})?"
        rf"(?:\s*(?:{any_of(words('between'))})\s*(?P<b>{number})\s*(?P<ub>{unit})?)?)(?![\d.])"
        rf"(?:(?P<most_after>{ends['at_most']})|(?P<least_after>{ends['at_least']}))?"
        rf"|(?P<free>{any_of(words('free'))})"
    )


def _amounts(text: str, original: str, units: frozenset[str] = frozenset()) -> Iterator[ChineseSpan]:
    for match in _amount(units).finditer(text):
        span = _amount_of(match, original)
        if span is not None:
            yield span


def _amount_of(match: re.Match[str], original: str) -> ChineseSpan | None:
    start, end = match.span()
    if match["free"]:
        return ChineseSpan("amount", start, end, original[start:end], 0.0, 0.0, 0.0, "元", core=(start, end))
    first, second = _number(match["a"]), _number(match["b"]) if match["b"] else None
    if first is None or (match["b"] and second is None):
        return None
    unit = match["ub"] or match["ua"] or match["sign"] or ""
    is_worded = not match["a"][0].isdigit()
    if is_worded and second is None and (not unit or (first == 1 and unit in _NO_COUNT)):
        return None
    if second is not None and match["ua"] and match["ub"] and match["ua"] != match["ub"]:
        first = _in_unit(first, match["ua"], match["ub"])
    value = second if second is not None else first
    low = None if match["most"] or match["most_after"] else first
    high = None if match["least"] or match["least_after"] else value
    return ChineseSpan("amount", start, end, original[start:end], value, low, high, unit, core=match.span("core"))


def amount_key(text: str) -> tuple[float | None, float | None, str] | None:
    """What a plain text comes to that is an amount with a unit and nothing else: bounds and family of the unit; None where it is none."""
    spans = list(_amounts(text.strip(), text.strip()))
    return bounds_of(spans[0]) if len(spans) == 1 and spans[0].text == text.strip() else None


def bounds_of(span: ChineseSpan) -> tuple[float | None, float | None, str] | None:
    """Bounds of an amount in the first unit of its family, and the family; None without a unit."""
    family = next((name for name, texts in UNITS.items() if span.unit in texts), None)
    if family is None:
        return None
    low, high = (None if bound is None else round(bound * UNITS[family][span.unit], 3) for bound in (span.low, span.high))
    return low, high, family


def _number(digits: str) -> float | None:
    if digits == "半":
        return 0.5
    if not digits[0].isdigit():
        value = chinese_value(digits)
        return None if value is None else float(value)
    return float(digits.removesuffix("万").replace(",", "")) * (10_000 if digits.endswith("万") else 1)


def _in_unit(value: float, unit: str, other: str) -> float:
    """The value in another unit of the same family."""
    family = next((each for each in UNITS.values() if unit in each and other in each), None)
    return value if family is None else value * family[unit] / family[other]


# ---- identifiers, values, names -------------------------------------------------------------------------------------------------


def id_spans(text: str, original: str, pattern: str, form: str) -> Iterator[ChineseSpan]:
    """Identifiers of a form; a letter or digit beside it makes another word of it, a Chinese character does not."""
    for match in re.finditer(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", text, re.IGNORECASE):
        yield ChineseSpan("id", match.start(), match.end(), original[match.start() : match.end()], match[0].lower(), key=form)


def choice_spans(text: str, original: str, key: str, spellings: Sequence[tuple[str, str]]) -> Iterator[ChineseSpan]:
    """Where a plain text has a value. spellings: (spelling, canonical value), the longest first."""
    taken = [False] * len(text)
    for spelling, value in spellings:
        start = text.find(spelling)
        while start >= 0:
            end = start + len(spelling)
            is_cut = _IN_NUMBER.match(text, start - 1) if start and spelling[0].isdigit() else None
            if not any(taken[start:end]) and is_cut is None:
                taken[start:end] = [True] * (end - start)
                yield ChineseSpan("choice", start, end, original[start:end], value, key=key)
            start = text.find(spelling, end)


def mark_spans(text: str, original: str, key: str, asked: re.Pattern[str], value: Any) -> Iterator[ChineseSpan]:
    """Where a plain text may ask for something. asked: how people ask for it."""
    for match in asked.finditer(text):
        yield ChineseSpan("mark", match.start(), match.end(), original[match.start() : match.end()], value, key=key)


class NamePattern:
    """Finds what may be names: between a word that leads to a name, or the beginning of a clause, and what ends it."""

    def __init__(self, leads: Sequence[str], ends: Sequence[str]) -> None:
        self._leads = [re.compile(re.escape(lead)) for lead in leads]
        self._ends = re.compile(any_of(ends))

    def spans(self, text: str, original: str) -> Iterator[ChineseSpan]:
        """The places in a plain text. original: the same text as it was written."""
        for first in sorted({match.end() for pattern in (*self._leads, _CLAUSE) for match in pattern.finditer(text)}):
            for last in {first + len(text[first:end].rstrip(" 的")) for end in _name_ends(text, first, self._ends)}:
                if last - first >= 2:
                    yield ChineseSpan("name", first, last, original[first:last], original[first:last])


def quoted_spans(original: str) -> Iterator[ChineseSpan]:
    for match in _QUOTED.finditer(original):
        yield ChineseSpan("name", match.start(1), match.end(1), match[1], match[1])


def _name_ends(text: str, first: int, pattern: re.Pattern[str]) -> Iterator[int]:
    """Where a name that begins here may end: before each of the next ends, and at the next break outside brackets."""
    limit = min(len(text), first + _LONGEST_NAME)
    depth, stop = 0, limit
    for place in range(first, limit):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth <= 0 and _BREAK.match(text[place]):
            stop = place
            break
    found = 0
    for match in pattern.finditer(text, first + 1, stop):
        inside = text[first : match.start()]
        if inside.count("(") <= inside.count(")"):
            yield match.start()
            found += 1
            if found == _MOST_ENDS:
                return
    yield stop
