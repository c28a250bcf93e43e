"""Quality of a query as training material, without a model: how sure we are that what was read is what was meant (definition P6).

    quality = 0.5 read + 0.2 explained + 0.2 length + 0.1 language
    read       1 - (words that nobody could read) / (all words), over English words and Chinese characters
    explained  1 / (1 + values that were read but found no slot)
    length     1 between 12 and 240 bytes a row in normalised form, falling linearly to 0 at 4 and 400
    language   1 for one script, 0.5 for a mixture of Latin words and Chinese

One idea: damaged text betrays itself by what is left over. A typo that eats a slot's value turns a common query into a seemingly rare one,
and rare ones are what coverage prefers; so rows below `min_quality` are dropped, and the score orders the rest.
"""

from __future__ import annotations

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

VERSION = 1


class QualityConfig(BaseModel):
    """What is too poor to be kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_quality: float = Field(0.5, ge=0, le=1, description="Rows that score less are dropped as `low_quality`.")


def step(rows: pl.DataFrame, config: QualityConfig = QualityConfig()) -> pl.DataFrame:  # noqa: B008 (frozen)
    """The batch step (columns norm, residue, unexplained): adds quality (0..1); drops what is below the threshold."""
    score = (0.5 * _read() + 0.2 / (1 + pl.col("unexplained").fill_null(0)) + 0.2 * _length() + 0.1 * _language()).round(6)
    scored = rows.with_columns(quality=score)
    return scored.with_columns(reason=pl.when(pl.col("quality") < config.min_quality).then(pl.lit("low_quality")))


def _words(text: pl.Expr) -> pl.Expr:
    """English words, and half as many as there are Chinese characters."""
    return text.str.count_matches(r"[a-z]+") + text.str.count_matches(r"\p{Han}") / 2


def _read() -> pl.Expr:
    return (1 - _words(pl.col("residue").fill_null("")) / _words(pl.col("norm")).clip(lower_bound=1)).clip(0, 1)


def _length() -> pl.Expr:
    size = pl.col("norm").str.len_bytes().cast(pl.Float64)
    return pl.min_horizontal(((size - 4) / 8).clip(0, 1), ((400 - size) / 160).clip(0, 1))


def _language() -> pl.Expr:
    is_mixed = pl.col("norm").str.contains(r"\p{Han}") & pl.col("norm").str.contains("[a-z]{4,}")
    return pl.when(is_mixed).then(0.5).otherwise(1.0)
