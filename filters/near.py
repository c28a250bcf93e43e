"""Near duplicates: a row goes when a kept earlier row has a true Jaccard of at least 0.7 (byte 6-grams of the normalised text).

MinHash bands only propose pairs; every proposed pair is verified, and nothing is ever removed for a hash collision (with bands
alone 60 % of the distinct needs of 700,000 templated queries were lost). 21 bands of 6 rows propose a pair of Jaccard s with probability
1 - (1 - s^6)^21: .93 at 0.7, .998 at 0.8; pairs just at the threshold are few, and some that no band proposes are met through the row
that one of them duplicates. The first of its kind survives, so rows that come later never change what stays.

A row also stays when its numbers or its meaningful terms differ from the other's (`protect`, see `guards.py`). How many planted pairs are
found, and how many needs are left without a row, is measured on the sample's million queries by `benchmarks/spine.py` (`near_pair_recall`,
`needs_lost_share`).
What the definition cannot see: one typo in a short text (of one-edit English queries of 23 characters a quarter still reach 0.7).

Signatures are datasketch's, to the byte (`minhash.py`), and only their bands are kept; the step is a map over batches (band keys), a join
by band (candidates) and one pass in row order (verification).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters import minhash
from filters.compiled import U32, U64, text_buffer
from filters.guards import guards, joined
from filters.step import Executor

_ROWS_A_BATCH = 50_000


class NearConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(default=0.7, ge=0.5, le=1.0, description="Jaccard of byte 6-grams from which two texts are near duplicates.")
    bands: int = Field(default=21, ge=1, le=64, description="LSH bands; more find more pairs and cost more.")
    rows_a_band: int = Field(default=6, ge=1, le=16, description="Permutations a band; more propose fewer pairs.")
    seed: int = Field(default=1, ge=0, description="Seed of datasketch's permutations.")
    protect: tuple[Literal["digits", "terms"], ...] = Field(
        default=("digits", "terms"), description="What must agree besides: the numbers, the terms that the worlds declare for slot values."
    )


def band_keys(texts: pl.Series, config: NearConfig) -> U64:
    """A 64-bit key a band and row, [bands, rows]: rows with equal keys are in one bucket."""
    data, offsets = text_buffer(texts)
    a, b = minhash.permutations(config.bands * config.rows_a_band, config.seed)
    keys = np.empty((config.bands, len(texts)), np.uint64)
    minhash.fill_band_keys(data, offsets, a, b, keys)
    return keys


def candidates(keys: U64, digits: U32, kinds: U32) -> U64:
    """The pairs `later row << 32 | earlier row` of one band that are worth comparing, from its keys, each row's digits and its kind of
    terms (hashes; all [rows]). Rows of different digits are never in one bucket."""
    if keys.size < 2:
        return np.empty(0, np.uint64)
    row_bits = int(keys.size - 1).bit_length()
    ordered = keys ^ (digits * np.uint64(0x9E3779B97F4A7C15))
    ordered >>= np.uint64(row_bits)
    ordered <<= np.uint64(row_bits)
    ordered |= np.arange(keys.size, dtype=np.uint64)
    ordered.sort()
    pairs = np.empty(keys.size, np.uint64)
    count = minhash.bucket_pairs(ordered, row_bits, kinds, pairs)
    if count > pairs.size:
        pairs = np.empty(count, np.uint64)
        minhash.bucket_pairs(ordered, row_bits, kinds, pairs)
    return pairs[:count].copy()  # a view would keep all of it, in every band


def step(rows: pl.DataFrame, config: NearConfig, terms: Sequence[str] = (), *, executor: Executor | None = None) -> pl.DataFrame:
    """The joining step (columns row, norm; ascending by row): `near_duplicate` where a kept earlier row is alike, with that row and the
    true Jaccard. `terms` (normalised, distinct) are the words that carry meaning, see `guards.py`."""
    texts = rows["norm"].rechunk()
    size = len(texts)
    with ThreadPoolExecutor(1) as alone:
        run = executor or alone
        batches = [texts.slice(start, _ROWS_A_BATCH) for start in range(0, size, _ROWS_A_BATCH)] or [texts]
        keys, filled = np.empty((config.bands, size), np.uint64), 0
        for piece in run.map(partial(band_keys, config=config), batches):
            keys[:, filled : filled + piece.shape[1]] = piece
            filled += piece.shape[1]
        protected = tuple(terms) if "terms" in config.protect else ()
        guarded = joined(list(run.map(partial(guards, terms=protected, digits="digits" in config.protect), batches)))
        propose = partial(candidates, digits=guarded.digits, kinds=guarded.kinds())
        pairs = _distinct(np.concatenate(list(run.map(propose, keys))))
        del keys
    keeper, similarity = np.empty(size, np.uint32), np.zeros(size, np.float64)
    minhash.keep_first(
        *text_buffer(texts), pairs, guarded.digits, guarded.terms, guarded.offsets, guarded.term_bytes, config.threshold, keeper, similarity
    )
    is_dropped = pl.Series(keeper != np.arange(size))
    return rows.with_columns(
        reason=pl.when(is_dropped).then(pl.lit("near_duplicate")),
        duplicate_of=pl.when(is_dropped).then(rows["row"].gather(keeper)),
        similarity=pl.when(is_dropped).then(pl.Series(similarity)),
    )


def _distinct(pairs: U64) -> U64:
    """The pairs in order, each once."""
    pairs.sort()
    is_new: npt.NDArray[np.bool_] = np.ones(pairs.size, np.bool_)
    is_new[1:] = pairs[1:] != pairs[:-1]
    distinct: U64 = pairs[is_new]
    return distinct
