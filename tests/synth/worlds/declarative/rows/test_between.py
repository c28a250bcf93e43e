"""A field with `filter: between` is searched by least and most, and given by both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text

BOOKING = Path("tests/synth/table_booking.yaml")


def booking(field: str) -> str:
    """The spec of table bookings, with `filter: between` of a field of restaurants."""
    text = BOOKING.read_text(encoding="utf-8")
    assert text.count(f"      {field}: {{") >= 1
    return text.replace(f"      {field}: {{", f"      {field}: {{filter: between, ", 1)


@pytest.fixture(scope="module")
def kind() -> Iterator[type[SpecWorld]]:
    world = compile_spec(parse_text(booking("price")))
    WORLDS.register(world)
    yield world
    WORLDS.forget(world.name)


def test_a_search_takes_least_and_most(kind: type[SpecWorld]) -> None:
    (tool,) = (tool for tool in kind.tools if tool.name == "search_restaurants")
    assert {"min_price", "max_price"} <= set(tool.parameters["properties"])
    world = kind(1)
    prices = {key: row["price"] for key, row in world.state()["restaurant"].items()}
    low, high = sorted(prices.values())[len(prices) // 4], sorted(prices.values())[len(prices) // 2]
    found = world.call("search_restaurants", {"min_price": low, "max_price": high}).content
    assert f'"restaurants_found":{sum(low <= price <= high for price in prices.values())}' in found


@pytest.mark.parametrize("seed", range(10))
def test_one_row_is_given_between_both(kind: type[SpecWorld], seed: int) -> None:
    wanted = {"cuisine": "thai", "min_price": 20, "max_price": 30}
    rows = kind(seed, {"restaurant": [wanted]}).state()["restaurant"].values()
    assert sum(row["cuisine"] == "thai" and 20 <= row["price"] <= 30 for row in rows) == 1


def test_between_is_for_what_is_ordered() -> None:
    with pytest.raises(SpecError, match="'between' is for numbers, money, dates and times"):
        compile_spec(parse_text(booking("cuisine")))
