"""Metro and bus: fixed lines with stops on the crossings, seeded headways and disturbances, and the quickest connection between two points.

One idea: every (line, stop) is a node; riding, changing and boarding are edges; the walks at both ends are the source and target costs of
the same Dijkstra that roads use. Waiting costs half a headway plus the line's present delay. Fares: the metro counts the distance ridden,
a bus costs 2 yuan a boarding. Rides take what the straight distance between stops takes at the line's speed; there is no timetable to
the minute, only headways and service hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from synth.worlds.city.map.geometry import COLUMNS, ROWS, Floats
from synth.worlds.city.map.roads import NO_FLAGS, Ints, Roads, road_names
from synth.worlds.city.map.shortest_paths import dijkstra, trace
from synth.worlds.city.vocabulary import LINES

WALK_M_S = 1.3
_WALK_BEND = 1.25
_REACH_M = 1600.0
_CHANGE_S, _DWELL_S = 150.0, 30.0
_SPEED_M_S = {"metro": 10.5, "bus": 5.2}
SERVICE_H = {"metro": (5.5, 23.0), "bus": (6.0, 22.0)}
"""First and last departure, in hours."""
STATUSES = (("running normally", "运行正常"), ("minor delays", "轻微延误"), ("major delays", "严重延误"))

Node = tuple[int, int]


def _lines() -> dict[str, list[Node]]:
    """Line -> its stops as (row, column), in order."""
    across = {"metro_1": 14, "metro_2": 22, "metro_3": 6, "bus_11": 2, "bus_16": 10, "bus_22": 18, "bus_28": 26}
    down = {"metro_4": 8, "metro_5": 18, "metro_6": 28, "bus_35": 2, "bus_47": 12, "bus_52": 22, "bus_68": 34}
    lines: dict[str, list[Node]] = {}
    for key, row in across.items():
        lines[key] = [(row, column) for column in range(0, COLUMNS, 2)]
    for key, column in down.items():
        lines[key] = [(row, column) for row in range(0, ROWS, 2)]
    lines["metro_7"] = [(step, step + 2) for step in range(2, 31, 2)]
    lines["metro_8"] = [(step, 34 - step) for step in range(2, 31, 2)]
    for key, row, column in (("bus_73", 6, 14), ("bus_81", 14, 26), ("bus_90", 20, 6), ("bus_99", 28, 16)):
        lines[key] = [(row, c) for c in range(0, column, 2)] + [
            (r, column) for r in range(row, ROWS if row < 16 else -1, 2 if row < 16 else -2)
        ]
    return {key: lines[key] for key in LINES}


@dataclass(frozen=True, slots=True)
class Network:
    """The fixed structure. Platforms are (line, stop) pairs; `lines[p]` and `crossings[p]` say which."""

    keys: tuple[str, ...]
    lines: Ints
    crossings: Ints
    starts: Ints
    heads: Ints
    tails: Ints
    is_ride: NDArray[np.bool_]
    is_metro: NDArray[np.bool_]
    """[platforms]"""


@lru_cache(maxsize=1)
def network() -> Network:
    keys = tuple(LINES)
    platforms: list[tuple[int, int]] = []
    edges: list[tuple[int, int, bool]] = []
    by_crossing: dict[int, list[int]] = {}
    for line, stops in enumerate(_lines().values()):
        for order, (row, column) in enumerate(stops):
            here = len(platforms)
            platforms.append((line, row * COLUMNS + column))
            if order:
                edges += [(here - 1, here, True), (here, here - 1, True)]
            for other in by_crossing.setdefault(row * COLUMNS + column, []):
                edges += [(other, here, False), (here, other, False)]
            by_crossing[row * COLUMNS + column].append(here)
    table = np.array([(tail, head, ride) for tail, head, ride in sorted(edges)], np.int32)
    lines = np.array([line for line, _ in platforms], np.int32)
    return Network(
        keys=keys,
        lines=lines,
        crossings=np.array([crossing for _, crossing in platforms], np.int32),
        starts=np.searchsorted(table[:, 0], np.arange(len(platforms) + 1)).astype(np.int32),
        heads=table[:, 1].copy(),
        tails=table[:, 0].copy(),
        is_ride=table[:, 2].astype(bool),
        is_metro=np.array([keys[line].startswith("metro") for line in lines]),
    )


def stop_name(crossing: int) -> tuple[str, str]:
    """A stop is named after the two roads that meet there."""
    road, avenue = road_names(crossing // COLUMNS), road_names(ROWS + crossing % COLUMNS)
    return f"{road[0]}/{avenue[0]}", f"{road[1]}·{avenue[1]}"


@dataclass(frozen=True, slots=True)
class Leg:
    line: str
    board: int
    alight: int
    """Crossings."""
    stops: int
    metres: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Connection:
    legs: tuple[Leg, ...]
    walk_m: float
    seconds: float
    fare_yuan: int

    @property
    def metres(self) -> float:
        return self.walk_m + sum(leg.metres for leg in self.legs)


class Transit:
    """One seed's public transit.

    headway_min, delay_min: by line, minutes; status: index into `STATUSES`.
    """

    def __init__(self, seed: int, roads: Roads) -> None:
        rng = np.random.default_rng([seed, 3])
        fixed = network()
        count = len(fixed.keys)
        is_metro = np.array([key.startswith("metro") for key in fixed.keys])
        self.headway_min = np.where(is_metro, rng.integers(3, 8, count), rng.integers(6, 16, count))
        self.status = rng.choice(3, count, p=[0.6, 0.25, 0.15])
        self.delay_min = np.select([self.status == 1, self.status == 2], [rng.integers(4, 10, count), rng.integers(15, 41, count)], 0)
        self.x, self.y = roads.x[fixed.crossings], roads.y[fixed.crossings]
        straight = np.hypot(self.x[fixed.tails] - self.x[fixed.heads], self.y[fixed.tails] - self.y[fixed.heads])
        speeds = np.where(fixed.is_metro, _SPEED_M_S["metro"], _SPEED_M_S["bus"])
        wait = (self.headway_min * 30.0 + self.delay_min * 60.0)[fixed.lines]
        self._ride_m: Floats = np.where(fixed.is_ride, straight * 1.1, 0.0)
        self._ride_s: Floats = np.where(fixed.is_ride, straight * 1.1 / speeds[fixed.tails] + _DWELL_S, _CHANGE_S + wait[fixed.heads])
        self._wait_s: Floats = wait

    def _reachable(self, at: tuple[float, float], hour: float) -> tuple[Ints, Floats]:
        """Platforms within walking distance (else the nearest) whose line runs, and the seconds of the walk."""
        fixed = network()
        metres = np.hypot(self.x - at[0], self.y - at[1])
        runs = np.where(fixed.is_metro, _runs("metro", hour), _runs("bus", hour))
        near = np.flatnonzero(runs & (metres <= max(_REACH_M, float(metres[runs].min(initial=np.inf)))))
        return near.astype(np.int32), metres[near] * _WALK_BEND / WALK_M_S

    def connect(self, origin: tuple[float, float], destination: tuple[float, float], hour: float) -> Connection | None:
        """The quickest connection that leaves at `hour` (0 .. 24), or None where nothing runs then."""
        fixed = network()
        sources, walks = self._reachable(origin, hour)
        targets, last_walks = self._reachable(destination, hour)
        if not sources.size or not targets.size:
            return None
        runs = np.where(fixed.is_metro, _runs("metro", hour), _runs("bus", hour))
        weights = self._ride_s if runs.all() else np.where(runs[fixed.heads], self._ride_s, np.inf)
        costs, reached, best = dijkstra(
            fixed.starts, fixed.heads, weights, sources, walks + self._wait_s[sources], targets, last_walks, NO_FLAGS
        )
        if best < 0:
            return None
        edges = trace(reached, fixed.tails, best)
        first = int(fixed.tails[edges[0]]) if edges.size else best
        egress_s = float(last_walks[np.flatnonzero(targets == best)[0]])
        access_s = float(walks[np.flatnonzero(sources == first)[0]])
        legs = self._legs(edges)
        seconds = float(costs[best]) + egress_s
        return Connection(legs, (access_s + egress_s) * WALK_M_S, seconds, self._fare(legs))

    def _legs(self, edges: Ints) -> tuple[Leg, ...]:
        fixed = network()
        legs: list[Leg] = []
        ride: list[int] = []

        def close() -> None:
            if ride:
                first, last = int(fixed.tails[ride[0]]), int(fixed.heads[ride[-1]])
                legs.append(
                    Leg(
                        line=fixed.keys[int(fixed.lines[first])],
                        board=int(fixed.crossings[first]),
                        alight=int(fixed.crossings[last]),
                        stops=len(ride),
                        metres=float(self._ride_m[ride].sum()),
                        seconds=float(self._ride_s[ride].sum()),
                    )
                )
                ride.clear()

        for edge in edges.tolist():
            if fixed.is_ride[edge]:
                ride.append(edge)
            else:
                close()
        close()
        return tuple(legs)

    @staticmethod
    def _fare(legs: tuple[Leg, ...]) -> int:
        """Metro: 2 yuan to 4 km, 1 yuan for every 4 km begun beyond; bus: 2 yuan a boarding."""
        metro_km = sum(leg.metres for leg in legs if leg.line.startswith("metro")) / 1000
        buses = sum(leg.line.startswith("bus") for leg in legs)
        return (2 + max(0, ceil((metro_km - 4) / 4)) if metro_km > 0 else 0) + 2 * buses


def _runs(kind: str, hour: float) -> bool:
    first, last = SERVICE_H[kind]
    return first <= hour <= last
