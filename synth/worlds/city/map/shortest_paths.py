"""Shortest paths: one compiled Dijkstra over a directed graph in compressed sparse rows, for roads and for transit alike.

Sources and targets carry costs of their own (the walk to a stop, the way to the nearest crossing), so that one search answers "from this
coordinate to that one". A weight of infinity closes an edge. The queue is a ring of buckets no wider than the lightest edge (Dial), so
that nodes of one bucket cannot improve each other and no heap is needed; all weights must be positive.
Compiled once a machine (numba's cache), not once a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _compile(function: Kernel) -> Kernel:
    return cast(Kernel, numba.njit(cache=True)(function))


@_compile
def dijkstra(
    starts: Ints, heads: Ints, weights: Floats, sources: Ints, source_costs: Floats, targets: Ints, target_costs: Floats, wanted: Flags
) -> tuple[Floats, Ints, int]:
    """Costs and predecessor edges from the sources, stopping once the cheapest target is certain, or all wanted nodes are settled.

    Args:
        starts: [nodes + 1], heads: [edges], weights: [edges]: edge e of node n lies in starts[n] .. starts[n + 1] and leads to heads[e].
        sources, source_costs, targets, target_costs: nodes and what each costs besides.
        wanted: [nodes], or empty for all: the nodes whose costs shall be right where there are no targets.

    Returns:
        (costs [nodes], edge by which each node was reached [nodes], -1 at sources; best target or -1).
    """
    nodes = starts.size - 1
    costs = np.full(nodes, np.inf)
    reached = np.full(nodes, -1, dtype=np.int32)
    is_settled = np.zeros(nodes, dtype=np.bool_)
    extra = np.full(nodes if targets.size else 0, np.inf)
    for index in range(targets.size):
        extra[targets[index]] = min(extra[targets[index]], target_costs[index])
    least, most = np.inf, 0.0
    for weight in weights:
        if weight < np.inf:
            least, most = min(least, weight), max(most, weight)
    if sources.size:
        most = max(most, source_costs.max() - source_costs.min())
    width = max(min(least, 1e9), 1e-6) * 0.999
    slots = int(most / width) + 3
    firsts = np.full(slots, -1, dtype=np.int32)
    items = np.empty(heads.size + sources.size, dtype=np.int32)
    nexts = np.empty(heads.size + sources.size, dtype=np.int32)
    count, waiting = 0, 0
    at = int(source_costs.min() / width) if sources.size else 0
    for index in range(sources.size):
        node, cost = sources[index], source_costs[index]
        if cost < costs[node]:
            costs[node] = cost
            slot = int(cost / width) % slots
            items[count], nexts[count], firsts[slot] = node, firsts[slot], count
            count, waiting = count + 1, waiting + 1
    best, best_cost = -1, np.inf
    left = wanted.sum() if wanted.size else -1
    while waiting > 0 and at * width < best_cost and left != 0:
        slot = at % slots
        while firsts[slot] >= 0:
            entry = firsts[slot]
            firsts[slot] = nexts[entry]
            waiting -= 1
            node = items[entry]
            if is_settled[node]:
                continue
            is_settled[node] = True
            cost = costs[node]
            if targets.size and cost + extra[node] < best_cost:
                best, best_cost = node, cost + extra[node]
            if left > 0 and wanted[node]:
                left -= 1
            for edge in range(starts[node], starts[node + 1]):
                through, head = cost + weights[edge], heads[edge]
                if through < costs[head]:
                    costs[head] = through
                    reached[head] = edge
                    place = int(through / width) % slots
                    items[count], nexts[count], firsts[place] = head, firsts[place], count
                    count, waiting = count + 1, waiting + 1
        at += 1
    return costs, reached, best


@_compile
def trace(reached: Ints, tails: Ints, node: int) -> Ints:
    """The edges of the path that ends at `node`, from its source on; `tails[e]` is where edge e starts."""
    count, at = 0, node
    while reached[at] >= 0:
        at = tails[reached[at]]
        count += 1
    path = np.empty(count, dtype=np.int32)
    at = node
    for place in range(count - 1, -1, -1):
        path[place] = reached[at]
        at = tails[reached[at]]
    return path


@_compile
def nearest(xs: Floats, ys: Floats, columns: int, row: int, column: int, x: float, y: float) -> tuple[int, float]:
    """Of the crossings in the nine cells around (row, column) of a grid: the one nearest to (x, y), and its distance."""
    rows = xs.size // columns
    best, best_square = -1, np.inf
    for r in range(max(row - 1, 0), min(row + 2, rows)):
        for c in range(max(column - 1, 0), min(column + 2, columns)):
            node = r * columns + c
            square = (xs[node] - x) ** 2 + (ys[node] - y) ** 2
            if square < best_square:
                best, best_square = node, square
    return best, np.sqrt(best_square)
