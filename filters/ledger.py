"""Who is still in the funnel, and what became of the others: exactly one verdict a row, and steps that add up.

A step reports on *every* row that is alive; the ledger takes note of the dropped ones and counts. It holds a few bytes a row
and no text.
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from filters.compiled import U32

_VERDICT = {"row": pl.UInt32, "reason": pl.String, "duplicate_of": pl.UInt32, "similarity": pl.Float64}


class Ledger:
    """The verdicts on rows 0 .. rows-1 of a run. `text_bytes` is filled by whoever reads the rows."""

    def __init__(self, rows: int) -> None:
        self.is_alive = np.ones(rows, np.bool_)
        self.text_bytes: U32 = np.zeros(rows, np.uint32)
        self._dropped: list[pl.DataFrame] = []
        self._steps: list[dict[str, object]] = []

    @property
    def alive(self) -> int:
        return int(self.is_alive.sum())

    def living(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those of the rows (column row) that no step has dropped."""
        return rows.filter(self.is_alive[rows["row"].to_numpy()])

    def record(self, step: str, report: pl.DataFrame, seconds: float) -> None:
        """Takes a step's report: columns row, reason and, optionally, duplicate_of and similarity, for every row alive.

        Raises:
            AssertionError: a row is missing from the report, is in it twice, or was dropped before.
        """
        numbers = report["row"].to_numpy()
        rows_in = self.alive
        assert report.height == rows_in and bool(self.is_alive[numbers].all()), f"step {step} did not report on the rows that are alive"
        missing = {name: pl.lit(None, dtype) for name, dtype in _VERDICT.items() if name not in report.columns}
        dropped = (
            report.filter(pl.col("reason").is_not_null())
            .with_columns(**missing)
            .select(pl.col(name).cast(_VERDICT[name]) for name in _VERDICT)
        )
        gone = dropped["row"].to_numpy()
        self.is_alive[gone] = False
        assert self.alive == rows_in - dropped.height, f"step {step} reported a row twice"
        self._dropped.append(dropped.with_columns(step=pl.lit(step)))
        reasons = dropped.group_by("reason").len().sort("len", "reason", descending=[True, False])
        self._steps.append(
            {
                "position": len(self._steps),
                "step": step,
                "rows_in": rows_in,
                "kept": self.alive,
                "dropped": dropped.height,
                "reasons": json.dumps(dict(reasons.iter_rows())),
                "seconds": seconds,
                "size_bytes": int(self.text_bytes[self.is_alive].sum(dtype=np.int64)),
            }
        )

    def funnel(self, total_s: float) -> pl.DataFrame:
        """The funnel so far, a step a row (columns of the table `funnel`, but `run`).

        What of the run's `total_s` no step has counted (inspecting files, writing rows) is the first step's, so that seconds add up.
        """
        unaccounted_s = total_s - sum(float(str(step["seconds"])) for step in self._steps)
        first_s = pl.when(pl.col("position") == 0).then(max(0.0, unaccounted_s)).otherwise(0.0)
        return pl.DataFrame(self._steps).with_columns(seconds=pl.col("seconds") + first_s)

    def verdicts(self) -> pl.DataFrame:
        """One verdict a row, ascending by row: row, step, kept, reason, duplicate_of, similarity. Rows alive are kept, by the last step."""
        last = str(self._steps[-1]["step"])
        kept = pl.DataFrame({"row": np.flatnonzero(self.is_alive).astype(np.uint32)}).with_columns(step=pl.lit(last), kept=pl.lit(True))
        told = pl.concat([*(frame.with_columns(kept=pl.lit(False)) for frame in self._dropped), kept], how="diagonal")
        return told.sort("row").select("row", "step", "kept", "reason", "duplicate_of", "similarity")
