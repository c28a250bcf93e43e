"""How many rows of a log ask for each combination: the measure of a row's rarity. A survey for the step `pool`.

Duplicates count: a dropped row counts for the row that it duplicates (exact, near), even if an earlier run read that row; the index knows
its combination (`filters/dedup/dedup_index.py`). Rows with equal frames count separately.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from filters.frames.hash_join import key_of
from filters.step import Context, SurveyStep

NAME = "combination_counts"


def count(pieces: Iterable[pl.DataFrame], _given: object, _opened: object, context: Context) -> pl.DataFrame:
    """combination, asked (rows of the log with it), from the grounded rows (row, combination)."""
    own_rows, earlier = context.verdicts.count_represented()
    grounded = pl.concat(pieces).drop_nulls()
    asking = pl.Series(own_rows[grounded["row"].to_numpy() - np.uint32(context.index.rows)])
    counts = grounded.with_columns(asked=asking).group_by("combination").agg(pl.col("asked").sum())
    old = context.index.combinations(earlier["row"].to_numpy()).join(earlier, on="row").group_by("key").agg(pl.col("rows").sum())
    both = counts.with_columns(key=key_of("combination")[0]).join(old, on="key", how="left")
    return both.select("combination", asked=pl.col("asked") + pl.col("rows").fill_null(0)).sort("combination")


STEP = SurveyStep(name=NAME, needs=("combination",), function=count, is_counted=False)
