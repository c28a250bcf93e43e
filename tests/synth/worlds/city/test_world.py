"""The city as a world: sizes, determinism in every process, seeds that differ, snapshots, and what it says of itself."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from datetime import timedelta

import numpy as np
import pytest

from storage.records import is_error
from synth.worlds import make_world
from synth.worlds.city.map.city_map import City
from synth.worlds.city.map.place_catalog import catalogue
from synth.worlds.city.map.place_names import gazetteer
from synth.worlds.city.map.roads import NODES
from synth.worlds.city.vocabulary import CATEGORIES, KINDS, TODAY
from synth.worlds.city.world import CityWorld

_A, _B = "30.25000,120.20000", "30.30000,120.14000"
_DAY = TODAY.isoformat()

CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("map_search_places", {"query": "coffee shop free wifi", "center": _A, "sort_by": "rating:d", "min_rating": 4}),
    ("map_search_places", {"query": "火锅店 正在营业", "region": "滨江区", "price_max": 120, "price_category": "average_cost"}),
    ("map_compute_routes", {"origin": _A, "destination": _B, "modes": ["driving", "walking", "transit"]}),
    ("map_compute_routes", {"origin": _A, "destination": _B, "traffic_aware": True, "departure_time": f"{_DAY}T18:00"}),
    ("map_search_along_route", {"query": "gas station", "origin": _A, "destination": _B}),
    ("map_search_central_places", {"query": "tea house", "origins": [_A, _B], "sort_by": "min_max_distance"}),
    ("map_search_ranking_list", {"query": "museum", "region": "Lanchuan"}),
    ("travel_search_flights", {"origin": "Kunming", "destination": "北京", "date": _DAY, "days": 2}),
    ("travel_search_trains", {"origin": "Nanjing", "destination": "Lanchuan", "date": _DAY}),
    ("weather_current_conditions", {"location": _A}),
    ("weather_forecast_days", {"location": "Sanya", "date": _DAY, "days": 15}),
    ("web_search", {"query": "power banks on flights"}),
)


def digest(seed: int) -> str:
    """A hash over the answers to one call or two of every tool."""
    world = CityWorld(seed)
    return hashlib.sha256("\n".join(world.call(tool, arguments).content for tool, arguments in CALLS).encode()).hexdigest()


@pytest.mark.slow
def test_same_seed_gives_the_same_bytes_in_another_process_with_another_hash_seed() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from test_world import digest; print(digest(7), digest(8))"
    here = os.path.dirname(__file__)  # noqa: PTH120
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, here], env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert outputs == {f"{digest(7)} {digest(8)}\n"}


def test_every_tool_answers_differently_in_another_seed() -> None:
    first, second = CityWorld(1), CityWorld(2)
    for tool, arguments in CALLS:
        one, other = first.call(tool, arguments).content, second.call(tool, arguments).content
        assert not is_error(one), one
        assert one != other, tool


def test_the_city_is_large_enough_and_really_redrawn() -> None:
    first, second = City(1), City(2)
    assert NODES >= 1000
    assert min(first.places.present.sum(), second.places.present.sum()) >= 2000
    assert len(gazetteer()) >= 300
    assert len(CATEGORIES) >= 25
    for column in ("x", "y", "rating", "reviews", "opens", "features"):
        share_equal = np.mean(getattr(first.places, column) == getattr(second.places, column))
        assert share_equal < 0.5, column


def test_names_are_unique_in_both_languages_and_landmarks_exist_in_every_seed() -> None:
    places = catalogue()
    assert len({place.en for place in places}) == len({place.zh for place in places}) == len(places)
    for seed in range(5):
        present = City(seed).places.present
        assert all(present[place.index] for place in places if place.key is not None)


def test_nothing_that_is_called_changes_the_state_and_snapshots_restore() -> None:
    world = CityWorld(3)
    start, before = world.snapshot(), [world.call(tool, arguments).content for tool, arguments in CALLS]
    assert world.state() == {} and world.changes() == {}
    world.reset(4)
    assert [world.call(tool, arguments).content for tool, arguments in CALLS] != before
    world.restore(start)
    assert [world.call(tool, arguments).content for tool, arguments in CALLS] == before
    assert not any(tool.changes_state for tool in world.tools)


def test_arguments_as_text_are_the_same_as_arguments_as_an_object() -> None:
    world = CityWorld(3)
    for tool, arguments in CALLS:
        assert world.call(tool, json.dumps(arguments, ensure_ascii=False)) == world.call(tool, arguments)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "nonsense"])
def test_malformed_arguments_are_an_error_observation(text: str) -> None:
    answer = CityWorld(3).call("web_search", text)
    assert answer.is_error and is_error(answer.content)


def test_an_unknown_tool_is_an_error_observation_that_lists_the_tools() -> None:
    answer = CityWorld(3).call("map_fly_there", {})
    assert answer.is_error and "map_compute_routes" in answer.content


def test_what_a_request_says_is_grounded_in_its_canonical_forms() -> None:
    world = make_world("city", 5)
    slots = {"origin": "willow_park", "destination": "jade_museum", "depart": "14:30"}
    assert {"Willow Park", "垂柳公园", f"{_DAY}T14:30"} <= world.slot_forms("route", slots)
    forms = world.slot_forms("half_day_trip", {"place": "willow_park", "depart": "09:00", "date": 3})
    day = (TODAY + timedelta(days=3)).isoformat()
    assert {day, f"{day}T09:00"} <= forms


def test_known_names_hold_places_districts_cities_and_lines_but_no_common_words() -> None:
    names = make_world("city", 5).known_names()
    for name in ("Willow Park", "垂柳公园", "Riverside District", "昆明", "Metro Line 3", catalogue()[-1].en):
        assert name in names
    assert not {"driving", "museum", "nearest", "open now"} & names.keys()


def test_draws_are_determined_by_the_generator() -> None:
    world = CityWorld(9)
    names = frozenset(slot.name for slot in world.intents["half_day_trip"].slots)
    drawn = [world.draw_slots("half_day_trip", names, random.Random(4)) for _ in range(2)]
    assert drawn[0] == drawn[1] and set(drawn[0]) == names
    for slot in world.intents["half_day_trip"].slots:
        assert slot.kind in KINDS
