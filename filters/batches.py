"""What happens to one batch of rows on its way through the funnel: frames in the workspace in, frames in the workspace out.

Every function here looks at one batch alone, knows nothing of the others, and can run on any thread, process or machine that sees
the store's folder; called again after a kill it finds its frame there, or makes the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from filters import normalise
from filters.hash_join import write_keys
from filters.ingest import ID_DIGITS, Piece, Source, read_piece
from filters.numba_types import Mask
from filters.step import alive
from filters.workspace import Workspace
from synth.engines.encoder import EncoderConfig, encoder

Steps = Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]]


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
    known = rows.fill_null(0).to_numpy().astype(np.int64)
    of_file = np.searchsorted(firsts, known, side="right") - 1
    hashes = pl.Series([file.content_hash[:ID_DIGITS] for file in files]).gather(of_file)
    frame = pl.DataFrame({"hash": hashes, "row": known - firsts[of_file], "is_known": rows.is_not_null()})
    text = pl.format("q-{}-{}", "hash", pl.col("row").cast(pl.String).str.zfill(8))
    return frame.select(pl.when("is_known").then(text)).to_series()


def batches_of(files: Sequence[Source]) -> list[tuple[Piece, list[Batch]]]:
    """The pieces of all files, with the batches of each."""
    cut = []
    for number, file in enumerate(files):
        row, count = file.first_row, 0
        for piece in file.pieces:
            own = []
            for rows in piece.batches:
                own.append(Batch(f"{number:02d}-{count:05d}", file.name, row - file.first_row, row, rows))
                row, count = row + rows, count + 1
            cut.append((piece, own))
    return cut


def read_batches(cut: tuple[Piece, Sequence[Batch]], work: Workspace) -> tuple[float, float]:
    """Reads and normalises the batches of a piece: `read-<batch>` gets row, text and norm (masked), language, key_high, key_low,
    text_bytes, reason, and `read-keys-<batch>` the keys. Returns the seconds that reading took, and all else."""
    piece, batches = cut
    if all(work.has(f"read-{batch.name}") for batch in batches):
        return 0.0, 0.0
    texts, reading_s, started = read_piece(piece), 0.0, time.perf_counter()
    for batch in batches:
        since = time.perf_counter()
        column = next(texts)
        reading_s += time.perf_counter() - since
        numbers = np.arange(batch.first_row, batch.first_row + batch.rows, dtype=np.uint32)
        rows = normalise.step(pl.DataFrame({"row": numbers, "text": column}))
        write_keys(work, f"read-keys-{batch.name}", rows.select("row", "key_high", "key_low").drop_nulls())
        work.write(f"read-{batch.name}", rows.with_columns(text_bytes=pl.col("norm").str.len_bytes().fill_null(0)))
    return reading_s, time.perf_counter() - started - reading_s


def pass_batch(
    batch: Batch, is_alive: Mask, work: Workspace, pass_name: str, source: str, columns: list[str] | None, steps: Steps
) -> dict[str, float]:
    """Sends a batch's living rows through steps: writes what is left, and what was dropped by which; returns each step's seconds."""
    name = f"{pass_name}-{batch.name}"
    if work.has(name):
        return {}
    rows = work.read(f"{source}-{batch.name}", columns)
    rows = rows.filter(is_alive[rows["row"].to_numpy() - batch.first_row])
    dropped, seconds = [], {}
    for step_name, step in steps.items():
        since = time.perf_counter()
        rows = step(rows)
        seconds[step_name] = time.perf_counter() - since
        rated = ["quality"] if "quality" in rows.columns else []
        dropped.append(rows.filter(pl.col("reason").is_not_null()).select("row", "reason", *rated, step=pl.lit(step_name)))
        rows = alive(rows)
    work.write(f"{name}-dropped", pl.concat(dropped, how="diagonal"))
    work.write(name, rows)
    return seconds


def encode_texts(chunk: tuple[int, list[str]], work: Workspace, config: EncoderConfig) -> None:
    """Keeps the vectors of texts as `vectors-<number of the first>`."""
    start, texts = chunk
    if not work.has_array(f"vectors-{start}"):
        work.write_array(f"vectors-{start}", encoder(config)(texts))
