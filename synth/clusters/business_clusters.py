"""Builds business clusters: 3 to 12 tools that a real job would use together, with the dependency graph among them (definition P1).

1. Candidates grow along dependency neighbours, inside a server or a world: from each tool, and from the strongest chain through each tool,
   because most tools have one producer and many consumers, so that one tool alone grows into a star. (Measured: of candidates that grow by
   similarity only, half are not connected.) Each edge between two servers (`synth/clusters/cross_server_edges.py`) gives one more.
2. Near copies are dropped.
3. Greedy weighted maximum coverage of tools, edges, chains, plans and domain labels selects.

Every cluster is connected, has at least one edge, and has no tool name twice. A cluster whose tools are not all of one world has `world`
None: nothing is executed with it. The plans of a world's intents are known, not inferred: tools of one plan are neighbours like tools
with an edge, and every plan that fits is in a cluster, unless `max_clusters` or `least_gain` excludes it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.execution import Progress
from storage.records import CODE_TOOL, Tool, content_id
from synth.clusters.cross_server_edges import find_bridges
from synth.clusters.edges import THRESHOLD, Edge, ToolFeatures, chains, find_edges
from synth.clusters.tool_graph import ToolGraph
from synth.clusters.world_plans import plans_of
from synth.gc_paused import pause_gc

VERSION = 5


class ClusterConfig(BaseModel):
    """Configuration of the clusters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    edge_threshold: float = Field(
        THRESHOLD, ge=0, le=1, description="Lowest score of a dependency edge; a higher one gives fewer and surer edges."
    )
    growth_floor: float = Field(
        0.35,
        ge=0,
        le=1,
        description="A cluster outside worlds with min_tools tools stops growing when the best neighbour's mean affinity is below this.",
    )
    bridge_neighbours: int = Field(
        3, ge=0, description="Each edge between two servers gives a candidate of both ends, each with so many of its best neighbours."
    )
    min_tools: int = Field(3, ge=2, description="Fewest tools of a cluster.")
    max_tools: int = Field(12, ge=2, description="Most tools of a cluster.")
    copy_similarity: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Of two candidates whose tools have at least this Jaccard index, the lighter one is dropped, unless it adds a plan.",
    )
    least_gain: float = Field(1.0, ge=0, description="Lowest gain in coverage of a selected cluster.")
    max_clusters: int | None = Field(None, ge=1, description="Most clusters; null for no limit.")

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_tools > self.max_tools:
            raise ValueError(f"min_tools {self.min_tools} is more than max_tools {self.max_tools}; lower it, or raise max_tools")
        return self


SHALLOW, SHALLOW_BRIDGE = 0.29, 0.5
"""Factor of the gain of a cluster without a chain, in one server and across servers. Selection, not growth, brings chains (measured: growth
that looks for them finds few); bridges are mostly between servers of few tools."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A business cluster.

    id: hash of its build (`build_id`) and rank.
    domain: the label of most of its tools.
    world: the world that executes all its tools, or None.
    edges: sorted by source and target.
    rank: position in the selection; 0 is the first.
    """

    id: str
    domain: str
    world: str | None
    tool_ids: tuple[str, ...]
    edges: tuple[Edge, ...]
    rank: int

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of its tools, without their servers."""
        return tool_names(self.tool_ids)


def tool_names(tool_ids: Iterable[str]) -> frozenset[str]:
    """Names of tools: the part of an id after the server's key and its dot; keys contain no dot."""
    return frozenset(tool.partition(".")[2] for tool in tool_ids)


# ---- building -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A possible cluster.

    members: positions of its tools, sorted.
    chains: of three tool ids each.
    plans: numbers of the plans that it contains.
    weight: sum of its edges' scores.
    """

    members: tuple[int, ...]
    edges: tuple[Edge, ...]
    chains: tuple[tuple[str, str, str], ...]
    plans: frozenset[int]
    weight: float


def cluster_tools(tools: Sequence[Tool], config: ClusterConfig | None = None, *, progress: Progress | None = None) -> list[Cluster]:
    """Business clusters of tools, best first; deterministic. Empty if no tool feeds another.

    No cluster contains a world's `run_python`, because every cluster of the world can offer it.
    """
    with pause_gc():
        return _build(tools, config or ClusterConfig(), progress or (lambda step, done, total: None))


def _build(tools: Sequence[Tool], config: ClusterConfig, report: Progress) -> list[Cluster]:
    build = build_id(tools, config)
    tools = [tool for tool in tools if tool.world is None or tool.name != CODE_TOOL]
    if not tools:
        return []
    report("reading tools", 0, 4)
    described = ToolFeatures.of(tools)
    report("finding edges", 1, 4)
    edges = find_edges(described, threshold=config.edge_threshold)
    edges += find_bridges(described, {tool for edge in edges for tool in (edge.source, edge.target)})
    graph = ToolGraph(described, sorted(edges, key=lambda edge: (edge.source, edge.target)), plans_of(tools).values())
    report("growing clusters", 2, 4)
    candidates = _candidates(graph, config)
    report("selecting clusters", 3, 4)
    selected = _select(_without_copies(candidates, config), graph, config)
    selected += _of_worlds_without(selected, graph, config)
    report("selecting clusters", 4, 4)
    return [_cluster(candidate, graph, build, rank) for rank, candidate in enumerate(selected)]


def build_id(tools: Sequence[Tool], config: ClusterConfig) -> str:
    """Hash of all that determines the clusters: tools, plans, configuration and version."""
    plans = sorted([world, intent, *sorted(plan)] for (world, intent), plan in plans_of(tools).items())
    return content_id("build", [tool.model_dump(mode="json") for tool in tools], plans, config.model_dump(mode="json"), VERSION)


def _candidates(graph: ToolGraph, config: ClusterConfig) -> list[_Candidate]:
    """Candidates grown from plans, tools, chains and bridges; those with enough tools and connected."""
    fitting = [plan for plan in graph.plans if len(plan) <= config.max_tools]
    groups = {tuple(sorted(graph.grow(plan, config.max_tools))) for plan in _maximal(fitting)}
    for start, tool in enumerate(graph.tools):
        if not graph.neighbours[start]:
            continue
        chain = graph.chain_through(start)
        if tool.world is not None:
            groups.add(tuple(sorted(graph.grow(chain or (start,), config.max_tools))))
            continue
        for seed in ((start,), chain):
            if seed and all(graph.tools[member].server == tool.server for member in seed):
                group = graph.grow(seed, config.max_tools, floor=config.growth_floor, least=config.min_tools, server=tool.server)
                groups.add(tuple(sorted(group)))
        for other in graph.after[start]:
            if graph.tools[other].server != tool.server:
                groups.add(_group_of_bridge(graph, start, other, config))
    return [candidate for members in sorted(groups) if (candidate := _candidate(members, graph, config)) is not None]


def _of_worlds_without(selected: Sequence[_Candidate], graph: ToolGraph, config: ClusterConfig) -> list[_Candidate]:
    """A candidate for every world of which no selected cluster holds a plan, because nothing in its tools' descriptions connects them: the
    tools of its plans, those of most plans first, filled up with its others."""
    served = {graph.tools[member].world for candidate in selected if candidate.plans for member in candidate.members}
    uses: dict[str, Counter[int]] = defaultdict(Counter)
    for plan in graph.plans:
        world = graph.tools[plan[0]].world
        if world is not None and world not in served:
            uses[world].update(plan)
    found = []
    for world, counts in sorted(uses.items()):
        others = [place for place, tool in enumerate(graph.tools) if tool.world == world and place not in counts]
        members = tuple(
            sorted([place for place, _ in counts.most_common(config.max_tools)] + others[: max(0, config.min_tools - len(counts))])
        )
        plans = frozenset(graph.plans_within(members))
        if plans:
            edges = graph.edges_within(members)
            found.append(_Candidate(members, edges, tuple(chains(edges)), plans, math.fsum(edge.score for edge in edges)))
    return found


def _maximal(plans: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The plans that are no subset of another plan."""
    holders: dict[int, set[int]] = defaultdict(set)
    for number, plan in enumerate(plans):
        for tool in plan:
            holders[tool].add(number)
    return [plan for plan in plans if len(set.intersection(*(holders[tool] for tool in plan))) == 1]


def _candidate(members: tuple[int, ...], graph: ToolGraph, config: ClusterConfig) -> _Candidate | None:
    """The candidate of these tools, or None if they are too few, have no edge or are not connected."""
    edges = graph.edges_within(members)
    if len(members) < config.min_tools or not edges or not graph.is_connected(members):
        return None
    plans = frozenset(graph.plans_within(members))
    return _Candidate(members, edges, tuple(chains(edges)), plans, math.fsum(edge.score for edge in edges))


def _group_of_bridge(graph: ToolGraph, source: int, target: int, config: ClusterConfig) -> tuple[int, ...]:
    """Both ends of an edge between servers, each with its best neighbours in its server. No name twice; empty if the ends have one name."""
    limit = min(config.bridge_neighbours + 1, config.max_tools // 2)
    left = graph.grow([source], limit, server=graph.tools[source].server)
    right = graph.grow([target], limit, server=graph.tools[target].server)
    names = {graph.names[tool] for tool in left}
    members = {*left, *(tool for tool in right if tool == target or graph.names[tool] not in names)}
    return tuple(sorted(members)) if graph.names[target] not in names else ()


def _without_copies(candidates: Sequence[_Candidate], config: ClusterConfig) -> list[_Candidate]:
    """The candidates without near copies: of those the one with most plans and weight stays, and any that adds a plan."""
    distinct: list[_Candidate] = []
    covered_plans = set[int]()
    holders: dict[int, list[int]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: (-len(candidate.plans), -candidate.weight, candidate.members)):
        shared = Counter(other for member in candidate.members for other in holders[member])
        size = len(candidate.members)
        is_copy = any(n / (size + len(distinct[other].members) - n) >= config.copy_similarity for other, n in shared.items())
        if not is_copy or not candidate.plans <= covered_plans:
            covered_plans |= candidate.plans
            for member in candidate.members:
                holders[member].append(len(distinct))
            distinct.append(candidate)
    return distinct


def _select(candidates: Sequence[_Candidate], graph: ToolGraph, config: ClusterConfig) -> list[_Candidate]:
    """Lazy greedy coverage, by gain / (1 + 0.05 size). The gain is the weight of newly covered items (`_items`) x `_depth_factor`.

    A gain never grows, so a candidate with a gain below `least_gain` is out for good.
    """
    items = [_items(candidate, graph) for candidate in candidates]
    factors = [_depth_factor(candidate, graph) for candidate in candidates]
    covered: set[Hashable] = set()

    def gain(index: int) -> float:
        return sum(weight for item, weight in items[index].items() if item not in covered) * factors[index]

    def score(index: int) -> float:
        return -gain(index) / (1 + 0.05 * len(candidates[index].members))

    queue = [(score(index), index) for index in range(len(candidates))]
    heapq.heapify(queue)
    selected: list[_Candidate] = []
    while queue and len(selected) < (config.max_clusters or len(candidates)):
        _, index = heapq.heappop(queue)
        current = score(index)
        if queue and (current, index) > queue[0]:
            heapq.heappush(queue, (current, index))
            continue
        if gain(index) < config.least_gain:
            continue
        covered.update(items[index])
        selected.append(candidates[index])
    return selected


def _depth_factor(candidate: _Candidate, graph: ToolGraph) -> float:
    """Factor of a candidate's gain: 1 with a chain or if all its tools are executable, else `SHALLOW` or `SHALLOW_BRIDGE`."""
    if candidate.chains or all(graph.tools[member].world is not None for member in candidate.members):
        return 1.0
    return SHALLOW if len({graph.tools[member].server for member in candidate.members}) == 1 else SHALLOW_BRIDGE


def _items(candidate: _Candidate, graph: ToolGraph) -> dict[Hashable, float]:
    """What a candidate covers, with weights: tools 1, edges half their score (between servers 2), labels 2, chains 0.5, plans 1."""
    items: dict[Hashable, float] = dict.fromkeys(candidate.members, 1.0)
    server = {tool.id: tool.server for tool in (graph.tools[member] for member in candidate.members)}
    items.update(
        ((edge.source, edge.target), min(1.0, edge.score) / 2 if server[edge.source] == server[edge.target] else 2.0)
        for edge in candidate.edges
    )
    items.update((("domain", graph.tools[member].domain), 2.0) for member in candidate.members)
    items.update((chain, 0.5) for chain in candidate.chains)
    items.update((("plan", plan), 1.0) for plan in candidate.plans)
    return items


def _cluster(candidate: _Candidate, graph: ToolGraph, build: str, rank: int) -> Cluster:
    tools = sorted((graph.tools[member] for member in candidate.members), key=lambda tool: tool.id)
    labels = Counter(tool.domain for tool in tools)
    domain = min(labels, key=lambda label: (-labels[label], label))
    worlds = {tool.world for tool in tools}
    world = worlds.pop() if len(worlds) == 1 else None
    edges = tuple(sorted(candidate.edges, key=lambda edge: (edge.source, edge.target)))
    return Cluster(content_id("cluster", build, rank), domain, world, tuple(tool.id for tool in tools), edges, rank)
