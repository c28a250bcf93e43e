"""Batches: successive rows of a file, and the frames that the workspace has of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from filters.frames.numba_types import Mask
from filters.frames.workspace import Workspace
from filters.ingest import ID_DIGITS, Piece, Source

Sources = Mapping[str, Sequence[str]]
"""Name of a pass -> columns that are read from its frames."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Successive rows of one file. file_row: its first row's number in the file; first_row: among all rows."""

    name: str
    file: str
    file_row: int
    first_row: int
    rows: int

    @property
    def numbers(self) -> slice:
        return slice(self.first_row, self.first_row + self.rows)


def query_ids(rows: pl.Series, files: Sequence[Source]) -> pl.Series:
    """The query ids of rows of a run (UInt32, null stays null): the file's hash and the row within it."""
    firsts = np.array([file.first_row for file in files], np.int64)
    row_numbers = rows.fill_null(0).to_numpy().astype(np.int64)
    of_file = np.searchsorted(firsts, row_numbers, side="right") - 1
    hashes = pl.Series([file.content_hash[:ID_DIGITS] for file in files]).gather(of_file)
    frame = pl.DataFrame({"hash": hashes, "row": row_numbers - firsts[of_file], "is_known": rows.is_not_null()})
    text = pl.format("q-{}-{}", "hash", pl.col("row").cast(pl.String).str.zfill(8))
    return frame.select(pl.when("is_known").then(text)).to_series()


def batches_of(files: Sequence[Source]) -> list[tuple[Piece, list[Batch]]]:
    """The pieces of all files, with the batches of each."""
    cut = []
    for number, file in enumerate(files):
        row, count = file.first_row, 0
        for piece in file.pieces:
            batches = []
            for rows in piece.batches:
                batches.append(Batch(f"{number:02d}-{count:05d}", file.name, row - file.first_row, row, rows))
                row, count = row + rows, count + 1
            cut.append((piece, batches))
    return cut


def read_alive(batch: Batch, is_alive: Mask, work: Workspace, sources: Sources) -> pl.DataFrame:
    """row and these columns of a batch's rows that are alive, ascending by row."""
    pieces: list[pl.DataFrame] = []
    for name, columns in sources.items():
        rows = work.read(f"{name}-{batch.name}", ["row", *columns])
        rows = rows.filter(is_alive[rows["row"].to_numpy() - batch.first_row])
        pieces.append(rows.drop("row") if pieces else rows)
    return pl.concat(pieces, how="horizontal")
