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
from filters.compiled import U32, Mask
from filters.ingest import Source
from filters.step import alive
from filters.workspace import Workspace
from storage.store import Part, Store

Steps = Mapping[str, Callable[[pl.DataFrame], pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Successive rows of one file. first_row counts within the run."""

    name: str
    source: Source
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
    hashes = pl.Series([file.content_hash[:8] for file in files]).gather(of_file)
    frame = pl.DataFrame({"hash": hashes, "row": known - firsts[of_file], "is_known": rows.is_not_null()})
    text = pl.format("q-{}-{}", "hash", pl.col("row").cast(pl.String).str.zfill(8))
    return frame.select(pl.when("is_known").then(text)).to_series()


def normalise_batch(batch: Batch, texts: pl.Series | None, work: Workspace) -> None:
    """Writes `read-<batch>`: row, text and norm (masked), language, key, text_bytes, reason."""
    if texts is None:
        return
    numbers = np.arange(batch.first_row, batch.first_row + batch.rows, dtype=np.uint32)
    rows = normalise.step(pl.DataFrame({"row": numbers, "text": texts}))
    work.write(f"read-{batch.name}", rows.with_columns(text_bytes=pl.col("norm").str.len_bytes().fill_null(0)))


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
        dropped.append(rows.filter(pl.col("reason").is_not_null()).select("row", "reason", step=pl.lit(step_name)))
        rows = alive(rows)
    work.write(f"{name}-dropped", pl.concat(dropped))
    work.write(name, rows)
    return seconds


def write_batch(
    batch: Batch,
    occurrences: U32,
    verdicts: pl.DataFrame,
    store: Store,
    work: Workspace,
    run: str,
    files: Sequence[Source],
    parts: Mapping[str, str],
) -> list[Part]:
    """The parts of `queries` and `verdicts` with this batch's rows."""
    ids = query_ids(verdicts["row"], files)
    counted = pl.Series(occurrences)
    queries = work.read(f"read-{batch.name}", ["row", "text", "language"]).select(
        query_id=ids,
        run=pl.lit(run),
        source=pl.lit(batch.source.path.name),
        row=pl.col("row").cast(pl.Int64) - batch.source.first_row,
        text="text",
        language="language",
        occurrences=pl.when(counted > 0).then(counted).cast(pl.Int64),
    )
    told = verdicts.drop("row").with_columns(query_id=ids, run=pl.lit(run), duplicate_of=query_ids(verdicts["duplicate_of"], files))
    return [
        store.write("queries", parts[f"queries-{batch.name}"], queries),
        store.write("verdicts", parts[f"verdicts-{batch.name}"], told),
    ]
