"""Business clusters: 3 to 12 tools that real services would use together, with the dependency graph among them (definition P1).

Candidates grow from each tool along dependency neighbours, of its server or of its whole world (growing by similarity first and testing
connectedness after was measured: half the candidates fall apart), and bridges span each edge between two servers; near copies are
dropped; a greedy weighted maximum coverage of tools, edges, chains and domain labels selects. Every cluster is weakly connected and has
an edge.

Left out of the full definition: bridges between servers that share no world, by universal values (url, coordinates).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from storage.records import Tool, canonical_json, content_id
from synth.dependencies import THRESHOLD, Edge, chains, dependencies, texts, without_preamble
from synth.encoder import encode

VERSION = 2


class ClusterConfig(BaseModel):
    """How tools are grouped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    edge_threshold: float = Field(THRESHOLD, ge=0, le=1, description="Least score of a dependency edge: higher is surer, and finds fewer.")
    growth_floor: float = Field(
        0.35, ge=0, le=1, description="A cluster of enough tools stops growing when the best neighbour's mean affinity is below this."
    )
    bridge_neighbours: int = Field(
        3, ge=0, description="For each edge between two servers, a candidate of both ends with so many best neighbours of each."
    )
    min_tools: int = Field(3, ge=2, description="Fewest tools of a cluster.")
    max_tools: int = Field(12, ge=2, description="Most tools of a cluster.")
    copy_similarity: float = Field(
        0.7, gt=0, le=1, description="Of two candidates with a Jaccard of their tools this high, the poorer goes."
    )
    least_gain: float = Field(1.0, ge=0, description="Selection stops when the next cluster adds less coverage than this.")
    max_clusters: int | None = Field(None, ge=1, description="At most so many clusters; null for no limit.")

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_tools > self.max_tools:
            raise ValueError(f"min_tools {self.min_tools} is more than max_tools {self.max_tools}: no cluster could be both")
        return self


@dataclass(frozen=True, slots=True)
class Cluster:
    """id: of its tools and edges. domain: the label most of its tools carry. rank: position in the selection, 0 first."""

    id: str
    domain: str
    world: str | None
    tool_ids: tuple[str, ...]
    edges: tuple[Edge, ...]
    rank: int

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool.rsplit(".", 1)[-1] for tool in self.tool_ids)


class _Graph:
    """Affinities w_ij = 0.4 cos + 0.4 dep + 0.2 [same server] (P1) and who neighbours whom."""

    def __init__(self, tools: Sequence[Tool], edges: Sequence[Edge]) -> None:
        self.tools = {tool.id: tool for tool in tools}
        vectors = encode([texts(tool)[0] for tool in without_preamble(tools)])
        self._position = {tool.id: index for index, tool in enumerate(tools)}
        self._cosine = vectors @ vectors.T
        self._dependency: dict[frozenset[str], float] = {}
        self.neighbours: dict[str, set[str]] = {tool.id: set() for tool in tools}
        for edge in edges:
            pair = frozenset((edge.source, edge.target))
            self._dependency[pair] = max(self._dependency.get(pair, 0.0), edge.score)
            self.neighbours[edge.source].add(edge.target)
            self.neighbours[edge.target].add(edge.source)

    def affinity(self, left: str, right: str) -> float:
        cosine = max(0.0, float(self._cosine[self._position[left], self._position[right]]))
        dependency = min(1.0, self._dependency.get(frozenset((left, right)), 0.0))
        return 0.4 * cosine + 0.4 * dependency + 0.2 * (self.tools[left].server == self.tools[right].server)

    def grow(self, start: str, config: ClusterConfig, *, own_server: bool) -> tuple[str, ...]:
        """From one tool along neighbours (of its server), always the one with the greatest mean affinity; no tool name twice."""
        grown = [start]
        while len(grown) < config.max_tools:
            ranked = self._ranked(grown, self.tools[start].server if own_server else None)
            if not ranked or (ranked[0][0] < config.growth_floor and len(grown) >= config.min_tools):
                break
            grown.append(ranked[0][1])
        return tuple(sorted(grown))

    def bridge(self, edge: Edge, config: ClusterConfig) -> tuple[str, ...]:
        """Both ends of an edge, and the best neighbours of each in its own server."""
        spanned = [edge.source, edge.target]
        for end in (edge.source, edge.target):
            own = [end]
            for _ in range(config.bridge_neighbours):
                ranked = [tool for _, tool in self._ranked(own, self.tools[end].server) if tool not in spanned]
                if not ranked or len(spanned) >= config.max_tools:
                    break
                own.append(ranked[0])
                spanned.append(ranked[0])
        return tuple(sorted(spanned))

    def _ranked(self, grown: Sequence[str], server: str | None) -> list[tuple[float, str]]:
        """Neighbours (of that server, if one is named) with their mean affinity to the tools so far, the nearest first."""
        names = {self.tools[tool].name for tool in grown}
        near = {other for tool in grown for other in self.neighbours[tool]} - set(grown)
        near = {other for other in near if server in (None, self.tools[other].server) and self.tools[other].name not in names}
        ranked = [(sum(self.affinity(other, tool) for tool in grown) / len(grown), other) for other in near]
        return sorted(ranked, key=lambda item: (-item[0], item[1]))


def _inside(edges: Iterable[Edge], tools: frozenset[str]) -> tuple[Edge, ...]:
    return tuple(edge for edge in edges if edge.source in tools and edge.target in tools)


def is_connected(tools: Iterable[str], edges: Iterable[Edge]) -> bool:
    """Whether the tools hang together when directions are ignored."""
    members = set(tools)
    if not members:
        return False
    links = [(edge.source, edge.target) for edge in edges]
    reached, frontier = set[str](), {min(members)}
    while frontier:
        reached |= frontier
        frontier = {b if a in frontier else a for a, b in links if (a in frontier) != (b in frontier)} - reached
    return reached >= members


def cluster_tools(tools: Sequence[Tool], config: ClusterConfig | None = None) -> list[Cluster]:
    """Business clusters of a catalogue, best first; deterministic. Empty where nothing depends on anything."""
    config = config or ClusterConfig()
    edges = dependencies(tools, threshold=config.edge_threshold)
    graph = _Graph(tools, edges)
    across = [edge for edge in edges if graph.tools[edge.source].server != graph.tools[edge.target].server]
    grown = {graph.grow(tool.id, config, own_server=own_server) for tool in tools for own_server in (True, False)}
    grown |= {graph.bridge(edge, config) for edge in across}
    candidates = [
        members
        for members in sorted(grown)
        if len(members) >= config.min_tools and is_connected(members, _inside(edges, frozenset(members)))
    ]
    return _select(_without_copies(candidates, edges, config), tools, edges, config)


def _without_copies(candidates: Sequence[tuple[str, ...]], edges: Sequence[Edge], config: ClusterConfig) -> list[tuple[str, ...]]:
    weight = {members: sum(edge.score for edge in _inside(edges, frozenset(members))) for members in candidates}
    kept: list[tuple[str, ...]] = []
    for members in sorted(candidates, key=lambda members: (-weight[members], members)):
        own = set(members)
        if all(len(own & set(other)) / len(own | set(other)) < config.copy_similarity for other in kept):
            kept.append(members)
    return kept


def _select(candidates: Sequence[tuple[str, ...]], tools: Sequence[Tool], edges: Sequence[Edge], config: ClusterConfig) -> list[Cluster]:
    """Lazy greedy coverage: gain over (1 + 0.05 size); tools weigh 1, edges 0.5, domain labels 2, chains 0.5."""
    by_id = {tool.id: tool for tool in tools}
    covers = [_covers(members, by_id, _inside(edges, frozenset(members))) for members in candidates]
    covered: set[Hashable] = set()

    def gain(index: int) -> float:
        return sum(weight for item, weight in covers[index].items() if item not in covered)

    queue = [(-gain(index) / (1 + 0.05 * len(candidates[index])), index) for index in range(len(candidates))]
    heapq.heapify(queue)
    chosen: list[Cluster] = []
    while queue and len(chosen) < (config.max_clusters or len(candidates)):
        _, index = heapq.heappop(queue)
        score = -gain(index) / (1 + 0.05 * len(candidates[index]))
        if queue and (score, index) > queue[0]:
            heapq.heappush(queue, (score, index))
            continue
        if gain(index) < config.least_gain:
            break
        covered |= covers[index].keys()
        chosen.append(_cluster(candidates[index], by_id, _inside(edges, frozenset(candidates[index])), len(chosen)))
    return chosen


def _covers(members: tuple[str, ...], tools: Mapping[str, Tool], edges: Sequence[Edge]) -> dict[Hashable, float]:
    items: dict[Hashable, float] = dict.fromkeys(members, 1.0)
    items.update(((edge.source, edge.target), 0.5) for edge in edges)
    items.update((("domain", tools[member].domain), 2.0) for member in members)
    items.update((chain, 0.5) for chain in chains(edges))
    return items


def _cluster(members: tuple[str, ...], tools: Mapping[str, Tool], edges: tuple[Edge, ...], rank: int) -> Cluster:
    labels = Counter(tools[member].domain for member in members)
    domain = min(labels, key=lambda label: (-labels[label], label))
    worlds = {tools[member].world for member in members}
    world = worlds.pop() if len(worlds) == 1 else None
    return Cluster(content_id("cluster", members, [(edge.source, edge.target) for edge in edges]), domain, world, members, edges, rank)


# ---- rows of the store ----------------------------------------------------------------------------------------------


def tools_frame(tools: Sequence[Tool]) -> pl.DataFrame:
    """Rows of table `tools`; schemas as JSON text."""
    return pl.DataFrame(
        [
            {
                "tool_id": tool.id,
                "server": tool.server,
                "name": tool.name,
                "description": tool.description,
                "domain": tool.domain,
                "world": tool.world,
                "parameters": canonical_json(tool.parameters),
                "output": None if tool.output is None else canonical_json(tool.output),
                "changes_state": tool.changes_state,
            }
            for tool in tools
        ],
        schema_overrides={"world": pl.String, "output": pl.String},
        infer_schema_length=None,
    )


def clusters_frame(clusters: Sequence[Cluster]) -> pl.DataFrame:
    """Rows of table `clusters`; edges as JSON text: a list of source, target, score, entity."""
    return pl.DataFrame(
        {
            "cluster_id": [cluster.id for cluster in clusters],
            "domain": [cluster.domain for cluster in clusters],
            "world": [cluster.world for cluster in clusters],
            "tool_ids": [list(cluster.tool_ids) for cluster in clusters],
            "edges": [
                canonical_json([{"source": e.source, "target": e.target, "score": e.score, "entity": e.entity} for e in cluster.edges])
                for cluster in clusters
            ],
            "rank": [cluster.rank for cluster in clusters],
        },
        schema={
            "cluster_id": pl.String,
            "domain": pl.String,
            "world": pl.String,
            "tool_ids": pl.List(pl.String),
            "edges": pl.String,
            "rank": pl.Int32,
        },
    )
