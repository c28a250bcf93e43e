"""Numbers with what they are numbers of: 22 minutes, ¥45, 4.5 out of 5, 两个半小时, and values of a tool's result by their fields.

One idea: a number has a *dimension* (length, duration, yuan, count ...) and a factor to the dimension's base, both from a small table of
unit words; in a result the name of its field tells them (`distance_m`, `price`), or the world does (`World.units`). Where nothing tells,
the dimension is unknown, and any will do. Texts come from `datetimes.py`, less their points in time.
Sources: definition P8 (tolerance of 1 % or 1 unit).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from synth.text.number_words import MARK

Unit = tuple[str, float]
"""Dimension and factor to its base."""

MONEY = ("money", 1.0)
_MONIES = frozenset({"money", "yuan", "dollars", "euros", "pounds"})
_HALF = 0.5 * (1 + 1e-9)
_HOUR = 60.0
_ROUNDED = 0.2
"""Of a value, what rounding may change at most: 1.5 hours are not 2."""
COUNT, SHARE, RATING, LABEL = "count", "percent", "rating", "label"


def _table(rows: Mapping[Unit, str]) -> dict[str, tuple[Unit, ...]]:
    found: dict[str, tuple[Unit, ...]] = {}
    for unit, words in rows.items():
        for word in words.split():
            found[word.replace("_", " ")] = (*found.get(word.replace("_", " "), ()), unit)
    return found


UNITS: Mapping[str, tuple[Unit, ...]] = _table(
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
        ("duration", 15.0): "刻",
        ("duration", 60.0): "h hr hrs hour hours 小时 个小时 钟头 个钟头 个钟",
        ("duration", 1440.0): "day days night nights 天 日 晚 夜 days' nights'",
        ("duration", 10080.0): "week weeks 周 星期 个星期 礼拜 个礼拜",
        ("months", 1.0): "month months 个月",
        ("months", 12.0): "year years yr yrs 年",
        ("yuan", 1.0): "yuan rmb cny 人民币 元人民币 块人民币 ¥ cn¥",
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
"""Units as they are written after (or, of money, before) a number. A word with several may mean either."""

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
"""By the last word of a field's name."""

_SPLIT = re.compile(r"[_\-. ]+|(?<=[a-z])(?=[A-Z])")


@lru_cache(maxsize=8192)
def units_of_field(name: str, told: str | None) -> tuple[Unit, ...]:
    """What the values of a result's field are numbers of; empty where nothing tells. told: what its world says (`World.units`)."""
    if told is not None:
        return UNITS[told] if told != COUNT else (*UNITS[told], *_FIELD_UNITS.get(_SPLIT.split(name)[-1].lower(), ()))
    return _FIELD_UNITS.get(_SPLIT.split(name)[-1].lower(), ())


class Quantity(NamedTuple):
    """A number that a text tells. step: of its last digit (0.1 of 4.5), in the unit it is told in. units: what it may be a number of;
    empty where nothing says. is_worded: it was written in words. hedge: about, over, under or nothing. start, end: where it stands."""

    value: float
    step: float
    units: tuple[Unit, ...]
    is_worded: bool
    hedge: str
    start: int
    end: int
    is_counted: bool = False


_NUMBER = re.compile(
    rf"(?<![a-z0-9])(?<!\d\.)({MARK})?(us\$|cn¥|[$€£¥]|(?:rmb|cny|usd|eur|gbp|人民币) ?)?(-(?=\d))?"
    r"(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?: ?(k(?![a-z])|(?:million|thousand|万|千(?!米|克))(?![a-z])))?(?:[+]| ?(多|来|余|几))?[ -]?"
    r"(°c|℃|°|%|[€$£]|[\u3400-\u9fff/]+|[a-z][a-z/$']*|)"
)
_PHRASE = re.compile(r"[a-z][a-z'-]*(?: [a-z][a-z'-]*){0,2}")
_FUNCTION_WORDS = """
and or to from for per each at in on of with the a an is was are were has have its this as by than then plus less minus away if so but
which that it costs takes leaves arrives departs runs includes does goes opens closes lasts starts ends means gives makes comes remains
stays covers needs works between via after before until us yes across always perhaps also thus besides rises equals shows serves says ps
vs reads sits sells keeps passes gets looks sounds beats exceeds
"""
_FUNCTION = frozenset(_FUNCTION_WORDS.split())
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
_HEDGED_AFTER = re.compile(r" ?(?:左右|上下|or so\b|-ish\b)")
_RATED = re.compile(r"(?:\b(?:rated|ratings?|scor(?:e|es|ed|ing))(?: (?:at|of|is|it))?|评分|得分)[ :为是有]{0,3}$")
_PRICED = re.compile(r"(?:\b(?:costs?|priced?|fare|fee)(?: (?:is|of|at|only|just))?|票价|价格|费用|售价|人均)[ :为是约]{0,2}$")
_OUT_OF = re.compile(
    r"(?<=\d) ?(?:/|out of|of) ?(5|10)(?:\.0)?(?! ?(?:%|\d|月|[a-z]+s\b(?<!stars)(?<!points)))(?: (?:stars|points))?"
    r"|[(,]?满分[是为]?\d+分?\)?"
)
_HOURS_MINUTES = re.compile(r"(?<![\d:.])(\d{1,3}):([0-5]\d)(?= ?(?:hours?|hrs?|h|小时)\b)")
_H_MM = re.compile(r"(?<![a-z\d.])(\d+) ?h ?(\d{2})(?![\da-z])")
_MINUTE_M = re.compile(r"(\d ?h(?:ours?|rs?|r)?,?(?: and)? ?)(\d{1,2}) ?m(?![a-z/])")
_DECIMAL_COMMA = re.compile(r"(?<![\d,.])(\d{1,3}),(\d{1,2})(?![\d,])(?= ?(?:km|kilomet|€|eur|euros|kg|stars|%|星|公里))")
_OF_A_COUNTRY = re.compile(r"(?<=\d )(?:chinese|american|us|british) (?=yuan|dollars?|pounds?)")
_JOINED = re.compile(r"^ *(?:,? ?and|,|零|又)? *$")
_TO = re.compile(r"^ ?(?:to|-|–|—|~|至|到|and|or|和|或|与) ?$")


@lru_cache(maxsize=4096)
def quantities_in(text: str) -> tuple[Quantity, ...]:
    """All numbers of a text, those of a duration in two units (1 h 20 min) together."""
    if not any(character.isdigit() for character in text):
        return ()
    text = _OF_A_COUNTRY.sub("", text)
    text = _OUT_OF.sub(" stars ", text.replace("分(满分", "(满分").replace("分,满分", ",满分"))
    text = _HOURS_MINUTES.sub(lambda found: f"{int(found[1]) * 60 + int(found[2])} minutes ;", text)
    text = _H_MM.sub(r"\1 h \2 min", text)
    if "h" in text:
        text = _MINUTE_M.sub(r"\1 \2 min", text)
    text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    found = [_quantity(text, match) for match in _NUMBER.finditer(text)]
    return tuple(_ranged(_joined(found, text), text))


def _quantity(text: str, match: re.Match[str]) -> Quantity:
    worded, symbol, sign, digits, scale, more, after = match.groups()
    plain = digits.replace(",", "")
    factor = {None: 1.0, "k": 1e3, "thousand": 1e3, "千": 1e3, "万": 1e4, "million": 1e6}[scale]
    step = factor * 10.0 ** -len(plain.partition(".")[2])
    value = float(plain) * factor * (-1 if sign else 1)
    units, length, counted = _units_after(text, match.start(7), after)
    before = text[max(0, match.start() - 20) : match.start()]
    if symbol:
        units, counted = UNITS[symbol.strip()], False
    hedge = next((name for name, pattern in _HEDGES if pattern.search(before)), "over" if more else "")
    end = match.start(7) + length
    if not hedge and _HEDGED_AFTER.match(text, end):
        hedge = "about"
    if not units and _RATED.search(before):
        units = ((RATING, 1.0),)
    elif not units and _PRICED.search(before):
        units = (MONEY,)
    return Quantity(value, step, units, worded is not None, hedge, match.start(), end, counted)


def _units_after(text: str, start: int, after: str) -> tuple[tuple[Unit, ...], int, bool]:
    """The units that the words after a number name, how many characters they take, and whether it counts things by their noun."""
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
        if word in _FUNCTION:
            break
        if (word in UNITS and UNITS[word][0][0] == COUNT) or (
            len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
        ):
            return ((COUNT, 1.0),), 0, True
    return (), 0, False


def _joined(found: Iterable[Quantity], text: str) -> list[Quantity]:
    """With durations and lengths in falling units made one: 1 h 20 min, 1 hr 20, 2 km 300 m."""
    out: list[Quantity] = []
    for each in found:
        last = out[-1] if out else None
        one = _as_one(last, each) if last is not None and _JOINED.match(text[last.end : each.start]) else None
        if one is not None:
            out[-1] = one
        else:
            out.append(each)
    return out


def _as_one(first: Quantity, second: Quantity) -> Quantity | None:
    for name in ("duration", "length"):
        of, own = _factor(first, name), _factor(second, name)
        if name == "duration" and of == _HOUR and not second.units:
            own = 1.0
        if of and 0 < own < of and second.value * own < of:
            total = (first.value * of + second.value * own) / own
            return Quantity(total, second.step, ((name, own),), first.is_worded, first.hedge, first.start, second.end)
    return None


def _factor(quantity: Quantity, dimension: str) -> float:
    return next((factor for name, factor in quantity.units if name == dimension), 0.0)


def _ranged(found: list[Quantity], text: str) -> list[Quantity]:
    """With the unit of a range's end given to its beginning: 16 to 24 degrees."""
    for place in range(len(found) - 2, -1, -1):
        one, other = found[place], found[place + 1]
        if not one.units and other.units and not other.is_counted and _TO.match(text[one.end : other.start]):
            found[place] = one._replace(units=other.units)
    return found


def is_told(told: Quantity, factor: float, seen: float) -> bool:
    """Whether a quantity, told in a unit of this factor, may be told of a value seen in the dimension's base: within 1 %, or rounded to
    what it is told with; about, over and under a value as people say that."""
    seen /= factor
    gap, size = abs(told.value - seen), abs(seen)
    if gap <= min(told.step * _HALF, _ROUNDED * size) or gap <= 0.01 * size < 10_000:
        return True
    if told.step == 1 and gap < 1 and size >= 10:
        return True
    if told.hedge == "about":
        return gap <= 0.02 * size
    if told.hedge and told.units:
        share = 0.1 if told.units[0][0] in ("length", "duration") else 0.05
        return gap <= share * size and (seen > told.value) == (told.hedge == "over")
    return False


def are_alike(name: str, other: str) -> bool:
    """Whether numbers of two dimensions may be told of each other: money of which no currency is known is any."""
    return name == other or (MONEY[0] in (name, other) and {name, other} <= _MONIES)
