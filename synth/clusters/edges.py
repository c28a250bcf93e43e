"""Infers dependency edges between tools (one tool's result feeds another's parameter) from names, parameters and descriptions.

One idea: an edge is an entity that one tool produces and another consumes (`synth/clusters/entities.py`), weighted by how rare the entity
is among servers, plus a little text similarity. Similarity alone finds similar tools, not feeders (the benchmark measures both). If a
tool declares an output schema, its fields are also matched with parameters by name, type and words, and the better score counts. The
search goes entity by entity inside a server (or world), so its cost grows with the tools, not with their pairs.

It runs no tool. A dependency through state only (create a file, then read it) is no edge. Figures:
`benchmarks/worlds_sections/business_clusters.py`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.records import JSON, Tool
from synth.clusters.entities import Profile, build_profiles, properties
from synth.clusters.tool_text import Vectors, embed_texts, own_text, parameter_text, strip_preambles
from synth.clusters.tool_words import entity_keys, word_lists, words

THRESHOLD = 0.22
"""Lowest score of an edge."""
MAX_PRODUCERS = 6
"""Edges kept per consumer, the best ones."""
_SIMILARITY = 0.1
"""Weight of the cosine in a score."""
_PRODUCERS_TRIED = 256
"""Producers of an entity that are tried in a server, those of highest weight: a bound for catalogues that name no servers."""
_DAMPED_TOOLS, _DAMPED_WEIGHT, _DAMPED_SHARE = 4, 0.3, 0.1
"""For damping: fewest tools of a server; weight above which a tool counts; share of pairs from which on the entity is damped."""
_PAIRS = 100_000
"""Cosines computed at once."""

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` feeds `target` (both tool ids) with `entity`; score in (0, 1.1]."""

    source: str
    target: str
    score: float
    entity: str


@dataclass(frozen=True, slots=True)
class CandidateEdges:
    """Candidate edges as columns; each pair of tools occurs once.

    sources, targets: positions of the tools.
    names: positions of the entities in `entities`.
    """

    sources: Numbers
    targets: Numbers
    scores: Reals
    names: Numbers
    entities: tuple[str, ...]

    def select(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> CandidateEdges:
        """The candidates of these rows (positions or a mask)."""
        return CandidateEdges(self.sources[rows], self.targets[rows], self.scores[rows], self.names[rows], self.entities)


@dataclass(frozen=True, slots=True)
class ToolFeatures:
    """Tools with their features.

    tools: without the preambles of their descriptions.
    profiles: produced and consumed entities of each tool.
    text_vectors, parameter_vectors: unit vectors [n, 256] of the tools' names and descriptions, and of their parameters'.
    """

    tools: tuple[Tool, ...]
    profiles: tuple[Profile, ...]
    text_vectors: Vectors
    parameter_vectors: Vectors

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> ToolFeatures:
        """The features of these tools; the idf of words is that of these tools."""
        tools = strip_preambles(tools)
        text_vectors, parameter_vectors = embed_texts([own_text(tool) for tool in tools], [parameter_text(tool) for tool in tools])
        return cls(tuple(tools), tuple(build_profiles(tools)), text_vectors, parameter_vectors)


def group_of(tool: Tool) -> str:
    """The name of a tool's group: its world or, without a world, its server. Only tools of one group can have an edge."""
    return f"world {tool.world}" if tool.world else tool.server


def positions_by_group(tools: Sequence[Tool]) -> dict[str, list[int]]:
    """The positions of the tools of each group."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position, tool in enumerate(tools):
        groups[group_of(tool)].append(position)
    return groups


def rarity(described: ToolFeatures) -> dict[str, float]:
    """Entity -> its idf over servers, scaled to at most about 1."""
    servers_by_entity: dict[str, set[str]] = defaultdict(set)
    for profile, tool in zip(described.profiles, described.tools, strict=True):
        for key in {*profile.produces, *profile.consumes}:
            servers_by_entity[key].add(tool.server)
    total = len({tool.server for tool in described.tools})
    return {key: math.log((total + 1) / (len(servers) + 0.5)) / math.log(total + 1) for key, servers in servers_by_entity.items()}


def candidate_edges(described: ToolFeatures, *, least: float = 0.0) -> CandidateEdges:
    """All pairs of tools of one group that an entity or an output schema links, with a score of at least `least`.

    score(i -> j) = max over entities of production x consumption x (.5 + .5 rarity) x damping + .1 x cosine of i's text and j's parameters;
    for an output schema see `_link_by_schema`.
    """
    rarities = rarity(described)
    numbers: dict[str, int] = {}
    rows: list[tuple[int, int, float, int, bool]] = []
    for group in positions_by_group(described.tools).values():
        by_entity, by_schema = _link_by_entity(group, described, rarities, least), _link_by_schema(group, described)
        rows += [(i, j, score, numbers.setdefault(key, len(numbers)), False) for i, j, score, key in by_entity]
        rows += [(i, j, score, numbers.setdefault(key, len(numbers)), True) for i, j, score, key in by_schema]
    columns = tuple(zip(*rows, strict=True)) or ((), (), (), (), ())
    sources, targets, names = (np.array(columns[index], dtype=np.int64) for index in (0, 1, 3))
    scores, is_by_schema = np.array(columns[2], dtype=np.float64), np.array(columns[4], dtype=np.bool_)
    scores += _SIMILARITY * ~is_by_schema * _cosines(described, sources, targets)
    order = np.lexsort((names, -scores, targets, sources))
    is_best_of_pair = np.ones(len(order), dtype=np.bool_)
    is_best_of_pair[1:] = (np.diff(sources[order]) != 0) | (np.diff(targets[order]) != 0)
    best = order[is_best_of_pair]
    return CandidateEdges(sources, targets, scores, names, tuple(numbers)).select(best[scores[best] >= least])


def find_edges(described: ToolFeatures, *, threshold: float = THRESHOLD) -> list[Edge]:
    """All dependency edges between tools of one group, sorted by source and target.

    Of two opposite edges only the stronger one stays; of a consumer's producers the best `MAX_PRODUCERS` stay.
    """
    candidates = candidate_edges(described, least=max(threshold, 1e-9))
    count = len(described.tools)
    pairs = candidates.sources * count + candidates.targets
    opposite_pairs = candidates.targets * count + candidates.sources
    order = np.argsort(pairs)
    at = np.minimum(np.searchsorted(pairs, opposite_pairs, sorter=order), max(0, len(pairs) - 1))
    opposite = np.where(pairs[order[at]] == opposite_pairs, candidates.scores[order[at]], 0.0) if len(pairs) else np.zeros(0)
    candidates = candidates.select(candidates.scores >= opposite)
    candidates = candidates.select(np.lexsort((candidates.sources, -candidates.scores, candidates.targets)))
    targets = candidates.targets
    is_new_target = np.r_[True, targets[1:] != targets[:-1]] if len(targets) else np.zeros(0, dtype=np.bool_)
    starts = np.flatnonzero(is_new_target)
    candidates = candidates.select(np.arange(len(targets)) - starts[np.cumsum(is_new_target) - 1] < MAX_PRODUCERS)
    ids = [tool.id for tool in described.tools]
    columns = (candidates.sources, candidates.targets, candidates.scores, candidates.names)
    edges = [
        Edge(ids[i], ids[j], round(score, 4), candidates.entities[name])
        for i, j, score, name in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return sorted(edges, key=lambda edge: (edge.source, edge.target))


def _cosines(described: ToolFeatures, sources: Numbers, targets: Numbers) -> Reals:
    """Cosine of each source's text and its target's parameters, at least 0."""
    out = np.zeros(len(sources))
    for start in range(0, len(sources), _PAIRS):
        part = slice(start, start + _PAIRS)
        out[part] = np.einsum("ij,ij->i", described.text_vectors[sources[part]], described.parameter_vectors[targets[part]])
    return np.maximum(out, 0.0)


def _link_by_entity(
    group: Sequence[int], described: ToolFeatures, rarities: Mapping[str, float], least: float
) -> Iterator[tuple[int, int, float, str]]:
    """Pairs of one group that an entity links, with their score without similarity, if similarity could raise it to `least`."""
    producers: dict[str, list[tuple[float, int]]] = defaultdict(list)
    consumers: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for position in group:
        for key, weight in described.profiles[position].produces.items():
            producers[key].append((-weight, position))
        for key, weight in described.profiles[position].consumes.items():
            consumers[key].append((-weight, position))
    floor = max(least - _SIMILARITY, 0.0)
    for key in sorted(producers.keys() & consumers.keys()):
        givers, takers = sorted(producers[key])[:_PRODUCERS_TRIED], sorted(consumers[key])
        factor = (0.5 + 0.5 * rarities[key]) * _damping(givers, takers, len(group))
        for consumption, j in takers:
            if givers[0][0] * consumption * factor < floor:
                break
            for production, i in givers:
                score = production * consumption * factor
                if score < floor:
                    break
                if i != j:
                    yield i, j, score, key


def _damping(givers: Sequence[tuple[float, int]], takers: Sequence[tuple[float, int]], tools: int) -> float:
    """Factor in (0, 1] for an entity: small if nearly all tools of a group produce and consume it, since it then links none in particular.

    givers, takers: (negative weight, position) of the tools that produce and consume it.
    """
    if tools < _DAMPED_TOOLS:
        return 1.0
    producers, consumers = (sum(-weight > _DAMPED_WEIGHT for weight, _ in side) for side in (givers, takers))
    share = producers / tools * consumers / tools
    return 1.0 if share == 0 else min(1.0, math.sqrt(_DAMPED_SHARE / share))


# ---- declared outputs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class _Field:
    """A field of an output, or a parameter.

    words: of its name; if they are generic (`id`), preceded by those of the field that contains it.
    kind: JSON type, or empty if unknown.
    """

    name: str
    words: tuple[str, ...]
    kind: str

    @property
    def about(self) -> frozenset[str]:
        """The words that name an entity and are not generic."""
        return frozenset(word for word in self.words if entity_keys([word]) and word not in word_lists().generic)


def _link_by_schema(group: Sequence[int], described: ToolFeatures) -> Iterator[tuple[int, int, float, str]]:
    """Pairs of one group with an output field that fits a parameter; score: .5 x Jaccard + .5 x idf-weighted cosine of their words (P1).

    Equal fields of several tools are matched once.
    """
    outputs, inputs = _tools_by_field(group, described, _outputs), _tools_by_field(group, described, _inputs)
    if not outputs:
        return
    by_word: dict[str, list[_Field]] = defaultdict(list)
    for field in outputs:
        for word in field.about:
            by_word[word].append(field)
    uses = Counter[str]()
    for field, tools in (*outputs.items(), *inputs.items()):
        uses.update(dict.fromkeys(field.words, len(tools)))
    total = sum(map(len, outputs.values())) + sum(map(len, inputs.values()))
    weight = {word: 1 + math.log((1 + total) / (1 + count)) for word, count in uses.items()}
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for parameter, takers in inputs.items():
        fields = {field for word in parameter.about for field in by_word[word] if _fits(field, parameter)}
        scored = sorted((-_overlap(field, parameter, weight), field) for field in fields)
        givers = [(-score, i) for score, field in scored for i in outputs[field]][:_PRODUCERS_TRIED]
        for j in takers:
            for score, i in givers:
                if i != j:
                    best[i, j] = max(best.get((i, j), (0.0, "")), (score, parameter.name))
    for (i, j), (score, name) in best.items():
        yield i, j, score, name


def _tools_by_field(group: Sequence[int], described: ToolFeatures, fields: Callable[[Tool], list[_Field]]) -> dict[_Field, list[int]]:
    """Field -> positions of the tools that have it, in order."""
    tools: dict[_Field, list[int]] = {}
    for position in group:
        for field in dict.fromkeys(fields(described.tools[position])):
            tools.setdefault(field, []).append(position)
    return tools


def _overlap(field: _Field, parameter: _Field, weight: Mapping[str, float]) -> float:
    """Similarity of the words of a field and a parameter, 0 to 1. weight: of each word, by rarity."""
    left, right = set(field.words), set(parameter.words)
    squares = [math.fsum(weight[word] ** 2 for word in words) for words in (left, right, left & right)]
    return 0.5 * len(left & right) / len(left | right) + 0.5 * squares[2] / math.sqrt(squares[0] * squares[1])


def _fits(field: _Field, parameter: _Field) -> bool:
    """Whether a field has the parameter's type, and they are not two attributes of one entity (its name and its id)."""
    if field.kind and parameter.kind and field.kind != parameter.kind:
        return False
    ends = {field.words[-1], parameter.words[-1]} & (word_lists().attributes | word_lists().references)
    return field.words[-1] == parameter.words[-1] or not ends


def _outputs(tool: Tool) -> list[_Field]:
    """Scalar fields of a declared output, without those that the tool takes as parameters."""
    parameter_words = {words(name) for name in properties(tool.parameters)}
    fields = [_Field(name, field_words, kind) for name, field_words, kind in _scalars(tool.output, ())]
    return [field for field in fields if field.words not in parameter_words and words(field.name) not in parameter_words]


def _inputs(tool: Tool) -> list[_Field]:
    """Parameters whose names are not generic."""
    return [
        _Field(name, words(name), _kind(schema))
        for name, schema in properties(tool.parameters).items()
        if words(name) and not set(words(name)) <= word_lists().generic
    ]


def _kind(schema: Mapping[str, JSON]) -> str:
    """The JSON type of a scalar, or of an array's items; `integer` counts as `number`. Empty if unknown."""
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and isinstance(items, Mapping):
        return _kind(items)
    return {"integer": "number", "float": "number"}.get(kind, kind) if isinstance(kind, str) else ""


def _scalars(schema: JSON, holder: tuple[str, ...]) -> list[tuple[str, tuple[str, ...], str]]:
    """Name, words and type of every scalar field of an output schema, at any depth. holder: words of the field that contains the schema."""
    if isinstance(schema, list):
        return [field for item in schema for field in _scalars(item, holder)]
    if not isinstance(schema, Mapping):
        return []
    out = _scalars(schema.get("items"), holder)
    for name, item in properties(schema).items():
        name_words = words(name)
        if not name_words:
            continue
        inner = _scalars(item, name_words)
        is_scalar = not inner and item.get("type") not in ("object", "array")
        full_words = (*holder, *name_words) if all(word in word_lists().attributes for word in name_words) else name_words
        out += [(name, full_words, _kind(item))] if is_scalar else inner
        if not inner and item.get("type") == "array" and isinstance(item.get("items"), Mapping) and _kind(item) not in ("", "object"):
            out.append((name, full_words, _kind(item)))
    return out


def chains(edges: Sequence[Edge]) -> list[tuple[str, str, str]]:
    """All chains of two edges through three different tools, as tool ids, sorted."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append(edge.target)
    return sorted({(a, b, c) for a in after for b in after[a] for c in after.get(b, ()) if c not in (a, b)})


def chain_depths(tools: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Tool id -> number of edges of the longest chain that ends at the tool. Tools in a cycle count as one tool."""
    after: dict[str, set[str]] = {tool: set() for tool in tools}
    for edge in edges:
        after[edge.source].add(edge.target)
    reached = {tool: _reachable(tool, after) for tool in tools}
    cycles = {tool: min([tool, *(other for other in reached[tool] if tool in reached[other])]) for tool in tools}
    before: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if cycles[edge.source] != cycles[edge.target]:
            before[cycles[edge.target]].add(cycles[edge.source])
    depths: dict[str, int] = {}
    for cycle in sorted(set(cycles.values()), key=lambda cycle: sum(cycle in (*reached[tool], cycles[tool]) for tool in tools)):
        depths[cycle] = max((depths[other] + 1 for other in before[cycle]), default=0)
    return {tool: depths[cycles[tool]] for tool in tools}


def _reachable(start: str, after: Mapping[str, set[str]]) -> set[str]:
    """All tools that a path of edges from `start` reaches."""
    reached: set[str] = set()
    frontier = [start]
    while frontier:
        new = after[frontier.pop()] - reached
        reached |= new
        frontier += sorted(new)
    return reached
