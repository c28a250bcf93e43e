"""Shortest paths: one compiled Dijkstra over a directed graph in compressed sparse rows, for roads and for transit alike.

Sources and targets carry costs of their own (the walk to a stop, the way to the nearest crossing), so that one search answers "from this
coordinate to that one". A weight of infinity closes an edge. About 0.05 ms for a pair on the city's 1,152 crossings.
Compiled once a machine (numba's cache), not once a process.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@njit(cache=True)
def dijkstra(starts: Ints, heads: Ints, weights: Floats, sources: Ints, source_costs: Floats, targets: Ints, target_costs: Floats):  # type: ignore[no-untyped-def]
    """Costs and predecessor edges from the sources, stopping once the cheapest target is certain.

    Args:
        starts: [nodes + 1], heads: [edges], weights: [edges]: edge e of node n lies in starts[n] .. starts[n + 1] and leads to heads[e].
        sources, source_costs, targets, target_costs: may be empty for targets, then all nodes are settled.

    Returns:
        (costs [nodes], edge by which each node was reached [nodes], -1 at sources; best target or -1).
    """
    nodes = starts.size - 1
    costs = np.full(nodes, np.inf)
    reached = np.full(nodes, -1, dtype=np.int32)
    extra = np.full(nodes, np.inf)
    for index in range(targets.size):
        extra[targets[index]] = min(extra[targets[index]], target_costs[index])
    capacity = heads.size + sources.size + 1
    keys = np.empty(capacity)
    items = np.empty(capacity, dtype=np.int32)
    size = 0
    best, best_cost = -1, np.inf
    for index in range(sources.size):
        node, cost = sources[index], source_costs[index]
        if cost < costs[node]:
            costs[node] = cost
            size = _push(keys, items, size, cost, node)
    while size > 0:
        cost, node = keys[0], items[0]
        size = _pop(keys, items, size)
        if cost > costs[node]:
            continue
        if cost >= best_cost:
            break
        if cost + extra[node] < best_cost:
            best, best_cost = node, cost + extra[node]
        for edge in range(starts[node], starts[node + 1]):
            through, head = cost + weights[edge], heads[edge]
            if through < costs[head]:
                costs[head] = through
                reached[head] = edge
                size = _push(keys, items, size, through, head)
    return costs, reached, best


@njit(cache=True)
def _push(keys, items, size, key, item):  # type: ignore[no-untyped-def]
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place], items[place] = keys[parent], items[parent]
        place = parent
    keys[place], items[place] = key, item
    return size + 1


@njit(cache=True)
def _pop(keys, items, size):  # type: ignore[no-untyped-def]
    size -= 1
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if key <= keys[child]:
            break
        keys[place], items[place] = keys[child], items[child]
        place = child
    keys[place], items[place] = key, item
    return size


@njit(cache=True)
def trace(reached: Ints, tails: Ints, node: int) -> Ints:  # type: ignore[no-untyped-def]
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
