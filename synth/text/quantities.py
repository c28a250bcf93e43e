"""Finds numbers with their units in a text (22 minutes, ¥45, 4.5 out of 5, 两个半小时), and the units of a tool result's fields.

One idea: a number has a *dimension* (length, duration, yuan, count ...) and a factor to the dimension's base unit, both from a small table
of unit words. In a result, the field's name gives them (`distance_m`, `price`), or the world does (`World.units`). A number without a unit
has no dimension and fits every one. Input is a text without its points in time (`datetimes.Datetimes.remaining_text`).
Source: definition P8 (tolerance of 1 % or 1 unit).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from synth.text.number_words import WORDED_MARK

Unit = tuple[str, float]
"""Dimension, and factor to its base unit."""

MONEY = ("money", 1.0)
_CURRENCIES = frozenset({"money", "yuan", "dollars", "euros", "pounds"})
_HALF_STEP = 0.5 * (1 + 1e-9)
_HOUR = 60.0
_MAX_ROUNDING = 0.2
"""Largest share of a value that rounding may change: 1.5 hours are not 2."""
COUNT, SHARE, RATING, LABEL = "count", "percent", "rating", "label"


def _units_by_word(rows: Mapping[Unit, str]) -> dict[str, tuple[Unit, ...]]:
    units: dict[str, tuple[Unit, ...]] = {}
    for unit, words in rows.items():
        for word in words.split():
            units[word] = (*units.get(word, ()), unit)
    return units


UNITS: Mapping[str, tuple[Unit, ...]] = _units_by_word(
    {
        ("length", 1.0): "m metre metres meter meters 米",
        ("length", 1000.0): "km kms kilometre kilometres kilometer kilometers k公里 公里 千米",
        ("length", 500.0): "里地 里路",
        ("length", 1609.34): "mile miles mi 英里",
        ("length", 0.01): "cm centimetre centimetres centimeter centimeters 厘米",
        ("length", 0.001): "mm 毫米",
        ("length", 0.3048): "ft feet foot 英尺",
        ("duration", 1 / 60): "s sec secs second seconds 秒 秒钟",
        ("duration", 1.0): "min mins minute minutes 分钟 分 分鐘",
        ("duration", 15.0): "刻 刻钟",
        ("duration", 60.0): "h hr hrs hour hours 小时 个小时 钟头 个钟头 个钟",
        ("duration", 1440.0): "day days night nights 天 日 晚 夜 days' nights'",
        ("duration", 10080.0): "week weeks 周 星期 个星期 礼拜 个礼拜",
        ("months", 1.0): "month months 个月",
        ("months", 12.0): "year years yr yrs 年",
        ("yuan", 1.0): "yuan rmb cny kuai 人民币 元人民币 块人民币 ¥ cn¥",
        ("yuan", 0.1): "jiao",
        ("money", 1.0): "元 块 块钱 元钱",
        ("money", 0.1): "角 毛 毛钱",
        ("dollars", 1.0): "dollar dollars usd buck bucks 美元 刀 美金 $ us$",
        ("dollars", 0.01): "cent cents 美分",
        ("euros", 1.0): "euro euros eur 欧元 欧 €",
        ("pounds", 1.0): "pound pounds gbp quid 英镑 镑 £",
        ("percent", 1.0): "% percent pct 百分点 个百分点 percentage",
        ("percent", 10.0): "成",
        ("temperature", 1.0): "°c ° degree degrees 度 摄氏度 c ℃ celsius",
        ("weight", 1.0): "kg kgs kilo kilos kilogram kilograms kilogramme kilogrammes 公斤 千克",
        ("weight", 0.001): "g gram grams 克",
        ("weight", 0.5): "斤",
        ("weight", 1000.0): "t ton tons tonne tonnes 吨",
        ("weight", 0.4536): "lb lbs",
        ("data", 1.0): "gb gigabyte gigabytes gigs gig g流量",
        ("data", 0.001): "mb megabyte megabytes 兆",
        ("speed", 1.0): "km/h kph kmh 公里/小时 公里每小时 千米/小时",
        ("speed", 3.6): "m/s 米/秒 米每秒",
        ("volume", 1.0): "ml millilitre millilitres milliliter milliliters 毫升",
        ("volume", 1000.0): "l litre litres liter liters 升",
        (RATING, 1.0): "star stars 星 颗星 分",
        (COUNT, 1.0): (
            "count item items page pages point points people person persons child children men women staff pax 分 个 家 站 条 件 位 张 场 "
            "次 层 款 份 项 辆 本 间 台 门 封 笔 单 趟 班 名 人 人次 页 盏 座 处 匹 支 只 套 束 把 瓶 节 "
            "卷 盒 箱 包 棵 株 艘 架 幅 枚 桌 篇 "
            "段 堂 户 顶 双 头 积分 点 号位 期 届 床 根 车 遍 种 批 所 栋 道 口 袋"
        ),
    }
)
"""Word after a number (for money also before it) -> the units that it may mean."""

_FIELD_UNITS: Mapping[str, tuple[Unit, ...]] = {
    **{word: UNITS[word] for word in ("m", "km", "min", "mins", "minutes", "hours", "seconds", "days", "nights", "weeks", "months", "years",
                                      "kg", "gb", "percent", "yuan", "rmb", "cny", "usd", "dollars", "eur", "euros", "gbp", "pounds",
                                      "stars", "km/h", "ml", "metres", "meters", "people", "points")},
    **dict.fromkeys(("price", "cost", "fare", "fee", "amount", "balance", "toll", "rent", "salary", "deposit", "premium"), (MONEY,)),
    "c": UNITS["°c"],
    **dict.fromkeys(("distance", "length"), (("length", 1.0), ("length", 1000.0))),
    **dict.fromkeys(("duration",), (("duration", 1 / 60), ("duration", 1.0), ("duration", 60.0))),
    **dict.fromkeys(("rating", "score"), ((RATING, 1.0),)),
    **dict.fromkeys(
        ("reviews", "seats", "stock", "lights", "stops", "transfers", "rank", "ranking", "found", "listed", "bought", "count", "quantity"),
        ((COUNT, 1.0),),
    ),
    **dict.fromkeys(("id", "ids", "coords", "address", "zh", "phone", "telephone", "lat", "lon", "latitude", "longitude", "code", "number",
                     "name", "title", "line", "board", "alight", "email", "url"), ((LABEL, 1.0),)),
}  # fmt: skip
"""Last word of a field's name -> the units that it may mean."""

_FIELD_WORD_BREAK = re.compile(r"[_\-. ]+|(?<=[a-z])(?=[A-Z])")


@lru_cache(maxsize=8192)
def units_of_field(name: str, declared: str | None) -> tuple[Unit, ...]:
    """The units that the values of a result's field may have; empty if unknown. declared: the field's unit in `World.units`, if any."""
    by_name = _FIELD_UNITS.get(_FIELD_WORD_BREAK.split(name)[-1].lower(), ())
    if declared is None:
        return by_name
    return (*UNITS[declared], *by_name) if declared == COUNT else UNITS[declared]


class StatedQuantity(NamedTuple):
    """A number in a text.

    value: in the unit of the text.
    step: value of one unit of its last digit (0.1 for 4.5).
    units: the units that it may have; empty if the text names none.
    is_worded: whether it was in words.
    hedge: `about`, `over`, `under` or empty.
    start, end: its position in the text.
    is_counted: whether it counts things by their noun ("3 hotels").
    """

    value: float
    step: float
    units: tuple[Unit, ...]
    is_worded: bool
    hedge: str
    start: int
    end: int
    is_counted: bool = False


_NUMBER = re.compile(
    rf"(?<![a-z0-9])(?<!\d\.)({WORDED_MARK})?(us\$|cn¥|[$€£¥]|(?:rmb|cny|usd|eur|gbp|人民币) ?)?(-(?=\d))?"
    r"(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?: ?(k(?![a-z])|(?:million|thousand|万|千(?!米|克))(?![a-z])))?(?:[+]| ?(多|来|余|几))?[ -]?"
    r"(°c|℃|°|%|[€$£]|[\u3400-\u9fff/]+|[a-z][a-z/$']*|)"
)
_PHRASE = re.compile(r"[a-z][a-z'-]*(?: [a-z][a-z'-]*){0,2}")
_NO_UNITS = """
and or to from for per each at in on of with the a an is was are were has have its this as by than then plus less minus away if so but
which that it costs takes leaves arrives departs runs includes does goes opens closes lasts starts ends means gives makes comes remains
stays covers needs works between via after before until us yes across always perhaps also thus besides rises equals shows serves says ps
vs reads sits sells keeps passes gets looks sounds beats exceeds
"""
_NO_UNIT_WORDS = frozenset(_NO_UNITS.split())
_HEDGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "about",
        re.compile(
            r"(?:\b(?:about|around|roughly|approximately|approx\.?|nearly|almost|close to|some|circa|just (?:over|under))"
            r"|[~≈约]|大概|将近|接近|差不多|近) ?$"
        ),
    ),
    ("over", re.compile(r"(?:\b(?:over|more than|above|upwards of)|超过|多于|逾) ?$")),
    ("under", re.compile(r"(?:\b(?:under|less than|below|short of)|不到|不足|少于) ?$")),
)  # fmt: skip
_HEDGE_AFTER = re.compile(r" ?(?:左右|上下|or so\b|-ish\b)")
_RATING_BEFORE = re.compile(r"(?:\b(?:rated|ratings?|scor(?:e|es|ed|ing))(?: (?:at|of|is|it))?|评分|得分)[ :为是有]{0,3}$")
_PRICE_BEFORE = re.compile(r"(?:\b(?:costs?|priced?|fare|fee)(?: (?:is|of|at|only|just))?|票价|价格|费用|售价|人均)[ :为是约]{0,2}$")
_OUT_OF = re.compile(
    r"(?<=\d) ?(?:/|out of|of) ?(5|10)(?:\.0)?(?! ?(?:%|\d|月|[a-z]+s\b(?<!stars)(?<!points)))(?: (?:stars|points))?"
    r"|[(,]?满分[是为]?\d+分?\)?"
)
_HOURS_MINUTES = re.compile(r"(?<![\d:.])(\d{1,3}):([0-5]\d)(?= ?(?:hours?|hrs?|h|小时)\b)")
_HOURS_H_MINUTES = re.compile(r"(?<![a-z\d.])(\d+) ?h ?(\d{2})(?![\da-z])")
_HOURS_MINUTES_M = re.compile(r"(\d ?h(?:ours?|rs?|r)?,?(?: and)? ?)(\d{1,2}) ?m(?![a-z/])")
_DECIMAL_COMMA = re.compile(r"(?<![\d,.])(\d{1,3}),(\d{1,2})(?![\d,])(?= ?(?:km|kilomet|€|eur|euros|kg|stars|%|星|公里))")
_CURRENCY_COUNTRY = re.compile(r"(?<=\d )(?:chinese|american|us|british) (?=yuan|dollars?|pounds?)")
_BETWEEN_PARTS = re.compile(r"^ *(?:,? ?and|,|零|又)? *$")
_RANGE_WORD = re.compile(r"^ ?(?:to|-|–|—|~|至|到|and|or|和|或|与) ?$")


@lru_cache(maxsize=4096)
def quantities_in(text: str) -> tuple[StatedQuantity, ...]:
    """All numbers of a text. A duration or length in two units (1 h 20 min) is one number."""
    if not any(character.isdigit() for character in text):
        return ()
    text = _CURRENCY_COUNTRY.sub("", text)
    text = _OUT_OF.sub(" stars ", text.replace("分(满分", "(满分").replace("分,满分", ",满分"))
    text = _HOURS_MINUTES.sub(lambda match: f"{int(match[1]) * 60 + int(match[2])} minutes ;", text)
    text = _HOURS_H_MINUTES.sub(r"\1 h \2 min", text)
    if "h" in text:
        text = _HOURS_MINUTES_M.sub(r"\1 \2 min", text)
    text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    quantities = [_quantity(text, match) for match in _NUMBER.finditer(text)]
    return tuple(_share_range_units(_join_parts(quantities, text), text))


def _quantity(text: str, match: re.Match[str]) -> StatedQuantity:
    """The number of one match of `_NUMBER`, with its unit and hedge."""
    worded, symbol, sign, digits, scale, more, after = match.groups()
    digits = digits.replace(",", "")
    factor = {None: 1.0, "k": 1e3, "thousand": 1e3, "千": 1e3, "万": 1e4, "million": 1e6}[scale]
    step = factor * 10.0 ** -len(digits.partition(".")[2])
    value = float(digits) * factor * (-1 if sign else 1)
    units, length, counted = _units_after(text, match.start(7), after)
    before = text[max(0, match.start() - 20) : match.start()]
    if symbol:
        units, counted = UNITS[symbol.strip()], False
    hedge = next((name for name, pattern in _HEDGES if pattern.search(before)), "over" if more else "")
    end = match.start(7) + length
    if not hedge and _HEDGE_AFTER.match(text, end):
        hedge = "about"
    if not units and _RATING_BEFORE.search(before):
        units = ((RATING, 1.0),)
    elif not units and _PRICE_BEFORE.search(before):
        units = (MONEY,)
    return StatedQuantity(value, step, units, worded is not None, hedge, match.start(), end, counted)


def _units_after(text: str, start: int, after: str) -> tuple[tuple[Unit, ...], int, bool]:
    """Units that the words after a number name, length of these words, and whether the number counts things by their noun."""
    if not after:
        return (), 0, False
    if not after[0].isascii() and after[0] not in "°%€£":
        for length in range(min(5, len(after)), 0, -1):
            if (units := UNITS.get(after[:length])) is not None:
                return units, length, all(name == COUNT for name, _ in units)
        return (), 0, False
    if (units := UNITS.get(after)) is not None:
        return units, len(after), False
    if (units := UNITS.get(after.partition("/")[0])) is not None and "/" in after:
        return units, len(after), False
    phrase = _PHRASE.match(text, start)
    for word in phrase[0].split(" ") if phrase is not None else ():
        if word in _NO_UNIT_WORDS:
            break
        if (word in UNITS and UNITS[word][0][0] == COUNT) or (
            len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
        ):
            return ((COUNT, 1.0),), 0, True
    return (), 0, False


def _join_parts(quantities: Iterable[StatedQuantity], text: str) -> list[StatedQuantity]:
    """The quantities, with durations and lengths in two falling units joined: 1 h 20 min, 1 hr 20, 2 km 300 m."""
    out: list[StatedQuantity] = []
    for quantity in quantities:
        last = out[-1] if out else None
        joined = _join(last, quantity) if last is not None and _BETWEEN_PARTS.match(text[last.end : quantity.start]) else None
        if joined is not None:
            out[-1] = joined
        else:
            out.append(quantity)
    return out


def _join(first: StatedQuantity, second: StatedQuantity) -> StatedQuantity | None:
    """Both as one quantity in the second's unit, or None where they are not parts of one duration or length."""
    for dimension in ("duration", "length"):
        large, small = _factor(first, dimension), _factor(second, dimension)
        if dimension == "duration" and large == _HOUR and not second.units:
            small = 1.0
        if large and 0 < small < large and second.value * small < large:
            total = (first.value * large + second.value * small) / small
            return StatedQuantity(total, second.step, ((dimension, small),), first.is_worded, first.hedge, first.start, second.end)
    return None


def _factor(quantity: StatedQuantity, dimension: str) -> float:
    return next((factor for name, factor in quantity.units if name == dimension), 0.0)


def _share_range_units(quantities: list[StatedQuantity], text: str) -> list[StatedQuantity]:
    """The quantities, where the start of a range gets the unit of its end: 16 to 24 degrees."""
    for place in range(len(quantities) - 2, -1, -1):
        start, end = quantities[place], quantities[place + 1]
        if not start.units and end.units and not end.is_counted and _RANGE_WORD.match(text[start.end : end.start]):
            quantities[place] = start._replace(units=end.units)
    return quantities


def may_state(stated: StatedQuantity, factor: float, value: float) -> bool:
    """Whether a text may state `value` as this quantity: within 1 %, rounded to its last digit, or within the range of its hedge.

    factor: of the quantity's unit. value: in the dimension's base unit.
    """
    value /= factor
    gap, size = abs(stated.value - value), abs(value)
    if gap <= min(stated.step * _HALF_STEP, _MAX_ROUNDING * size) or gap <= 0.01 * size < 10_000:
        return True
    if stated.step == 1 and gap < 1 and size >= 10:
        return True
    if stated.hedge == "about":
        return gap <= 0.02 * size
    if stated.hedge and stated.units:
        share = 0.1 if stated.units[0][0] in ("length", "duration") else 0.05
        return gap <= share * size and (value > stated.value) == (stated.hedge == "over")
    return False


def are_comparable(left: str, right: str) -> bool:
    """Whether two dimensions are comparable: equal, or one of them is money without a known currency and the other is any money."""
    return left == right or (MONEY[0] in (left, right) and {left, right} <= _CURRENCIES)
