"""map_compute_routes: by car, bicycle, foot, transit and the rest, with departure or arrival, traffic and preferences.

Timetables and traffic are those of the departure; for an arrival it is the latest departure found to be in time, and never before now.

Every route has an identifier that its course, mode and ends determine: the same way has the same identifier, whichever call found it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from synth.worlds.arguments import BadArgument
from synth.worlds.city.map.city_map import City, parse_time, point
from synth.worlds.city.map.roads import Way, road_names
from synth.worlds.city.map.transit import stop_name
from synth.worlds.city.vocabulary import LINES, MOTOR_MODES, NOW

Point = tuple[float, float]

TRAFFIC: tuple[tuple[float, str, str], ...] = (
    (1.12, "smooth", "畅通"),
    (1.3, "slow", "缓行"),
    (1.55, "congested", "拥堵"),
    (99.0, "jammed", "严重拥堵"),
)
"""Up to this ratio of the duration to that without jams: English, Chinese."""
_ROADS_SHOWN = 4
_NOON = 12.0


def compute_routes(city: City, given: dict[str, Any]) -> dict[str, Any]:
    """map_compute_routes."""
    texts = [given["origin"], *(given["intermediates"] or ()), given["destination"]]
    stops = [
        point("origin", texts[0]),
        *(point("intermediates", text) for text in texts[1:-1]),
        point("destination", texts[-1]),
    ]
    modes, preference = list(dict.fromkeys(given["modes"])), given["preference"]
    if given["departure_time"] is not None and given["arrival_time"] is not None:
        raise BadArgument("departure_time and arrival_time exclude each other")
    if "transit" in modes and len(stops) > 2:
        raise BadArgument("intermediates are not possible with mode transit")
    if preference is not None and not all(mode in MOTOR_MODES for mode in modes):
        raise BadArgument("preference applies to the modes driving, motorcycle and truck only")
    leaves = None if given["departure_time"] is None else parse_time("departure_time", given["departure_time"])
    arrives = None if given["arrival_time"] is None else parse_time("arrival_time", given["arrival_time"])
    routes = []
    for mode in modes:
        has_traffic = given["traffic_aware"] and mode in MOTOR_MODES

        def route_at(at: datetime | None, mode: str = mode, has_traffic: bool = has_traffic) -> dict[str, Any]:
            """The route that leaves at that time; at None the quickest of the whole day."""
            if mode == "transit":
                return _by_transit(city, stops, at)
            return _by_road(city, stops, mode, preference or "", at.hour if at is not None and has_traffic else -1)

        route = _arriving(route_at, arrives) if arrives is not None else _add_times(route_at(leaves or NOW), leaves or NOW)
        course = route.pop("course")
        identifier = crc32(course + "|".join((mode, *texts)).encode()) % 100_000_000
        routes.append({"mode": mode, "route_id": f"rt-{identifier:08d}", **route})
    return {"routes": routes}


def _arriving(route_at: Callable[[datetime | None], dict[str, Any]], arrives: datetime) -> dict[str, Any]:
    """The route of the latest departure that is in time: it is put off by what the way takes at that hour until that suffices."""
    leaves, route = arrives, route_at(None)
    while "duration_min" in route and leaves + timedelta(minutes=route["duration_min"]) > arrives:
        leaves = arrives - timedelta(minutes=route["duration_min"])
        route = route_at(leaves)
    if "duration_min" in route and leaves < NOW:
        return {"course": b"", "unavailable": f"it would have to leave at {leaves:%H:%M}, which has passed"}
    return _add_times(route, leaves)


def _add_times(route: dict[str, Any], leaves: datetime) -> dict[str, Any]:
    if "duration_min" not in route:
        return route
    arrives = leaves + timedelta(minutes=route["duration_min"])
    return route | {"departure": leaves.isoformat(timespec="minutes"), "arrival": arrives.isoformat(timespec="minutes")}


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))


def _by_road(city: City, stops: list[Point], mode: str, preference: str, hour: int) -> dict[str, Any]:
    ways: list[Way] = [city.roads.way(a, b, mode, preference, hour) for a, b in pairwise(stops)]
    edges = ways[0].edges if len(ways) == 1 else np.concatenate([way.edges for way in ways])
    seconds = sum(way.seconds for way in ways)
    corners = city.roads.corners(edges)
    route: dict[str, Any] = {
        "course": edges.tobytes(),
        "distance_m": round(sum(way.distance_m for way in ways)),
        "duration_min": _minutes(seconds),
        "lights": int(city.roads.has_light[corners[1:]].sum()),
        "roads": [road_names(line)[0] for line in city.roads.roads_along(edges)[:_ROADS_SHOWN]],
    }
    if mode in ("driving", "truck"):
        route["toll_yuan"] = round(sum(way.toll_yuan for way in ways), 1)
    if hour >= 0:
        free = sum(way.free_seconds for way in ways)
        _, en, zh = next(entry for entry in TRAFFIC if seconds / free <= entry[0])
        route |= {"traffic": en, "traffic_zh": zh, "delay_min": max(0, _minutes(seconds) - _minutes(free))}
    return route


def _by_transit(city: City, stops: list[Point], at: datetime | None) -> dict[str, Any]:
    connection = city.transit.connect(stops[0], stops[1], _NOON if at is None else at.hour + at.minute / 60)
    if connection is None:
        assert at is not None, "every line runs at noon"
        return {"course": b"", "unavailable": f"no line runs at {at:%H:%M}"}
    legs = []
    for leg in connection.legs:
        (en, zh), board, alight = LINES[leg.line], stop_name(leg.board), stop_name(leg.alight)
        legs.append({"line": en, "line_zh": zh, "board": board[0], "alight": alight[0], "stops": leg.stops})
    return {
        "course": "".join(f"{leg.line}:{leg.board}:{leg.alight}" for leg in connection.legs).encode(),
        "distance_m": round(connection.metres),
        "duration_min": _minutes(connection.seconds),
        "walk_m": round(connection.walk_m),
        "fare_yuan": connection.fare_yuan,
        "transfers": max(0, len(legs) - 1),
        "legs": legs,
    }
