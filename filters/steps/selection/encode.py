"""Vectors of the texts in the pool, for the steps after it: `vector`, a unit row of Float32 for each. Nothing is dropped.

The executor encodes chunks of texts and writes their vectors to the workspace, so a restarted run encodes no chunk twice.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from filters.frames.workspace import Workspace
from filters.step import Context, WholeStep
from synth.engines.encoder import EncoderConfig, Vectors, encoder, identity

_AT_ONCE = 2048


def vectors_of(rows: pl.DataFrame) -> Vectors:
    """The column `vector` [n, d]."""
    vectors: Vectors = rows["vector"].to_numpy()
    return vectors


def step(rows: pl.DataFrame, config: EncoderConfig, context: Context) -> pl.DataFrame:
    texts = rows["norm"].to_list()
    chunks = [(start, texts[start : start + _AT_ONCE]) for start in range(0, len(texts), _AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads, threadpool_limits(1, "blas"):
        executor = threads if config.server else None  # the server's key is in no other process's environment
        context.each("encode", partial(_encode, work=context.work, config=config), chunks, executor=executor)
    pieces = [context.work.array(f"vectors-{start}") for start, _ in chunks]
    vectors = np.concatenate(pieces) if pieces else np.empty((0, 1), np.float32)
    return rows.with_columns(pl.Series("vector", vectors, pl.Array(pl.Float32, vectors.shape[1])), reason=pl.lit(None, pl.String))


def _encode(chunk: tuple[int, list[str]], work: Workspace, config: EncoderConfig) -> None:
    """Writes the vectors of texts as `vectors-<number of the first>`."""
    start, texts = chunk
    if not work.has_array(f"vectors-{start}"):
        work.write_array(f"vectors-{start}", encoder(config)(texts))


STEP = WholeStep(
    name="encode",
    needs=("norm",),
    adds=("vector",),
    config=EncoderConfig,
    made_by=lambda config: (identity(config),),
    function=step,
    is_counted=False,
)
