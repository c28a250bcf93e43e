"""The small values that a spec is written in: names, words in the languages of the spec, expressions as text, days and times of day.

One idea: pydantic checks each value when it is read, so no later code meets an invalid one. The context of the validation is the spec's
languages; without one, both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from storage.records import Language
from synth.worlds.declarative.languages import BOTH, IN_BOTH, LANGUAGE_NAMES, SEPARATOR, check_chinese, check_english

_KEY = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
RESERVED = frozenset({
    "and", "or", "not", "if", "else", "in", "is", "true", "false", "none", "today", "lambda", "for", "self", "id", "total", "rows", "error",
})  # fmt: skip
FUNCTIONS = frozenset({"days_until", "days_since", "min", "max", "round", "abs", "count"})


def check_key(text: str) -> str:
    """A name that expressions can use; raises ValueError."""
    if not _KEY.fullmatch(text):
        raise ValueError("a name is lower case, letters, digits and single underscores, e.g. due_date")
    if text in RESERVED | FUNCTIONS:
        raise ValueError(f"{text!r} means something in expressions; take another name")
    return text


Key = Annotated[str, AfterValidator(check_key), Field(max_length=40)]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


Text = Annotated[str, Field(min_length=1, max_length=600)]


@dataclass(frozen=True, slots=True)
class Words:
    """A phrase in both languages; a file may write it as `english / 中文`. In a spec of one language, both are the same text, of which only
    that language's is used. There are thousands of them: no model."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    en: Text
    zh: Text

    def __getitem__(self, language: str) -> str:
        return self.zh if language == "zh" else self.en

    def names(self) -> dict[Any, str]:
        return {"en": self.en, "zh": self.zh}


class OpenWords(dict[str, Words]):
    """Words by value, of which others may come up: one that is not there stands for itself in both languages."""

    def __missing__(self, value: str) -> Words:
        return Words(en=value, zh=value)


def _split_languages(value: Any, info: ValidationInfo) -> Any:
    languages: tuple[Language, ...] = info.context or BOTH
    if len(languages) == 1:
        return _same_in_both(value, languages[0])
    if not isinstance(value, str):
        return value
    english, slash, chinese = value.rpartition(SEPARATOR)
    if not slash:
        raise ValueError(IN_BOTH)
    return {"en": english.strip(), "zh": chinese.strip()}


def _same_in_both(value: Any, language: Language) -> Any:
    text = value[language] if isinstance(value, dict) and set(value) == {language} else value
    if not isinstance(text, str):
        raise ValueError(f"write text here, in {LANGUAGE_NAMES[language]}")
    if SEPARATOR in text:
        raise ValueError(f"this world speaks {LANGUAGE_NAMES[language]} alone: write the words once, without ` / `")
    return {"en": text.strip(), "zh": text.strip()}


def _check_languages(words: Words, languages: tuple[Language, ...], *, is_name: bool = False) -> Words:
    if "zh" in languages:
        check_chinese(words.zh, is_name=is_name)
    if "zh" in languages and "en" in languages:
        check_english(words.en)
    return words


def check_plain(text: str) -> str:
    if bracket := next((character for character in text if character in "[]{}"), None):
        raise ValueError(f"no {bracket} in words: brackets and braces stand for what a request fills in; leave it out or use ( )")
    return text


def _check_both(words: Words) -> Words:
    check_plain(words.en + words.zh)
    return words


_Split = Annotated[Words, BeforeValidator(_split_languages)]
Template = Annotated[_Split, AfterValidator(lambda words, info: _check_languages(words, info.context or BOTH))]
"""A request with {parameter} fields."""
Phrase = Annotated[Template, AfterValidator(_check_both)]
ProperName = Annotated[
    _Split, AfterValidator(lambda words, info: _check_languages(words, info.context or BOTH, is_name=True)), AfterValidator(_check_both)
]
"""A name, which Chinese text may write in Latin letters."""


def _scalar_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


Expression = Annotated[str, BeforeValidator(_scalar_text), Field(max_length=300)]
"""Text that `expressions.py` compiles."""

_CLOCK = re.compile(r"([01]\d|2[0-3]):(00|30)")


def _check_clock(text: Any) -> Any:
    if not isinstance(text, str) or not _CLOCK.fullmatch(text):
        raise ValueError("a time of day on the full or half hour, as 09:30")
    return text


Clock = Annotated[str, BeforeValidator(_check_clock)]


def read_date(value: Any) -> Any:
    try:
        day = value if isinstance(value, date) else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{str(value)[:40]!r} is no day; write it as 2026-05-13") from None
    if not 1970 <= day.year <= 2100:
        raise ValueError(f"{day} is out of reach; take a day from 1970 to 2100")
    return day


Unit = Literal[
    "count", "days", "nights", "weeks", "months", "years", "hours", "minutes", "people", "items", "pages", "points", "stars", "percent",
    "kg", "m", "km", "gb",
]  # fmt: skip
Currency = Literal["dollars", "yuan", "euros", "pounds"]
CURRENCIES_ZH: Mapping[str, str] = {"dollars": "美元", "yuan": "元", "euros": "欧元", "pounds": "英镑"}
"""The Chinese word of each `Currency`."""
NameList = Literal["person", "city", "company", "street"]


@lru_cache(maxsize=1024)
def clock_steps(first: str, last: str, step: int) -> tuple[str, ...]:
    """All times from `first` to `last` that are a multiple of `step` minutes after midnight."""
    steps = (f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(0, 24 * 60, step))
    return tuple(step for step in steps if first <= step <= last)


@lru_cache(maxsize=1024)
def number_steps(low: float, high: float, step: float) -> tuple[float, ...]:
    """Numbers with one decimal from `low` to `high`."""
    return tuple(round(low + index * step, 1) for index in range(int((high - low) / step + 1e-9) + 1))
