"""A small language that any number of classes can be worded in, and an encoder for it; so loops run in a second."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from synth.engines.encoder import Encode, Vectors

DIMENSIONS = 64


def bag_of_words(texts: Sequence[str]) -> Vectors:
    """Unit vectors: each word has a direction of its own, a text is their sum."""
    out = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            out[row] += np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIMENSIONS)
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)
    return out


def worded(stem: str, count: int, seed: int) -> list[str]:
    """Distinct texts of one class: six of its eight words, and two of a hundred that anybody says."""
    rng = np.random.default_rng([seed, zlib.crc32(stem.encode())])
    own, common = [f"{stem}{letter}" for letter in "abcdefgh"], [f"any{number:02d}" for number in range(100)]
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join([*rng.permutation(own)[:6], *rng.permutation(common)[:2]])] = None
    return list(found)


@pytest.fixture
def encode() -> Encode:
    return bag_of_words
