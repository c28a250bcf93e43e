"""The step that masks values in rows that no world reads (`filters/requests/patterns.py`), for the choice by topic. Nothing is dropped."""

from __future__ import annotations

import polars as pl

from filters.requests.patterns import mask_values
from filters.step import BatchStep


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The batch step (columns norm, frame_id): adds masked; null where a row has a frame."""
    masked = pl.when(pl.col("frame_id").is_null()).then(mask_values(pl.col("norm")))
    return rows.with_columns(masked=masked, reason=pl.lit(None, pl.String))


STEP = BatchStep(name="mask_values", needs=("norm", "frame_id"), adds=("masked",), function=step, is_counted=False)
