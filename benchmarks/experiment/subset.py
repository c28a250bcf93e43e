"""Which n of the accepted trajectories to keep, when only n can be paid for (definition P4, subset selection at a fixed budget).

One idea: greedily take whatever adds most to `H_dom(S) + H_mode^1(S) + 0.5 * cover(S)`, no domain giving more than `ceil(2n / D)`.
The two entropies depend on a trajectory's domain and coarse mode alone, so their gain is worked out once for every pair of the two, not for
every trajectory; the cover is submodular, so an old gain bounds the new one and only the best-looking trajectory is looked at again
(lazy greedy, Minoux 1978).
`cover` is the facility location of the pool, divided by its size: the mean cosine of each trajectory in the pool to its nearest one in S,
in [0, 1], a number that entropies in bits can be added to.

What it does not do: decide what is made (`evolve.py`), or drop near duplicates (the filters do).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SubsetWeights:
    """What a bit of domain entropy, a bit of mode entropy and the whole cover are worth."""

    domain: float = 1.0
    mode: float = 1.0
    cover: float = 0.5


def select(
    domains: Sequence[str], modes: Sequence[str], vectors: NDArray[np.float32], n: int, weights: SubsetWeights | None = None
) -> list[int]:
    """Positions of the `n` trajectories taken, in the order in which they were taken; all where there are no more, and fewer where the cap
    of the domains leaves no other.

    Args:
        domains, modes: domain and coarse signature of each trajectory of the pool.
        vectors: unit vectors of what the users said, shape [pool, dimensions].

    Raises:
        ValueError: domains, modes and vectors are not of one length, or n is negative.
    """
    if not len(domains) == len(modes) == len(vectors):
        raise ValueError(f"{len(domains)} domains, {len(modes)} modes, {len(vectors)} vectors: there must be one of each a trajectory")
    if n < 0:
        raise ValueError(f"{n} trajectories cannot be selected")
    return _Greedy(domains, modes, vectors, n, weights or SubsetWeights()).run() if n and len(domains) else []


class _Greedy:
    def __init__(self, domains: Sequence[str], modes: Sequence[str], vectors: NDArray[np.float32], n: int, weights: SubsetWeights) -> None:
        self.n, self.weights, self.size = n, weights, len(domains)
        self.domain, self.mode = _numbered(domains), _numbered(modes)
        self.domain_counts = np.zeros(self.domain.max() + 1, dtype=np.int64)
        self.mode_counts = np.zeros(self.mode.max() + 1, dtype=np.int64)
        self.cap = math.ceil(2 * n / len(self.domain_counts))
        self.near = np.maximum(vectors @ vectors.T, 0.0) if weights.cover else np.zeros((self.size, 1), dtype=np.float32)
        self.covered = np.zeros(self.near.shape[1], dtype=np.float32)
        self.bound = self.near.mean(axis=1, dtype=np.float64)
        self.is_open = np.ones(self.size, dtype=bool)

    def run(self) -> list[int]:
        taken: list[int] = []
        while len(taken) < min(self.n, self.size) and self.is_open.any():
            taken.append(self._best())
            self._take(taken[-1])
        return taken

    def _best(self) -> int:
        """The open trajectory with the highest gain; of equal ones the first."""
        entropies = self.weights.domain * _gains(self.domain_counts)[self.domain] + self.weights.mode * _gains(self.mode_counts)[self.mode]
        looks = np.where(self.is_open, entropies + self.weights.cover * self.bound, -np.inf)
        seen = np.zeros(self.size, dtype=bool)
        while True:
            best = int(looks.argmax())
            if seen[best] or not self.weights.cover:
                return best
            self.bound[best] = np.maximum(self.near[best] - self.covered, 0.0).mean(dtype=np.float64)
            looks[best] = entropies[best] + self.weights.cover * self.bound[best]
            seen[best] = True

    def _take(self, position: int) -> None:
        domain = self.domain[position]
        self.domain_counts[domain] += 1
        self.mode_counts[self.mode[position]] += 1
        self.is_open[position] = False
        if self.domain_counts[domain] >= self.cap:
            self.is_open[self.domain == domain] = False
        np.maximum(self.covered, self.near[position], out=self.covered)


def _numbered(labels: Sequence[str]) -> Ints:
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)


def _gains(counts: Ints) -> Floats:
    """By label: how many bits the entropy of `counts` rises when that label is counted once more; it may fall."""
    total = int(counts.sum())

    def of(values: Floats) -> Floats:
        return values * np.log2(np.maximum(values, 1))

    parts = of(counts.astype(np.float64))
    before = math.log2(total) - parts.sum() / total if total else 0.0
    after: Floats = math.log2(total + 1) - (parts.sum() - parts + of((counts + 1).astype(np.float64))) / (total + 1)
    return after - before
