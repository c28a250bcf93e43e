"""Exact duplicates: rows of equal normalised text. The first stays.

Compares 128-bit keys, not texts: among a billion different texts a collision has probability 10^-21. 64 bits would do until
some hundred million rows, a truncated 40 bits lost rows at seven million.
"""

from __future__ import annotations

import polars as pl

from filters.dedup.dedup_index import DedupIndex
from filters.step import KeyStep


def step(rows: pl.DataFrame) -> pl.DataFrame:
    """The joining step (columns row, first, count, see `hash_join.firsts`): `exact_duplicate` of the first row with the key."""
    is_first = pl.col("row") == pl.col("first")
    return rows.select(
        "row",
        reason=pl.when(~is_first).then(pl.lit("exact_duplicate")),
        duplicate_of=pl.when(~is_first).then("first"),
        similarity=pl.when(~is_first).then(1.0),
    )


def keys(rows: pl.DataFrame) -> pl.DataFrame:
    """The keys of the normalised texts."""
    return rows.select("row", "key_high", "key_low").drop_nulls()


STEP = KeyStep(name="exact", needs=("key_high", "key_low"), reasons=("exact_duplicate",), keys=keys, earlier=DedupIndex.keys, function=step)
