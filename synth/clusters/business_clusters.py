"""Business clusters: 3 to 12 tools that real services would use together, with the dependency graph among them (definition P1).

Candidates grow along dependency neighbours, of a server or of its whole world (growing by similarity first and testing connectedness after
was measured: half the candidates fall apart): from each tool, and from the strongest chain through each, since most tools have one producer
and many consumers, and what grows from one is a star. Each edge between two servers (`synth/clusters/cross_server_edges.py`) gives one
more. Near copies are dropped; a greedy weighted maximum coverage of tools, edges, chains, plans and domain labels selects. Every cluster
hangs together and has an edge, and no tool name twice.

A cluster whose tools are of no world, or not all of one, has `world` None: nothing is executed with it. What a world's intents are
done with is known, not inferred: tools of one plan are tied as an edge would tie them, and unless `max_clusters` or `least_gain` leave
it out, every plan that fits is in a cluster.
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
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.execution import Progress
from storage.records import CODE_TOOL, Tool, content_id
from synth.clusters.cross_server_edges import bridges
from synth.clusters.edges import THRESHOLD, Described, Edge, chains, edges_of, group_of, members_of
from synth.clusters.world_plans import plans_of
from synth.gc_paused import no_collection

VERSION = 5


class ClusterConfig(BaseModel):
    """How tools are grouped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    edge_threshold: float = Field(
        THRESHOLD, ge=0, le=1, description="Least score of a dependency edge between two tools; higher finds fewer edges, and surer ones."
    )
    growth_floor: float = Field(
        0.35,
        ge=0,
        le=1,
        description="A cluster of no world with `min_tools` stops growing when the best neighbour's mean affinity is below this.",
    )
    bridge_neighbours: int = Field(
        3, ge=0, description="Neighbours of each end that join a candidate cluster over an edge between two servers."
    )
    min_tools: int = Field(3, ge=2, description="Fewest tools of a cluster.")
    max_tools: int = Field(12, ge=2, description="Most tools of a cluster.")
    copy_similarity: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Jaccard similarity of two clusters' tools from which the poorer is dropped, unless it alone serves a plan.",
    )
    least_gain: float = Field(1.0, ge=0, description="Least coverage that a cluster must add to be kept.")
    max_clusters: int | None = Field(None, ge=1, description="Most clusters; null: no limit.")

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_tools > self.max_tools:
            raise ValueError(f"min_tools {self.min_tools} is more than max_tools {self.max_tools}: no cluster could be both")
        return self


SHALLOW, SHALLOW_BRIDGE = 0.29, 0.5
"""What the gain of a cluster without a chain counts for, inside a server and between two: depth comes from selection (growth that looks for
it was measured to find little), and a bridge is mostly between servers of few tools."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """id: of its build (`build_id`) and its rank. domain: the label most of its tools carry. rank: position in the selection, 0 first."""

    id: str
    domain: str
    world: str | None
    tool_ids: tuple[str, ...]
    edges: tuple[Edge, ...]
    rank: int

    @property
    def tool_names(self) -> frozenset[str]:
        return tool_names(self.tool_ids)


def tool_names(tool_ids: Iterable[str]) -> frozenset[str]:
    """Names of tools: what follows the server's key in an id; keys hold no dot."""
    return frozenset(tool.partition(".")[2] for tool in tool_ids)


class _Graph:
    """Affinities w_ij = 0.4 cos + 0.4 dep + 0.2 [same server] (P1), and who neighbours whom. Tools are their positions.

    Of tools that a plan has in common dep is 1; a tool that is a plan alone and has no neighbour neighbours all of its world, with 0.
    """

    def __init__(self, described: Described, edges: Sequence[Edge], plans: Iterable[frozenset[str]]) -> None:
        self.tools = described.tools
        self._vectors = described.own
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
        groups = members_of(self.tools)
        for lone in [plan[0] for plan in self.plans if len(plan) == 1 and not self.neighbours[plan[0]]]:
            for other in groups[group_of(self.tools[lone])]:
                self.neighbours[lone][other] = self.neighbours[other][lone] = 0.0
            del self.neighbours[lone][lone]

    def grow(self, seed: Sequence[int], limit: int, *, floor: float = 0.0, least: int = 1, server: str | None = None) -> list[int]:
        """From the seed along neighbours (of that server), always the one with the greatest mean affinity, up to `limit` tools.

        No tool name comes twice: `ties` are those that may still join. Once there are `least` tools, a mean affinity below `floor` ends it.
        """
        grown: list[int] = []
        used: set[str] = set()
        ties: dict[int, float] = {}
        total = np.zeros(self._vectors.shape[1], dtype=np.float32)
        servers: Counter[str] = Counter()
        for start in seed:
            self._join(start, grown, used, ties, total, servers, server)
        while len(grown) < limit and ties:
            near = sorted(ties)
            affinity = 0.4 * (self._vectors[near] @ total) + 0.4 * np.array([ties[tool] for tool in near])
            affinity += 0.2 * np.array([servers[self.servers[tool]] for tool in near])
            best = int(affinity.argmax())
            if affinity[best] / len(grown) < floor and len(grown) >= least:
                break
            self._join(near[best], grown, used, ties, total, servers, server)
        return grown

    def _join(
        self,
        tool: int,
        grown: list[int],
        used: set[str],
        ties: dict[int, float],
        total: np.ndarray[tuple[int], np.dtype[np.float32]],
        servers: Counter[str],
        server: str | None,
    ) -> None:
        name = self.names[tool]
        grown.append(tool)
        used.add(name)
        total += self._vectors[tool]
        servers[self.servers[tool]] += 1
        for namesake in [other for other in ties if self.names[other] == name]:
            del ties[namesake]
        for other, strength in self.neighbours[tool].items():
            if (server is None or server == self.servers[other]) and self.names[other] not in used:
                ties[other] = ties.get(other, 0.0) + strength

    def chain_through(self, middle: int) -> tuple[int, int, int] | None:
        """The strongest chain of three tools through this one, names all different."""
        near = self.neighbours[middle]
        before = [(self.after[other][middle].score, other) for other in near if middle in self.after[other]]
        after = [(edge.score, other) for other, edge in self.after[middle].items()]
        found = [
            (left + right, -a, -c)
            for left, a in before
            for right, c in after
            if a != c and len({self.names[a], self.names[middle], self.names[c]}) == 3
        ]
        if not found:
            return None
        _, a, c = max(found)
        return -a, middle, -c

    def inside(self, members: Iterable[int]) -> tuple[Edge, ...]:
        own = set(members)
        return tuple(edge for tool in sorted(own) for other, edge in self.after[tool].items() if other in own)

    def is_connected(self, members: Sequence[int]) -> bool:
        own = set(members)
        reached, frontier = set[int](), set(members[:1])
        while frontier:
            reached |= frontier
            frontier = {other for tool in frontier for other in self.neighbours[tool] if other in own} - reached
        return reached == own

    def planned(self, members: Iterable[int]) -> list[int]:
        """The plans whose tools are all among these."""
        own = set(members)
        return [plan for tool in sorted(own) for plan in self._plans_from[tool] if own.issuperset(self.plans[plan])]


# ---- building -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Candidate:
    """chains: of three tools each, by their ids. plans: numbers of those that it serves. weight: sum of the edges' scores."""

    members: tuple[int, ...]
    edges: tuple[Edge, ...]
    chains: tuple[tuple[str, str, str], ...]
    plans: frozenset[int]
    weight: float


def cluster_tools(tools: Sequence[Tool], config: ClusterConfig | None = None, *, progress: Progress | None = None) -> list[Cluster]:
    """Business clusters of a catalogue, best first; deterministic. Empty where nothing depends on anything.

    A world's `run_python` is in none: any cluster of the world can offer it."""
    with no_collection():
        return _built(tools, config or ClusterConfig(), progress or (lambda step, done, total: None))


def _built(tools: Sequence[Tool], config: ClusterConfig, report: Progress) -> list[Cluster]:
    build = build_id(tools, config)
    tools = [tool for tool in tools if tool.world is None or tool.name != CODE_TOOL]
    if not tools:
        return []
    report("reading tools", 0, 4)
    described = Described.of(tools)
    report("finding edges", 1, 4)
    edges = edges_of(described, threshold=config.edge_threshold)
    edges += bridges(described, {tool for edge in edges for tool in (edge.source, edge.target)})
    graph = _Graph(described, sorted(edges, key=lambda edge: (edge.source, edge.target)), plans_of(tools).values())
    report("growing clusters", 2, 4)
    candidates = _candidates(graph, config)
    report("selecting clusters", 3, 4)
    chosen = _select(_without_copies(candidates, config), graph, config)
    report("selecting clusters", 4, 4)
    return [_cluster(candidate, graph, build, rank) for rank, candidate in enumerate(chosen)]


def build_id(tools: Sequence[Tool], config: ClusterConfig) -> str:
    """Of all that clusters follow from: the same clusters of other tools, or of another version of a tool, are other clusters."""
    plans = sorted([world, intent, *sorted(plan)] for (world, intent), plan in plans_of(tools).items())
    return content_id("build", [tool.model_dump(mode="json") for tool in tools], plans, config.model_dump(mode="json"), VERSION)


def _candidates(graph: _Graph, config: ClusterConfig) -> list[_Candidate]:
    fitting = [plan for plan in graph.plans if len(plan) <= config.max_tools]
    grown = {tuple(sorted(graph.grow(plan, config.max_tools))) for plan in _whole(fitting)}
    for start, tool in enumerate(graph.tools):
        if not graph.neighbours[start]:
            continue
        chain = graph.chain_through(start)
        if tool.world is not None:
            grown.add(tuple(sorted(graph.grow(chain or (start,), config.max_tools))))
            continue
        for seed in ((start,), chain):
            if seed and all(graph.tools[member].server == tool.server for member in seed):
                found = graph.grow(seed, config.max_tools, floor=config.growth_floor, least=config.min_tools, server=tool.server)
                grown.add(tuple(sorted(found)))
        for other in graph.after[start]:
            if graph.tools[other].server != tool.server:
                grown.add(_span(graph, start, other, config))
    return [candidate for members in sorted(grown) if (candidate := _candidate(members, graph, config)) is not None]


def _whole(plans: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that are no part of another."""
    holders: dict[int, set[int]] = defaultdict(set)
    for number, plan in enumerate(plans):
        for tool in plan:
            holders[tool].add(number)
    return [plan for plan in plans if len(set.intersection(*(holders[tool] for tool in plan))) == 1]


def _candidate(members: tuple[int, ...], graph: _Graph, config: ClusterConfig) -> _Candidate | None:
    """The candidate of these tools, if they are enough and hang together."""
    edges = graph.inside(members)
    if len(members) < config.min_tools or not edges or not graph.is_connected(members):
        return None
    plans = frozenset(graph.planned(members))
    return _Candidate(members, edges, tuple(chains(edges)), plans, math.fsum(edge.score for edge in edges))


def _span(graph: _Graph, source: int, target: int, config: ClusterConfig) -> tuple[int, ...]:
    """Both ends of an edge between servers, and the best neighbours of each in its own; no name twice."""
    room = min(config.bridge_neighbours + 1, config.max_tools // 2)
    left = graph.grow([source], room, server=graph.tools[source].server)
    right = graph.grow([target], room, server=graph.tools[target].server)
    names = {graph.names[tool] for tool in left}
    members = {*left, *(tool for tool in right if tool == target or graph.names[tool] not in names)}
    return tuple(sorted(members)) if graph.names[target] not in names else ()


def _without_copies(candidates: Sequence[_Candidate], config: ClusterConfig) -> list[_Candidate]:
    """Of near copies the heaviest, and any that serves a plan as the first."""
    kept: list[_Candidate] = []
    served = set[int]()
    holders: dict[int, list[int]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda one: (-len(one.plans), -one.weight, one.members)):
        shared = Counter(other for member in candidate.members for other in holders[member])
        size = len(candidate.members)
        is_copy = any(n / (size + len(kept[other].members) - n) >= config.copy_similarity for other, n in shared.items())
        if not is_copy or not candidate.plans <= served:
            served |= candidate.plans
            for member in candidate.members:
                holders[member].append(len(kept))
            kept.append(candidate)
    return kept


def _select(candidates: Sequence[_Candidate], graph: _Graph, config: ClusterConfig) -> list[_Candidate]:
    """Lazy greedy coverage: gain over (1 + 0.05 size); tools weigh 1, edges half their score (between servers 2), domain labels 2, chains
    0.5, plans 1. A gain never grows, so what gains too little once is out.

    What the gain of a candidate without a chain counts for is said by `_depth`.
    """
    covers = [_covers(candidate, graph) for candidate in candidates]
    depth = [_depth(candidate, graph) for candidate in candidates]
    covered: set[Hashable] = set()

    def gain(index: int) -> float:
        fresh = sum(weight for item, weight in covers[index].items() if item not in covered)
        return fresh * depth[index]

    def score(index: int) -> float:
        return -gain(index) / (1 + 0.05 * len(candidates[index].members))

    queue = [(score(index), index) for index in range(len(candidates))]
    heapq.heapify(queue)
    chosen: list[_Candidate] = []
    while queue and len(chosen) < (config.max_clusters or len(candidates)):
        _, index = heapq.heappop(queue)
        again = score(index)
        if queue and (again, index) > queue[0]:
            heapq.heappush(queue, (again, index))
            continue
        if gain(index) < config.least_gain:
            continue
        covered.update(covers[index])
        chosen.append(candidates[index])
    return chosen


def _depth(candidate: _Candidate, graph: _Graph) -> float:
    """What a candidate's gain counts for. Tools that can be executed are worth having in any shape."""
    if candidate.chains or all(graph.tools[member].world is not None for member in candidate.members):
        return 1.0
    return SHALLOW if len({graph.tools[member].server for member in candidate.members}) == 1 else SHALLOW_BRIDGE


def _covers(candidate: _Candidate, graph: _Graph) -> dict[Hashable, float]:
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


def _cluster(candidate: _Candidate, graph: _Graph, build: str, rank: int) -> Cluster:
    tools = sorted((graph.tools[member] for member in candidate.members), key=lambda tool: tool.id)
    labels = Counter(tool.domain for tool in tools)
    domain = min(labels, key=lambda label: (-labels[label], label))
    worlds = {tool.world for tool in tools}
    world = worlds.pop() if len(worlds) == 1 else None
    edges = tuple(sorted(candidate.edges, key=lambda edge: (edge.source, edge.target)))
    return Cluster(content_id("cluster", build, rank), domain, world, tuple(tool.id for tool in tools), edges, rank)
