"""Turns tool texts into vectors: TF-IDF of their words, randomly projected to 256 dimensions.

One idea: similarity only ranks tools that entities link already, so word counts are enough (measured: sentence encoders add nothing here).
256 random signs per word keep every cosine within about 0.06 of its value, and the cost grows with the number of words only.
The weights are fitted on the given tools. The signs come from a fixed seed and the sorted words: equal tools give equal vectors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from storage.records import Tool
from synth.clusters.entities import properties
from synth.clusters.tool_words import singular, words

DIMENSIONS = 256
_ROWS = 512
"""Texts projected at once."""
_PREAMBLE_TOOLS = 4
"""Fewest tools of a server whose common opening is a preamble."""
_TOKEN = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]")
_TEXT_LENGTH = 2_000
"""Characters of a description that count."""

Vectors = NDArray[np.float32]


def strip_preambles(tools: Sequence[Tool]) -> list[Tool]:
    """The tools, without the sentences at the start of all descriptions of a server: these are about the server."""
    descriptions: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        descriptions[tool.server].append(tool.description)
    shared = {server: _opening(texts) if len(texts) >= _PREAMBLE_TOOLS else "" for server, texts in descriptions.items()}
    return [
        tool.model_copy(update={"description": tool.description.removeprefix(shared[tool.server]).lstrip()})
        if shared[tool.server]
        else tool
        for tool in tools
    ]


def _opening(texts: Sequence[str]) -> str:
    """The whole sentences at the start of all texts. The first and last text in sorted order share what all share."""
    first, last = min(texts), max(texts)
    length = next((at for at, (left, right) in enumerate(zip(first, last, strict=False)) if left != right), min(len(first), len(last)))
    end = max(first.rfind(mark, 0, length) for mark in (". ", ".\n", "。"))
    return first[: end + 1]


def own_text(tool: Tool) -> list[str]:
    """The words of a tool's name and description."""
    return [*words(tool.name), *_tokens(tool.description)]


def parameter_text(tool: Tool) -> list[str]:
    """The words of the names and descriptions of a tool's parameters."""
    out: list[str] = []
    for name, schema in properties(tool.parameters).items():
        out += words(name)
        text = schema.get("description")
        out += _tokens(text) if isinstance(text, str) else ()
    return out


def _tokens(text: str) -> list[str]:
    return [singular(word) for word in _TOKEN.findall(text[:_TEXT_LENGTH].lower())]


def embed_texts(*columns: Sequence[list[str]]) -> list[Vectors]:
    """Unit vectors [n, 256] for each column of tokenised texts: (1 + log count) x idf over all columns, projected.

    A text without words gives a vector of zeros.
    """
    word_ids = {word: number for number, word in enumerate(sorted({word for texts in columns for text in texts for word in text}))}
    word_counts = [_count_words(texts, word_ids) for texts in columns]
    document_counts = np.zeros(len(word_ids), dtype=np.float32)
    for _, ids, _ in word_counts:
        document_counts += np.bincount(ids, minlength=len(word_ids)).astype(np.float32)
    total = sum(len(texts) for texts in columns)
    idf = np.log((total + 1) / (document_counts + 1)).astype(np.float32) + 1
    signs = np.random.default_rng(20_210).integers(0, 2, (len(word_ids), DIMENSIONS), dtype=np.int8) * 2 - 1
    return [
        _project(rows, ids, (1 + np.log(counts)) * idf[ids], len(texts), signs)
        for texts, (rows, ids, counts) in zip(columns, word_counts, strict=True)
    ]


def _count_words(
    texts: Sequence[list[str]], word_ids: Mapping[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Row, word id and count of each word of each text."""
    ids = [word_ids[word] for text in texts for word in text]
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    pairs, counts = np.unique(rows * (len(word_ids) + 1) + np.array(ids, dtype=np.int64), return_counts=True)
    return pairs // (len(word_ids) + 1), pairs % (len(word_ids) + 1), counts.astype(np.float32)


def _project(rows: NDArray[np.int64], ids: NDArray[np.int64], weights: Vectors, count: int, signs: NDArray[np.int8]) -> Vectors:
    """Unit vectors [count, 256] of weighted words; the words of a row are adjacent."""
    out = np.zeros((count, DIMENSIONS), dtype=np.float32)
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]) if len(rows) else np.empty(0, dtype=np.int64)
    ends = np.r_[starts[1:], len(rows)]
    for first in range(0, len(starts), _ROWS):
        last = min(first + _ROWS, len(starts))
        part = slice(int(starts[first]), int(ends[last - 1]))
        values = signs[ids[part]] * weights[part, None].astype(np.float32)
        out[rows[starts[first:last]]] = np.add.reduceat(values, starts[first:last] - starts[first], axis=0)
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), np.float32(1e-12))
    return out
