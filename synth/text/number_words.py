"""Rewrites numbers in words as digits: `half an hour` as `0.5 hours`, `九点半` as `9点30分`, `quarter to ten` as `9:45`.

One idea: `quantities.py` and `datetimes.py` then read digits only. A number that was in words gets `WORDED_MARK` before it, because words
claim less than digits: "one of them" and 十分方便 count nothing. Figures of speech ("24/7", "100 %", 一点 for a little) are removed. Words
that may not be numbers (`second`, 一下) stay. Not read: fractions other than halves and quarters.
"""

from __future__ import annotations

import re
from functools import lru_cache

WORDED_MARK = "`"
"""Precedes a number that was in words."""

_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_UP_TO_NINETY = "twenty thirty forty fifty sixty seventy eighty ninety"
_ONES = {word: value for value, word in enumerate(_UP_TO_NINETEEN.split())}
_TENS = {word: 10 * value for value, word in enumerate(_UP_TO_NINETY.split(), 2)}
_LARGE = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_WORD = "|".join(sorted((*_ONES, *_TENS, "dozen"), key=len, reverse=True))
_ENGLISH_NUMERAL = re.compile(
    rf"\b(?:an? (?=hundred|thousand|dozen|million))?(?:{_WORD}|hundred|thousand|million)\b"
    rf"(?:(?:[ -]|,? and )(?:(?:{_WORD}|hundred|thousand|million)\b))*"
)
_HALVES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bhalf (?:a )?dozen\b", f"{WORDED_MARK}6"),
        (r"\bhalf (?:an |of an )?hour\b|\bhalf-hour\b", f"{WORDED_MARK}0.5 hours"),
        (r"\bthree[ -]quarters? of an hour\b", f"{WORDED_MARK}45 minutes"),
        (r"\b(?:a )?quarter (?:of )?an hour\b|\b(?:a )?quarter-hour\b", f"{WORDED_MARK}15 minutes"),
        (r"\bhalf an? (kilomet\w+|km|mile|kilo\w*|metre|meter)\b", rf"{WORDED_MARK}0.5 \1"),
        (r"\ban? (hour|kilomet\w+|mile|minute) and a half\b", rf"{WORDED_MARK}1.5 \1"),
        (rf"\b({_WORD}|\d+) and a half\b", r"\1 ½"),
        (rf"\b({_WORD}|\d+) (hours?|kilomet\w+|km|miles?|minutes?|days?) and a half\b", r"\1 ½ \2"),
        (r"(?<=\d) 1/2\b(?= (?:hour|kilomet|mile|km))", " ½"),
        (
            r"\b(?:(?<=in )|(?<=take )|(?<=takes )|(?<=within )|(?<=about )|(?<=exactly )|(?<=roughly )|(?<=around )|(?<=under )|(?<=over )"
            r"|(?<=than ))an hour\b|\ban hour(?= and (?:\d|(?:ten|twenty|thirty|forty|fifty)\b)|,? \d| long\b| away\b|'s )",
            f"{WORDED_MARK}1 hours",
        ),
    )
)
_TO, _PAST = re.compile(r"\b(\S{1,12}) to (\S{1,7})\b"), re.compile(r"\b(\S{1,12}) past (\S{1,7})\b")
_AND_A_HALF = re.compile(r"(?<=\d) ½")
_OCLOCK = re.compile(r"\b(\S{1,7}) ?o'clock\b")
_SPOKEN_TIME = re.compile(
    r"\b(at|by|until|till|from|before|after|around|about) (one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r"(?: (oh[ -]five|ten|fifteen|twenty(?:[ -]five)?|thirty(?:[ -]five)?|forty(?:[ -]five)?|fifty(?:[ -]five)?))?"
    r"(?= ?(?:[ap]\.?m\b|in the (?:morning|afternoon|evening)|at night)"
    r"|(?<=ten|ive|rty|een|nty|fty)(?= ?(?:[,.;!?)]|$|and\b|on\b|to\b)))"
)
_SPOKEN_TIME_WITH_HALF = re.compile(
    r"\b()(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r"[ -](oh[ -]five|ten|fifteen|twenty(?:[ -]five)?|thirty(?:[ -]five)?|forty(?:[ -]five)?|fifty(?:[ -]five)?)"
    r"(?= ?(?:[ap]\.?m\b|in the (?:morning|afternoon|evening)|at night))"
)
_MARKUP = re.compile(r"(?<![a-z0-9])[*_`]+(?=\w)|(?<=\S)[*_`]+(?![a-z0-9])|`")
"""Marks of emphasis and code around a word or number; not a bullet, nor the underscore of `order_id`."""
_FULL_STOP = re.compile(r"\.{2,}|(?<=[a-z])\.(?=\d)")
"""A full stop before a number that is no decimal point: `fare...6`, `approx.6`, `no.6`."""
_MAX_NUMERAL_LENGTH = 24
"""English words, or Chinese characters, of one number; a longer one stays as it is."""
_MINUTES = {"quarter": 15, "half": 30, "five": 5, "ten": 10, "twenty": 20, "twenty-five": 25}
_HOURS = {**{word: value for word, value in _ONES.items() if 1 <= value <= 12}, **{str(value): value for value in range(1, 13)}}

_IDIOMS = re.compile(
    r"\b24/7\b|\b24 ?hours? a day\b|\b24 hours,? 7 days\b|\bround the clock\b"
    r"|(?:全天|一天|每天)?(?:24|二十四)小时(?:营业|开放|服务|全天)"
    r"|(?<![\d.])100 ?%(?! (?:of|off|discount|refund|chance|humid))|百分之?百"
    r"|\b[2-6]g\b(?! ?of)|\b3d\b|\bone[- ](?:way|stop|off|time|by one)\b|\btwo-way\b"
    r"|\bone moment\b|\bone (?:second|minute)\b(?= please|,|!)"
    r"|\b(?:step|option|choice|leg|part|day|stage|tip|note)s? \d\b(?=[:.)]|$| -)"
    r"|(?<![点一二三四五六七八九零])十分(?!钟|之)|万一|一点(?=也|都|儿|不)|有一点(?!半|钟)|千万(?=不|别|要)|三明治|百货|[四五]星级|百度|五金"
)
_ZH_NUMERAL = "零〇一二两三四五六七八九十百千万"
_CHINESE_NUMERAL = re.compile(
    rf"(?<![第周初唯统另\d.{_ZH_NUMERAL}])(?<!星期)(?<!礼拜)(?!百分之)[{_ZH_NUMERAL}]+"
    rf"(?:点[零〇一二三四五六七八九]+(?![分十刻]))?(?=[^{_ZH_NUMERAL}])"
)
ZH_DIGITS = "零一二三四五六七八九"
_ZH_DIGIT_VALUES = {character: value for value, character in enumerate(ZH_DIGITS)} | {"〇": 0, "两": 2}
_ZH_UNITS = {"十": 10, "百": 100, "千": 1000}
_ZH_HALF: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=\d)个?半(小时|钟头|月|公里)", r".5\1"),
        (r"半个?(小时|钟头)", rf"{WORDED_MARK}0.5\1"),
        (r"半(公里|千米|里|公斤|米)", rf"{WORDED_MARK}0.5\1"),
        (r"(?<=\d)(公里|小时|千米|公斤|块)半", r".5\1"),
        (r"(?<=\d)刻钟", "刻"),
        (rf"(?<=\d)点(?:{WORDED_MARK}?1刻|一刻)", "点15分"),
        (rf"(?<=\d)点(?:{WORDED_MARK}?3刻|三刻)", "点45分"),
        (r"(?<=\d)点半", "点30分"),
        (rf"百分之{WORDED_MARK}?(\d+(?:\.\d+)?)", r"\1%"),
    )
)
MAY_CLAIM = re.compile(
    rf"\d|day|周|星期|礼拜|noon|midnight|[零〇一二三四五六七八九十百千万两半刻]|\b(?:{_WORD}|hundred|thousand|million|half|quarter|hour)\b"
)
"""Matches every text with a number or a point in time."""
_HAS_ENGLISH_NUMERAL = re.compile(rf"\b(?:{_WORD}|hundred|thousand|million|half|quarter|an hour|o'clock)\b")
_HAS_CHINESE_NUMERAL = re.compile(r"[〇零一二两三四五六七八九十百千万半刻]|百分")


NUMERALS = (
    *(word for word in (*_ONES, *_TENS) if word not in ("zero", "one")),
    *(f"{ten}{between}{one}" for ten in _TENS for between in " -" for one in _UP_TO_NINETEEN.split()[1:10]),
    *("dozen", "a dozen", "half a dozen"),
)
"""English numbers in words from two to 99, for searches over columns; "one" is not among them: it may be a pronoun."""


def large_numbers_to_digits(text: str) -> str:
    """A normalised text with its English numbers from a hundred on in digits."""

    def digits(match: re.Match[str]) -> str:
        return _english_to_digits(match).removeprefix(WORDED_MARK) if any(large in match[0] for large in _LARGE) else match[0]

    return _ENGLISH_NUMERAL.sub(digits, text)


@lru_cache(maxsize=1024)
def words_to_digits(text: str) -> str:
    """A normalised text with its numbers in digits, without figures of speech and markup."""
    text = _FULL_STOP.sub(". ", _MARKUP.sub("", text))
    text = _IDIOMS.sub(" ", text)
    if "\u2044" in text:  # 2½: normalisation writes ½ as 1⁄2
        text = text.replace("1\u20442", ".5")
    if _HAS_ENGLISH_NUMERAL.search(text):
        text = _english_times_to_digits(text)
        for pattern, replacement in _HALVES:
            text = pattern.sub(replacement, text)
        text = _ENGLISH_NUMERAL.sub(_english_to_digits, text)
        text = _AND_A_HALF.sub(".5", text)
    if _HAS_CHINESE_NUMERAL.search(text):
        text = _CHINESE_NUMERAL.sub(_chinese_to_digits, f"{text} ")
        for pattern, replacement in _ZH_HALF:
            text = pattern.sub(replacement, text)
    return text


def _english_times_to_digits(text: str) -> str:
    """Times of day in English words, as `hour:minute`."""

    def past(match: re.Match[str]) -> str:
        minutes, hour = _MINUTES.get(match[1]), _HOURS.get(match[2])
        return match[0] if minutes is None or hour is None else f"{WORDED_MARK}{hour}:{minutes:02d}"

    def to(match: re.Match[str]) -> str:
        minutes, hour = _MINUTES.get(match[1]), _HOURS.get(match[2])
        if minutes is None or hour is None or (match[1] != "quarter" and not _is_time(text, match)):
            return match[0]
        return f"{WORDED_MARK}{(hour - 2) % 12 + 1}:{60 - minutes:02d}"

    def spoken_minutes(match: re.Match[str]) -> str:
        minutes = (match[3] or "").replace("-", " ").replace("oh", "").split()
        return f"{match[1]} {WORDED_MARK}{_HOURS[match[2]]}:{sum({**_ONES, **_TENS}[word] for word in minutes):02d}"

    def oclock(match: re.Match[str]) -> str:
        hour = match[1] if match[1].isdigit() else _HOURS.get(match[1])
        return match[0] if hour is None else f"{WORDED_MARK}{hour}:00"

    text = _PAST.sub(past, text)
    text = _TO.sub(to, text)
    text = _OCLOCK.sub(oclock, text)
    return _SPOKEN_TIME_WITH_HALF.sub(spoken_minutes, _SPOKEN_TIME.sub(spoken_minutes, text))


def _is_time(text: str, match: re.Match[str]) -> bool:
    """Whether "ten to nine" is a time of day, not a range: it follows `at`, `by`, `until` or `till`."""
    return text[: match.start()].endswith(("at ", "by ", "until ", "till "))


def _english_to_digits(match: re.Match[str]) -> str:
    total, current = 0, 0
    words = re.findall(r"[a-z]+", match[0])
    if len(words) > _MAX_NUMERAL_LENGTH:
        return match[0]
    for word in words:
        if word in _LARGE:
            current = max(current, 1) * _LARGE[word]
            if _LARGE[word] > 100:
                total, current = total + current, 0
        elif word == "dozen":
            current = max(current, 1) * 12
        elif word not in ("a", "an", "and"):
            step = _ONES.get(word, _TENS.get(word, 0))
            if current % 100 and not (current % 100 >= 20 and current % 10 == 0 and step < 10):
                return match[0]
            current += step
    return f"{WORDED_MARK}{total + current}"


def _chinese_to_digits(match: re.Match[str]) -> str:
    whole, _, fraction = match[0].partition("点")
    value = chinese_value(whole)
    if value is None:
        return match[0]
    if fraction:
        return f"{WORDED_MARK}{value}.{''.join(str(_ZH_DIGIT_VALUES[character]) for character in fraction)}"
    return f"{WORDED_MARK}{value}"


def chinese_value(text: str) -> int | None:
    """The value of a Chinese numeral. None where it is too long, or two neighbouring digits (三四 is "three or four")."""
    if len(text) > _MAX_NUMERAL_LENGTH:
        return None
    if len(text) > 1 and not any(character in "十百千万" for character in text):
        digits = [_ZH_DIGIT_VALUES[character] for character in text]
        return None if len(digits) == 2 and digits[1] == digits[0] + 1 else int("".join(map(str, digits)))
    total, section, digit, last_unit = 0, 0, 0, 1
    for character in text:
        if character == "万":
            total, section, digit, last_unit = (total + section + digit) * 10_000, 0, 0, 10_000
        elif character in _ZH_UNITS:
            last_unit = _ZH_UNITS[character]
            section += (digit or 1) * last_unit
            digit = 0
        else:
            digit = _ZH_DIGIT_VALUES[character]
            last_unit = 10 if character in "零〇" else last_unit
    if digit and last_unit > 10 and "零" not in text and "〇" not in text:  # 一百五 is 150
        digit *= last_unit // 10
    return total + section + digit
