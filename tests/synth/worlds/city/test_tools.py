"""What every tool refuses, before anything else: bounds, types, enums, unknown and missing parameters, and the rules between parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import Tool
from synth.worlds.city.tools.tool_signatures import TOOLS
from synth.worlds.city.vocabulary import TODAY
from synth.worlds.city.world import CityWorld

WORLD = CityWorld(1)
_A, _B = "30.25000,120.20000", "30.30000,120.14000"
_DAY = TODAY.isoformat()
GOOD: dict[str, dict[str, Any]] = {
    "map_search_places": {"query": "coffee shop"},
    "map_compute_routes": {"origin": _A, "destination": _B},
    "map_search_along_route": {"query": "bakery", "origin": _A, "destination": _B},
    "map_search_central_places": {"query": "bakery", "origins": [_A, _B]},
    "map_search_ranking_list": {"query": "bakery", "region": "Old Town District"},
    "travel_search_flights": {"origin": "Kunming", "destination": "Beijing", "date": _DAY},
    "travel_search_trains": {"origin": "Kunming", "destination": "Guiyang", "date": _DAY},
    "weather_current_conditions": {"location": _A},
    "weather_forecast_days": {"location": _A, "date": _DAY},
    "web_search": {"query": "metro fares"},
}
COMPANIONS = {
    "price_min": {"price_category": "price"},
    "price_max": {"price_category": "price"},
    "sort_by": {"center": _A, "price_category": "price"},
}
"""What a parameter needs beside it to be allowed at all."""


def error_of(tool: str, arguments: dict[str, Any]) -> str:
    answer = WORLD.call(tool, arguments)
    assert answer.is_error, (tool, arguments, answer.content[:200])
    message: str = json.loads(answer.content)["error"]
    return message


def accept(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = WORLD.call(tool, arguments)
    assert not answer.is_error, (tool, arguments, answer.content)
    result: dict[str, Any] = json.loads(answer.content)
    return result


def _wrong_values(schema: dict[str, Any]) -> Iterator[Any]:
    yield None
    yield {}
    if schema["type"] in ("integer", "number"):
        yield "5"
        yield True
        yield schema["minimum"] - 1
        if "maximum" in schema:
            yield schema["maximum"] + 1
        if schema["type"] == "integer":
            yield schema["minimum"] + 0.5
    elif schema["type"] == "array":
        yield "not a list"
        yield [_A] * (schema["maxItems"] + 1)
        yield [5]
        if schema["minItems"]:
            yield []
    elif schema["type"] == "boolean":
        yield "true"
    else:
        yield 5
        yield ""
        if "enum" in schema:
            yield "nonsense"


def _cases() -> Iterator[tuple[str, str, Any]]:
    for tool in TOOLS:
        for name, schema in tool.parameters["properties"].items():
            for value in _wrong_values(schema):
                yield tool.name, name, value


@pytest.mark.parametrize(("tool", "name", "value"), list(_cases()))
def test_a_wrong_value_is_refused_and_its_parameter_named(tool: str, name: str, value: Any) -> None:
    assert error_of(tool, {**GOOD[tool], name: value}).startswith(name)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_bounds_and_enums_are_allowed_themselves(tool: Tool) -> None:
    for name, schema in tool.parameters["properties"].items():
        values = [schema[bound] for bound in ("minimum", "maximum") if bound in schema] + schema.get("enum", [])
        for value in values:
            beside = {key: other for key, other in COMPANIONS.get(name, {}).items() if key in tool.parameters["properties"]}
            accept(tool.name, {**GOOD[tool.name], **beside, name: value})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_missing_and_unknown_parameters_are_refused(tool: Tool) -> None:
    good = GOOD[tool.name]
    for name in tool.parameters["required"]:
        assert name in error_of(tool.name, {key: value for key, value in good.items() if key != name})
    assert "there is no such parameter" in error_of(tool.name, {**good, "surprise": 1})


def test_defaults_stated_in_the_schema_are_the_defaults() -> None:
    for tool in TOOLS:
        for name, schema in tool.parameters["properties"].items():
            if "default" in schema:
                assert accept(tool.name, {**GOOD[tool.name], name: schema["default"]}) == accept(tool.name, GOOD[tool.name]), name


@pytest.mark.parametrize(
    ("tool", "more", "message"),
    [
        ("map_search_places", {"price_max": 50}, "price_category"),
        ("map_search_places", {"price_min": 50}, "price_category"),
        ("map_search_places", {"sort_by": "price:a"}, "price_category"),
        ("map_search_places", {"sort_by": "distance"}, "center"),
        ("map_search_places", {"price_min": 90, "price_max": 50, "price_category": "price"}, "price_min"),
        ("map_search_places", {"center": "30.2"}, "center"),
        ("map_search_places", {"center": "39.9,116.4"}, "outside the city"),
        ("map_search_places", {"region": "Atlantis"}, "Riverside District"),
        ("map_search_central_places", {"price_max": 50}, "price_category"),
        ("map_search_ranking_list", {"region": "Kunming"}, "districts"),
        ("map_compute_routes", {"departure_time": f"{_DAY}T10:00", "arrival_time": f"{_DAY}T11:00"}, "exclude"),
        ("map_compute_routes", {"departure_time": "tomorrow"}, "departure_time"),
        ("map_compute_routes", {"departure_time": f"{_DAY}T10:00+08:00"}, "local time"),
        ("map_compute_routes", {"departure_time": "2026-05-12T10:00"}, "from 2026-05-13"),
        ("map_compute_routes", {"modes": ["transit"], "intermediates": [_A]}, "intermediates"),
        ("map_compute_routes", {"modes": ["walking"], "preference": "avoid_tolls"}, "preference"),
        ("travel_search_trains", {"origin": "Suzhou"}, "candidates: Suzhou, Jiangsu (江苏苏州, 320500); Suzhou, Anhui (安徽宿州, 341300)"),
        ("travel_search_flights", {"destination": "朝阳"}, "ambiguous"),
        ("travel_search_flights", {"destination": "Springfield"}, "unknown"),
        ("travel_search_flights", {"destination": "Kunming"}, "differ"),
        ("travel_search_trains", {"date": (TODAY + timedelta(days=16)).isoformat()}, "date must lie from"),
        ("travel_search_trains", {"date": (TODAY - timedelta(days=1)).isoformat()}, "date must lie from"),
        ("weather_forecast_days", {"date": "20260513"}, "YYYY-MM-DD"),
        ("weather_forecast_days", {"location": "Nowhere"}, "location"),
    ],
)
def test_rules_between_parameters(tool: str, more: dict[str, Any], message: str) -> None:
    assert message in error_of(tool, {**GOOD[tool], **more})


@pytest.mark.parametrize("name", ["Suzhou, Jiangsu", "江苏苏州", "苏州", "320500", "suzhou jiangsu"])
def test_a_qualified_name_is_not_ambiguous(name: str) -> None:
    assert accept("travel_search_trains", {"origin": name, "destination": "Nanjing", "date": _DAY})["from"] == "Suzhou"


def test_the_last_day_of_the_horizon_is_allowed_and_days_beyond_it_left_out() -> None:
    last = (TODAY + timedelta(days=15)).isoformat()
    assert [day["date"] for day in accept("weather_forecast_days", {"location": _A, "date": last, "days": 9})["days"]] == [last]
    rows = accept("travel_search_trains", {"origin": "Wuhan", "destination": "Changsha", "date": last, "days": 15})["trains"]
    assert {row["date"] for row in rows} == {last}


def test_tools_mark_what_must_come_from_the_conversation() -> None:
    grounded = {tool.name: {name for name, schema in tool.parameters["properties"].items() if schema.get("x-grounded")} for tool in TOOLS}
    assert grounded["map_search_places"] == {"center", "radius", "region", "min_rating", "price_min", "price_max", "limit"}
    assert grounded["map_compute_routes"] == {"origin", "destination", "intermediates", "departure_time", "arrival_time"}
    assert grounded["web_search"] == set()


@settings(max_examples=150, deadline=None)
@given(
    tool=st.sampled_from([tool.name for tool in TOOLS]),
    arguments=st.dictionaries(
        st.sampled_from(sorted({name for tool in TOOLS for name in tool.parameters["properties"]})),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.lists(st.text(max_size=5), max_size=3)),
        max_size=6,
    ),
)
def test_whatever_is_passed_the_answer_is_json_and_never_an_exception(tool: str, arguments: dict[str, Any]) -> None:
    result = json.loads(WORLD.call(tool, arguments).content)
    assert isinstance(result, dict)
