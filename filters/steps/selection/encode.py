"""Vectors of the texts in the pool, for the steps after it: `vector`, a unit row of Float32 for each. Nothing is dropped.

The executor encodes chunks of texts and writes their vectors to the workspace, so a restarted run encodes no chunk twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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
    vectors = encode_texts(rows["norm"].to_list(), config, context)
    return rows.with_columns(pl.Series("vector", vectors, pl.Array(pl.Float32, vectors.shape[1])), reason=pl.lit(None, pl.String))


def encode_texts(texts: Sequence[str], config: EncoderConfig, context: Context, name: str = "vectors") -> Vectors:
    """The vectors of texts [n, d] by the run's executor; chunks lie in the workspace as `<name>-<number of the first>`."""
    chunks = [(start, list(texts[start : start + _AT_ONCE])) for start in range(0, len(texts), _AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads, threadpool_limits(1, "blas"):
        executor = threads if config.server else None  # the server's key is in no other process's environment
        context.each("encode", partial(_encode, work=context.work, config=config, name=name), chunks, executor=executor)
    pieces = [context.work.array(f"{name}-{start}") for start, _ in chunks]
    return np.concatenate(pieces) if pieces else np.empty((0, 1), np.float32)


def _encode(chunk: tuple[int, list[str]], work: Workspace, config: EncoderConfig, name: str) -> None:
    """Writes the vectors of texts as `<name>-<number of the first>`."""
    start, texts = chunk
    if not work.has_array(f"{name}-{start}"):
        work.write_array(f"{name}-{start}", encoder(config)(texts))


STEP = WholeStep(
    name="encode",
    needs=("norm",),
    adds=("vector",),
    config=EncoderConfig,
    made_by=lambda config: (identity(config),),
    function=step,
    is_counted=False,
)
