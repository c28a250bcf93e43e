"""Kinds of open names: cities, persons, titles, venues, addresses, organisations, and plain words (a genre, a cuisine).

One idea: a softmax on sentence vectors, taught by some 200 names written by hand (`words_en.yaml`), tells how likely a span is each kind;
the words of a slot's name and description tell which kinds it holds. The product of both is how well a span suits a slot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from filters.reading.english_words import NAME_KINDS, singular
from synth.engines.encoder import Encode, Vectors

KINDS = tuple(NAME_KINDS)
Distribution = NDArray[np.float64]
"""A share for each of `KINDS`; they add up to 1."""
_STEPS, _RATE, _DECAY = 400, 8.0, 1e-4
_FLOOR = 0.1
"""Share of the uniform distribution in every answer."""
_NAME_OF = re.compile(r"(?:the |an? )?(?:name|title) (?:of|for) (?:the |an? )?(.*)")
_AFTER_HEAD = re.compile(r"\b(?:of|where|in which|at which|to which|for|that|who|which|is|offered|belongs|performed)\b")
_CLASS_WORDS = frozenset({"genre", "category", "type", "cuisine"})


class NameKinds:
    """Tells kinds of names by their vectors. The classifier is fitted when the object is made (.1 s)."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        names, labels = list[str](), list[int]()
        for number, kind in enumerate(KINDS):
            for name in NAME_KINDS[kind]["examples"].split(";"):
                for spelling in dict.fromkeys((name.strip(), name.strip().lower())):
                    names.append(spelling)
                    labels.append(number)
        inputs, targets = _with_bias(encode(names)), np.eye(len(KINDS))[labels]
        self._weights = np.zeros((inputs.shape[1], len(KINDS)))
        for _ in range(_STEPS):
            gradient = inputs.T @ (_softmax(inputs @ self._weights) - targets) / len(inputs) + _DECAY * self._weights
            self._weights -= _RATE * gradient

    def of(self, names: Sequence[str]) -> list[Distribution]:
        """How likely each name is each kind."""
        if not names:
            return []
        shares = _softmax(_with_bias(self._encode(names)) @ self._weights)
        return list((1 - _FLOOR) * shares + _FLOOR / len(KINDS))


def _with_bias(vectors: Vectors) -> NDArray[np.float64]:
    return np.column_stack([vectors.astype(np.float64), np.ones(len(vectors))])


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


@cache
def _slot_words(kind: str) -> frozenset[str]:
    return frozenset(NAME_KINDS[kind]["slots"].split())


def kinds_of_slot(name: Sequence[str], about: str) -> Distribution:
    """Which kinds of names a slot holds. name: the words of its name. about: its description, of which the first words count most."""
    about = about.lower()
    named = _NAME_OF.match(about)
    head = re.findall(r"[a-z]+", _AFTER_HEAD.split(named[1] if named else about)[0])
    own, described = {singular(word) for word in name}, set(re.findall(r"[a-z]+", about))
    weights = np.full(len(KINDS), 0.05)
    for number, kind in enumerate(KINDS):
        for word in _slot_words(kind):
            weights[number] += 2 * (word in name or singular(word) in own) + (2 if word in head else 0.4 * (word in described))
    if _CLASS_WORDS & {*name, *head}:
        weights *= 0.1
        weights[KINDS.index("word")] += 3
    if {"name", "title"} & set(name):
        weights[KINDS.index("word")] *= 0.1
        weights[KINDS.index("city")] *= 0.3
    if "address" in {*name, *head}:
        weights *= 0.2
        weights[KINDS.index("address")] += 3
    shares: Distribution = weights / weights.sum()
    return shares
