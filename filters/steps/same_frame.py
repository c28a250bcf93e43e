"""Equal frames: drops rows that ask for the same in other words, by comparing frames. The first row of a frame stays.

Rows without a frame (no world can execute them) are kept.
"""

from __future__ import annotations

import polars as pl

from filters.dedup.dedup_index import DedupIndex
from filters.frames.hash_join import key_of
from filters.step import KeyStep


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The joining step (columns row, first, see `hash_join.firsts`; first is null where a row has no frame): `equal_frame` as an earlier
    row, with that row."""
    is_later = pl.col("row") > pl.col("first")
    return rows.select(
        "row",
        reason=pl.when(is_later).then(pl.lit("equal_frame")),
        duplicate_of=pl.when(is_later).then("first"),
        similarity=pl.when(is_later).then(1.0),
    )


def keys(rows: pl.DataFrame) -> pl.DataFrame:
    """The keys of the frames, of rows that have one."""
    return rows.drop_nulls().select("row", *key_of("frame_id"))


STEP = KeyStep(name="equal", needs=("frame_id",), reasons=("equal_frame",), keys=keys, earlier=DedupIndex.frames, function=step)
