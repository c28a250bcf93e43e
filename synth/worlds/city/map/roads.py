"""The road network: a grid of crossings with a river, expressways, main roads, streets and footpaths, drawn anew by every seed.

Which crossings *may* be joined is fixed (so the sparse structure is built once a process); every seed moves the crossings, bends the
roads, closes some streets to cars, takes others out, gives each direction its own speed, and each road its proneness to jams.
Horizontal roads and every fourth vertical one always exist, so that every crossing is reached in every mode.

Routes are shortest by time (for the preferences: by time with unwanted kinds of road counted several times over, so that they are
taken only where little else leads). Jams change the fastest way where the caller asks for traffic, else nothing.
Not modelled: turns, one-way streets, parking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import hypot

import numpy as np
from numpy.typing import NDArray

from synth.worlds.city.map.geometry import COLUMNS, HEIGHT_M, ROWS, SPACING_M, WIDTH_M, Floats
from synth.worlds.city.map.place_names import STEMS
from synth.worlds.city.map.shortest_paths import dijkstra, nearest, trace

Ints = NDArray[np.int32]

EXPRESSWAY, MAIN, STREET, PATH = 0, 1, 2, 3
NODES = ROWS * COLUMNS
_RIVER_ROW = 15
"""The river flows between this row of crossings and the next; bridges are on main and express roads only."""
_EXPRESS_ROWS, _EXPRESS_COLUMNS = (4, 28), (4, 32)
_JITTER_M, _BEND = 110.0, 0.18

_SPEEDS_M_S: dict[str, tuple[float, float, float, float]] = {
    "driving": (22.0, 12.5, 8.0, np.nan),
    "motorcycle": (14.0, 11.0, 8.5, np.nan),
    "truck": (18.0, 9.5, 5.5, np.nan),
    "bicycling": (3.9, 4.4, 4.3, 4.0),
    "walking": (1.25, 1.35, 1.35, 1.4),
}
"""By mode: expressway, main road, street, footpath (nan: closed to it)."""

_PENALTIES: dict[str, tuple[float, float, float, float]] = {
    "": (1.0, 1.0, 1.0, 1.0),
    "prefer_highways": (0.5, 1.0, 1.2, 1.0),
    "avoid_highways": (8.0, 1.0, 1.0, 1.0),
    "prefer_main_roads": (1.6, 0.7, 1.6, 1.0),
    "avoid_tolls": (1.0, 1.0, 1.0, 8.0),
    "avoid_highways+avoid_tolls": (8.0, 1.0, 1.0, 8.0),
}
"""By preference: factor on expressways, main roads, streets, and on toll roads besides."""

_JAM_BY_HOUR = np.array([0, 0, 0, 0, 0, 0.05, 0.3, 0.8, 1, 0.7, 0.4, 0.4, 0.5, 0.4, 0.4, 0.45, 0.6, 0.9, 1, 0.7, 0.4, 0.25, 0.1, 0.05])
_TOLL_YUAN_PER_KM = 0.9


@dataclass(frozen=True, slots=True)
class Grid:
    """The fixed structure: directed edges sorted by their tail, and what never changes about each."""

    starts: Ints
    heads: Ints
    tails: Ints
    undirected: Ints
    """Directed edge -> undirected edge, 0 .. roads - 1."""
    ends: NDArray[np.int32]
    """[roads, 2]: the two crossings of each undirected edge."""
    kinds: Ints
    is_vertical: NDArray[np.bool_]
    is_fixed: NDArray[np.bool_]
    exists: NDArray[np.bool_]
    """False where only a bridge could be and there is none."""
    has_toll: NDArray[np.bool_]
    lines: Ints
    """Undirected edge -> row (0 .. ROWS - 1) or ROWS + column: the road that it is part of."""


@lru_cache(maxsize=1)
def grid() -> Grid:
    ends, lines, vertical = [], [], []
    for row in range(ROWS):
        for column in range(COLUMNS):
            node = row * COLUMNS + column
            if column + 1 < COLUMNS:
                ends.append((node, node + 1))
                lines.append(row)
                vertical.append(False)
            if row + 1 < ROWS:
                ends.append((node, node + COLUMNS))
                lines.append(ROWS + column)
                vertical.append(True)
    pairs, line, is_vertical = np.array(ends, np.int32), np.array(lines, np.int32), np.array(vertical)
    index = np.where(is_vertical, line - ROWS, line)
    is_express = np.isin(index, _EXPRESS_ROWS) & ~is_vertical | np.isin(index, _EXPRESS_COLUMNS) & is_vertical
    kinds = np.where(is_express, EXPRESSWAY, np.where(index % 4 == 0, MAIN, STREET)).astype(np.int32)
    crosses_river = is_vertical & (pairs[:, 0] // COLUMNS == _RIVER_ROW)
    tails = np.concatenate([pairs[:, 0], pairs[:, 1]])
    heads = np.concatenate([pairs[:, 1], pairs[:, 0]])
    order = np.lexsort((heads, tails))
    starts = np.searchsorted(tails[order], np.arange(NODES + 1)).astype(np.int32)
    return Grid(
        starts=starts,
        heads=heads[order],
        tails=tails[order],
        undirected=(order % len(pairs)).astype(np.int32),
        ends=pairs,
        kinds=kinds,
        is_vertical=is_vertical,
        is_fixed=~is_vertical | (kinds < STREET),
        exists=~(crosses_river & (kinds == STREET)),
        has_toll=is_express & ((line == 4) | (line == ROWS + 32)),
        lines=line,
    )


def road_names(line: int) -> tuple[str, str]:
    """English and Chinese name of a road: rows are roads, columns avenues; expressways say so."""
    if line < ROWS:
        en, zh = STEMS[(line * 5 + 3) % len(STEMS)]
        return (f"{en} Expressway", f"{zh}快速路") if line in _EXPRESS_ROWS else (f"{en} Road", f"{zh}路")
    en, zh = STEMS[((line - ROWS) * 7 + 2) % len(STEMS)]
    return (f"{en} Ring Expressway", f"{zh}环线快速路") if line - ROWS in _EXPRESS_COLUMNS else (f"{en} Avenue", f"{zh}大道")


@dataclass(frozen=True, slots=True)
class Way:
    """A way between two coordinates: `edges` are directed, in order; `access_m` is what lies off the network at both ends."""

    edges: Ints
    distance_m: float
    seconds: float
    free_seconds: float
    """What it would take without jams."""
    toll_yuan: float


class Roads:
    """One seed's roads."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        fixed = grid()
        columns, rows = np.meshgrid(np.arange(COLUMNS), np.arange(ROWS))
        self.x = columns.ravel() * SPACING_M + rng.uniform(-_JITTER_M, _JITTER_M, NODES)
        self.y = rows.ravel() * SPACING_M + rng.uniform(-_JITTER_M, _JITTER_M, NODES)
        roads = len(fixed.ends)
        a, b = fixed.ends[:, 0], fixed.ends[:, 1]
        straight = np.hypot(self.x[a] - self.x[b], self.y[a] - self.y[b])
        lengths = straight * (1 + rng.uniform(0.0, _BEND, roads))
        fate = rng.random(roads)
        kinds = fixed.kinds.copy()
        kinds[~fixed.is_fixed & (fate < 0.15)] = PATH
        is_open = fixed.exists & (fixed.is_fixed | (fate < 0.88))
        self.kinds: Ints = kinds[fixed.undirected]
        self.lengths: Floats = np.where(is_open, lengths, np.inf)[fixed.undirected]
        self.has_light = rng.random(NODES) < 0.45
        edges = len(fixed.heads)
        self._pace = rng.uniform(0.85, 1.25, edges)
        self._jam = rng.gamma(1.6, 0.35, edges) * np.array([1.1, 1.2, 0.7, 0.0])[self.kinds]
        self._weights: dict[tuple[str, str, int], tuple[Floats, Floats]] = {}

    @cached_property
    def _toll(self) -> NDArray[np.bool_]:
        return grid().has_toll[grid().undirected]

    def _edge_weights(self, mode: str, preference: str, hour: int) -> tuple[Floats, Floats]:
        """(cost, seconds) by directed edge; `hour` -1 is free flow."""
        weights = self._weights.get((mode, preference, hour))
        if weights is None:
            seconds = self.lengths / np.array(_SPEEDS_M_S[mode])[self.kinds] * (self._pace if mode not in ("walking", "bicycling") else 1.0)
            if hour >= 0:
                seconds = seconds * (1 + self._jam * _JAM_BY_HOUR[hour])
            express, main, street, toll = _PENALTIES[preference]
            cost = seconds * np.array([express, main, street, 1.0])[self.kinds]
            if toll != 1.0:
                cost = np.where(self._toll, cost * toll, cost)
            closed = ~np.isfinite(seconds)
            weights = (np.where(closed, np.inf, cost), np.where(closed, 0.0, seconds))
            self._weights[mode, preference, hour] = weights
        return weights

    def nearest(self, at: tuple[float, float]) -> tuple[int, float]:
        """The nearest crossing, and how many metres away it is."""
        column = min(max(round(at[0] / SPACING_M), 0), COLUMNS - 1)
        row = min(max(round(at[1] / SPACING_M), 0), ROWS - 1)
        return nearest(self.x, self.y, COLUMNS, row, column, float(at[0]), float(at[1]))

    def way(self, origin: tuple[float, float], destination: tuple[float, float], mode: str, preference: str = "", hour: int = -1) -> Way:
        """The best way by `mode`. Jams of `hour` count for motor vehicles; -1 is free flow."""
        start, start_m = self.nearest(origin)
        end, end_m = self.nearest(destination)
        pace = 1.0 / (1.35 if mode == "walking" else 4.0)
        if start == end:
            metres = hypot(origin[0] - destination[0], origin[1] - destination[1]) * 1.1
            return Way(np.empty(0, np.int32), metres, metres * pace, metres * pace, 0.0)
        if mode in ("walking", "bicycling"):
            hour = -1
        cost, seconds = self._edge_weights(mode, preference, hour)
        fixed = grid()
        _, reached, best = dijkstra(fixed.starts, fixed.heads, cost, _one(start), _ZERO, _one(end), _ZERO, NO_FLAGS)
        edges = trace(reached, fixed.tails, best)
        access = start_m + end_m
        lengths = self.lengths[edges]
        duration = float(seconds[edges].sum()) + access * pace
        free = duration if hour < 0 else float(self._edge_weights(mode, preference, -1)[1][edges].sum()) + access * pace
        toll = float(lengths[self._toll[edges]].sum()) / 1000 * _TOLL_YUAN_PER_KM if mode in ("driving", "truck") else 0.0
        return Way(edges, float(lengths.sum()) + access, duration, free, toll)

    def metres_from(self, origin: tuple[float, float], crossings: NDArray[np.int64]) -> Floats:
        """Metres by road from a coordinate to each of the crossings, by the shortest drivable way."""
        start, start_m = self.nearest(origin)
        fixed = grid()
        flags = np.zeros(NODES, np.bool_)
        flags[crossings] = True
        costs, _, _ = dijkstra(fixed.starts, fixed.heads, self._drivable, _one(start), np.array([start_m]), _NONE, _NO_COSTS, flags)
        out: Floats = costs[crossings]
        return out

    @cached_property
    def _drivable(self) -> Floats:
        return np.where(self.kinds == PATH, np.inf, self.lengths)

    def nearest_all(self, xs: Floats, ys: Floats) -> tuple[NDArray[np.int64], Floats]:
        """For points: the nearest crossing of the nine around, and the metres to it."""
        columns = np.clip(np.round(xs / SPACING_M), 0, COLUMNS - 1).astype(np.int64)
        rows = np.clip(np.round(ys / SPACING_M), 0, ROWS - 1).astype(np.int64)
        r = np.clip(rows[:, None] + _AROUND[0], 0, ROWS - 1)
        c = np.clip(columns[:, None] + _AROUND[1], 0, COLUMNS - 1)
        nodes = r * COLUMNS + c
        metres = np.hypot(self.x[nodes] - xs[:, None], self.y[nodes] - ys[:, None])
        best = metres.argmin(axis=1)
        pick = np.arange(len(xs))
        return nodes[pick, best], metres[pick, best]

    def corners(self, edges: Ints) -> Ints:
        """The crossings that a way passes, in order."""
        if not edges.size:
            return np.empty(0, np.int32)
        return np.concatenate([grid().tails[edges[:1]], grid().heads[edges]])

    def roads_along(self, edges: Ints) -> list[int]:
        """The lines that a way follows, in order, each once in a row."""
        lines = grid().lines[grid().undirected[edges]]
        if lines.size == 0:
            return []
        changes = np.concatenate([[True], lines[1:] != lines[:-1]])
        out: list[int] = lines[changes].tolist()
        return out


_AROUND = np.array([(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)]).T[:, None, :]
_ZERO = np.zeros(1)
_NONE, _NO_COSTS, NO_FLAGS = np.empty(0, np.int32), np.empty(0), np.empty(0, np.bool_)


def _one(node: int) -> Ints:
    return np.array([node], np.int32)


assert (WIDTH_M, HEIGHT_M) == ((COLUMNS - 1) * SPACING_M, (ROWS - 1) * SPACING_M)
