"""How often each combination is asked for in a log: what the rarity of a row is measured by.

One idea: who asks is counted, not what is left: a row counts for the one that it duplicates (exact, near), also where that one was read by
an earlier run, whose index says what it asks for (`dedup_index.py`). Equal frames are rows of their own here.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from filters.dedup.dedup_index import Seen
from filters.hash_join import key_of
from filters.numba_types import U32


class Askers:
    """Of the rows of a run, which are numbered from `seen.rows`. occurrences [rows]: how many have a row's text, where it is the first with
    it; 0 elsewhere."""

    def __init__(self, rows: int, seen: Seen) -> None:
        self.occurrences: U32 = np.zeros(rows, np.uint32)
        self._asking = np.zeros(rows, np.int64)
        self._before: list[pl.DataFrame] = []
        self._seen = seen

    def take_exact(self, report: pl.DataFrame) -> None:
        """Counts some of the rows, as `exact.step` reports on them."""
        self.occurrences[self._places(report["row"])] = report["occurrences"].fill_null(0).to_numpy()
        old = report.filter(pl.col("duplicate_of") < self._seen.rows)
        self._before.append(old.group_by(row="duplicate_of").agg(asking=pl.len().cast(pl.Int64)))

    def take_near(self, dropped: pl.DataFrame) -> None:
        """Counts the rows that near has dropped (row, duplicate_of), once all are counted by `take_exact`."""
        self._asking = self.occurrences.astype(np.int64)
        times = dropped.select(row="duplicate_of", asking=pl.Series(self._asking[self._places(dropped["row"])]))
        is_old = pl.col("row") < self._seen.rows
        own = times.filter(~is_old)
        np.add.at(self._asking, self._places(own["row"]), own["asking"].to_numpy())
        self._before.append(times.filter(is_old))

    def by_combination(self, grounded: pl.DataFrame) -> pl.DataFrame:
        """combination, asked (rows of the log that ask in it) of the rows that were grounded (row, combination; no nulls)."""
        asking = pl.Series(self._asking[self._places(grounded["row"])])
        asked = grounded.with_columns(asked=asking).group_by("combination").agg(pl.col("asked").sum())
        before = pl.concat(self._before).group_by("row").agg(pl.col("asking").sum()).sort("row")
        old = self._seen.combinations(before["row"].to_numpy()).join(before, on="row").group_by("key").agg(pl.col("asking").sum())
        told = asked.with_columns(key=key_of("combination")[0]).join(old, on="key", how="left")
        return told.select("combination", asked=pl.col("asked") + pl.col("asking").fill_null(0))

    def _places(self, rows: pl.Series) -> U32:
        places: U32 = rows.to_numpy() - np.uint32(self._seen.rows)
        return places
