"""What the interface promises of every world, whatever a policy calls."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import Tool
from synth.worlds import WITH_LEXICON, WORLDS, make_world
from synth.worlds.base import World, cached_per_world
from synth.worlds.city.world import CityWorld

EVERY = {name: make_world(name, 4) for name in WITH_LEXICON}
SURROGATE = "\ud800"

_anything = st.text(st.characters(), max_size=12)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _anything
    | st.sampled_from([10**400, -(10**400), SURROGATE, "2026-05-13T23:59"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_anything, inner, max_size=3),
    max_leaves=6,
)


_GOOD: list[Any] = [
    "30.25,120.2",
    ["30.25,120.2", "30.3,120.14"],
    "Kunming",
    "Guiyang",
    "2026-05-14",
    "2026-05-14T05:10",
    "u01",
    "o17",
    3,
    True,
]


@st.composite
def calls(draw: st.DrawFn, tool: Tool) -> Any:
    """Arguments of a tool, most of them wrong: what it needs, and its own and other parameters with any value; or no object at all."""
    properties = tool.parameters["properties"]
    good = st.sampled_from([*_GOOD, *(value for schema in properties.values() for value in schema.get("enum", ()))])
    needed = draw(st.fixed_dictionaries(dict.fromkeys(tool.parameters["required"], good)))
    more = draw(st.dictionaries(st.sampled_from(sorted(properties)) | _anything, good | _json, max_size=4))
    arguments = draw(st.just(needed | more) | st.just(more) | _json)
    return arguments if isinstance(arguments, dict) and draw(st.booleans()) else draw(st.just(json.dumps(arguments)) | _anything)


def check(world: str, tool: str, arguments: Any) -> bool:
    """Calls, and checks that what comes back can be stored and read. Whether it is an error."""
    observation = EVERY[world].call(tool, arguments)
    value = json.loads(observation.content.encode())
    assert (isinstance(value, dict) and "error" in value) == observation.is_error
    return observation.is_error


@pytest.mark.parametrize("world", WITH_LEXICON)
@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_no_call_raises(world: str, data: st.DataObject) -> None:
    tool = data.draw(st.sampled_from(EVERY[world].tools))
    check(world, tool.name, data.draw(calls(tool)))


@pytest.mark.parametrize("world", WITH_LEXICON)
def test_what_nobody_could_read_is_refused(world: str) -> None:
    for tool in EVERY[world].tools:
        everywhere: dict[str, Any] = dict.fromkeys(tool.parameters["properties"], SURROGATE)
        for arguments in ("[" * 200_000, '{"a":' * 200_000, f'"{SURROGATE}"', {SURROGATE: 1}, everywhere, "[" * 500 + "]" * 500, "NaN", ""):
            assert check(world, tool.name, arguments), arguments
    assert check(world, SURROGATE, {})


@pytest.mark.parametrize("name", WITH_LEXICON)
def test_an_error_does_not_repeat_the_name_of_an_unknown_argument(name: str) -> None:
    """What a policy made up is no observation: it could pass for evidence, or ground a later argument."""
    world = make_world(name, 0)
    for tool in WORLDS[name].tools:
        given = {key: schema.get("enum", ["o17"])[0] for key, schema in tool.parameters["properties"].items()}
        for arguments in ({"o17 pending": 1}, {**given, "o17 pending": 1}):
            observed = world.call(tool.name, arguments)
            assert observed.is_error
            assert "pending" not in observed.content


def test_what_is_cached_for_a_world_is_its_own_and_goes_with_its_class() -> None:
    """Given a cached function, when two worlds of one name ask it, then each has results of its own, and its class can be collected."""
    asked: list[str] = []

    @cached_per_world(maxsize=2)
    def described(world: type[World], word: str) -> str:
        asked.append(word)
        return f"{world.version} {word}"

    one, other = (type("Copy", (CityWorld,), {"version": version}) for version in (7, 8))
    assert [described(one, "a"), described(one, "a"), described(other, "a")] == ["7 a", "7 a", "8 a"]
    assert asked == ["a", "a"]
    for word in ("b", "c", "a"):  # no more than two are kept
        described(one, word)
    assert asked == ["a", "a", "b", "c", "a"]

    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    assert described(other, "a") == "8 a" and len(asked) == 5
