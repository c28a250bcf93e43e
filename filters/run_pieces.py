"""The work on one batch of rows or one range of keys; it reads and writes frames and arrays of the workspace.

Every function here handles one piece, and can run on any thread, process or machine that has the store's folder. If its frame exists, it
does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from filters.frames.batches import Batch, Sources, read_alive
from filters.frames.hash_join import first_of_key, write_keys
from filters.frames.numba_types import Mask
from filters.frames.workspace import Workspace
from filters.ingest import Piece, read_piece
from filters.step import BandStep, BatchStep, KeyStep, alive, apply

Calls = Sequence[tuple[BatchStep, tuple[Any, ...]]]
"""The steps of a pass, each with the arguments of its function after the rows."""


def read_batches(cut: tuple[Piece, Sequence[Batch]], work: Workspace, pass_name: str, calls: Calls) -> dict[str, float]:
    """Reads the batches of a piece and sends them through the first steps.

    Writes `<pass>-<batch>` with every row, dropped or not: the columns that the steps added, text_bytes (of norm), reason and dropped_by
    (step). Returns each step's seconds; reading counts for the first step.
    """
    piece, batches = cut
    if all(work.has(f"{pass_name}-{batch.name}") for batch in batches):
        return {}
    texts, seconds = read_piece(piece), {step.name: 0.0 for step, _ in calls}
    since, first = time.perf_counter(), calls[0][0].name
    for batch in batches:
        rows = pl.DataFrame({"row": np.arange(batch.first_row, batch.first_row + batch.rows, dtype=np.uint32), "text": next(texts)})
        seconds[first] += time.perf_counter() - since
        no_text = pl.lit(None, pl.String)
        rows = rows.with_columns(dropped_for=no_text, dropped_by=no_text)
        for step, arguments in calls:
            since = time.perf_counter()
            rows = apply(step, rows, arguments)
            is_new = pl.col("dropped_for").is_null() & pl.col("reason").is_not_null()
            rows = rows.with_columns(
                dropped_for=pl.coalesce("dropped_for", "reason"), dropped_by=pl.when(is_new).then(pl.lit(step.name)).otherwise("dropped_by")
            ).drop("reason")
            seconds[step.name] += time.perf_counter() - since
        since = time.perf_counter()
        rows = rows.rename({"dropped_for": "reason"}).with_columns(text_bytes=pl.col("norm").str.len_bytes().fill_null(0))
        work.write(f"{pass_name}-{batch.name}", rows)
        seconds[calls[-1][0].name] += time.perf_counter() - since
        since = time.perf_counter()
    return seconds


def pass_batch(
    batch: Batch, is_alive: Mask, work: Workspace, pass_name: str, sources: Sources, calls: Calls, keeps: Sequence[str]
) -> dict[str, float]:
    """Sends the remaining rows of a batch through steps.

    Writes the columns `keeps` of the kept rows as `<pass>-<batch>`, and the dropped rows with reason and step as `<pass>-<batch>-dropped`.
    Returns each step's seconds.
    """
    name = f"{pass_name}-{batch.name}"
    if work.has(name):
        return {}
    rows = read_alive(batch, is_alive, work, sources)
    dropped, seconds, explains = [], {}, list[str]()
    for step, arguments in calls:
        since = time.perf_counter()
        rows = apply(step, rows, arguments)
        explains += step.explains
        dropped.append(rows.filter(pl.col("reason").is_not_null()).select("row", "reason", *explains, dropped_by=pl.lit(step.name)))
        rows = alive(rows)
        seconds[step.name] = time.perf_counter() - since
    work.write(f"{name}-dropped", pl.concat(dropped, how="diagonal"))
    work.write(name, rows.select("row", *keeps))
    return seconds


def key_batch(batch: Batch, is_alive: Mask, work: Workspace, sources: Sources, step: KeyStep) -> None:
    """Writes the keys of a batch's remaining rows as `<step>-keys-<batch>`."""
    name = f"{step.name}-keys-{batch.name}"
    if not work.has_array(name):
        write_keys(work, name, step.keys(read_alive(batch, is_alive, work, sources)))


def join_keys(partition: int, partitions: int, names: Sequence[str], work: Workspace, step: str) -> None:
    """Writes the result of `first_of_key` for a range of keys as `<step>-<partition>`."""
    work.once(f"{step}-{partition}", lambda: first_of_key(partition, partitions, names, work))


def sketch_batch(batch: Batch, is_alive: Mask, work: Workspace, sources: Sources, step: BandStep, inputs: object) -> None:
    """Writes the arrays of a batch's sketch as `<step>-<name>-<batch>`, and last its row numbers as `<step>-rows-<batch>`."""
    if work.has_array(f"{step.name}-rows-{batch.name}"):
        return
    rows = read_alive(batch, is_alive, work, sources)
    for name, array in step.sketch(rows, inputs).items():
        work.write_array(f"{step.name}-{name}-{batch.name}", array)
    work.write_array(f"{step.name}-rows-{batch.name}", rows["row"].to_numpy())
