"""Shortest paths are shortest: against an independent Dijkstra, and by the properties that distances have."""

from __future__ import annotations

import heapq
import json
import random
from datetime import datetime, timedelta
from math import hypot, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.worlds.city.map.city_map import city_of
from synth.worlds.city.map.geometry import HEIGHT_M, WIDTH_M, from_text, to_text
from synth.worlds.city.map.roads import NODES, PATH, Roads, grid
from synth.worlds.city.map.transit import SERVICE_H, Transit, network
from synth.worlds.city.vocabulary import NOW, TODAY
from synth.worlds.city.world import CityWorld

ROADS = Roads(4)
crossing = st.integers(0, NODES - 1)
WALKING_M_S = {0: 1.25, 1: 1.35, 2: 1.35, 3: 1.4}


def at(node: int) -> tuple[float, float]:
    return float(ROADS.x[node]), float(ROADS.y[node])


def plain_dijkstra(weights: list[float], source: int) -> list[float]:
    """The textbook algorithm, on plain lists."""
    edges: list[list[tuple[int, float]]] = [[] for _ in range(NODES)]
    for tail, head, weight in zip(grid().tails.tolist(), grid().heads.tolist(), weights, strict=True):
        edges[tail].append((head, weight))
    costs, queue = [inf] * NODES, [(0.0, source)]
    costs[source] = 0.0
    while queue:
        cost, node = heapq.heappop(queue)
        if cost > costs[node]:
            continue
        for head, weight in edges[node]:
            if cost + weight < costs[head]:
                costs[head] = cost + weight
                heapq.heappush(queue, (costs[head], head))
    return costs


@pytest.mark.parametrize("source", [0, 17, 600, NODES - 1])
def test_metres_by_car_are_those_of_an_independent_dijkstra(source: int) -> None:
    drivable = np.where(ROADS.kinds == PATH, inf, ROADS.lengths).tolist()
    assert np.allclose(ROADS.metres_from(at(source), np.arange(NODES)), plain_dijkstra(drivable, source))


@pytest.mark.parametrize("source", [3, 500, 1100])
def test_walks_take_as_long_as_an_independent_dijkstra_says(source: int) -> None:
    seconds = [metres / WALKING_M_S[kind] for metres, kind in zip(ROADS.lengths.tolist(), ROADS.kinds.tolist(), strict=True)]
    expected = plain_dijkstra(seconds, source)
    rng = random.Random(source)
    for target in rng.sample([node for node in range(NODES) if node != source], 40):
        assert ROADS.way(at(source), at(target), "walking").seconds == pytest.approx(expected[target])


@pytest.mark.parametrize(
    "preference", ["", "prefer_highways", "avoid_highways", "avoid_tolls", "prefer_main_roads", "avoid_highways+avoid_tolls"]
)
def test_no_preference_is_faster_than_the_fastest_way(preference: str) -> None:
    rng = random.Random(1)
    for _ in range(30):
        a, b = at(rng.randrange(NODES)), at(rng.randrange(NODES))
        assert ROADS.way(a, b, "driving").seconds <= ROADS.way(a, b, "driving", preference).seconds + 1e-6


@settings(max_examples=60, deadline=None)
@given(a=crossing, b=crossing, c=crossing)
def test_triangle_inequality(a: int, b: int, c: int) -> None:
    from_a, from_b = ROADS.metres_from(at(a), np.array([b, c])), ROADS.metres_from(at(b), np.array([c]))
    assert from_a[1] <= from_a[0] + from_b[0] + 1e-6


@settings(max_examples=60, deadline=None)
@given(a=crossing, b=crossing, mode=st.sampled_from(["driving", "walking", "bicycling", "motorcycle", "truck"]))
def test_a_way_is_connected_open_and_no_shorter_than_the_crow_flies(a: int, b: int, mode: str) -> None:
    way = ROADS.way(at(a), at(b), mode)
    corners = ROADS.corners(way.edges).tolist()
    if a != b:
        assert (corners[0], corners[-1]) == (a, b)
        assert grid().tails[way.edges[1:]].tolist() == corners[1:-1]
        assert np.isfinite(ROADS.lengths[way.edges]).all()
        assert mode in ("walking", "bicycling") or (ROADS.kinds[way.edges] != PATH).all()
    assert way.distance_m >= hypot(at(a)[0] - at(b)[0], at(a)[1] - at(b)[1]) - 1e-6


@settings(max_examples=40, deadline=None)
@given(a=crossing, b=crossing, hour=st.integers(0, 23))
def test_jams_never_make_a_way_faster(a: int, b: int, hour: int) -> None:
    jammed = ROADS.way(at(a), at(b), "driving", hour=hour)
    assert jammed.seconds >= ROADS.way(at(a), at(b), "driving").seconds - 1e-6
    assert jammed.seconds >= jammed.free_seconds - 1e-6


@settings(max_examples=100, deadline=None)
@given(x=st.floats(0, WIDTH_M), y=st.floats(0, HEIGHT_M))
def test_coordinates_survive_being_written(x: float, y: float) -> None:
    text = to_text(x, y)
    again = from_text(text)
    assert hypot(again[0] - x, again[1] - y) < 1.0
    assert to_text(*again) == text


def test_every_crossing_is_reached_in_every_seed() -> None:
    for seed in range(6):
        metres = Roads(seed).metres_from((0.0, 0.0), np.arange(NODES))
        assert np.isfinite(metres).all()


# ---- transit and the tool -------------------------------------------------------------------------------------------------------


def test_a_connection_is_as_quick_as_an_independent_search_says() -> None:
    transit, fixed = Transit(4, ROADS), network()
    rng = random.Random(2)
    for _ in range(15):
        a, b = at(rng.randrange(NODES)), at(rng.randrange(NODES))
        found = transit.connect(a, b, 12.0)
        assert found is not None
        sources, walks = transit._reachable(a, 12.0)
        targets, last = transit._reachable(b, 12.0)
        costs = [inf] * len(fixed.lines)
        queue = [(walk + float(transit._wait_s[node]), node) for node, walk in zip(sources.tolist(), walks.tolist(), strict=True)]
        heapq.heapify(queue)
        while queue:
            cost, node = heapq.heappop(queue)
            if cost >= costs[node]:
                continue
            costs[node] = cost
            for edge in range(fixed.starts[node], fixed.starts[node + 1]):
                heapq.heappush(queue, (cost + float(transit._ride_s[edge]), int(fixed.heads[edge])))
        best = min(costs[node] + walk for node, walk in zip(targets.tolist(), last.tolist(), strict=True))
        assert found.seconds == pytest.approx(best)


def test_legs_follow_their_lines_and_fares_are_as_published() -> None:
    city = city_of(4)
    rng = random.Random(3)
    for _ in range(40):
        found = city.transit.connect(at(rng.randrange(NODES)), at(rng.randrange(NODES)), 12.0)
        assert found is not None
        metro_m = sum(leg.metres for leg in found.legs if leg.line.startswith("metro"))
        buses = sum(leg.line.startswith("bus") for leg in found.legs)
        metro = 0 if not metro_m else 2 + max(0, -int(-(metro_m / 1000 - 4) // 4))
        assert found.fare_yuan == metro + 2 * buses
        assert all(leg.stops > 0 for leg in found.legs)


def test_nothing_runs_in_the_small_hours() -> None:
    assert min(first for first, _ in SERVICE_H.values()) > 3
    assert city_of(4).transit.connect(at(0), at(900), 3.0) is None


def route(**arguments: Any) -> dict[str, Any]:
    answer = CityWorld(4).call("map_compute_routes", {"origin": to_text(*at(40)), "destination": to_text(*at(900)), **arguments})
    found: dict[str, Any] = json.loads(answer.content)["routes"][0]
    return found


def test_arrival_is_departure_plus_duration_either_way_round() -> None:
    there = route(departure_time="2026-05-14T18:00")
    assert there["departure"] == "2026-05-14T18:00"
    back = route(arrival_time=there["arrival"])
    assert (back["departure"], back["arrival"]) == (there["departure"], there["arrival"])


@pytest.mark.parametrize("mode", ["driving", "transit", "walking"])
def test_who_leaves_when_told_is_in_time_and_finds_that_timetable_and_traffic(mode: str) -> None:
    for minutes in range(0, 24 * 60, 10):
        arrival = f"2026-05-14T{minutes // 60:02d}:{minutes % 60:02d}"
        back = route(arrival_time=arrival, modes=[mode], traffic_aware=True)
        if "unavailable" in back:
            assert mode == "transit" and "no line runs" in back["unavailable"]
            continue
        there = (
            route(departure_time=back["departure"], modes=[mode], traffic_aware=True) if back["departure"] >= TODAY.isoformat() else back
        )
        assert there == back
        assert back["arrival"] <= arrival
        assert back["arrival"] > (datetime.fromisoformat(arrival) - timedelta(minutes=10)).isoformat()


def test_transit_serves_an_arrival_by_the_hours_of_its_departure() -> None:
    taken = route(modes=["transit"])["duration_min"]
    first, last = SERVICE_H["metro"]
    assert taken > 15
    early = datetime(2026, 5, 14) + timedelta(hours=first)
    assert "no line runs" in route(modes=["transit"], arrival_time=f"{early + timedelta(minutes=15):%Y-%m-%dT%H:%M}")["unavailable"]
    late = datetime(2026, 5, 14) + timedelta(hours=last, minutes=15)
    assert route(modes=["transit"], arrival_time=f"{late:%Y-%m-%dT%H:%M}")["legs"]


def test_a_departure_that_has_passed_is_no_answer() -> None:
    taken = timedelta(minutes=route()["duration_min"])
    assert "has passed" in route(arrival_time=f"{NOW + taken - timedelta(minutes=1):%Y-%m-%dT%H:%M}")["unavailable"]
    assert route(arrival_time=f"{NOW + taken:%Y-%m-%dT%H:%M}")["departure"] == f"{NOW:%Y-%m-%dT%H:%M}"


def test_the_same_course_has_the_same_identifier_and_another_has_not() -> None:
    assert route()["route_id"] == route(departure_time="2026-05-14T18:00")["route_id"]
    assert len({route(modes=[mode])["route_id"] for mode in ("driving", "walking", "transit")}) == 3
    assert route()["route_id"] != route(intermediates=[to_text(*at(500))])["route_id"]


def test_intermediates_make_the_way_the_sum_of_its_parts() -> None:
    a, b, c = (to_text(*at(node)) for node in (40, 500, 900))
    whole = route(intermediates=[b])
    parts = [route(origin=a, destination=b), route(origin=b, destination=c)]
    assert abs(whole["distance_m"] - sum(part["distance_m"] for part in parts)) <= 1
