"""Finds coherent groups among rows that no class fits.

Average linkage over cosines: its merging height is the mean cosine between two groups. The cut is halfway between the mean cosine of any
two rows and the mean cosine of a row with its k-th nearest, where k is half the smallest size of a group. Shuffled vectors (rows of the
whole log with every column shuffled) are the control: if the neighbours of rows are not nearer than those of shuffled vectors, there is no
group. So the cut adapts to the encoder and the log. A second cut, halfway down again, joins groups into families.
`partition` makes a like cut without control: for rows that are to be divided, whether they have groups or not.

SciPy's linkage, exact and deterministic; O(n^2) memory: `MAX_ROWS` rows are 64 MB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from filters.frames.numba_types import I64
from filters.taxonomy.prototypes import Reals
from synth.engines.encoder import Vectors

MAX_ROWS = 4_000
_NEIGHBOUR, _ROWS_A_NEIGHBOUR, _PARTED_AT = 5, 20, 0.55
"""Of a partition: the neighbour whose nearness counts (of few rows a nearer one, one for each 20), and the place of the cut."""
_MIN_CONTRAST = 1.25
"""Least ratio: by how much neighbours are nearer than any two shuffled vectors, for rows over shuffled vectors."""


@dataclass(frozen=True, eq=False)
class Group:
    """members: row numbers, those nearest the group's mean first. family: groups of one number are near each other."""

    members: I64
    family: int


def shuffled_vectors(vectors: Vectors, count: int, rng: np.random.Generator) -> Vectors:
    """`count` unit vectors without structure: of drawn rows of `vectors` (unit rows [n, d]), every column shuffled."""
    shuffled = rng.permuted(vectors[rng.integers(0, len(vectors), count)], axis=0)
    out: Vectors = shuffled / np.maximum(np.linalg.norm(shuffled, axis=1, keepdims=True), np.float32(1e-12))
    return out


def partition(vectors: Vectors) -> I64:
    """The number of each row's group, from 0; every row is in one, if need be alone.

    vectors: unit rows [n, d], at most MAX_ROWS; more raise ValueError.
    """
    _refuse_many(len(vectors))
    if len(vectors) < 3:
        return np.arange(len(vectors))
    background, near = _closeness(vectors, max(1, min(_NEIGHBOUR, len(vectors) // _ROWS_A_NEIGHBOUR)))
    group_of_row = fcluster(_linkage(vectors), 1 - _between(background, near, _PARTED_AT), "distance")
    numbers: I64 = np.unique(group_of_row, return_inverse=True)[1].astype(np.int64)
    return numbers


def coherent_groups(vectors: Vectors, unrelated: Vectors, min_size: int) -> list[Group]:
    """The groups of at least `min_size` rows, the largest first.

    Args:
        vectors: unit rows [n, d], at most MAX_ROWS; more raise ValueError. unrelated: as many `strangers`.
    """
    count = len(vectors)
    _refuse_many(count)
    if count < max(min_size, 2):
        return []
    _, near = _closeness(vectors, max(min_size // 2, 1))
    background, chance = _closeness(unrelated, max(min_size // 2, 1))
    if near - background < _MIN_CONTRAST * (chance - background):
        return []
    cut = _between(background, near, 0.5)
    merges = _linkage(vectors)
    group_of_row = fcluster(merges, 1 - cut, "distance")
    family = fcluster(merges, 1 - (background + cut) / 2, "distance")
    groups = [
        _group(np.flatnonzero(group_of_row == number), family, vectors) for number in np.flatnonzero(np.bincount(group_of_row) >= min_size)
    ]
    return sorted(groups, key=lambda group: (-len(group.members), int(group.members.min())))


def _refuse_many(count: int) -> None:
    if count > MAX_ROWS:
        raise ValueError(f"{count} rows, at most {MAX_ROWS} are grouped; draw a sample")


def _between(background: float, near: float, share: float) -> float:
    return min(background + share * (near - background), 1 - 1e-6)


def _linkage(vectors: Vectors) -> Reals:
    merges: Reals = linkage(vectors.astype(np.float64), "average", metric="cosine")
    return merges


def _closeness(vectors: Vectors, neighbour: int) -> tuple[float, float]:
    """The mean cosine of all pairs of rows, and of a row with its nearest but `neighbour` - 1."""
    cosines, count = vectors @ vectors.T, len(vectors)
    background = float(cosines.sum() - np.trace(cosines)) / (count * (count - 1))
    place = count - 1 - neighbour
    return background, float(np.partition(cosines, place, axis=1)[:, place].mean())


def _group(members: I64, family: I64, vectors: Vectors) -> Group:
    mean = vectors[members].mean(axis=0)
    nearness = vectors[members] @ mean
    return Group(members[np.argsort(-nearness, kind="stable")], int(family[members[0]]))
