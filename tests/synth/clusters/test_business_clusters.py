"""Dependency edges and business clusters of the worlds' tools, compared with the plans that the worlds declare, and with chance."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import permutations

import pytest

from storage.records import Tool
from synth.clusters.business_clusters import Cluster, ClusterConfig, cluster_tools
from synth.clusters.cluster_store import clusters_frame, tools_frame
from synth.clusters.edges import THRESHOLD, Edge, ToolFeatures, candidate_edges, chains, find_edges
from synth.clusters.tool_graph import ToolGraph
from synth.clusters.tool_words import entity_keys, words
from synth.clusters.world_plans import count_covered_plans, plans_of
from synth.worlds import WITH_LEXICON, WORLDS, admitted_names
from synth.worlds.declarative.library_worlds import library_specs

TOOLS: tuple[Tool, ...] = tuple(tool for world in WITH_LEXICON for tool in WORLDS[world].tools)


def dependencies(tools: Iterable[Tool]) -> list[Edge]:
    return find_edges(ToolFeatures.of(tuple(tools)), threshold=THRESHOLD)


def declared_edges() -> set[tuple[str, str]]:
    """Edges of the plan shapes that the worlds' intents declare. The rules under test do not use them."""
    pairs = set()
    for world in (WORLDS[name] for name in WITH_LEXICON):
        ids = {tool.name: tool.id for tool in world.tools}
        for intent in world.intents.values():
            calls = intent.shape(frozenset(slot.name for slot in intent.slots)).calls
            pairs |= {(ids[calls[parent][0]], ids[tool]) for tool, parents in calls for parent in parents if calls[parent][0] != tool}
    return pairs


def is_connected(tools: Iterable[str], edges: Iterable[Edge]) -> bool:
    """Whether edges connect the tools, without regard to directions."""
    groups = {tool: {tool} for tool in tools}
    for edge in edges:
        joined = groups[edge.source] | groups[edge.target]
        groups.update(dict.fromkeys(joined, joined))
    return all(len(group) == len(groups) for group in groups.values())


@pytest.fixture(scope="module")
def edges() -> list[Edge]:
    return find_edges(ToolFeatures.of(TOOLS))


@pytest.fixture(scope="module")
def clusters() -> list[Cluster]:
    return cluster_tools(TOOLS)


# ---- words and entities ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listOrders", ["list", "order"]),
        ("get_user-status", ["get", "user", "status"]),
        ("map_search_cities", ["map", "search", "city"]),
        ("查订单", ["查订单"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


def test_entities_of_a_phrase_are_its_head_and_its_last_two_words() -> None:
    assert entity_keys(["order"]) == {"order": 1.0}
    assert entity_keys(["shipping", "order", "id"]) == {"order": 0.8, "shipping_order": 1.0}
    assert entity_keys(["status"]) == {}


# ---- edges ----------------------------------------------------------------------------------------------------------


def test_edges_match_the_declared_ones_better_than_chance(edges: list[Edge]) -> None:
    gold, inferred = declared_edges(), {(edge.source, edge.target) for edge in edges}
    pairs = [(a.id, b.id) for a in TOOLS for b in TOOLS if a.id != b.id and a.world == b.world]
    by_chance = [len(gold & set(random.Random(seed).sample(pairs, len(inferred)))) for seed in range(50)]

    recall, precision = len(gold & inferred) / len(gold), len(gold & inferred) / len(inferred)
    assert recall >= 0.6
    assert precision >= 2 * len(gold) / len(pairs), "no better than random pairs"
    assert len(gold & inferred) > max(by_chance)


def test_an_edge_has_one_direction(edges: list[Edge]) -> None:
    pairs = {(edge.source, edge.target) for edge in edges}

    assert ("shop.search_products", "shop.buy") in pairs
    assert all((target, source) not in pairs for source, target in pairs)


def test_a_tool_that_returns_the_entity_it_takes_is_no_source_of_it(edges: list[Edge]) -> None:
    assert not any(edge.source == "shop.cancel_order" for edge in edges)


def test_a_declared_output_feeds_a_parameter_of_equal_words_and_type() -> None:
    def tool(name: str, parameter: str, kind: str, output: dict[str, object] | None = None) -> Tool:
        schema = {"type": "object", "properties": {parameter: {"type": kind}}, "required": [parameter]}
        return Tool(name=name, description="", parameters=schema, server="s", domain="d", output=output)

    output = {"type": "object", "properties": {"ticket_number": {"type": "string"}, "eta": {"type": "number"}}}
    maker = tool("do_it", "what", "string", output)

    same_type = dependencies([maker, tool("then", "ticket_number", "string")])
    wrong_type = dependencies([maker, tool("then", "ticket_number", "boolean")])

    assert [(edge.source, edge.target, edge.entity) for edge in same_type] == [("s.do_it", "s.then", "ticket_number")]
    assert wrong_type == []


def test_a_value_that_all_tools_give_and_take_links_few_pairs() -> None:
    """Given 400 tools that declare the value, when they are linked, then each tool has at most 256 sources."""
    output = {"type": "object", "properties": {"gift_voucher": {"type": "string"}}}
    schema = {"type": "object", "properties": {"present_voucher": {"type": "string"}}}
    tools = [Tool(name=f"do{n}", description="", parameters=schema, output=output, server="s", domain="d") for n in range(400)]

    candidates = candidate_edges(ToolFeatures.of(tools))

    assert 0 < max(Counter(candidates.targets.tolist()).values()) <= 256


def test_tools_of_different_worlds_have_no_edge(edges: list[Edge]) -> None:
    world = {tool.id: tool.world for tool in TOOLS}

    assert all(world[edge.source] == world[edge.target] for edge in edges)


def test_chains_pass_through_three_tools() -> None:
    edges = [Edge("a", "b", 1, "x"), Edge("b", "c", 1, "x"), Edge("b", "a", 1, "x")]

    assert chains(edges) == [("a", "b", "c")]


# ---- clusters -------------------------------------------------------------------------------------------------------


def test_edges_and_plans_connect_the_3_to_12_tools_of_every_cluster(clusters: list[Cluster], edges: list[Edge]) -> None:
    planned = [Edge(*pair, 1, "") for plan in plans_of(TOOLS).values() for pair in permutations(plan, 2)]
    tied = {tool for edge in (*edges, *planned) for tool in (edge.source, edge.target)}

    assert clusters
    for cluster in clusters:
        assert 3 <= len(cluster.tool_ids) <= 12
        assert len(cluster.edges) >= 1
        ties = [tie for tie in planned if {tie.source, tie.target} <= {*cluster.tool_ids}]
        assert is_connected(tied.intersection(cluster.tool_ids), [*cluster.edges, *ties]), "except a tool that is a whole plan"


def test_random_groups_of_the_same_sizes_are_rarely_connected(clusters: list[Cluster], edges: list[Edge]) -> None:
    """Negative control."""
    rng, ids = random.Random(0), [tool.id for tool in TOOLS]
    drawn = [rng.sample(ids, len(cluster.tool_ids)) for cluster in clusters * 20]
    connected = [is_connected(tools, [edge for edge in edges if edge.source in tools and edge.target in tools]) for tools in drawn]

    assert sum(connected) / len(connected) < 0.2


def test_edges_of_clusters_are_declared_more_often_than_random_ones(clusters: list[Cluster]) -> None:
    """Negative control: share of the clusters' edges that plans declare, against random edges inside the same clusters."""
    gold = declared_edges()
    rng = random.Random(0)

    def declared_share(edges: list[tuple[str, str]]) -> float:
        return len(gold & set(edges)) / len(set(edges))

    ours = declared_share([(edge.source, edge.target) for cluster in clusters for edge in cluster.edges])
    chance = [
        declared_share(
            [pair for c in clusters for pair in rng.sample([(a, b) for a in c.tool_ids for b in c.tool_ids if a != b], len(c.edges))]
        )
        for _ in range(50)
    ]
    assert ours > max(chance)


def test_clusters_cover_nearly_all_tools_and_all_domains(clusters: list[Cluster], edges: list[Edge]) -> None:
    clustered = {tool for cluster in clusters for tool in cluster.tool_ids}
    spanned = {(edge.source, edge.target) for cluster in clusters for edge in cluster.edges}

    assert len(clustered) >= 0.9 * len(TOOLS)
    assert len(spanned) >= 0.9 * len(edges)
    assert {tool.domain for tool in TOOLS if any(tool.id in cluster.tool_ids for cluster in clusters)} == {tool.domain for tool in TOOLS}


def test_no_two_clusters_are_copies_and_ranks_count_from_0(clusters: list[Cluster]) -> None:
    for left in clusters:
        for right in clusters:
            shared, together = set(left.tool_ids) & set(right.tool_ids), set(left.tool_ids) | set(right.tool_ids)
            assert left is right or len(shared) / len(together) < 0.7
    assert [cluster.rank for cluster in clusters] == list(range(len(clusters)))


def test_every_plan_of_an_executable_world_lies_in_one_cluster() -> None:
    tools = [tool for world in (*library_specs(), *admitted_names(["gen-1..20"])) for tool in WORLDS[world].tools]
    plans = plans_of(tools)

    clusters = cluster_tools(tools)

    assert len(plans) > 1000
    assert count_covered_plans(plans, [cluster.tool_ids for cluster in clusters]) == len(plans)
    assert all(3 <= len(cluster.tool_ids) <= 12 and cluster.edges for cluster in clusters)


def test_tools_that_are_whole_plans_are_neighbours_of_all_tools_of_their_world() -> None:
    tools = WORLDS["gen-78"].tools
    graph = ToolGraph(ToolFeatures.of(tools), find_edges(ToolFeatures.of(tools)), plans_of(tools).values())

    single = [plan[0] for plan in graph.plans if len(plan) == 1 and not any(graph.neighbours[plan[0]].values())]

    assert len(single) > 1
    assert len({len(graph.neighbours[tool]) for tool in single}) == 1, "each is a neighbour of all tools of its world"


def test_a_plan_with_more_tools_than_a_cluster_may_have_is_left_out() -> None:
    large = {key: plan for key, plan in plans_of(WORLDS["hotel"].tools).items() if len(plan) > 4}

    clusters = cluster_tools(WORLDS["hotel"].tools, ClusterConfig(max_tools=4))

    assert large
    assert max(len(cluster.tool_ids) for cluster in clusters) == 4
    assert count_covered_plans(large, [cluster.tool_ids for cluster in clusters]) == 0


def test_a_plan_needs_all_its_tools_and_a_known_world() -> None:
    tools = WORLDS["hotel"].tools
    fewer = [tool for tool in tools if tool.name != "get_guest"]

    assert plans_of(fewer) == {key: plan for key, plan in plans_of(tools).items() if "hotel.get_guest" not in plan} != {}
    assert plans_of([tool.model_copy(update={"world": None}) for tool in tools]) == {}
    assert plans_of([tool.model_copy(update={"world": "gone@1"}) for tool in tools]) == {}


def test_the_limit_of_clusters_holds_and_unrelated_tools_make_no_cluster() -> None:
    unrelated = [Tool(name=f"wait{i}", description="Waits.", parameters={"properties": {}}, server="s", domain="d") for i in range(4)]

    assert len(cluster_tools(TOOLS, ClusterConfig(max_clusters=2))) == 2
    assert cluster_tools(unrelated) == []
    assert cluster_tools([]) == []


def test_rows_hold_edges_as_json(clusters: list[Cluster]) -> None:
    rows, tools = clusters_frame(clusters), tools_frame(TOOLS)

    assert rows.height == len(clusters)
    assert '"entity":' in rows["edges"][0]
    assert tools["tool_id"].n_unique() == len(TOOLS)


def test_clusters_do_not_depend_on_the_hash_seed(clusters: list[Cluster]) -> None:
    code = (
        "from synth.worlds import WITH_LEXICON, WORLDS; from synth.clusters.business_clusters import cluster_tools;"
        "print([c.id for c in cluster_tools([t for w in WITH_LEXICON for t in WORLDS[w].tools])])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "77"}, capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == str([cluster.id for cluster in clusters])
