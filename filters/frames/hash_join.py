"""Joins by a 128-bit key over any number of rows: the first row with each key, and the number of rows with it.

Every batch writes its keys to disk in ascending order (`write_keys`). A partition is a range of keys, so it reads only one slice of each
batch (`first_of_key`). Partitions are independent, and only the keys of one partition are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
import polars_hash  # noqa: F401  (registers `nchash`)

from filters.frames.workspace import Workspace

_COLUMNS = ("key_high", "key_low", "row")
_HALF = 1 << 64
ROWS_A_PARTITION = 8_000_000


def key_of(text: str) -> tuple[pl.Expr, pl.Expr]:
    """The halves (UInt64, named key_high and key_low) of the xxh3_128 of a text column: the same in every version and process."""
    key = pl.col(text).nchash.xxh3_128()  # type: ignore[attr-defined]
    return (key // _HALF).cast(pl.UInt64).alias("key_high"), (key % _HALF).cast(pl.UInt64).alias("key_low")


def write_keys(work: Workspace, name: str, rows: pl.DataFrame) -> None:
    """Writes the keys of rows (columns row, key_high, key_low; no nulls) under a name."""
    order = np.argsort(rows["key_high"].to_numpy(), kind="stable")
    work.write_array(name, np.stack([rows[column].cast(pl.UInt64).to_numpy()[order] for column in _COLUMNS]))


def firsts(rows: pl.DataFrame) -> pl.DataFrame:
    """row, first (the first row with its key; its own number where it is that one) and count (of rows with its key), ascending by row, of
    rows with columns row, key_high, key_low."""
    key = ["key_high", "key_low"]
    return rows.select("row", first=pl.col("row").min().over(key), count=pl.len().over(key)).sort("row")


def first_of_key(partition: int, partitions: int, names: Iterable[str], work: Workspace) -> pl.DataFrame:
    """`firsts` of the rows of one partition. names: under which the keys of all rows were written."""
    width = (_HALF - 1) // partitions + 1
    low, high = np.uint64(partition * width), np.uint64(min(_HALF - 1, (partition + 1) * width - 1))
    pieces = [np.empty((3, 0), np.uint64)]
    for name in names:
        keyed = work.array(name)
        pieces.append(keyed[:, np.searchsorted(keyed[0], low) : np.searchsorted(keyed[0], high, side="right")])
    keys_and_rows = np.concatenate(pieces, axis=1)
    return firsts(pl.DataFrame(dict(zip(_COLUMNS, keys_and_rows, strict=True))).with_columns(pl.col("row").cast(pl.UInt32)))
