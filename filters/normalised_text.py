"""The normalised text of a row (what every later step compares), its language, and the key of exact duplicates.

Normalised: Unicode NFKC, lower case, no zero-width characters, runs of white space as one blank, no punctuation at either end,
personal data masked. Only rows with a character that NFKC could change go through it (three times as fast, same result).
Language is decided by script alone: `zh`, `en` (Latin letters: French passes for English here, and falls out at grounding), else `other`.
The key is two halves of a hash (`hash_join.py`).
"""

from __future__ import annotations

import polars as pl

from filters.frames.hash_join import key_of
from filters.personal import MASK, mask_personal

VERSION = 1
"""Version of the normalised text and its key; raise it when older ones are no longer comparable."""
_UNSTABLE = r"[^\x00-\x7f\u4e00-\u9fff\u3001\u3002\u3008-\u3011\u2014\u2018\u2019\u201c\u201d]"
"""Everything but ASCII, common Chinese characters and punctuation: what NFKC could change, or has no width."""
_NO_WIDTH = r"[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"
_SPACE = r"[ \t\n\r\x0b\x0c]{2,}|[\t\n\r\x0b\x0c]"
_EDGES = " .!?~,;:、。！？，；：…"
_HAN, _LATIN, _LETTER = r"[\u3400-\u4dbf\u4e00-\u9fff]", r"[a-z\u00df-\u024f]", r"\p{L}"
LETTERS_A_HAN = 3
"""A Chinese character counts as three Latin letters in mixed text."""


def normalise_text(text: pl.Expr) -> pl.Expr:
    """The normalised text, personal data not yet masked; null stays null."""
    stable = pl.coalesce(pl.when(text.str.contains(_UNSTABLE)).then(text).str.normalize("NFKC").str.replace_all(_NO_WIDTH, ""), text)
    return stable.str.to_lowercase().str.replace_all(_SPACE, " ").str.strip_chars(_EDGES)


def languages(norm: pl.Series) -> pl.Series:
    """`zh`, `en` or `other` of normalised texts; null stays null."""
    text = pl.col("norm")
    rows = norm.to_frame("norm").with_columns(
        language=pl.when(text.is_not_null()).then(pl.when(text.str.contains("[a-z]")).then(pl.lit("en")).otherwise(pl.lit("other")))
    )
    not_ascii = norm.str.len_bytes() != norm.str.len_chars()
    counts = rows.filter(not_ascii).select(
        han=text.str.count_matches(_HAN).cast(pl.Int32),
        latin=text.str.count_matches(_LATIN).cast(pl.Int32),
        letters=text.str.count_matches(_LETTER).cast(pl.Int32),
    )
    han, latin, foreign = pl.col("han"), pl.col("latin"), pl.col("letters") - pl.col("han") - pl.col("latin")
    is_zh, is_en = (han * LETTERS_A_HAN >= latin) & (han > foreign), latin > foreign
    by_script = counts.select(pl.when(is_zh).then(pl.lit("zh")).when(is_en).then(pl.lit("en")).otherwise(pl.lit("other"))).to_series()
    return rows["language"].scatter(not_ascii.arg_true(), by_script)


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The batch step (columns row, text): adds norm, language, key_high, key_low and masks personal data in text; `undecodable` where
    text is null.

    Where masking finds less in the text as written than in the normalised one (full-width digits), the normalised one is kept as the text.
    """
    rows = rows.with_columns(norm=mask_personal(rows.select(normalise_text(pl.col("text"))).to_series()), text=mask_personal(rows["text"]))
    marked = rows.select("norm", "text").with_row_index("index").filter(pl.col("norm").str.contains(MASK))
    hidden = marked.filter(pl.col("norm").str.count_matches(MASK) > pl.col("text").str.count_matches(MASK))
    rows = rows.with_columns(text=rows["text"].scatter(hidden["index"], hidden["norm"]))
    return rows.with_columns(
        *key_of("norm"),
        language=languages(rows["norm"]),
        reason=pl.when(pl.col("text").is_null()).then(pl.lit("undecodable")),
    )
