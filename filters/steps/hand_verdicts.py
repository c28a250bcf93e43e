"""What a person said by hand: drops the rows that a person dropped, and gives rows the frames that a person gave them.

The step stands behind those that read, so that a frame may be dropped or replaced too. The runs of a store in which nothing was said of
their rows do not have it (`with_hand`). A person's label counts whatever was read; whether a world can execute it, admission decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from filters.by_hand.run_decisions import NOTHING_BY_HAND, HandDecisions, row_numbers
from filters.grounding.ground_model import READINGS, frame_columns
from filters.ingest import Source
from filters.step import BatchStep, Step, pardon
from filters.steps.reading.read_requests import FRAME
from storage.records import Frame

NAME = "by_hand"
READ_BY = "read by hand"


@dataclass(frozen=True)
class RowsByHand:
    """What was said, by the numbers of rows.

    dropped: rows (UInt32). dropped_frames: ids of frames.
    labels: row, and the columns of the frame that it gets. frame_labels: the frame that was read as `read`, and the columns of the frame in
        its place.
    """

    dropped: pl.Series
    dropped_frames: pl.Series
    labels: pl.DataFrame
    frame_labels: pl.DataFrame

    @classmethod
    def of(cls, said: HandDecisions, files: Sequence[Source]) -> RowsByHand:
        numbered = {row: frame for id, frame in said.labels.items() for row in row_numbers([id], files)}
        return cls(
            row_numbers(said.dropped, files),
            pl.Series(sorted(said.dropped_frames), dtype=pl.String),
            _table("row", pl.UInt32, numbered),
            _table("read", pl.String, said.frame_labels),
        )


def step(rows: pl.DataFrame, _: HandDecisions, by_row: RowsByHand) -> pl.DataFrame:
    """The batch step (columns row, and those of a frame): replaces frames. Reasons: `dropped_by_hand`, `frame_dropped_by_hand`."""
    joined = rows.join(by_row.labels, on="row", how="left", maintain_order="left", suffix="_of_row")
    joined = joined.join(by_row.frame_labels, left_on="frame_id", right_on="read", how="left", maintain_order="left", suffix="_of_frame")
    of_row, of_frame = pl.col("frame_id_of_row").is_not_null(), pl.col("frame_id_of_frame").is_not_null()
    reason = (
        pl.when(pl.col("row").is_in(by_row.dropped.implode())).then(pl.lit("dropped_by_hand"))
        .when(pl.col("frame_id").is_in(by_row.dropped_frames.implode()) & ~of_row).then(pl.lit("frame_dropped_by_hand"))
    )  # fmt: skip
    frames = [pl.when(of_row).then(f"{name}_of_row").when(of_frame).then(f"{name}_of_frame").otherwise(name).alias(name) for name in FRAME]
    return rows.with_columns(joined.select(*frames, reason=reason))


def with_hand(steps: Sequence[Step], said: HandDecisions, files: Sequence[Source]) -> list[Step]:
    """The steps of a run of these files: those that drop for taste or want of room leave what a person keeps, those that read leave what a
    person labels. Without this step, where nothing was said."""
    if not said.made_by:
        return [one for one in steps if one.name != NAME]
    kept, labelled = row_numbers(said.kept, files), row_numbers(said.labels, files)
    by_row = RowsByHand.of(said, files)
    return [
        replace(one, function=partial(step, by_row=by_row))
        if isinstance(one, BatchStep) and one.name == NAME
        else pardon(pardon(one, one.soft, kept), one.unread, labelled)
        for one in steps
    ]


def _table(key: str, dtype: type[pl.DataType], labels: Mapping[object, Frame] | Mapping[str, Frame]) -> pl.DataFrame:
    rows = [{key: at, **frame_columns(frame, 0), "ungrounded": None, "read_by": READ_BY} for at, frame in labels.items()]
    types = {name: READINGS.get(name, pl.String) for name in FRAME}
    return pl.DataFrame(rows, schema={key: dtype, **types})


_NOBODY = RowsByHand.of(NOTHING_BY_HAND, ())
STEP = BatchStep(
    name=NAME,
    needs=FRAME,
    adds=FRAME,
    reasons=("dropped_by_hand", "frame_dropped_by_hand"),
    load=lambda setup: setup.hand,
    made_by=lambda said: said.made_by,
    function=partial(step, by_row=_NOBODY),
)
