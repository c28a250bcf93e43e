"""What tools say of themselves as vectors: TF-IDF of their texts, projected at random to 256 dimensions.

One idea: similarity only breaks ties between tools that entities link already, so word counts are enough (sentence encoders were measured
and add nothing here), and 256 signs a word keep every cosine within about .06 of its value at a cost that grows with the words alone.
Weights are fitted on the tools that are given. The signs come from a fixed seed and the sorted words: the same tools give the same vectors.
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
"""Texts that are projected at once."""
_PREAMBLE_TOOLS = 4
_TOKEN = re.compile(r"[a-z0-9]+|[^\W_a-z0-9]")
_TEXT_LENGTH = 2_000

Vectors = NDArray[np.float32]


def without_preamble(tools: Sequence[Tool]) -> list[Tool]:
    """The tools, less the sentences with which the descriptions of all tools of a server open: they speak of the server."""
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
    """The whole sentences with which all texts open: what the first and the last of them in sorted order share, all do."""
    first, last = min(texts), max(texts)
    length = next((at for at, (left, right) in enumerate(zip(first, last, strict=False)) if left != right), min(len(first), len(last)))
    end = max(first.rfind(mark, 0, length) for mark in (". ", ".\n", "。"))
    return first[: end + 1]


def own_text(tool: Tool) -> list[str]:
    """The words of a tool's name and description."""
    return [*words(tool.name), *_tokens(tool.description)]


def parameter_text(tool: Tool) -> list[str]:
    """The words of its parameters' names and descriptions."""
    out: list[str] = []
    for name, schema in properties(tool.parameters).items():
        out += words(name)
        text = schema.get("description")
        out += _tokens(text) if isinstance(text, str) else ()
    return out


def _tokens(text: str) -> list[str]:
    return [singular(word) for word in _TOKEN.findall(text[:_TEXT_LENGTH].lower())]


def vectors(*columns: Sequence[list[str]]) -> list[Vectors]:
    """Unit vectors [n, 256] of columns of tokenised texts, weighted together: rare words count more, repeated ones by their logarithm.

    A text without words is a vector of zeros.
    """
    known = {word: number for number, word in enumerate(sorted({word for texts in columns for text in texts for word in text}))}
    counted = [_counts(texts, known) for texts in columns]
    rarity = np.zeros(len(known), dtype=np.float32)
    for _, ids, _ in counted:
        rarity += np.bincount(ids, minlength=len(known)).astype(np.float32)
    total = sum(len(texts) for texts in columns)
    rarity = np.log((total + 1) / (rarity + 1)).astype(np.float32) + 1
    signs = np.random.default_rng(20_210).integers(0, 2, (len(known), DIMENSIONS), dtype=np.int8) * 2 - 1
    return [
        _projected(rows, ids, (1 + np.log(counts)) * rarity[ids], len(texts), signs)
        for texts, (rows, ids, counts) in zip(columns, counted, strict=True)
    ]


def _counts(texts: Sequence[list[str]], known: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Row, word and how often, of every word of every text."""
    ids = [known[word] for text in texts for word in text]
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    pairs, counts = np.unique(rows * (len(known) + 1) + np.array(ids, dtype=np.int64), return_counts=True)
    return pairs // (len(known) + 1), pairs % (len(known) + 1), counts.astype(np.float32)


def _projected(rows: NDArray[np.int64], ids: NDArray[np.int64], weights: Vectors, count: int, signs: NDArray[np.int8]) -> Vectors:
    out = np.zeros((count, DIMENSIONS), dtype=np.float32)
    begins = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]) if len(rows) else np.empty(0, dtype=np.int64)
    ends = np.r_[begins[1:], len(rows)]
    for first in range(0, len(begins), _ROWS):
        last = min(first + _ROWS, len(begins))
        part = slice(int(begins[first]), int(ends[last - 1]))
        values = signs[ids[part]] * weights[part, None].astype(np.float32)
        out[rows[begins[first:last]]] = np.add.reduceat(values, begins[first:last] - begins[first], axis=0)
    out /= np.maximum(np.linalg.norm(out, axis=1, keepdims=True), np.float32(1e-12))
    return out
