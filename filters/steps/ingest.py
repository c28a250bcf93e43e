"""The first step: drops rows whose text could not be decoded (`filters/ingest/` defines when)."""

from __future__ import annotations

import polars as pl

from filters.ingest import IngestConfig
from filters.step import BatchStep


def step(rows: pl.DataFrame, _: IngestConfig) -> pl.DataFrame:
    """The batch step (column text, as the runner has read it; null where it could not be decoded)."""
    return rows.with_columns(reason=pl.when(pl.col("text").is_null()).then(pl.lit("undecodable")))


STEP = BatchStep(name="ingest", adds=("text",), reasons=("undecodable",), config=IngestConfig, function=step)
