"""Texts of keys pressed at random ("asdfgh", "dfkgj slkdf"), found by their letters, and texts that share no word with a log.

One idea: three letters that follow each other in no word of the worlds' vocabulary are rare in English words (a word in 50 is made of such
triples for the most part, and hardly ever all the words of a request) and the rule in random keys (19 words in 20). So only short texts
are looked at, and a text is gibberish if hardly any letters are in other words. Runs of neighbouring keys count as random.

`is_unfamiliar` needs the whole log: a request shares a word with other requests ("refund", "ticket", "much"), what is left of random keys
and of greetings with several slips does not.

What it does not do: judge words with letters beyond a to z, or Chinese.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import polars as pl

from filters.grounded_worlds import grounded_worlds
from filters.grounding.lexicon import phrases
from filters.requests.greetings import WORDS_OF_GREETINGS

_MOST_WORDS = 4
_ODD_SHARE, _RUN_SHARE = 0.5, 0.6
_ROWS_OF_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_RUN = 4
_LEAST_LETTERS, _LEAST_REQUESTS, _LEAST_LOG = 3, 3, 100
"""Letters of a word that is compared; requests to a known word; requests of a log that is compared with."""
_WORD = re.compile(r"[^\W\d_]+")


def is_gibberish(norm: pl.Series, min_letters: int) -> pl.Series:
    """Whether a normalised text, of four words at most, is random for the most part: at most one word is not, and fewer than `min_letters`
    letters, or a third of them, are in it. Null counts as False."""
    suspects = ((norm.str.count_matches(" ", literal=True) < _MOST_WORDS) & norm.str.contains("[a-z]{3}")).fill_null(False).arg_true()
    guilty = [place for place, text in zip(suspects, norm.gather(suspects), strict=True) if _is_random(text, min_letters)]
    return pl.select(pl.repeat(False, len(norm))).to_series().scatter(guilty, True)


def is_unfamiliar(patterns: pl.Series) -> pl.Series:
    """Whether a pattern has four words at most, and none of them is in three requests of the log; False in a log of few requests, and for
    words beyond a to z.

    patterns: distinct (`filters/requests/patterns.py`), of a whole log. Only those of five words or more count as requests.
    """
    rows = patterns.alias("pattern").to_frame().with_row_index("at").with_columns(word=pl.col("pattern").str.split(" "))
    rows = rows.with_columns(is_request=pl.col("word").list.len() > _MOST_WORDS)
    if rows["is_request"].sum() < _LEAST_LOG:
        return pl.select(pl.repeat(False, len(patterns))).to_series()
    words = rows.explode("word").filter(pl.col("word").str.len_chars() >= _LEAST_LETTERS).unique(["at", "word"])
    known = words.filter("is_request").group_by("word").len().filter(pl.col("len") >= _LEAST_REQUESTS)["word"]
    familiar = words.filter(pl.col("word").is_in(known.implode()) & ~pl.col("word").is_in(list(WORDS_OF_GREETINGS)))["at"]
    is_judged = ~pl.col("is_request") & ~pl.col("pattern").str.contains(r"[^a-z' ]") & (pl.col("pattern") != "")
    return rows.select(is_judged & ~pl.col("at").is_in(familiar.implode())).to_series()


def _is_random(text: str, min_letters: int) -> bool:
    words = _WORD.findall(text)
    others = [word for word in words if not is_random_word(word)]
    left, random = sum(map(len, others)), sum(map(len, words)) - sum(map(len, others))
    return random > 0 and len(others) <= 1 and (left < min_letters or left * 2 < random)


@lru_cache(maxsize=1 << 16)
def is_random_word(word: str) -> bool:
    """Whether a word of a to z, of three letters or more, is unlike any word that is known."""
    if len(word) < 3 or not word.isascii():
        return False
    triples = _triples(word)
    odd = sum(triple not in _known_triples() for triple in triples)
    return odd >= _ODD_SHARE * len(triples) or _neighbours(word) >= _RUN_SHARE * len(word)


def _neighbours(word: str) -> int:
    """How many letters of a word are in runs of four or more neighbouring keys, in either direction."""
    runs = _runs_of_keys()
    in_run = {at + offset for at in range(len(word) - _RUN + 1) if word[at : at + _RUN] in runs for offset in range(_RUN)}
    return len(in_run)


@cache
def _runs_of_keys() -> frozenset[str]:
    rows = [direction for row in _ROWS_OF_KEYS for direction in (row, row[::-1])]
    return frozenset(row[at : at + _RUN] for row in rows for at in range(len(row) - _RUN + 1))


@cache
def _known_triples() -> frozenset[str]:
    """The triples of letters in the words of the grounded worlds, with a mark at either end of a word."""
    words = {word for phrase in phrases(grounded_worlds()) for word in re.findall("[a-z]{2,}", phrase.lower())}
    return frozenset(triple for word in words for triple in _triples(word))


def _triples(word: str) -> list[str]:
    marked = f"^{word}$"
    return [marked[at : at + 3] for at in range(len(marked) - 2)]
