"""How often each combination is asked for in a log: what the rarity of a row is measured by. A survey, for the step `pool`.

One idea: who asks is counted, not what is left: a row counts for the one that it duplicates (exact, near), also where that one was read by
an earlier run, whose index says what it asks for (`filters/dedup/dedup_index.py`). Equal frames are rows of their own here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from filters.frames.hash_join import key_of
from filters.step import Context, SurveyStep

NAME = "combination_counts"


def count(pieces: Iterator[pl.DataFrame], _given: object, _opened: object, context: Context) -> pl.DataFrame:
    """combination, asked (rows of the log that ask in it), of the rows that were grounded (row, combination)."""
    own_rows, earlier = context.verdicts.standing_for()
    grounded = pl.concat(pieces).drop_nulls()
    asking = pl.Series(own_rows[grounded["row"].to_numpy() - np.uint32(context.seen.rows)])
    counts = grounded.with_columns(asked=asking).group_by("combination").agg(pl.col("asked").sum())
    old = context.seen.combinations(earlier["row"].to_numpy()).join(earlier, on="row").group_by("key").agg(pl.col("rows").sum())
    both = counts.with_columns(key=key_of("combination")[0]).join(old, on="key", how="left")
    return both.select("combination", asked=pl.col("asked") + pl.col("rows").fill_null(0)).sort("combination")


STEP = SurveyStep(name=NAME, needs=("combination",), function=count, is_counted=False)
