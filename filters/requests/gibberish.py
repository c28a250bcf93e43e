"""Texts of keys pressed at random ("dfkgjsl slkdfj"), found by their letters.

One idea: three letters that follow each other in no word of the worlds' vocabulary are rare in words, and the rule in random keys. A word
of six letters or more counts as random if three quarters of its triples are unknown, a shorter one only if all are, because names and
abbreviations look like it ("xbox", "kyiv"); one of four letters or fewer never does. A text is gibberish if hardly any letters are in other
words. Long texts are only looked at if none of the commonest words is in them.

What it does not do: judge words with letters beyond a to z.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import polars as pl

from filters.grounding.lexicon import phrases
from filters.lexicon_worlds import lexicon_worlds
from filters.requests.keyboard import RUN_OF_KEYS

_MAX_WORDS, _MAX_SHORT = 12, 4
"""Words of a text that is looked at; words of one that is looked at though a common word is in it."""
_MIN_LETTERS, _LONG_WORD = 5, 6
_UNKNOWN_SHARE = 0.75
_COMMON = r"\b(?:a|an|and|are|at|can|do|for|from|have|how|i|in|is|it|me|my|of|on|please|that|the|this|to|want|was|what|with|you)\b"
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(RUN_OF_KEYS)


def is_gibberish(norm: pl.Series, min_letters: int) -> pl.Series:
    """Whether a normalised text, of twelve words at most, is random for the most part: fewer than a third of its letters are in other
    words, and in a short text fewer than `min_letters` in one such word. Null counts as False."""
    blanks = norm.str.count_matches(" ", literal=True)
    is_short = (blanks < _MAX_SHORT) | (blanks < _MAX_WORDS) & ~norm.str.contains(_COMMON)
    is_suspect = is_short & norm.str.contains("[a-z]{5}")
    suspects = is_suspect.fill_null(False).arg_true()
    found = [place for place, text in zip(suspects, norm.gather(suspects), strict=True) if _is_random(text, min_letters)]
    return pl.select(pl.repeat(False, len(norm))).to_series().scatter(found, True)


def _is_random(text: str, min_letters: int) -> bool:
    words = _WORD.findall(text)
    others = [word for word in words if not is_random_word(word)]
    left, random = sum(map(len, others)), sum(map(len, words)) - sum(map(len, others))
    is_rest_short = len(words) > _MAX_SHORT or (len(others) <= 1 and left < min_letters)
    return left * 2 < random and is_rest_short


@lru_cache(maxsize=1 << 16)
def is_random_word(word: str) -> bool:
    """Whether a word of a to z, of five letters or more, is unlike any word that is known, or has a run of neighbouring keys."""
    if len(word) < _MIN_LETTERS or not word.isascii():
        return False
    if _RUN.search(word):
        return True
    triples = _triples(word)
    unknown = sum(triple not in _known_triples() for triple in triples)
    return unknown >= (_UNKNOWN_SHARE if len(word) >= _LONG_WORD else 1) * len(triples)


@cache
def _known_triples() -> frozenset[str]:
    """The triples of letters in the words of the grounded worlds, with a mark at either end of a word."""
    words = {word for phrase in phrases(lexicon_worlds()) for word in re.findall("[a-z]{2,}", phrase.lower())}
    return frozenset(triple for word in words for triple in _triples(word))


def _triples(word: str) -> list[str]:
    marked = f"^{word}$"
    return [marked[at : at + 3] for at in range(len(marked) - 2)]
