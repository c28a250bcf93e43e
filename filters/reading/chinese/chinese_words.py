"""Chinese words of the reader (`words_zh.yaml`), and pairs of characters as its unit of likeness."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from synth.text.yaml_loader import TEXT_LOADER

_RAW: Mapping[str, Any] = yaml.load((files("filters.reading.chinese") / "words_zh.yaml").read_text(encoding="utf-8"), Loader=TEXT_LOADER)
UNITS: Mapping[str, Mapping[str, float]] = {
    family: {text.lower(): float(factor) for text, factor in texts.items()} for family, texts in _RAW["units"].items()
}
"""Family of units -> text -> factor to the first unit of the family."""
NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    kind: {key: tuple(texts.split()) for key, texts in words.items()} for kind, words in _RAW["names"].items()
}
"""What a name names -> `slots`, words of slots that hold such names; `before`, words before such a name."""
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_PARTICLES = frozenset("的了吗呢吧啊呀我你您他她它和与有是在去到要想")
_SAYS_NOTHING = re.compile(r"[\s，。！？、；：,.!?;:~()（）\[\]【】“”\"'‘’《》<>…—\-]")


def plain(text: str) -> str:
    """The text with full-width signs as ASCII, in lower case; each character keeps its place."""
    lower = "".join(low if len(low := character.lower()) == 1 else character for character in text)
    return lower.translate(_FULL_WIDTH)


@cache
def words(name: str) -> tuple[str, ...]:
    """A list of `words_zh.yaml`, such as `name_ends`."""
    return tuple(str(_RAW[name]).split())


def cues(name: str, place: str) -> tuple[str, ...]:
    """Words `before` or `after` an amount that bound it: `at_most`, `at_least`."""
    return tuple(_RAW[name][place].split())


def any_of(texts: Iterable[str]) -> str:
    """A pattern for one of the texts, the longest first."""
    return "|".join(map(re.escape, longest_first(texts)))


def longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, each once: a long one before those that it begins with."""
    return tuple(sorted(set(texts), key=lambda text: (-len(text), text)))


@cache
def _small_talk() -> re.Pattern[str]:
    return re.compile(any_of(plain(text) for text in words("small_talk")))


@lru_cache(maxsize=65536)
def said_nothing(text: str) -> tuple[bool, ...]:
    """Which characters of a plain text any request may have: small talk and punctuation."""
    marks = [bool(_SAYS_NOTHING.match(character)) for character in text]
    for match in _small_talk().finditer(text):
        marks[match.start() : match.end()] = [True] * len(match[0])
    return tuple(marks)


@lru_cache(maxsize=65536)
def lone_talk(text: str) -> tuple[bool, ...]:
    """Which characters of a plain text are small talk of one character that may be part of a word; particles and pronouns are not."""
    marks = [False] * len(text)
    for match in _small_talk().finditer(text):
        marks[match.start()] = len(match[0]) == 1 and match[0] not in _PARTICLES
    return tuple(marks)


def idle_before(text: str, place: int) -> bool:
    """Whether what stands before a place of a plain text says nothing: small talk, a sign, or the beginning."""
    return place == 0 or (said_nothing(text)[place - 1] and not lone_talk(text)[place - 1])


def idle_after(text: str, place: int, ends: tuple[str, ...]) -> bool:
    """Whether what begins at a place of a plain text says nothing or is one of the ends of a name."""
    return place >= len(text) or text.startswith(ends, place) or (said_nothing(text)[place] and not lone_talk(text)[place])


@cache
def synonyms() -> Mapping[str, frozenset[str]]:
    """Word -> the words of its groups, itself among them."""
    found: dict[str, set[str]] = {}
    for line in _RAW["synonyms"]:
        group = plain(line).split()
        for word in group:
            found.setdefault(word, set()).update(group)
    return {word: frozenset(group) for word, group in found.items()}


@cache
def known_words() -> re.Pattern[str]:
    """Words of `synonyms`, in a row: what names nothing."""
    return re.compile(f"(?:{any_of(word for word in synonyms() if len(word) > 1)})+")


@cache
def loosely() -> Mapping[str, frozenset[str]]:
    """Word of `synonyms` -> words that lead to a value of what it names, and do not ask for it."""
    return {word: frozenset(leads.split()) for label, leads in _RAW["loosely"].items() for word in synonyms()[plain(label)]}


@lru_cache(maxsize=65536)
def with_synonyms(text: str) -> frozenset[str]:
    """The words of `synonyms` that a plain text has, with all that mean the same."""
    return frozenset(word for known, group in synonyms().items() if known in text for word in group)


def pairs(text: str) -> set[str]:
    """Pairs of characters of a plain text, without those of small talk and signs alone."""
    marks = said_nothing(text)
    return {text[place : place + 2] for place in range(len(text) - 1) if not (marks[place] and marks[place + 1])}
