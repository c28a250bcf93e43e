"""English words of the reader (`words_en.yaml`), stems, and tokens with their places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import yaml

from synth.text.yaml_loader import TEXT_LOADER

_RAW: Mapping[str, Any] = yaml.load((files("filters.reading") / "words_en.yaml").read_text(encoding="utf-8"), Loader=TEXT_LOADER)
FUNCTION_WORDS = frozenset(_RAW["function_words"].split())
SMALL_TALK = frozenset(_RAW["small_talk"].split())
VERB_FAMILIES: Mapping[str, str] = {word: name for name, words in reversed(_RAW["verbs"].items()) for word in words.split()}
"""Verb, or noun of doing it -> its family."""
NAME_KINDS: Mapping[str, Mapping[str, str]] = _RAW["name_kinds"]
_SETS: Mapping[str, frozenset[str]] = {name: frozenset(words.split()) for name, words in _RAW["sets"].items()}
_PHRASES: Mapping[str, tuple[str, ...]] = {name: tuple(listed) for name, listed in _RAW["phrases"].items()}
_TOKEN = re.compile(r"\d+[A-Za-z]+|[A-Za-z][A-Za-z'’&.-]*[A-Za-z'’.]|[A-Za-z]|\d[\d,.:]*\d|\d|[^\sA-Za-z\d]")
_ABBREVIATION = re.compile(r"(?:Dr|Mr|Mrs|Ms|St|Jr|Sr|[A-Z])\.|(?:[A-Za-z]\.)+")
_ENDINGS = ("ing", "ed", "ation", "ment")


def phrases(name: str) -> tuple[str, ...]:
    """A list of phrases of `words_en.yaml`, such as `at_most`."""
    return _PHRASES[name]


def words(name: str) -> frozenset[str]:
    """A set of `words_en.yaml`, such as `prepositions`."""
    return _SETS[name]


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """The word in lower case, without a plural ending or a possessive."""
    word = word.lower().replace("’", "'").removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and re.search("(?:ss|sh|ch|x|z)es$", word):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The word without its commonest endings: booking, booked and books have the stem of book."""
    word = singular(word)
    for ending in _ENDINGS:
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            word = word[:-1] if word[-1] == word[-2] and word[-1] not in "sl" else word
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


@cache
def small_talk_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in (*SMALL_TALK, *FUNCTION_WORDS)) | frozenset(VERB_FAMILIES)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number or sign of a text. lower: in lower case. start, end: its place. is_first: whether it begins a sentence."""

    text: str
    lower: str
    start: int
    end: int
    is_first: bool

    @property
    def is_capital(self) -> bool:
        return self.text[0].isupper()


def tokenise(text: str) -> list[Token]:
    """The tokens of an English text; possessive endings are left out."""
    tokens, is_first = list[Token](), True
    for match in _TOKEN.finditer(text):
        word = match[0]
        while len(word) > 1 and word[-1] in ".-’'" and not _ABBREVIATION.fullmatch(word):
            word = word[:-1]
        if word.endswith(("'s", "’s")) and word.lower().replace("’", "'") not in _SETS["contractions"]:
            word = word[:-2]
        end = match.start() + len(word)
        tokens.append(Token(word, word.lower().replace("’", "'"), match.start(), end, is_first))
        is_first = word in ".!?;:" or (end < match.end() and text[end] in ".!?")
    return tokens
