"""Short requests that share no word with any other request of a log: random keys and misspelt greetings that no rule caught, and now and
then a rare wish. They are kept last, not dropped.

One idea: what people ask for, several of them ask for, in words that return ("refund", "ticket", 退票). Words that are in one pattern only
say nothing of a request's kind; nor do those of greetings, misspelt or not, and runs of neighbouring keys.
"""

from __future__ import annotations

import polars as pl

from filters.requests.greetings import FORMS_OF_GREETINGS
from filters.requests.keyboard import RUN_OF_KEYS

UNLIKE_OTHERS = "unlike other requests"
"""The topic of such requests."""
_MAX_WORDS, _MAX_HAN = 8, 8
_LATIN, _HAN = r"[\p{L}--\p{Han}]{3,}", r"\p{Han}{2}"
_MIN_PATTERNS = 20
"""Patterns of a log in which words return."""


def is_unlike_others(patterns: pl.Series) -> pl.Series:
    """Whether a pattern has eight words and eight Chinese characters at most, and no word of it (of three letters, or two Chinese
    characters) is in another pattern. False where there are fewer than 20 patterns.

    patterns: distinct (`filters/requests/patterns.py`), of a whole log.
    """
    text = pl.col("pattern")
    rows = patterns.alias("pattern").to_frame().with_row_index("at")
    if rows.height < _MIN_PATTERNS:
        return pl.select(pl.repeat(False, rows.height)).to_series()
    words = pl.concat_list(text.str.extract_all(_LATIN), text.str.extract_all(_HAN), text.str.slice(1).str.extract_all(_HAN))
    by_word = rows.select("at", word=words).explode("word").drop_nulls().unique()
    by_word = by_word.filter(~pl.col("word").is_in(sorted(FORMS_OF_GREETINGS)) & ~pl.col("word").str.contains(RUN_OF_KEYS))
    shared = by_word.filter(pl.len().over("word") > 1)["at"]
    is_short = (text.str.count_matches(" ", literal=True) < _MAX_WORDS) & (text.str.count_matches(r"\p{Han}") <= _MAX_HAN)
    return rows.select(is_short & ~pl.col("at").is_in(shared.implode())).to_series()
