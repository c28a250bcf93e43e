"""Which tool feeds which: dependency edges inferred from a catalogue's names, parameters and descriptions.

One idea: an edge is a match of an entity that one tool produces and another consumes (`synth/clusters/entities.py`), weighed by how rare
the entity is among servers, plus a little text similarity. Similarity alone finds siblings, not feeders (the benchmark measures both).
Where a tool declares an output schema, its fields are matched with parameters by name, type and meaning as well, and the better score
counts. Work is done entity by entity inside a server (or world), so it grows with the tools, not with their pairs.

It infers, and does not run anything; feeds through state alone (create a file, then read it) are none. Figures: `benchmarks/clusters.py`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.records import JSON, Tool
from synth.clusters.entities import Profile, profiles, properties
from synth.clusters.tool_text import Vectors, own_text, parameter_text, vectors, without_preamble
from synth.clusters.tool_words import entity_keys, vocabulary, words

THRESHOLD = 0.22
"""An edge has at least this score."""
MAX_PRODUCERS = 6
"""Kept per consumer, the best ones."""
_SIMILARITY = 0.1
_PRODUCERS_TRIED = 256
"""Of an entity in a server, the surest ones: a bound for catalogues that name no servers."""
_DAMPED_TOOLS, _DAMPED_WEIGHT, _DAMPED_SHARE = 4, 0.3, 0.1
_PAIRS = 100_000
"""Cosines taken at once."""

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` feeds `target` (tool ids) with `entity`; score in (0, 1.1]."""

    source: str
    target: str
    score: float
    entity: str


@dataclass(frozen=True, slots=True)
class Feeds:
    """Candidate edges as columns: positions of both tools, score, and the entity's number in `entities`. No pair twice."""

    sources: Numbers
    targets: Numbers
    scores: Reals
    names: Numbers
    entities: tuple[str, ...]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Feeds:
        return Feeds(self.sources[rows], self.targets[rows], self.scores[rows], self.names[rows], self.entities)


@dataclass(frozen=True, slots=True)
class Described:
    """Tools read once, for all who need it: profiles, and unit vectors of what they and their parameters say."""

    tools: tuple[Tool, ...]
    profiles: tuple[Profile, ...]
    own: Vectors
    taken: Vectors

    @classmethod
    def of(cls, tools: Sequence[Tool]) -> Described:
        told = without_preamble(tools)
        own, taken = vectors([own_text(tool) for tool in told], [parameter_text(tool) for tool in told])
        return cls(tuple(told), tuple(profiles(told)), own, taken)


def group_of(tool: Tool) -> str:
    """Tools may feed each other inside their world or, outside worlds, inside their server."""
    return f"world {tool.world}" if tool.world else tool.server


def members_of(tools: Sequence[Tool]) -> dict[str, list[int]]:
    """The positions of the tools of each group."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position, tool in enumerate(tools):
        groups[group_of(tool)].append(position)
    return groups


def rarity(described: Described) -> dict[str, float]:
    """idf of each entity over servers, scaled to at most 1."""
    holders: dict[str, set[str]] = defaultdict(set)
    for profile, tool in zip(described.profiles, described.tools, strict=True):
        for key in {*profile.produces, *profile.consumes}:
            holders[key].add(tool.server)
    servers = len({tool.server for tool in described.tools})
    return {key: math.log((servers + 1) / (len(names) + 0.5)) / math.log(servers + 1) for key, names in holders.items()}


def feeds(described: Described, *, least: float = 0.0) -> Feeds:
    """All pairs of tools that an entity or an output schema links, inside servers and worlds, with a score above `least`.

    score(i -> j) = max over entities of production x consumption x (.5 + .5 rarity) x damping + .1 x cosine of i's text and j's parameters.
    """
    rare = rarity(described)
    numbers: dict[str, int] = {}
    rows: list[tuple[int, int, float, int, bool]] = []
    for members in members_of(described.tools).values():
        rows += [(i, j, at, numbers.setdefault(key, len(numbers)), False) for i, j, at, key in _linked(members, described, rare, least)]
        rows += [(i, j, at, numbers.setdefault(key, len(numbers)), True) for i, j, at, key in _by_schema(members, described)]
    columns = tuple(zip(*rows, strict=True)) or ((), (), (), (), ())
    sources, targets, names = (np.array(columns[place], dtype=np.int64) for place in (0, 1, 3))
    scores, declared = np.array(columns[2], dtype=np.float64), np.array(columns[4], dtype=np.bool_)
    scores += _SIMILARITY * ~declared * _cosines(described, sources, targets)
    order = np.lexsort((names, -scores, targets, sources))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(sources[order]) != 0) | (np.diff(targets[order]) != 0)
    kept = order[first]
    return Feeds(sources, targets, scores, names, tuple(numbers)).take(kept[scores[kept] >= least])


def edges_of(described: Described, *, threshold: float = THRESHOLD) -> list[Edge]:
    """All dependency edges between tools that may meet: of one world or, outside worlds, of one server. Sorted by source and target.

    Of two opposite edges the weaker one goes; of a consumer's producers the best six stay.
    """
    found = feeds(described, least=max(threshold, 1e-9))
    there, back = (a * len(described.tools) + b for a, b in ((found.sources, found.targets), (found.targets, found.sources)))
    order = np.argsort(there)
    at = np.minimum(np.searchsorted(there, back, sorter=order), max(0, len(there) - 1))
    reverse = np.where(there[order[at]] == back, found.scores[order[at]], 0.0) if len(there) else np.zeros(0)
    found = found.take(found.scores >= reverse)
    found = found.take(np.lexsort((found.sources, -found.scores, found.targets)))
    new = np.r_[True, found.targets[1:] != found.targets[:-1]] if len(found.targets) else np.zeros(0, dtype=np.bool_)
    starts = np.flatnonzero(new)
    found = found.take(np.arange(len(found.targets)) - starts[np.cumsum(new) - 1] < MAX_PRODUCERS)
    ids = [tool.id for tool in described.tools]
    edges = [
        Edge(ids[i], ids[j], round(score, 4), found.entities[name])
        for i, j, score, name in zip(
            *(column.tolist() for column in (found.sources, found.targets, found.scores, found.names)), strict=True
        )
    ]
    return sorted(edges, key=lambda edge: (edge.source, edge.target))


def _cosines(described: Described, sources: Numbers, targets: Numbers) -> Reals:
    out = np.zeros(len(sources))
    for start in range(0, len(sources), _PAIRS):
        part = slice(start, start + _PAIRS)
        out[part] = np.einsum("ij,ij->i", described.own[sources[part]], described.taken[targets[part]])
    return np.maximum(out, 0.0)


def _linked(members: Sequence[int], described: Described, rare: Mapping[str, float], least: float) -> Iterator[tuple[int, int, float, str]]:
    """Pairs of one server that an entity links, with their score before similarity, if that could make it reach `least`."""
    producers: dict[str, list[tuple[float, int]]] = defaultdict(list)
    consumers: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for position in members:
        for key, weight in described.profiles[position].produces.items():
            producers[key].append((-weight, position))
        for key, weight in described.profiles[position].consumes.items():
            consumers[key].append((-weight, position))
    floor = max(least - _SIMILARITY, 0.0)
    for key in sorted(producers.keys() & consumers.keys()):
        giving, taking = sorted(producers[key])[:_PRODUCERS_TRIED], sorted(consumers[key])
        factor = (0.5 + 0.5 * rare[key]) * _damping(giving, taking, len(members))
        for taken, j in taking:
            if giving[0][0] * taken * factor < floor:
                break
            for given, i in giving:
                score = given * taken * factor
                if score < floor:
                    break
                if i != j:
                    yield i, j, score, key


def _damping(giving: Sequence[tuple[float, int]], taking: Sequence[tuple[float, int]], tools: int) -> float:
    """What nearly all tools of a server give and take ties none of them together."""
    if tools < _DAMPED_TOOLS:
        return 1.0
    given, taken = (sum(-weight > _DAMPED_WEIGHT for weight, _ in side) for side in (giving, taking))
    share = given / tools * taken / tools
    return 1.0 if share == 0 else min(1.0, math.sqrt(_DAMPED_SHARE / share))


# ---- declared outputs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class _Field:
    """A field of an output or a parameter: its words with those of what holds it, and its JSON type."""

    name: str
    words: tuple[str, ...]
    kind: str

    @property
    def about(self) -> frozenset[str]:
        return frozenset(word for word in self.words if entity_keys([word]) and word not in vocabulary().generic)


def _by_schema(members: Sequence[int], described: Described) -> Iterator[tuple[int, int, float, str]]:
    """Output fields that fit a parameter: .5 x overlap of their words + .5 x cosine of the words, rare ones counting more (P1).

    Fields that say the same are matched once, whoever has them.
    """
    given, wanted = _holders(members, described, _outputs), _holders(members, described, _inputs)
    if not given:
        return
    by_word: dict[str, list[_Field]] = defaultdict(list)
    for field in given:
        for word in field.about:
            by_word[word].append(field)
    uses = Counter[str]()
    for field, holders in (*given.items(), *wanted.items()):
        uses.update(dict.fromkeys(field.words, len(holders)))
    total = sum(map(len, given.values())) + sum(map(len, wanted.values()))
    weight = {word: 1 + math.log((1 + total) / (1 + count)) for word, count in uses.items()}
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for parameter, takers in wanted.items():
        fields = {field for word in parameter.about for field in by_word[word] if _fits(field, parameter)}
        scored = sorted((-_overlap(field, parameter, weight), field) for field in fields)
        givers = [(-score, i) for score, field in scored for i in given[field]][:_PRODUCERS_TRIED]
        for j in takers:
            for score, i in givers:
                if i != j:
                    best[i, j] = max(best.get((i, j), (0.0, "")), (score, parameter.name))
    for (i, j), (score, name) in best.items():
        yield i, j, score, name


def _holders(members: Sequence[int], described: Described, fields: Callable[[Tool], list[_Field]]) -> dict[_Field, list[int]]:
    """The tools that have each of the fields, in order."""
    found: dict[_Field, list[int]] = {}
    for position in members:
        for field in dict.fromkeys(fields(described.tools[position])):
            found.setdefault(field, []).append(position)
    return found


def _overlap(field: _Field, parameter: _Field, weight: Mapping[str, float]) -> float:
    left, right = set(field.words), set(parameter.words)
    squares = [math.fsum(weight[word] ** 2 for word in words) for words in (left, right, left & right)]
    return 0.5 * len(left & right) / len(left | right) + 0.5 * squares[2] / math.sqrt(squares[0] * squares[1])


def _fits(field: _Field, parameter: _Field) -> bool:
    """Of one type, and not two attributes of one thing (its name for its id)."""
    if field.kind and parameter.kind and field.kind != parameter.kind:
        return False
    ends = {field.words[-1], parameter.words[-1]} & (vocabulary().attributes | vocabulary().references)
    return field.words[-1] == parameter.words[-1] or not ends


def _outputs(tool: Tool) -> list[_Field]:
    """Scalar fields of a declared output that the tool does not itself take, an `id` named after what holds it."""
    own = {words(name) for name in properties(tool.parameters)}
    found = [_Field(name, named, kind) for name, named, kind in _scalars(tool.output, ())]
    return [field for field in found if field.words not in own and words(field.name) not in own]


def _inputs(tool: Tool) -> list[_Field]:
    return [
        _Field(name, words(name), _kind(schema))
        for name, schema in properties(tool.parameters).items()
        if words(name) and not set(words(name)) <= vocabulary().generic
    ]


def _kind(schema: Mapping[str, JSON]) -> str:
    """The type of a scalar, or of what an array holds; whole numbers are numbers. Empty where it is not said."""
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and isinstance(items, Mapping):
        return _kind(items)
    return {"integer": "number", "float": "number"}.get(kind, kind) if isinstance(kind, str) else ""


def _scalars(schema: JSON, holder: tuple[str, ...]) -> list[tuple[str, tuple[str, ...], str]]:
    """Name, words and type of every scalar field of an output schema, however deep."""
    if isinstance(schema, list):
        return [field for one in schema for field in _scalars(one, holder)]
    if not isinstance(schema, Mapping):
        return []
    out = _scalars(schema.get("items"), holder)
    for name, item in properties(schema).items():
        named = words(name)
        if not named:
            continue
        inner = _scalars(item, named)
        is_scalar = not inner and item.get("type") not in ("object", "array")
        full = (*holder, *named) if all(word in vocabulary().attributes for word in named) else named
        out += [(name, full, _kind(item))] if is_scalar else inner
        if not inner and item.get("type") == "array" and isinstance(item.get("items"), Mapping) and _kind(item) not in ("", "object"):
            out.append((name, full, _kind(item)))
    return out


def chains(edges: Sequence[Edge]) -> list[tuple[str, str, str]]:
    """All chains of two edges through three different tools."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append(edge.target)
    return sorted({(a, b, c) for a in after for b in after[a] for c in after.get(b, ()) if c not in (a, b)})


def levels(tools: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """How many edges the longest chain that leads to each tool has, tools that feed each other in a circle counting as one."""
    after: dict[str, set[str]] = {tool: set() for tool in tools}
    for edge in edges:
        after[edge.source].add(edge.target)
    reached = {tool: _reach(tool, after) for tool in tools}
    rings = {tool: min([tool, *(other for other in reached[tool] if tool in reached[other])]) for tool in tools}
    before: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if rings[edge.source] != rings[edge.target]:
            before[rings[edge.target]].add(rings[edge.source])
    found: dict[str, int] = {}
    for ring in sorted(set(rings.values()), key=lambda ring: sum(ring in (*reached[tool], rings[tool]) for tool in tools)):
        found[ring] = max((found[other] + 1 for other in before[ring]), default=0)
    return {tool: found[rings[tool]] for tool in tools}


def _reach(start: str, after: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    frontier = [start]
    while frontier:
        fresh = after[frontier.pop()] - reached
        reached |= fresh
        frontier += sorted(fresh)
    return reached
