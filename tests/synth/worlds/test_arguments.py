"""The checker of arguments accepts what JSON Schema accepts, and its messages name parameters and bounds, never made-up values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from synth.worlds.arguments import BadArgument, compile_checker

WORDS = st.sampled_from(["", " ", "a", "b", "ab", "l001", "14:30", "湖", "1"])
NUMBERS = st.integers(-3, 3) | st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.0, 1e30, 10**30])
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def any_schema(items: st.SearchStrategy[Any], properties: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    bound, count = st.sampled_from([-1, 0, 0.5, 1, 2]), st.integers(0, 2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": bound, "maximum": bound, "minLength": count, "maxLength": count, "minItems": count, "maxItems": count,
            "pattern": st.sampled_from(["^a", r"^l\d{3}$", r"^\d\d:(00|30)$"]),
            "items": items, "properties": properties, "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | items,
        },
    )  # fmt: skip


SCHEMAS = st.recursive(
    any_schema(st.just({}), st.just({})), lambda inner: any_schema(inner, st.dictionaries(NAMES, inner, max_size=2)), max_leaves=3
)
PARAMETERS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SCHEMAS, max_size=3)},
    optional={"required": st.lists(NAMES, max_size=2, unique=True), "additionalProperties": st.booleans() | SCHEMAS},
)


@given(parameters=PARAMETERS, arguments=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES, max_size=4))
def test_what_json_schema_accepts_is_accepted_and_nothing_else(parameters: dict[str, Any], arguments: dict[str, Any]) -> None:
    check = compile_checker(parameters)

    if Draft202012Validator(parameters).is_valid(arguments):
        assert check(arguments) == arguments
    else:
        with pytest.raises(BadArgument):
            check(arguments)


PLACE_SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "sort": {"type": "string", "enum": ["near", "cheap"], "default": "near"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20.0},
        "price": {"type": "number", "minimum": 0},
        "loan": {"type": "string", "pattern": r"^l\d$"},
        "open": {"type": "boolean"},
        "stops": {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2, "maxItems": 4},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"madeup": 1}, "there is no such parameter; parameters are query, sort, limit, price, loan, open, stops"),
        ({"query": 5}, "query must be a non-empty string"),
        ({"query": " "}, "query must be a non-empty string"),
        ({"query": "\ud800"}, "query must be a non-empty string"),
        ({"sort": "madeup"}, "sort must be one of near, cheap"),
        ({"limit": 21}, "limit must be an integer from 1 to 20"),
        ({"limit": True}, "limit must be an integer from 1 to 20"),
        ({"price": float("nan")}, "price must be a number of at least 0"),
        ({"price": float("inf")}, "price must be a number of at least 0"),
        ({"loan": "madeup"}, r"loan must be a non-empty string that matches ^l\d$"),
        ({"open": "yes"}, "open must be true or false"),
        ({"stops": ["a", "madeup"]}, "stops must be a list of 2 to 4 items, each a non-empty string of at most 3 characters"),
    ],
)
def test_a_message_names_the_parameter_and_what_is_allowed(arguments: dict[str, Any], message: str) -> None:
    check = compile_checker(PLACE_SEARCH, allows_blank=False)

    with pytest.raises(BadArgument) as refused:
        check({"query": "tea", **arguments})

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 20}, [1, 20], [0, 21]),
        ({"type": "number", "minimum": 0.5, "maximum": 2}, [0.5, 2, 2.0], [0.4, 2.1]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({"type": "array", "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
    ],
)
def test_bounds_are_inclusive(schema: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    check = compile_checker({"type": "object", "properties": {"value": schema}})

    assert [check({"value": value}) for value in inside] == [{"value": value} for value in inside]
    for value in outside:
        with pytest.raises(BadArgument):
            check({"value": value})


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(BadArgument, match=r"^query is required$"):
        compile_checker(PLACE_SEARCH)({"limit": 3})


def test_a_parameter_whose_schema_is_true_takes_any_value_and_one_whose_schema_is_false_none() -> None:
    check = compile_checker({"type": "object", "properties": {"anything": True, "nothing": False}})

    assert check({"anything": [5.0, None]}) == {"anything": [5.0, None]}
    with pytest.raises(BadArgument, match=r"^nothing must be left out$"):
        check({"nothing": 1})


def test_defaults_are_filled_in_and_whole_floats_of_integers_become_integers() -> None:
    values = compile_checker(PLACE_SEARCH)({"query": "", "limit": 5.0, "price": 5.0})

    assert values == {"query": "", "sort": "near", "limit": 5, "price": 5.0}
    assert (type(values["limit"]), type(values["price"])) == (int, float)
