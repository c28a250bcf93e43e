"""A step that is no part of the funnel: it drops what has many words. As a stranger would write one."""

from __future__ import annotations

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.pipeline import STEPS, FunnelConfig
from filters.step import BatchStep, Context, Step, WholeStep


class WordsConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    most: int = Field(default=9, ge=1, description="Words that a row may have.")


class ToyConfig(FunnelConfig):
    words: WordsConfig = WordsConfig()


def count_words(rows: pl.DataFrame, config: WordsConfig) -> pl.DataFrame:
    """The batch step (column norm): adds words; `many_words` beyond the most."""
    counted = rows.with_columns(words=pl.col("norm").str.count_matches(" ", literal=True) + 1)
    return counted.with_columns(reason=pl.when(pl.col("words") > config.most).then(pl.lit("many_words")))


def count_all(rows: pl.DataFrame, config: WordsConfig, _: Context) -> pl.DataFrame:
    return count_words(rows, config)


WORDS = BatchStep(name="words", needs=("norm",), adds=("words",), reasons=("many_words",), config=WordsConfig, function=count_words)
ALL_WORDS = WholeStep(name="words", needs=("norm",), adds=("words",), reasons=("many_words",), config=WordsConfig, function=count_all)


def with_step(step: Step, after: str) -> tuple[Step, ...]:
    """The funnel's list with one step more, after that of this name."""
    place = 1 + max(number for number, one in enumerate(STEPS) if one.name == after)
    return (*STEPS[:place], step, *STEPS[place:])
