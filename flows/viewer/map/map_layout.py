"""Places for vectors on a plane: similar ones near each other.

One idea: a few thousand landmarks are laid out against each other, by the forces of UMAP (attraction along the edges to the nearest
neighbours, repulsion from random others); every other vector is placed among the landmarks that it is most similar to. So a million rows
take minutes on one core, and no more memory than a batch. Distances say little beyond the nearest neighbours: two groups far apart are no
less alike than two groups that are not quite so far apart.
Source: McInnes, Healy, Melville 2018, UMAP (arXiv 1802.03426), section 3.2 and appendix; without its spectral start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import faiss
import numba
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from flows.viewer.map.text_vectors import Vectors

MOST_LANDMARKS = 12_000
BLANK = (-1.0, -1.1)
"""Place of the texts without a frequent word."""
MOST_REGIONS = 24
_NEIGHBOURS = 15
_ROUNDS = 200
_REPULSIONS = 2
_SPREAD = (0.0289, 1.622)
"""a and b of UMAP's curve for spread 2 and min_dist 1.5: groups stay apart, and their points do not crowd into dots."""
_SEED = 7

Kernel = TypeVar("Kernel", bound=Callable[..., object])
Places = NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """Landmarks, with vectors and places; spacing: distance of each to its third nearest landmark; regions: centres of regions."""

    vectors: Vectors
    places: Places
    spacing: NDArray[np.float32]
    regions: Places


def lay_out(vectors: Vectors) -> Layout:
    """vectors: unit vectors of the landmarks, at least one, at most `MOST_LANDMARKS`."""
    count = len(vectors)
    places = _start(vectors)
    if count > 2 * _NEIGHBOURS:
        heads, tails, weights = _edges(vectors)
        attract_and_repel(places, heads, tails, weights, _ROUNDS, _REPULSIONS, *_SPREAD, _SEED)
    places -= (places.max(axis=0) + places.min(axis=0)) / 2
    places /= max(float(np.abs(places).max()), 1e-9)  # to -1 to 1
    distances, _ = cKDTree(places).query(places, k=min(4, count))
    spacing = np.minimum(np.atleast_2d(distances.T).T[:, -1], 0.05).astype(np.float32)
    return Layout(vectors, places, spacing, _centres(places))


def _start(vectors: Vectors) -> Places:
    """The two principal components."""
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred.T @ centred)
    places = np.zeros((len(vectors), 2), dtype=np.float32)
    found = centred @ axes[:2].T
    places[:, : found.shape[1]] = found
    noise = np.random.default_rng(_SEED).normal(0, 0.01, places.shape)
    return (places * (10 / max(float(np.abs(places).max()), 1e-9)) + noise).astype(np.float32)


def _edges(vectors: Vectors) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """From each vector to its nearest ones; weights 0 to 1, 1 for the nearest."""
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    similarities, near = index.search(vectors, _NEIGHBOURS + 1)
    heads = np.repeat(np.arange(len(vectors), dtype=np.int32), _NEIGHBOURS + 1)
    distances = np.sqrt(np.maximum(0, 2 - 2 * similarities))
    beyond = np.maximum(0, distances - distances[:, 1:2])
    weights = np.exp(-beyond / (beyond.mean(axis=1, keepdims=True) + 1e-6)).ravel()
    tails = near.ravel().astype(np.int32)
    real = (tails != heads) & (tails >= 0)
    return heads[real], tails[real], weights[real].astype(np.float32)


def _jit(function: Kernel) -> Kernel:
    return cast(Kernel, numba.njit(cache=True, nogil=True, fastmath=True)(function))


@_jit
def attract_and_repel(
    places: Places,
    heads: NDArray[np.int32],
    tails: NDArray[np.int32],
    weights: NDArray[np.float32],
    rounds: int,
    repulsions: int,
    a: float,
    b: float,
    seed: int,
) -> None:
    """UMAP's stochastic gradient descent, in place. Each round takes an edge with the probability that is its weight."""
    state = np.uint64(seed * 2654435761 + 1)
    count = len(places)
    for turn in range(rounds):
        step = 1.0 - turn / rounds
        for edge in range(len(heads)):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            if (state >> np.uint64(40)) / 16777216.0 > weights[edge]:
                continue
            head, tail = heads[edge], tails[edge]
            dx, dy = places[head, 0] - places[tail, 0], places[head, 1] - places[tail, 1]
            square = dx * dx + dy * dy
            if square > 0:
                pull = -2 * a * b * square ** (b - 1) / (1 + a * square**b)
                move_x, move_y = min(4.0, max(-4.0, pull * dx)) * step, min(4.0, max(-4.0, pull * dy)) * step
                places[head, 0] += move_x
                places[head, 1] += move_y
                places[tail, 0] -= move_x
                places[tail, 1] -= move_y
            for _ in range(repulsions):
                state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
                other = np.int64((state >> np.uint64(33)) % np.uint64(count))
                dx, dy = places[head, 0] - places[other, 0], places[head, 1] - places[other, 1]
                square = dx * dx + dy * dy
                if other != head and square > 0:
                    push = 2 * b / ((0.001 + square) * (1 + a * square**b))
                    places[head, 0] += min(4.0, max(-4.0, push * dx)) * step
                    places[head, 1] += min(4.0, max(-4.0, push * dy)) * step


def _centres(places: Places) -> Places:
    """Centres of regions, by k-means over the plane."""
    distinct = np.unique(places, axis=0)
    count = min(MOST_REGIONS, max(1, len(distinct) // 8))
    clusters = faiss.Kmeans(2, count, niter=20, seed=_SEED, min_points_per_centroid=1)
    clusters.train(np.ascontiguousarray(places))
    return np.asarray(clusters.centroids, dtype=np.float32)


def _nearest(vectors: Vectors) -> faiss.Index:
    """An index of the most similar vectors: of many, one that looks in eight of its lists alone."""
    flat = faiss.IndexFlatIP(vectors.shape[1])
    if len(vectors) <= 2000:
        flat.add(vectors)
        return flat
    lists = faiss.IndexIVFFlat(flat, vectors.shape[1], int(len(vectors) ** 0.5), faiss.METRIC_INNER_PRODUCT)
    lists.cp.min_points_per_centroid = 1
    lists.nprobe = 8
    lists.train(vectors)
    lists.add(vectors)
    return lists


class Placer:
    """Places vectors among the landmarks of a layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._rng = np.random.default_rng(_SEED)
        self._index = _nearest(layout.vectors)

    def place(self, vectors: Vectors) -> tuple[Places, NDArray[np.uint8]]:
        """Places and regions, a row each: near the most similar landmark, drawn towards further ones that are near it.

        Rows with the same vector spread over the spacing of the landmarks there, so that a crowd looks like one. Vectors of zeros, of texts
        without a frequent word, lie in a corner; their region is the number of regions.
        """
        layout = self._layout
        similarities, near = self._index.search(vectors, min(5, len(layout.vectors)))
        near = np.where(near < 0, near[:, :1], near)
        anchors, spacing = layout.places[near[:, 0]], layout.spacing[near[:, 0]]
        towards = layout.places[near] - anchors[:, None, :]
        is_close = np.linalg.norm(towards, axis=2) <= 4 * spacing[:, None] + 1e-6
        weights = np.exp(12 * (similarities - similarities[:, :1])) * is_close
        places = anchors + (towards * weights[:, :, None]).sum(axis=1) / weights.sum(axis=1, keepdims=True)
        places += self._rng.normal(0, 0.5, places.shape) * spacing[:, None]
        _, regions = cKDTree(layout.regions).query(places)
        is_blank = ~vectors.any(axis=1)
        angles, radii = self._rng.random((2, int(is_blank.sum())))
        circle = np.stack([np.cos(angles * 2 * np.pi), np.sin(angles * 2 * np.pi)], axis=1) * np.sqrt(radii)[:, None]
        places[is_blank] = BLANK + 0.06 * circle
        regions[is_blank] = len(layout.regions)
        return places.astype(np.float32), regions.astype(np.uint8)
