"""A linear student of a slow score: taught on a sample of a log, it scores all of the log.

One idea: whether a text asks for something that a world can do is a sum over its words, nearly; so a ridge regression on hashed words and
pairs of words, taught a slow score on a few thousand texts of the same log, ranks millions. It says nothing about texts unlike those.
`make bench ground` says how fast it is, and what it loses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr

from filters.frames.numba_types import F32, I64, U8, U32, compile_kernel, text_buffer

BUCKETS = 1 << 16
"""Hashed words and pairs of words."""
_DECAY = 3.0
_STEPS = 60


@dataclass(frozen=True, eq=False)
class Student:
    """Weights of the buckets, and the score of a text without words."""

    weights: F32
    base: float

    def scores(self, texts: pl.Series) -> F32:
        """The scores of normalised texts, no nulls."""
        data, offsets = text_buffer(texts)
        out = np.zeros(len(texts), np.float32)
        _score(data, offsets, self.weights, np.float32(self.base), out)
        return out


def teach(texts: pl.Series, scores: NDArray[np.float32]) -> Student:
    """A student of these scores. texts: normalised, no nulls; a few thousand."""
    buckets, ends = bucket_lists(*text_buffer(texts))
    counts = np.maximum(np.diff(ends), 1)
    values = np.repeat(1 / np.sqrt(counts), np.diff(ends))
    matrix = csr_matrix((values, buckets.astype(np.int64), ends), shape=(len(texts), BUCKETS))
    base = float(scores.mean()) if len(texts) else 0.0
    weights = lsqr(matrix, scores - base, damp=_DECAY**0.5, iter_lim=_STEPS)[0] if len(texts) else np.zeros(BUCKETS)
    return Student(weights.astype(np.float32), base)


def bucket_lists(data: U8, offsets: I64) -> tuple[U32, I64]:
    """The buckets of texts, one after the other, and where each text's end (the first is 0)."""
    ends = np.zeros(len(offsets), np.int64)
    _count(data, offsets, ends)
    ends = np.cumsum(ends)
    buckets = np.zeros(int(ends[-1]), np.uint32)
    _list(data, offsets, ends, buckets)
    return buckets, ends


@compile_kernel
def _hash(data: U8, start: int, end: int) -> np.uint32:
    """FNV-1a of some bytes."""
    value = np.uint32(2166136261)
    for place in range(start, end):
        value = np.uint32((value ^ np.uint32(data[place])) * np.uint32(16777619))
    return value


@compile_kernel
def write_buckets(data: U8, start: int, end: int, out: U32, at: int) -> int:
    """Writes the buckets of a text's words and pairs of words from `at` on, if `out` has room; returns how many there are.

    A word is a run of letters, digits and other bytes; in text that is not ASCII, each character (of three bytes) is a word.
    """
    count, before, place = 0, np.uint32(0), start
    while place < end:
        byte = data[place]
        if byte <= 47 or (58 <= byte <= 64) or (91 <= byte <= 96) or (123 <= byte <= 127):
            place += 1
            continue
        first = place
        if byte >= 128:
            place += 1
            while place < end and (data[place] & 192) == 128:
                place += 1
        else:
            while place < end and data[place] < 128:
                byte = data[place]
                if byte <= 47 or (58 <= byte <= 64) or (91 <= byte <= 96) or (123 <= byte <= 127):
                    break
                place += 1
        word = _hash(data, first, place)
        if at + count < out.size:
            out[at + count] = word % np.uint32(BUCKETS)
        count += 1
        if before != 0:
            if at + count < out.size:
                out[at + count] = np.uint32(before * np.uint32(2654435761) ^ word) % np.uint32(BUCKETS)
            count += 1
        before = word
    return count


@compile_kernel
def _count(data: U8, offsets: I64, ends: I64) -> None:
    nothing = np.zeros(0, np.uint32)
    for row in range(offsets.size - 1):
        ends[row + 1] = write_buckets(data, offsets[row], offsets[row + 1], nothing, 0)


@compile_kernel
def _list(data: U8, offsets: I64, ends: I64, out: U32) -> None:
    for row in range(offsets.size - 1):
        write_buckets(data, offsets[row], offsets[row + 1], out, ends[row])


@compile_kernel
def _score(data: U8, offsets: I64, weights: F32, base: np.float32, out: F32) -> None:
    longest = 0
    for row in range(offsets.size - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    buckets = np.zeros(2 * longest + 2, np.uint32)
    for row in range(offsets.size - 1):
        count = write_buckets(data, offsets[row], offsets[row + 1], buckets, 0)
        total = np.float32(0)
        for number in range(count):
            total += weights[buckets[number]]
        out[row] = base + (total / np.sqrt(np.float32(count)) if count else np.float32(0))
