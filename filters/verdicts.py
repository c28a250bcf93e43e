"""The verdict on every row of a run, and the tables `queries`, `verdicts` and `frames` that are written from verdicts.

Every row has exactly one verdict, and the counts of the steps add up. A verdict takes 14 bytes: the code of a step and reason, the row that
is duplicated, the similarity to it, and the length of the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from filters.frames.batches import Batch, Sources, query_ids, read_alive
from filters.frames.numba_types import F32, I64, U8, U32, Mask
from filters.frames.workspace import Workspace
from filters.ingest import Source
from storage.store import Part, Store
from storage.tables import TABLES

FRAMES_A_PART = 1_000_000
"""Rows read per part of `frames`. The parts are large, because each part of a catalogue table is compared with the whole table."""
FIRST_OF_TEXT = "exact"
"""The step whose duplicates `queries.occurrences` counts."""
OF_FRAMES = frozenset(TABLES["frames"].columns) - {"run", "query_id", "status", "reason"} | {"ungrounded", "read_by"}
"""Columns of rows from which the table `frames` is written."""
ADMITS = "admission"
"""The step that makes tasks; a row that it refuses has the status `refused` in `frames`."""
_MOST_REASONS = 255


class Verdicts:
    """The verdicts on the rows `first_row .. first_row + rows - 1`. The runner fills `text_bytes` when the rows are read."""

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

    def drop(self, step: str, dropped: Iterable[pl.DataFrame], seconds: Callable[[], float]) -> None:
        """Records the rows that a step dropped; it kept all other remaining rows.

        Args:
            dropped: frames with row and reason, and optionally duplicate_of and similarity.
            seconds: time of the step; called after the last frame, because taking a frame may compute it.

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
                "seconds": seconds(),
                "size_bytes": int(self.text_bytes[self.is_alive].sum(dtype=np.int64)),
            }
        )

    def funnel(self, total_s: float) -> pl.DataFrame:
        """The funnel so far, one row a step (columns of the table `funnel` without `run`).

        total_s: seconds of the run. Time outside the steps (inspecting files, writing rows) is added to the first step.
        """
        unaccounted_s = total_s - sum(float(str(step["seconds"])) for step in self._steps)
        first_s = pl.when(pl.col("position") == 0).then(max(0.0, unaccounted_s)).otherwise(0.0)
        return pl.DataFrame(self._steps).with_columns(seconds=pl.col("seconds") + first_s)

    def frame(self, numbers: slice | None = None) -> pl.DataFrame:
        """One verdict a row, ascending: row, step, kept, reason, duplicate_of, similarity. A remaining row is kept by the last step.

        numbers: the rows; all by default.
        """
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

    def alive_after(self, step: str) -> Mask:
        """Mask of the rows that a step and all earlier steps kept [rows]."""
        steps = [str(one["step"]) for one in self._steps]
        last = steps.index(step)
        return np.array([True, *(steps.index(one) > last for one, _ in self._reasons)])[self._reason]

    def count_represented(self, last: str | None = None) -> tuple[I64, pl.DataFrame]:
        """How many rows of this log every row represents after the step `last` (all steps so far by default).

        A row represents itself, its duplicates, and their duplicates. Returns the counts [rows], and (row, rows) of the earlier runs' rows
        that have duplicates in this log.
        """
        counts: I64 = np.ones(self.is_alive.size, np.int64)
        earlier = [pl.DataFrame(schema={"row": pl.UInt32, "rows": pl.Int64})]
        duplicates = ~np.isnan(self._similarity)
        for step in (str(one["step"]) for one in self._steps):
            codes = [code for code, (by, _) in enumerate(self._reasons, 1) if by == step]
            rows = np.flatnonzero(np.isin(self._reason, codes) & duplicates) if codes else np.empty(0, np.int64)
            kept, own = self._duplicate_of[rows], counts[rows]
            is_old = kept < self.first_row
            np.add.at(counts, kept[~is_old] - np.uint32(self.first_row), own[~is_old])
            old = pl.DataFrame({"row": kept[is_old], "rows": own[is_old]})
            earlier.append(old.group_by("row").agg(pl.col("rows").sum()))
            if step == last:
                break
        return counts, pl.concat(earlier).group_by("row").agg(pl.col("rows").sum()).sort("row")

    def _places(self, rows: pl.DataFrame) -> U32:
        places: U32 = rows["row"].to_numpy() - np.uint32(self.first_row)
        return places

    def _code(self, step: str, reason: str) -> int:
        if (step, reason) not in self._reasons:
            self._reasons.append((step, reason))
        code = self._reasons.index((step, reason)) + 1
        assert code <= _MOST_REASONS, "more reasons than a byte can number"
        return code


def shortfall(funnel: pl.DataFrame, target: int) -> str | None:
    """The first step of a funnel that kept fewer rows than the target, and why; None if the funnel kept enough rows."""
    short = funnel.filter(pl.col("kept") < target)
    if short.is_empty():
        return None
    step = short.row(0, named=True)
    why = ", ".join(f"{reason} {count:,}" for reason, count in json.loads(step["reasons"]).items())
    return (
        f"{funnel['kept'][-1]:,} kept of {target:,} wanted: step {step['step']} left too few, {step['kept']:,} of {step['rows_in']:,} "
        f"rows ({why or 'there were no more'})"
    )


def groups(batches: Sequence[Batch]) -> list[tuple[Batch, ...]]:
    """Successive batches, each group the batches of one part of `frames`."""
    by_part: dict[int, list[Batch]] = {}
    for batch in batches:
        by_part.setdefault((batch.first_row - batches[0].first_row) // FRAMES_A_PART, []).append(batch)
    return [tuple(group) for group in by_part.values()]


def write_batch(
    batch: Batch,
    occurrences: I64,
    verdicts: pl.DataFrame,
    store: Store,
    work: Workspace,
    read: str,
    run: str,
    files: Sequence[Source],
    parts: Mapping[str, str],
) -> list[Part]:
    """The parts of `queries` and `verdicts` with a batch's rows. occurrences: of each row's text, 0 where another row has it first. read:
    name of the pass that read the rows."""
    ids = query_ids(verdicts["row"], files)
    counted = pl.Series(occurrences)
    queries = work.read(f"{read}-{batch.name}", ["row", "text", "language"]).select(
        query_id=ids,
        run=pl.lit(run),
        source=pl.lit(batch.file),
        row=pl.col("row").cast(pl.Int64) - batch.first_row + batch.file_row,
        text="text",
        language="language",
        occurrences=pl.when(counted > 0).then(counted).cast(pl.Int64),
    )
    numbered = verdicts.drop("row").with_columns(query_id=ids, run=pl.lit(run), duplicate_of=query_ids(verdicts["duplicate_of"], files))
    return [
        store.write("queries", parts[f"queries-{batch.name}"], queries),
        store.write("verdicts", parts[f"verdicts-{batch.name}"], numbered),
    ]


def write_frames(
    group: Sequence[Batch],
    verdicts: pl.DataFrame,
    has_own_frame: Mask,
    pooled: pl.DataFrame,
    store: Store,
    work: Workspace,
    sources: Sequence[Sources],
    run: str,
    files: Sequence[Source],
    part: str,
) -> Part:
    """The part of `frames` with a group of batches: each distinct frame and its outcome, and the rows without a frame. `reason`: why a row
    has no frame, or why its frame was refused; if a model read the frame, also that model.

    Args:
        verdicts: of the group's rows. has_own_frame: of the group's rows, those that no earlier row equals.
        pooled: row, and columns of frames that whole steps added, of the rows that they saw: these count before those of batch steps.
        sources: pass by pass, from where the columns come; what a pass dropped after the frames were compared is in its dropped rows.
    """
    first = group[0].first_row
    masks = [has_own_frame[batch.first_row - first :][: batch.rows] for batch in group]
    frames = pl.concat([read_alive(batch, mask, work, sources[0]) for batch, mask in zip(group, masks, strict=True)])
    for source in sources[1:]:
        (name, columns) = next(iter(source.items()))
        pieces = [work.read(f"{name}-{batch.name}", ["row", *columns]) for batch in group]
        for batch in group:
            dropped = work.read(f"{name}-{batch.name}-dropped")
            pieces.append(dropped.select("row", *(column for column in columns if column in dropped.columns)))
        frames = frames.join(pl.concat(pieces, how="diagonal"), on="row", how="left", maintain_order="left")
    frames = frames.join(verdicts, on="row", how="left", maintain_order="left")
    frames = frames.join(pooled, on="row", how="left", maintain_order="left", suffix="_pooled")
    is_refused = (pl.col("step") == ADMITS) & (pl.col("reason") != "not_needed")
    status = (
        pl.when("kept").then(pl.when(pl.col("frame_id").is_null()).then(pl.lit("ungrounded")).otherwise(pl.lit("admitted")))
        .when(is_refused).then(pl.lit("refused"))
        .otherwise(pl.col("reason").cast(pl.String))
    )  # fmt: skip
    again = [name.removesuffix("_pooled") for name in frames.columns if name.endswith("_pooled")]
    frames = frames.with_columns(pl.coalesce(f"{name}_pooled", name).alias(name) for name in again)
    why = pl.when(is_refused).then(pl.col("reason").cast(pl.String)).otherwise("ungrounded")
    why = pl.coalesce(pl.format("{} ({})", why, "read_by"), "read_by", why)
    frames = frames.with_columns(
        run=pl.lit(run), query_id=query_ids(frames["row"], files), status=status, reason=why, nearness=pl.col("nearness").round(6)
    )
    return store.write("frames", part, frames.select(list(TABLES["frames"].columns)))
