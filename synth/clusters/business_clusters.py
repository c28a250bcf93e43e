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
from itertools import permutations
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.execution import Progress
from storage.records import CODE_TOOL, Tool, content_id
from synth.clusters.cross_server_edges import find_bridges
from synth.clusters.edges import THRESHOLD, Edge, ToolFeatures, chains, find_edges, group_of, positions_by_group
from synth.clusters.world_plans import plans_of
from synth.gc_paused import no_collection

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


class _ToolGraph:
    """Neighbours and affinities of tools: w_ij = 0.4 cos + 0.4 dep + 0.2 [same server] (P1). Tools are numbers: their positions.

    dep is the score of the edge, or 1 for two tools of one plan. A tool that is a whole plan and has no neighbour becomes a neighbour of
    all tools of its world, with dep 0.
    """

    def __init__(self, described: ToolFeatures, edges: Sequence[Edge], plans: Iterable[frozenset[str]]) -> None:
        self.tools = described.tools
        self.vectors = described.text_vectors
        self.position = {tool.id: index for index, tool in enumerate(self.tools)}
        self.names = [tool.name.lower() for tool in self.tools]
        self.servers = [tool.server for tool in self.tools]
        self.neighbours: list[dict[int, float]] = [{} for _ in self.tools]
        self.after: list[dict[int, Edge]] = [{} for _ in self.tools]
        for edge in edges:
            i, j = self.position[edge.source], self.position[edge.target]
            self.after[i][j] = edge
            strength = max(min(1.0, edge.score), self.neighbours[i].get(j, 0.0))
            self.neighbours[i][j] = self.neighbours[j][i] = strength
        self.plans = sorted({tuple(sorted(self.position[tool] for tool in plan)) for plan in plans})
        self._plans_from: dict[int, list[int]] = defaultdict(list)
        for number, plan in enumerate(self.plans):
            self._plans_from[plan[0]].append(number)
            for i, j in permutations(plan, 2):
                self.neighbours[i][j] = 1.0
        groups = positions_by_group(self.tools)
        for isolated in [plan[0] for plan in self.plans if len(plan) == 1 and not self.neighbours[plan[0]]]:
            for other in groups[group_of(self.tools[isolated])]:
                self.neighbours[isolated][other] = self.neighbours[other][isolated] = 0.0
            del self.neighbours[isolated][isolated]

    def grow(self, seed: Sequence[int], limit: int, *, floor: float = 0.0, least: int = 1, server: str | None = None) -> list[int]:
        """The tools of a group that grows from `seed`: it always adds the neighbour with the greatest mean affinity. No name comes twice.

        Args:
            limit: most tools of the group.
            floor, least: a group of at least `least` tools stops where the greatest mean affinity is below `floor`.
            server: only tools of this server may join.
        """
        group = _Group(self, server)
        for tool in seed:
            group.add(tool)
        while len(group.members) < limit and group.candidates:
            candidates = sorted(group.candidates)
            affinities = group.affinities(candidates)
            best = int(affinities.argmax())
            if affinities[best] / len(group.members) < floor and len(group.members) >= least:
                break
            group.add(candidates[best])
        return group.members

    def chain_through(self, middle: int) -> tuple[int, int, int] | None:
        """The strongest chain of three tools with this one in the middle and three different names, or None."""
        before = [(self.after[other][middle].score, other) for other in self.neighbours[middle] if middle in self.after[other]]
        after = [(edge.score, other) for other, edge in self.after[middle].items()]
        candidates = [
            (score_before + score_after, -first, -last)
            for score_before, first in before
            for score_after, last in after
            if first != last and len({self.names[first], self.names[middle], self.names[last]}) == 3
        ]
        if not candidates:
            return None
        _, first, last = max(candidates)
        return -first, middle, -last

    def edges_within(self, members: Iterable[int]) -> tuple[Edge, ...]:
        """The edges with both ends among the members."""
        group = set(members)
        return tuple(edge for tool in sorted(group) for other, edge in self.after[tool].items() if other in group)

    def is_connected(self, members: Sequence[int]) -> bool:
        """Whether neighbours connect all members."""
        group = set(members)
        reached, frontier = set[int](), set(members[:1])
        while frontier:
            reached |= frontier
            frontier = {other for tool in frontier for other in self.neighbours[tool] if other in group} - reached
        return reached == group

    def plans_within(self, members: Iterable[int]) -> list[int]:
        """Numbers of the plans with all tools among the members."""
        group = set(members)
        return [plan for tool in sorted(group) for plan in self._plans_from[tool] if group.issuperset(self.plans[plan])]


class _Group:
    """A growing group of tools of a graph.

    candidates: tool that may join -> sum of its dep to the members.
    """

    def __init__(self, graph: _ToolGraph, server: str | None) -> None:
        self.members: list[int] = []
        self.candidates: dict[int, float] = {}
        self._graph, self._server = graph, server
        self._names: set[str] = set()
        self._vector_sum = np.zeros(graph.vectors.shape[1], dtype=np.float32)
        self._server_sizes: Counter[str] = Counter()

    def affinities(self, tools: list[int]) -> NDArray[np.float64]:
        """For each candidate the sum of its affinities to the members."""
        graph = self._graph
        affinities = 0.4 * (graph.vectors[tools] @ self._vector_sum) + 0.4 * np.array([self.candidates[tool] for tool in tools])
        return np.asarray(affinities + 0.2 * np.array([self._server_sizes[graph.servers[tool]] for tool in tools]))

    def add(self, tool: int) -> None:
        """Adds a member; its neighbours become candidates, and tools of its name no longer are."""
        graph, name = self._graph, self._graph.names[tool]
        self.members.append(tool)
        self._names.add(name)
        self._vector_sum += graph.vectors[tool]
        self._server_sizes[graph.servers[tool]] += 1
        for namesake in [other for other in self.candidates if graph.names[other] == name]:
            del self.candidates[namesake]
        for other, strength in graph.neighbours[tool].items():
            if (self._server is None or self._server == graph.servers[other]) and graph.names[other] not in self._names:
                self.candidates[other] = self.candidates.get(other, 0.0) + strength


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
    with no_collection():
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
    graph = _ToolGraph(described, sorted(edges, key=lambda edge: (edge.source, edge.target)), plans_of(tools).values())
    report("growing clusters", 2, 4)
    candidates = _candidates(graph, config)
    report("selecting clusters", 3, 4)
    selected = _select(_without_copies(candidates, config), graph, config)
    report("selecting clusters", 4, 4)
    return [_cluster(candidate, graph, build, rank) for rank, candidate in enumerate(selected)]


def build_id(tools: Sequence[Tool], config: ClusterConfig) -> str:
    """Hash of all that determines the clusters: tools, plans, configuration and version."""
    plans = sorted([world, intent, *sorted(plan)] for (world, intent), plan in plans_of(tools).items())
    return content_id("build", [tool.model_dump(mode="json") for tool in tools], plans, config.model_dump(mode="json"), VERSION)


def _candidates(graph: _ToolGraph, config: ClusterConfig) -> list[_Candidate]:
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


def _maximal(plans: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The plans that are no subset of another plan."""
    holders: dict[int, set[int]] = defaultdict(set)
    for number, plan in enumerate(plans):
        for tool in plan:
            holders[tool].add(number)
    return [plan for plan in plans if len(set.intersection(*(holders[tool] for tool in plan))) == 1]


def _candidate(members: tuple[int, ...], graph: _ToolGraph, config: ClusterConfig) -> _Candidate | None:
    """The candidate of these tools, or None if they are too few, have no edge or are not connected."""
    edges = graph.edges_within(members)
    if len(members) < config.min_tools or not edges or not graph.is_connected(members):
        return None
    plans = frozenset(graph.plans_within(members))
    return _Candidate(members, edges, tuple(chains(edges)), plans, math.fsum(edge.score for edge in edges))


def _group_of_bridge(graph: _ToolGraph, source: int, target: int, config: ClusterConfig) -> tuple[int, ...]:
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


def _select(candidates: Sequence[_Candidate], graph: _ToolGraph, config: ClusterConfig) -> list[_Candidate]:
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


def _depth_factor(candidate: _Candidate, graph: _ToolGraph) -> float:
    """Factor of a candidate's gain: 1 with a chain or if all its tools are executable, else `SHALLOW` or `SHALLOW_BRIDGE`."""
    if candidate.chains or all(graph.tools[member].world is not None for member in candidate.members):
        return 1.0
    return SHALLOW if len({graph.tools[member].server for member in candidate.members}) == 1 else SHALLOW_BRIDGE


def _items(candidate: _Candidate, graph: _ToolGraph) -> dict[Hashable, float]:
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


def _cluster(candidate: _Candidate, graph: _ToolGraph, build: str, rank: int) -> Cluster:
    tools = sorted((graph.tools[member] for member in candidate.members), key=lambda tool: tool.id)
    labels = Counter(tool.domain for tool in tools)
    domain = min(labels, key=lambda label: (-labels[label], label))
    worlds = {tool.world for tool in tools}
    world = worlds.pop() if len(worlds) == 1 else None
    edges = tuple(sorted(candidate.edges, key=lambda edge: (edge.source, edge.target)))
    return Cluster(content_id("cluster", build, rank), domain, world, tuple(tool.id for tool in tools), edges, rank)
