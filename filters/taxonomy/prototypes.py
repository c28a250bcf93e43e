"""How likely a vector belongs to each leaf of a tree, and how likely to none.

A leaf's prototype is the mean of its examples' vectors; similarity is the cosine after a *projection* that shrinks the
directions in which examples of one leaf differ among themselves (slots, small talk, language): the pooled within-class covariance,
shrunk towards its mean variance, inverted. Plain cosines get fewer leaves right (a test compares them).
Similarity becomes probability by a softmax over the leaves and one *background*, the chance of belonging to none. Its temperature and the
background's level are calibrated on the tree's own examples: each is scored by prototypes that were made without its fold, once as it is
(it belongs to its leaf) and once with its whole top class hidden (it belongs to none).

It reads no texts, and knows only the examples: few examples give cautious probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from filters.frames.numba_types import I64
from synth.engines.encoder import Vectors

Reals = NDArray[np.float64]

SHRINKAGE = 0.3
PRIOR_NONE = 0.05
"""Weight of the rows that belong to no leaf in the calibration: the share of such rows before a tree is expanded."""
_FOLDS = 5
_TEMPERATURES = np.geomspace(0.01, 0.3, 15)
_BACKGROUNDS = np.linspace(0.1, 0.9, 33)
_ALONE = (0.02, 0.5)
"""Temperature and background where there are too few examples to calibrate."""


@dataclass(frozen=True, eq=False)
class Prototypes:
    """projection [d, d], means [leaves, d] (unit rows in the projected space), temperature and background of the softmax."""

    projection: Vectors
    means: Vectors
    temperature: float
    background: float

    def probabilities(self, vectors: Vectors, bonus: Reals | None = None) -> Reals:
        """[n, leaves]; a row adds up to less than 1, the remainder is the probability of no leaf.

        Args:
            bonus: added to the log-odds of each leaf, [n, leaves].
        """
        logits = (_unit(vectors @ self.projection) @ self.means.T).astype(np.float64) / self.temperature
        if bonus is not None:
            logits += bonus
        return _softmax(logits, self.background / self.temperature)


def fit(vectors: Vectors, leaf_of_row: I64, tops: I64) -> Prototypes:
    """Prototypes of examples.

    Args:
        vectors: unit rows [n, d]. which: number of each example's leaf, 0 .. leaves - 1, every one met. tops: number of each leaf's top
            class.
    """
    projection, means = _project(vectors, leaf_of_row)
    folds = _fold(leaf_of_row)
    held_out = np.full((len(vectors), len(tops)), np.nan, np.float64)
    for number in range(_FOLDS):
        rest, out = folds != number, folds == number
        if out.any() and len(np.unique(leaf_of_row[rest])) == len(tops):
            own, others = _project(vectors[rest], leaf_of_row[rest])
            held_out[out] = _unit(vectors[out] @ own) @ others.T
    usable = ~np.isnan(held_out[:, 0])
    temperature, background = _calibrate(held_out[usable], leaf_of_row[usable], tops) if usable.any() and len(tops) > 1 else _ALONE
    return Prototypes(projection, means, temperature, background)


def _project(vectors: Vectors, leaf_of_row: I64) -> tuple[Vectors, Vectors]:
    """The projection, and the projected unit means of the leaves."""
    counts = np.bincount(leaf_of_row)
    means = np.zeros((len(counts), vectors.shape[1]), np.float64)
    np.add.at(means, leaf_of_row, vectors)
    means /= counts[:, None]
    inside = vectors - means[leaf_of_row]
    covariance = inside.T @ inside / len(vectors)
    level = float(np.trace(covariance)) / len(covariance)
    if level <= 1e-12:
        return np.eye(len(covariance), dtype=np.float32), _unit(means.astype(np.float32))
    values, directions = np.linalg.eigh((1 - SHRINKAGE) * covariance + SHRINKAGE * level * np.eye(len(covariance)))
    projection = directions / np.sqrt(values / level)
    return projection.astype(np.float32), _unit((means @ projection).astype(np.float32))


def _fold(leaf_of_row: I64) -> I64:
    """Folds that share out every leaf's examples evenly; a leaf's first example, if it is the only one, stays in training always."""
    place = np.zeros(len(leaf_of_row), np.int64)
    for leaf in np.unique(leaf_of_row):
        members = np.flatnonzero(leaf_of_row == leaf)
        place[members] = np.arange(len(members)) % _FOLDS if len(members) > 1 else _FOLDS
    return place


def _calibrate(likeness: Reals, leaf_of_row: I64, tops: I64) -> tuple[float, float]:
    """Temperature and background with the least expected log-loss."""
    rows = np.arange(len(leaf_of_row))
    groups = tops if len(np.unique(tops)) > 1 else np.arange(len(tops))
    hidden = np.where(groups[None, :] == groups[leaf_of_row][:, None], -np.inf, likeness)
    best, least = _ALONE, np.inf
    for temperature in _TEMPERATURES.tolist():
        for background in _BACKGROUNDS.tolist():
            true_probabilities = _softmax(likeness / temperature, background / temperature)[rows, leaf_of_row]
            none = 1 - _softmax(hidden / temperature, background / temperature).sum(axis=1)
            loss = -(1 - PRIOR_NONE) * np.log(true_probabilities + 1e-12).mean() - PRIOR_NONE * np.log(none + 1e-12).mean()
            if loss < least - 1e-12:
                best, least = (temperature, background), loss
    return best


def _softmax(logits: Reals, background: float) -> Reals:
    top = np.maximum(logits.max(axis=1, keepdims=True), background)
    powers = np.exp(logits - top)
    out: Reals = powers / (powers.sum(axis=1, keepdims=True) + np.exp(background - top))
    return out


def _unit(vectors: Vectors) -> Vectors:
    out: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return out
