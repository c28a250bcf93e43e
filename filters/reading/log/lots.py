"""Lots of a log: rows that probably ask for the same in the same words, for millions of rows.

One idea: a log that is all about a user's own business has far more requests than can be read, and most are of a few intents. Each
intent's own wording is a vector of hashed words and pairs of words, weighted by how few requests have them (TF-IDF); the two intents with
the largest inner products with a text are its lot. Small talk and values hardly count, so requests in one wording share a lot, even where
its intents are not the right ones: enough to read evenly over lots, so that a rare request is read as often as a common one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from filters.frames.numba_types import F32, I32, I64, U8, compile_kernel, text_buffer
from filters.reading.log.student import BUCKETS, bucket_lists, write_buckets

_DIGITS = "[0-9]+"


class Lots:
    """The lots of some intents. requests: of each intent in its world's own wording, normalised."""

    def __init__(self, requests: Sequence[Sequence[str]]) -> None:
        texts = [text for each in requests for text in each]
        owners = np.repeat(np.arange(len(requests)), [len(each) for each in requests])
        buckets, ends = bucket_lists(*_buffer(pl.Series(texts, dtype=pl.String)))
        counts = csr_matrix((np.ones(len(buckets)), buckets.astype(np.int64), ends), shape=(len(texts), BUCKETS))
        having = np.asarray((counts > 0).sum(axis=0)).ravel()
        self._rarity = np.log((len(texts) + 1) / (having + 1)).astype(np.float32)
        of_texts = _unit_rows(counts.multiply(self._rarity[None, :]).tocsr())
        sums = csr_matrix((np.ones(len(texts)), (owners, np.arange(len(texts)))), shape=(len(requests), len(texts))) @ of_texts
        by_bucket = _unit_rows(sums).tocsc()
        self._starts, self._owners = by_bucket.indptr.astype(np.int64), by_bucket.indices.astype(np.int32)
        self._weights = by_bucket.data.astype(np.float32)
        self.number = len(requests)

    def of(self, texts: pl.Series) -> NDArray[np.int64]:
        """The lot of each normalised text, a number."""
        data, offsets = _buffer(texts)
        out = np.zeros(len(texts), np.int64)
        _assign(data, offsets, self._rarity, self._starts, self._owners, self._weights, np.zeros(self.number, np.float32), out)
        return out


def _buffer(texts: pl.Series) -> tuple[U8, I64]:
    """The texts, with all numbers the same."""
    return text_buffer(texts.str.replace_all(_DIGITS, "0"))


def _unit_rows(matrix: csr_matrix) -> csr_matrix:
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)))
    return matrix.multiply(1 / np.maximum(norms, 1e-9)).tocsr()


@compile_kernel
def _assign(data: U8, offsets: I64, rarity: F32, starts: I64, owners: I32, weights: F32, scores: F32, out: I64) -> None:
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    buckets = np.zeros(2 * longest + 2, np.uint32)
    for row in range(offsets.size - 1):
        scores[:] = 0
        count = write_buckets(data, offsets[row], offsets[row + 1], buckets, 0)
        for number in range(count):
            bucket = buckets[number]
            for place in range(starts[bucket], starts[bucket + 1]):
                scores[owners[place]] += weights[place] * rarity[bucket]
        best = np.argmax(scores)
        scores[best] = -1
        out[row] = best * scores.size + np.argmax(scores)
