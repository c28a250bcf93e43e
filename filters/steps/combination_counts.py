"""How many rows of a log ask for each combination: the measure of a row's rarity. A survey for the step `pool`.

Duplicates count: a dropped row counts for the row that it duplicates (exact, near), even if an earlier run read that row; the index knows
its combination (`filters/dedup/dedup_index.py`). Rows with equal frames count separately. Where the reader reads but some of many requests
that are alike, each of those counts for all that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from filters.frames.hash_join import key_of
from filters.step import Context, SurveyStep
from filters.steps.reading.read_requests import READ

NAME = "combination_counts"


def count(pieces: Iterable[pl.DataFrame], _given: object, _opened: object, context: Context) -> pl.DataFrame:
    """combination, asked (rows of the log with it), from the grounded rows (row, combination)."""
    own_rows, earlier = context.verdicts.count_represented()
    readings = context.surveys.get(READ, pl.DataFrame(schema={"norm": pl.String, "stands_for": pl.Float64})).select("norm", "stands_for")
    joined = (piece.drop_nulls("combination").join(readings, on="norm", how="left").drop("norm") for piece in pieces)
    grounded = pl.concat(joined)
    asking = pl.Series(own_rows[grounded["row"].to_numpy() - np.uint32(context.index.rows)])
    asked = (asking * grounded["stands_for"].fill_null(1.0)).round().cast(asking.dtype)
    counts = grounded.with_columns(asked=asked).group_by("combination").agg(pl.col("asked").sum())
    old = context.index.combinations(earlier["row"].to_numpy()).join(earlier, on="row").group_by("key").agg(pl.col("rows").sum())
    both = counts.with_columns(key=key_of("combination")[0]).join(old, on="key", how="left")
    return both.select("combination", asked=pl.col("asked") + pl.col("rows").fill_null(0)).sort("combination")


STEP = SurveyStep(name=NAME, needs=("norm", "combination"), function=count, is_counted=False)
