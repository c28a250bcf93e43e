"""Near duplicates: a row goes when a kept earlier row has a true Jaccard of at least 0.7 (byte 6-grams of the normalised text).

MinHash bands only propose pairs; every proposed pair is verified, and nothing is ever removed for a hash collision (with bands
alone 60 % of the distinct needs of 700,000 templated queries were lost). 21 bands of 6 rows propose a pair of Jaccard s with probability
1 - (1 - s^6)^21: .93 at 0.7, .998 at 0.8; pairs just at the threshold are few, and some that no band proposes are met through the row
that one of them duplicates. The first of its kind survives, so rows that come later never change what stays.

A row also stays when its numbers or its terms differ from the other's (`protect`, see `guards.py`). `benchmarks/spine.py` measures on the
sample's million queries how many planted pairs are found, and how many needs lose all their rows (`near_pair_recall`, `needs_lost_share`).
Limit: one typo in a short text (of one-edit English queries of 23 characters a quarter still reach 0.7).

Signatures equal datasketch's byte for byte (`minhash.py`); only their bands are stored. `sketch` works on a batch, `join` on a band over
all batches, and `decide` is one pass in row order. `step` runs the three in memory; the funnel stores the results between them on disk. A
later run continues from the index (`dedup_index.py`): later rows never change the verdicts on earlier ones, so curating logs one after the
other keeps the same rows as one large log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters import normalised_text
from filters.dedup import minhash
from filters.dedup.guards import Guards, guards, join_guards
from filters.frames.numba_types import F32, I64, U8, U32, U64, text_buffer
from storage.execution import Executor
from storage.records import content_id

VERSION = 1
"""Version of `sketch` and `join`; raise it when an older index no longer fits."""
_ROWS_A_BATCH = 50_000
_MERGED_PAIRS = 1 << 24
"""Smallest number of new pairs that are merged at a time."""


class NearConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    threshold: float = Field(
        default=0.7, ge=0.5, le=1.0, description="Jaccard similarity of byte 6-grams from which two texts are near duplicates."
    )
    bands: int = Field(default=21, ge=1, le=64, description="Bands of the LSH; more bands find more pairs and cost more time.")
    rows_a_band: int = Field(default=6, ge=1, le=16, description="Permutations of a band; more permutations propose fewer pairs.")
    seed: int = Field(default=1, ge=0, description="Seed of the permutations.")
    protect: tuple[Literal["digits", "terms"], ...] = Field(
        default=("digits", "terms"),
        description="What near duplicates must have in common, too: their digits, and the terms that worlds declare for slot values.",
    )
    rule: Literal["keep_first", "components"] = Field(
        default="keep_first",
        description="keep_first drops rows similar to an earlier kept row; components, all but the first of rows that similarity connects.",
    )
    max_component: int = Field(
        default=50, ge=2, description="Most rows of a component in one run; similarity that would connect more rows is ignored."
    )


@dataclass(frozen=True, slots=True)
class Sketch:
    """keys: bucket of each row in each band [bands, rows]; rows with different digits share no bucket. guards: of the same rows."""

    keys: U32
    guards: Guards


@dataclass(frozen=True, slots=True)
class BandPairs:
    """The result of one band.

    pairs: proposed pairs, `later row << 32 | earlier row`, sorted.
    firsts: `key << 32 | row` of the rows that represent their buckets, sorted; later rows are joined with these.
    """

    pairs: U64
    firsts: U64


def recipe(config: NearConfig, terms: Sequence[str]) -> str:
    """The id of the settings that must be equal for rows of two runs to be comparable: how they are normalised and sketched.
    The threshold and the rule may differ from run to run."""
    sketched = config.model_dump(mode="json", include={"bands", "rows_a_band", "seed", "protect"})
    return content_id("recipe", normalised_text.VERSION, VERSION, sketched, list(terms))


def sketch(texts: pl.Series, config: NearConfig, terms: Sequence[str] = ()) -> Sketch:
    """The batch part. texts: normalised, no nulls; `terms` (normalised, distinct) carry meaning, see `guards.py`."""
    guarded = guards(texts, tuple(terms) if "terms" in config.protect else (), digits="digits" in config.protect)
    data, offsets = text_buffer(texts)
    a, b = minhash.permutations(config.bands * config.rows_a_band, config.seed)
    keys = np.empty((config.bands, len(texts)), np.uint32)
    minhash.fill_band_keys(data, offsets, a, b, guarded.digits, keys)
    return Sketch(keys, guarded)


def join(keys: Sequence[U32], rows: Sequence[U32], kinds: U32, before: U64 | None = None) -> BandPairs:
    """The part of one band, over all rows.

    Args:
        keys, rows: this band's keys and the rows' numbers, ascending, batch after batch.
        kinds: each row's kind of terms (a hash), by its number.
        before: the `firsts` of rows that were joined before, whose numbers are smaller.
    """
    size, earlier_size = sum(map(len, rows)), 0 if before is None else before.size
    if not size:
        return BandPairs(np.empty(0, np.uint64), np.empty(0, np.uint64))
    ordered = np.empty(earlier_size + size, np.uint64)
    if before is not None:
        ordered[:earlier_size] = before
    filled = earlier_size
    for key, row in zip(keys, rows, strict=True):
        ordered[filled : filled + len(row)] = key
        ordered[filled : filled + len(row)] <<= np.uint64(32)
        ordered[filled : filled + len(row)] |= row
        filled += len(row)
    ordered.sort()
    old = int(next(row[0] for row in rows if len(row)))
    pairs, firsts = np.empty(size, np.uint64), np.empty(size, np.uint64)
    count, reported = minhash.bucket_pairs(ordered, kinds, old, pairs, firsts)
    if count > pairs.size:
        pairs = np.empty(count, np.uint64)
        minhash.bucket_pairs(ordered, kinds, old, pairs, firsts)
    band_pairs = pairs[:count].copy()  # a view would keep all of it, in every band
    band_pairs.sort()
    return BandPairs(band_pairs, firsts[:reported].copy())


def decide(data: U8, offsets: I64, guarded: Guards, pairs: U64, config: NearConfig, keeper: U32) -> F32:
    """The pass in row order: fills `keeper` and returns the similarity, as `minhash.keep_first` or `join_components` says.

    pairs: of all bands (`distinct`).
    """
    similarity = np.zeros(keeper.size, np.float32)
    rows = (data, offsets, pairs, guarded.digits, guarded.terms, guarded.offsets, guarded.term_bytes, config.threshold)
    if config.rule == "keep_first":
        minhash.keep_first(*rows, keeper, similarity)
    else:
        minhash.join_components(*rows, config.max_component, keeper, similarity)
    return similarity


def distinct(bands: Iterable[U64]) -> U64:
    """The pairs of all bands, sorted, each once. Bands are merged one after the other, so memory holds each pair once."""
    merged, waiting, size = np.empty(0, np.uint64), list[U64](), 0
    for pairs in bands:
        waiting.append(pairs)
        size += pairs.size
        if size > max(merged.size, _MERGED_PAIRS):
            merged, waiting, size = _merge([merged, *waiting]), [], 0
    return _merge([merged, *waiting])


def _merge(pairs: Sequence[U64]) -> U64:
    ordered = np.concatenate(pairs)
    ordered.sort()
    is_new: npt.NDArray[np.bool_] = np.ones(ordered.size, np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def step(rows: pl.DataFrame, config: NearConfig, terms: Sequence[str] = (), *, executor: Executor | None = None) -> pl.DataFrame:
    """The joining step in memory (columns row, norm; ascending by row): `near_duplicate` where a kept earlier row is similar, with that row
    and the true Jaccard. `terms`: see `sketch`."""
    texts = rows["norm"].rechunk()
    size = len(texts)
    with ThreadPoolExecutor(1) as alone:
        run = executor or alone
        batches = [texts.slice(start, _ROWS_A_BATCH) for start in range(0, size, _ROWS_A_BATCH)] or [texts]
        sketches = list(run.map(partial(sketch, config=config, terms=tuple(terms)), batches))
        guarded = join_guards([one.guards for one in sketches])
        bands = [[one.keys[band] for one in sketches] for band in range(config.bands)]
        numbers = np.split(np.arange(size, dtype=np.uint32), np.cumsum([one.keys.shape[1] for one in sketches])[:-1])
        del sketches
        pairs = distinct(band_join.pairs for band_join in run.map(partial(join, rows=numbers, kinds=guarded.kinds()), bands))
        del bands
    keeper = np.arange(size, dtype=np.uint32)
    similarity = decide(*text_buffer(texts), guarded, pairs, config, keeper)
    is_dropped = pl.Series(keeper != np.arange(size))
    return rows.with_columns(
        reason=pl.when(is_dropped).then(pl.lit("near_duplicate")),
        duplicate_of=pl.when(is_dropped).then(rows["row"].gather(keeper)),
        similarity=pl.when(is_dropped).then(pl.Series(similarity).cast(pl.Float64).round(6)),
    )
