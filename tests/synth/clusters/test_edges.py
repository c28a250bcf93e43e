"""Dependency edges of BFCL's multi-turn tools, against edges labelled by hand, and of tools with odd schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import BadInput
from storage.records import Tool
from synth.clusters.edges import MAX_PRODUCERS, THRESHOLD, Edge, ToolFeatures, chain_depths, find_edges
from synth.clusters.tool_text import strip_preambles
from synth.clusters.tool_words import words
from synth.worlds import bfcl_files

Pairs = set[tuple[str, str]]


def dependencies(tools: Sequence[Tool], threshold: float = THRESHOLD) -> list[Edge]:
    return find_edges(ToolFeatures.of(tools), threshold=threshold)


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """BFCL's multi-turn function documents, without math_api, where any number feeds any number."""
    try:
        paths = bfcl_files.files(bfcl_files.MULTI_TURN_TOOLS)
    except BadInput as missing:
        pytest.skip(str(missing))
    return [json.loads(line) | {"doc": path.stem} for path in paths if path.stem != "math_api" for line in path.read_text().splitlines()]


def tools_of(documents: list[dict[str, Any]], *, with_outputs: bool) -> list[Tool]:
    return [
        Tool(
            name=document["name"],
            description=document["description"],
            parameters=document["parameters"],
            server=document["doc"],
            domain=document["doc"],
            output=document.get("response") if with_outputs else None,
        )
        for document in documents
    ]


@pytest.fixture(scope="module")
def gold(test_data: Path, documents: list[dict[str, Any]]) -> Pairs:
    path = test_data / "bfcl_tool_edges.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(f"{row['doc']}.{row['producer']}", f"{row['doc']}.{row['consumer']}") for row in rows}


def edge_pairs(tools: list[Tool], threshold: float) -> Pairs:
    return {(edge.source, edge.target) for edge in dependencies(tools, threshold=threshold)}


def precision(guessed: Pairs, gold: Pairs) -> float:
    return len(guessed & gold) / len(guessed)


@pytest.mark.parametrize(
    ("with_outputs", "threshold", "precise", "recalled"), [(False, 0.22, 0.75, 0.50), (False, 0.30, 0.75, 0.43), (True, 0.22, 0.70, 0.60)]
)
def test_edges_of_bfcl_tools_beat_chance_and_similarity(
    documents: list[dict[str, Any]], gold: Pairs, with_outputs: bool, threshold: float, precise: float, recalled: float
) -> None:
    """Precision and recall are high enough; two controls with as many edges: random ones, and by similarity of parameters."""
    tools = tools_of(documents, with_outputs=with_outputs)
    ours = edge_pairs(tools, threshold)

    assert precision(ours, gold) >= precise
    assert len(ours & gold) >= recalled * len(gold)

    pairs = [(a, b) for a, b in permutations(tools, 2) if a.server == b.server]
    by_chance = [precision({(a.id, b.id) for a, b in random.Random(seed).sample(pairs, len(ours))}, gold) for seed in range(20)]
    most_similar = sorted(pairs, key=lambda pair: (-similarity(*pair), pair[0].id, pair[1].id))[: len(ours)]
    by_similarity = precision({(a.id, b.id) for a, b in most_similar}, gold)
    assert precision(ours, gold) > 2 * max(*by_chance, by_similarity)


def similarity(left: Tool, right: Tool) -> float:
    """Jaccard index of the words of the parameters' names."""
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


def test_sentences_that_start_all_descriptions_of_a_server_are_removed() -> None:
    preamble = "This belongs to the ticket desk, which keeps every ticket of every user. "
    four = [tool(name, description=preamble + rest) for name, rest in zip("abcd", ("Waits.", "Walks.", "Counts.", "Sorts."), strict=True)]

    assert [tool.description for tool in strip_preambles(four)] == ["Waits.", "Walks.", "Counts.", "Sorts."]
    assert strip_preambles(four[:2]) == four[:2]


# ---- produced and consumed entities ------------------------------------------------------------------------------------


def edges(*tools: Tool) -> set[tuple[str, str, str]]:
    return {(edge.source.partition(".")[2], edge.target.partition(".")[2], edge.entity) for edge in dependencies(tools)}


def test_a_list_tool_feeds_tools_that_take_an_id_of_its_items() -> None:
    assert edges(tool("list_orders"), tool_taking("get_order", "order_id")) == {("list_orders", "get_order", "order")}


def test_a_tool_that_returns_the_entity_it_takes_feeds_nothing() -> None:
    assert edges(tool_taking("get_order", "order_id"), tool_taking("cancel_order", "order_id")) == set()


def test_a_verb_produces_the_entity_that_it_creates() -> None:
    assert ("book_flight", "cancel_booking", "booking") in edges(
        tool_taking("book_flight", "seat"), tool_taking("cancel_booking", "booking_id")
    )


def test_a_login_feeds_tools_that_take_a_token() -> None:
    taker = tool_taking("list_invoices", "access_token")

    assert ("login", "list_invoices", "access_token") in edges(tool_taking("login", "password"), taker)


def test_the_name_of_a_new_entity_comes_from_no_tool() -> None:
    assert edges(tool("list_projects"), tool_taking("create_project", "project_name")) == set()


def test_unknown_parameters_are_guessed_and_missing_ones_are_not() -> None:
    lister = tool("list_orders")
    unknown = Tool(name="get_order", description="", parameters={}, server="s", domain="d")

    assert edges(lister, unknown) == {("list_orders", "get_order", "order")}
    assert edges(lister, tool("get_order")) == set()


def test_a_name_does_not_feed_an_id_of_the_same_entity() -> None:
    maker = tool("do_it", output={"type": "object", "properties": {"ticket_name": {"type": "string"}}})

    assert edges(maker, tool_taking("then", "ticket_id")) == set()


def test_an_id_in_a_list_is_named_after_the_list() -> None:
    held = {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}
    maker = tool("do_it", output={"type": "object", "properties": {"tickets": held}})

    assert edges(maker, tool_taking("then", "ticket_id")) == {("do_it", "then", "ticket_id")}


def tool_taking(name: str, parameter: str) -> Tool:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return Tool(name=name, description="", parameters=schema, server="s", domain="d")


NOUNS = st.sampled_from(["order", "user", "invoice", "ticket", "project", "city", "video", "session"])
NAMES = st.builds("{}_{}".format, st.sampled_from(["list", "get", "create", "delete", "update", "search", "frob"]), NOUNS)
TOOLS = st.lists(
    st.builds(
        lambda name, parameters, server: Tool(
            name=name,
            description="",
            server=server,
            domain="d",
            parameters={
                "type": "object",
                "properties": {f"{noun}_id": {} for noun in parameters},
                "required": [f"{n}_id" for n in parameters],
            },
        ),
        NAMES,
        st.lists(NOUNS, max_size=3, unique=True),
        st.sampled_from(["a", "b"]),
    ),
    max_size=12,
    unique_by=lambda tool: tool.id,
)


@given(TOOLS)
def test_edges_stay_in_a_server_have_one_direction_and_few_producers(tools: list[Tool]) -> None:
    edges = dependencies(tools)
    pairs = {(edge.source, edge.target) for edge in edges}

    assert all(edge.source.partition(".")[0] == edge.target.partition(".")[0] for edge in edges)
    assert all(edge.score >= THRESHOLD - 1e-4 for edge in edges)
    assert all(sum(target == tool.id for _, target in pairs) <= MAX_PRODUCERS for tool in tools)
    assert all(score(edges, b, a) == score(edges, a, b) for a, b in pairs if (b, a) in pairs), "the weaker of two opposite edges is dropped"


def score(edges: list[Edge], source: str, target: str) -> float:
    return next(edge.score for edge in edges if (edge.source, edge.target) == (source, target))


@given(TOOLS)
def test_edges_of_high_score_do_not_depend_on_the_order_of_the_tools(tools: list[Tool]) -> None:
    def high_score(edges: list[Edge]) -> set[tuple[str, str]]:
        return {(edge.source, edge.target) for edge in edges if edge.score > THRESHOLD + 0.05}

    assert high_score(dependencies(tools)) <= {(edge.source, edge.target) for edge in dependencies(tools[::-1])}


def test_levels_count_the_longest_chain_and_a_cycle_as_one_tool() -> None:
    def linked(*pairs: str) -> list[Edge]:
        return [Edge(pair[0], pair[1], 1.0, "x") for pair in pairs]

    assert chain_depths("abcd", linked("ab", "bc", "ac", "cd")) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert chain_depths("zyab", linked("zy", "yz", "za", "ab")) == {"z": 0, "y": 0, "a": 1, "b": 2}
    assert chain_depths("ab", []) == {"a": 0, "b": 0}
