"""The graph of tools along which clusters grow: dependency edges, plans, and affinities of tools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from synth.clusters.edges import Edge, ToolFeatures, group_of, positions_by_group


class ToolGraph:
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

    def __init__(self, graph: ToolGraph, server: str | None) -> None:
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
