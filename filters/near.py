"""Near duplicates: a row goes when a kept earlier row has a true Jaccard of at least 0.7 (byte 6-grams of the normalised text).

MinHash bands only propose pairs; every proposed pair is verified, and nothing is ever removed for a hash collision (with bands
alone 60 % of the distinct needs of 700,000 templated queries were lost). 21 bands of 6 rows find a pair of Jaccard s with probability
1 - (1 - s^6)^21: .93 at 0.7, .999 at 0.8; pairs just at the threshold are few, and most of those not proposed by a band's first row are
met through the row that it duplicates. The survivor is the first of its kind, so an incremental run equals one big one.

A row is also kept when its numbers differ from the other's (`protect`): "a table for 2" is not "a table for 3", `o17` not `o71`.
What the definition cannot see: one typo in a short text (of one-edit English queries of 23 characters a quarter still reach 0.7).
Signatures are datasketch's (`minhash.py`); the step is a map over batches (band keys), a join by band (candidates) and one pass
in row order (verification).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import polars as pl
from polars import CompatLevel
from pydantic import BaseModel, ConfigDict, Field

from filters import minhash
from filters.step import Executor

VERSION = 1
_ROWS_A_BATCH = 50_000


class NearConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(default=0.7, ge=0.5, le=1.0, description="Jaccard of byte 6-grams from which two texts are near duplicates.")
    bands: int = Field(default=21, ge=1, le=64, description="LSH bands; more find more pairs and cost more.")
    rows_a_band: int = Field(default=6, ge=1, le=16, description="Permutations a band; more propose fewer pairs.")
    seed: int = Field(default=1, ge=0, description="Seed of datasketch's permutations.")
    protect: Literal["digits", "nothing"] = Field(default="digits", description="What must agree besides: the numbers, or nothing.")


def text_buffer(texts: pl.Series) -> tuple[minhash.U8, minhash.I64]:
    """All texts (no nulls) as one array of UTF-8 bytes, and the offsets [rows + 1] at which each begins."""
    array = texts.rechunk().to_arrow(compat_level=CompatLevel.oldest())
    _, offsets, data = array.buffers()
    begin = array.offset
    return (
        np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8),
        np.frombuffer(offsets, np.int64)[begin : begin + len(array) + 1] if offsets is not None else np.zeros(1, np.int64),
    )


def signatures(texts: pl.Series, config: NearConfig) -> minhash.U32:
    """MinHash signatures [rows, bands * rows_a_band], byte-equal to datasketch's `affine32` over the same shingles."""
    data, offsets = text_buffer(texts)
    a, b = minhash.permutations(config.bands * config.rows_a_band, config.seed)
    out = np.empty((len(texts), a.size), np.uint32)
    minhash.fill_signatures(data, offsets, a, b, out)
    return out


def band_keys(texts: pl.Series, config: NearConfig) -> minhash.U64:
    """A 64-bit key a band and row, [bands, rows]: rows with equal keys are in one bucket."""
    data, offsets = text_buffer(texts)
    a, b = minhash.permutations(config.bands * config.rows_a_band, config.seed)
    keys = np.empty((config.bands, len(texts)), np.uint64)
    minhash.fill_band_keys(data, offsets, a, b, keys)
    return keys


def candidates(keys: minhash.U64) -> minhash.U64:
    """The pairs `later row << 32 | first row` of one band's buckets, from its keys [rows]."""
    if keys.size < 2:
        return np.empty(0, np.uint64)
    row_bits = max(1, int(keys.size - 1).bit_length())
    ordered = (keys >> np.uint64(row_bits) << np.uint64(row_bits)) | np.arange(keys.size, dtype=np.uint64)
    ordered.sort()
    pairs = np.empty(keys.size, np.uint64)
    return pairs[: minhash.star_pairs(ordered, row_bits, pairs)]


def digit_guards(texts: pl.Series) -> minhash.U32:
    """A hash of the digit runs of each text, in order: rows of different guards are no duplicates."""
    data, offsets = text_buffer(texts)
    guards = np.empty(len(texts), np.uint32)
    minhash.fill_digit_guards(data, offsets, guards)
    return guards


def step(rows: pl.DataFrame, config: NearConfig, *, executor: Executor | None = None) -> pl.DataFrame:
    """The joining step (columns row, norm): `near_duplicate` where a kept earlier row is alike, with that row and the true Jaccard."""
    texts = rows["norm"].rechunk()
    with ThreadPoolExecutor(1) as alone:
        run = executor or alone
        batches = [texts.slice(start, _ROWS_A_BATCH) for start in range(0, len(texts), _ROWS_A_BATCH)] or [texts]
        keys = np.concatenate(list(run.map(band_keys, batches, [config] * len(batches))), axis=1)
        pairs = np.unique(np.concatenate(list(run.map(candidates, keys))))
    del keys
    guards = digit_guards(texts) if config.protect == "digits" else np.zeros(len(texts), np.uint32)
    keeper, similarity = np.empty(len(texts), np.uint32), np.zeros(len(texts), np.float64)
    data, offsets = text_buffer(texts)
    minhash.keep_first(data, offsets, pairs, guards, config.threshold, keeper, similarity)
    is_dropped = pl.Series(keeper != np.arange(len(texts)))
    return rows.with_columns(
        reason=pl.when(is_dropped).then(pl.lit("near_duplicate")),
        duplicate_of=pl.when(is_dropped).then(rows["row"].gather(keeper)),
        similarity=pl.when(is_dropped).then(pl.Series(similarity)),
    )
