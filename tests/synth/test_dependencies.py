"""Dependency edges of a catalogue that nobody here wrote: BFCL's multi-turn tools, whose feeds were typed by hand, and odd schemas."""

from __future__ import annotations

import importlib.util
import json
import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from storage.records import Tool
from synth.dependencies import dependencies, without_preamble, words

Pairs = set[tuple[str, str]]


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """BFCL's multi-turn function documents; math_api is left out, where any number feeds any number."""
    found = importlib.util.find_spec("bfcl_eval")
    if found is None or found.origin is None:
        pytest.skip("BFCL's tools are not here: install them with `pip install --no-deps bfcl-eval`")
    paths = sorted((Path(found.origin).parent / "data" / "multi_turn_func_doc").glob("*.json"))
    return [json.loads(line) | {"doc": path.stem} for path in paths if path.stem != "math_api" for line in path.read_text().splitlines()]


def tools_of(documents: list[dict[str, Any]], *, with_outputs: bool) -> list[Tool]:
    return [
        Tool(
            name=one["name"],
            description=one["description"],
            parameters=one["parameters"],
            server=one["doc"],
            domain=one["doc"],
            output=one.get("response") if with_outputs else None,
        )
        for one in documents
    ]


@pytest.fixture(scope="module")
def gold(test_data: Path, documents: list[dict[str, Any]]) -> Pairs:
    path = test_data / "bfcl_tool_edges.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(f"{row['doc']}.{row['producer']}", f"{row['doc']}.{row['consumer']}") for row in rows}


def found(tools: list[Tool], threshold: float) -> Pairs:
    return {(edge.source, edge.target) for edge in dependencies(tools, threshold=threshold)}


def precision(guessed: Pairs, gold: Pairs) -> float:
    return len(guessed & gold) / len(guessed)


@pytest.mark.parametrize(
    ("with_outputs", "threshold", "precise", "recalled"), [(False, 0.22, 0.50, 0.35), (False, 0.30, 0.64, 0.27), (True, 0.22, 0.44, 0.56)]
)
def test_edges_of_a_strangers_tools(
    documents: list[dict[str, Any]], gold: Pairs, with_outputs: bool, threshold: float, precise: float, recalled: float
) -> None:
    """The figures that the module claims, and two controls with as many edges: drawn at random, and by likeness of parameters alone."""
    tools = tools_of(documents, with_outputs=with_outputs)
    ours = found(tools, threshold)

    assert precision(ours, gold) >= precise
    assert len(ours & gold) >= recalled * len(gold)

    pairs = [(a, b) for a, b in permutations(tools, 2) if a.server == b.server]
    by_chance = [precision({(a.id, b.id) for a, b in random.Random(seed).sample(pairs, len(ours))}, gold) for seed in range(20)]
    alike = sorted(pairs, key=lambda pair: (-likeness(*pair), pair[0].id, pair[1].id))[: len(ours)]
    by_likeness = precision({(a.id, b.id) for a, b in alike}, gold)
    assert precision(ours, gold) > 2 * max(*by_chance, by_likeness)


def likeness(left: Tool, right: Tool) -> float:
    """Jaccard of the words of their parameters' names."""
    a, b = ({word for name in tool.parameters["properties"] for word in words(name)} for tool in (left, right))
    return len(a & b) / max(1, len(a | b))


def tool(name: str, parameters: Any = None, output: Any = None, description: str = "") -> Tool:
    schema = {"type": "object", "properties": parameters if parameters is not None else {}}
    return Tool(name=name, description=description, parameters=schema, server="s", domain="d", output=output)


@pytest.mark.parametrize(
    "output",
    [
        {"type": "array", "items": [{"type": "object", "properties": {"ticket_number": {"type": "string"}}}, True]},
        {"type": "object", "properties": {"all": {"type": "array", "items": {"properties": {"ticket_number": {"type": "string"}}}}}},
        {"type": "object", "properties": {"sure": True, "never": False, "odd": None, "ticket_number": {"type": "string"}}},
    ],
)
def test_fields_are_found_in_schemas_of_every_form(output: Any) -> None:
    taker = tool("then", {"ticket_number": {"type": "string"}, "anything": True})

    assert [(edge.source, edge.entity) for edge in dependencies([tool("do_it", output=output), taker])] == [("s.do_it", "ticket_number")]


@pytest.mark.parametrize("output", [{}, {"type": "array", "items": True}, {"properties": None}, {"properties": []}, {"items": [1, "x"]}])
def test_a_schema_that_says_nothing_gives_no_edge(output: Any) -> None:
    assert dependencies([tool("do_it", output=output), tool("then", {"ticket_number": {"type": "string"}})]) == []


def test_what_every_description_of_a_server_opens_with_is_left_out() -> None:
    said = "This belongs to the ticket desk, which keeps every ticket of every user. "
    four = [tool(name, description=said + rest) for name, rest in zip("abcd", ("Waits.", "Walks.", "Counts.", "Sorts."), strict=True)]

    assert [one.description for one in without_preamble(four)] == ["Waits.", "Walks.", "Counts.", "Sorts."]
    assert without_preamble(four[:2]) == four[:2]
