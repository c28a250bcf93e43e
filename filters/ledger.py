"""Who is still in the funnel, and what became of the others: exactly one verdict a row, and steps that add up.

One idea: what became of a row is a number (of a step and reason), the row that it duplicates and how like it is: 14 bytes a row with
its length, and no text, whatever the number of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import numpy as np
import polars as pl

from filters.numba_types import F32, U8, U32

_MOST_REASONS = 255


class Ledger:
    """The verdicts on the rows `first_row .. first_row + rows - 1`. `text_bytes` is filled by whoever reads the rows."""

    def __init__(self, rows: int, first_row: int = 0) -> None:
        self.first_row = first_row
        self.is_alive = np.ones(rows, np.bool_)
        self.text_bytes: U32 = np.zeros(rows, np.uint32)
        self._reason: U8 = np.zeros(rows, np.uint8)
        self._duplicate_of: U32 = np.zeros(rows, np.uint32)
        self._similarity: F32 = np.full(rows, np.nan, np.float32)
        self._reasons: list[tuple[str, str]] = []
        self._steps: list[dict[str, object]] = []

    @property
    def alive(self) -> int:
        return int(self.is_alive.sum())

    def living(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Those of the rows (column row) that no step has dropped."""
        return rows.filter(self.is_alive[self._places(rows)])

    def record(self, step: str, report: pl.DataFrame, seconds: float) -> None:
        """Takes a step's report: columns row, reason and, optionally, duplicate_of and similarity, for every row alive.

        Raises:
            AssertionError: a row is missing from the report, is in it twice, or was dropped before.
        """
        is_whole = report.height == self.alive and bool(self.is_alive[self._places(report)].all())
        assert is_whole, f"step {step} did not report on the rows that are alive"
        self.drop(step, [report.filter(pl.col("reason").is_not_null())], seconds)

    def drop(self, step: str, dropped: Iterable[pl.DataFrame], seconds: float | Callable[[], float]) -> None:
        """Takes what a step dropped, frames with the columns of `record` and a reason in every row; all other rows alive are kept. seconds:
        asked for at the end where the frames are made as they are taken.

        Raises:
            AssertionError: a row is dropped twice, or was dropped before.
        """
        rows_in, counts = self.alive, dict[str, int]()
        for frame in dropped:
            places = self._places(frame)
            assert bool(self.is_alive[places].all()), f"step {step} reported on rows that are not alive"
            self.is_alive[places] = False
            for (reason,), group in frame.group_by("reason"):
                self._reason[self._places(group)] = self._code(step, str(reason))
                counts[str(reason)] = counts.get(str(reason), 0) + group.height
            if "duplicate_of" in frame.columns:
                self._duplicate_of[places] = frame["duplicate_of"].fill_null(0).to_numpy()
                self._similarity[places] = frame["similarity"].cast(pl.Float32).fill_null(np.nan).to_numpy()
        assert self.alive == rows_in - sum(counts.values()), f"step {step} reported a row twice"
        self._steps.append(
            {
                "position": len(self._steps),
                "step": step,
                "rows_in": rows_in,
                "kept": self.alive,
                "dropped": rows_in - self.alive,
                "reasons": json.dumps(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))),
                "seconds": seconds if isinstance(seconds, float) else seconds(),
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

    def verdicts(self, numbers: slice | None = None) -> pl.DataFrame:
        """One verdict a row, of the rows `numbers` or of all, ascending: row, step, kept, reason, duplicate_of, similarity. Rows alive are
        kept, by the last step."""
        own = slice(0, self.is_alive.size) if numbers is None else slice(numbers.start - self.first_row, numbers.stop - self.first_row)
        code = pl.Series(self._reason[own])
        similarity = pl.Series(self._similarity[own])
        is_duplicate = similarity.is_not_nan()
        steps = pl.Series([str(self._steps[-1]["step"]), *(step for step, _ in self._reasons)])
        reasons = pl.Series([None, *(reason for _, reason in self._reasons)], dtype=pl.String)
        return pl.DataFrame(
            {
                "row": np.arange(own.start + self.first_row, own.stop + self.first_row, dtype=np.uint32),
                "step": steps.cast(pl.Enum(steps.unique(maintain_order=True))).gather(code),
                "kept": code == 0,
                "reason": reasons.cast(pl.Enum(reasons.drop_nulls().unique(maintain_order=True))).gather(code),
                "duplicate_of": self._duplicate_of[own],
                "similarity": similarity.cast(pl.Float64).round(6),
            }
        ).with_columns(pl.when(is_duplicate).then(pl.col(name)) for name in ("duplicate_of", "similarity"))

    def _places(self, rows: pl.DataFrame) -> U32:
        places: U32 = rows["row"].to_numpy() - np.uint32(self.first_row)
        return places

    def _code(self, step: str, reason: str) -> int:
        if (step, reason) not in self._reasons:
            self._reasons.append((step, reason))
        code = self._reasons.index((step, reason)) + 1
        assert code <= _MOST_REASONS, "more reasons than a byte can number"
        return code


def shortfall(funnel: pl.DataFrame, wanted: int) -> str | None:
    """Which step of a funnel was the first to leave fewer rows than wanted, and why; None where enough are kept."""
    short = funnel.filter(pl.col("kept") < wanted)
    if short.is_empty():
        return None
    step = short.row(0, named=True)
    why = ", ".join(f"{reason} {count:,}" for reason, count in json.loads(step["reasons"]).items())
    return (
        f"{funnel['kept'][-1]:,} kept of {wanted:,} wanted: step {step['step']} left too few, {step['kept']:,} of {step['rows_in']:,} "
        f"rows ({why or 'there were no more'})"
    )


def not_done(funnel: pl.DataFrame, tasks: int, ungrounded: bool, has_clusters: bool, has_held_out: bool) -> tuple[str, ...]:
    """What a run could not do with rows that no world executes, and what would help, in words."""
    ground = funnel.row(by_predicate=pl.col("step") == "ground", named=True)
    notes = []
    if not ungrounded and ground["dropped"] > ground["kept"]:
        share = f"{ground['dropped']:,} of {ground['rows_in']:,} distinct requests ask for what no world here executes"
        notes.append(f"{share}; keep such rows with --ungrounded, or describe your domain (headrace worlds new)")
    if ungrounded and (others := funnel["kept"][-1] - tasks):
        notes.append(f"{others:,} of the rows kept are no tasks: no world here executes them, so none was tried")
        if not has_clusters:
            notes.append("which tool could serve them is not told: the store knows no tools (headrace clusters build --tools FILE)")
        if not has_held_out:
            notes.append("they were compared with no held-out questions (--held-out FILE)")
    return tuple(notes)
