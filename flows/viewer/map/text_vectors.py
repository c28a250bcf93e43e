"""Vectors of short texts without a model: words and pairs of words, hashed and weighted by rarity, then a truncated SVD (LSA).

A word is a run of letters, in lower case, with every number as `0`; of Chinese, Japanese and Korean text, each character is one. So "plan a
trip on May 3" and "plan a trip on May 14" are the same. The vectors say which words two texts share, not what they mean: a request and its
translation are far from each other. Features that the fitted texts rarely have, such as typos, are left out.
Source: Deerwester et al. 1990, Indexing by Latent Semantic Analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

BUCKETS = 1 << 18
MOST_FEATURES = 16_384
"""Features of the vocabulary, the most frequent ones."""
MOST_PER_TEXT = 512
_LEAST_TEXTS = 3
"""Texts that a feature must be in."""
_DIMENSIONS = 48
_SEED = 7

Kernel = TypeVar("Kernel", bound=Callable[..., object])
Vectors = NDArray[np.float32]


def _jit(function: Kernel) -> Kernel:
    return cast(Kernel, numba.njit(cache=True, nogil=True)(function))


@_jit
def _character(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """A UTF-8 character: its code point (letters in lower case, digits as 0, wide forms as narrow ones) and its length in bytes."""
    first = int(data[at])
    length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    code = first if length == 1 else first & (0x7F >> length)
    for offset in range(1, length):
        if at + offset < end:
            code = (code << 6) | (int(data[at + offset]) & 0x3F)
    if 0xFF01 <= code <= 0xFF5E:
        code -= 0xFEE0
    if 65 <= code <= 90:
        code += 32
    if 48 <= code <= 57:
        code = 48
    return code, length


@_jit
def hash_features(data: NDArray[np.uint8], ends: NDArray[np.int64], buckets: int, most: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The features of texts as numbers below `buckets`, and where each text's features begin.

    data: the texts in UTF-8, one after another; ends: where each of them begins and ends, one more than there are texts.
    """
    found = np.empty(len(data) * 2 + 2, dtype=np.int32)
    starts = np.zeros(len(ends), dtype=np.int64)
    count = 0
    for text in range(len(ends) - 1):
        at, end = ends[text], ends[text + 1]
        word, before, mine = np.uint64(0), np.uint64(0), 0
        while at <= end:
            code, length = _character(data, at, end) if at < end else (32, 1)
            is_character = code >= 0x2E80 and not 0x3000 <= code <= 0x303F
            is_letter = 97 <= code <= 122 or code == 48 or 0xC0 <= code < 0x2000
            if is_letter and not (code == 48 and word % np.uint64(64) == np.uint64(48)):
                word = (word * np.uint64(1099511628211) + np.uint64(1469598103)) * np.uint64(64) + np.uint64(code)
            if not is_letter and word != np.uint64(0):
                before, mine, count = _emit(found, count, mine, word, before, buckets, most)
                word = np.uint64(0)
            if is_character:
                before, mine, count = _emit(found, count, mine, np.uint64(code) << np.uint64(20), before, buckets, most)
            at += length
        starts[text + 1] = count
    return found[:count], starts


@_jit
def _emit(
    found: NDArray[np.int32], count: int, mine: int, word: np.uint64, before: np.uint64, buckets: int, most: int
) -> tuple[np.uint64, int, int]:
    """Adds a word, and its pair with the word before it."""
    mixed = word * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    if mine < most:
        found[count] = np.int32((mixed * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(40)) % np.uint64(buckets))
        count, mine = count + 1, mine + 1
        if before != np.uint64(0):
            pair = (before * np.uint64(31) + mixed) * np.uint64(0x94D049BB133111EB)
            found[count] = np.int32((pair >> np.uint64(40)) % np.uint64(buckets))
            count, mine = count + 1, mine + 1
    return mixed, mine, count


def _features(texts: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    filled = texts.cast(pa.large_string()).fill_null("")
    joined = pa.concat_arrays([filled]) if filled.offset else filled
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
    letters = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, dtype=np.uint8)
    return hash_features(letters[ends[0] : ends[-1]], ends - ends[0], BUCKETS, MOST_PER_TEXT)


@dataclass(frozen=True)
class TextVectors:
    """What was fitted.

    columns: bucket -> column of `axes`, -1 if it is left out; weights: rarity of each column; axes: column x dimension.
    """

    columns: NDArray[np.int32]
    weights: Vectors
    axes: Vectors

    def of(self, texts: pa.Array) -> Vectors:
        """Unit vectors, a row for each text; zeros for a text without any feature of the vocabulary."""
        vectors = np.asarray(_matrix(texts, self.columns, self.weights) @ self.axes, dtype=np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-9))
        return vectors


def _matrix(texts: pa.Array, columns: NDArray[np.int32], weights: Vectors) -> sparse.csr_matrix:
    features, starts = _features(texts)
    known = columns[features]
    kept = known >= 0
    before = np.concatenate([[0], np.cumsum(kept)])[starts]
    matrix = sparse.csr_matrix((weights[known[kept]], known[kept], before), shape=(len(texts), len(weights)), dtype=np.float32)
    matrix.sum_duplicates()
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sparse.diags(1 / np.maximum(norms, 1e-9)).astype(np.float32) @ matrix


def fit_text_vectors(texts: pa.Array) -> TextVectors:
    """Chooses the vocabulary and the axes from a sample of texts."""
    features, starts = _features(texts)
    rows = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(starts))
    once = np.unique(rows * BUCKETS + features) % BUCKETS
    texts_with = np.bincount(once, minlength=BUCKETS)
    least = _LEAST_TEXTS if len(texts) >= 100 else 1
    order = np.argsort(-texts_with, kind="stable")[:MOST_FEATURES]
    chosen = order[texts_with[order] >= least]
    columns = np.full(BUCKETS, -1, dtype=np.int32)
    columns[chosen] = np.arange(len(chosen), dtype=np.int32)
    weights = np.log((1 + len(texts)) / texts_with[chosen]).astype(np.float32)
    matrix = _matrix(texts, columns, weights)
    dimensions = min(_DIMENSIONS, min(matrix.shape) - 1)
    if dimensions < 1:
        return TextVectors(columns, weights, np.ones((len(chosen), 1), dtype=np.float32))
    _, _, axes = svds(matrix, k=dimensions, random_state=_SEED)
    return TextVectors(columns, weights, np.ascontiguousarray(axes.T, dtype=np.float32))
