"""Edges between servers: a value that means the same everywhere (a URL, coordinates, a ticker ...) goes from one service to another.

One idea: opaque ids do not cross servers, so only universal values do, and only between tools that speak of like things: search -> scrape,
geocode -> weather. Substitutes, two servers of one product, are never joined: nobody uses both in one piece of business. They are told by
their names, by the product that their tools or descriptions name, by the names of their tools, and by descriptions as a whole.

It prefers to miss a bridge: a word shared by two names is enough to call the servers substitutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import numpy as np

from storage.records import Tool
from synth.clusters.edges import Described, Edge
from synth.clusters.entities import parameter_words, properties, required
from synth.clusters.tool_text import own_text
from synth.clusters.tool_words import vocabulary, words

LEAST_GIVEN = 0.4
"""A producer gives the value at least so surely."""
LEAST_COSINE, LEAST_COSINE_LABELLED = 0.34, 0.22
"""Of the two tools' texts; the lower bound for tools of one label."""
MAX_SOURCES, MAX_TARGETS = 3, 4
"""Bridges kept per consumer and per producer, the best ones, one of each server at the other end."""
_HOSTED = frozenset(("repository", "package"))
_LABELLED = frozenset(("ticker",))
"""Values whose name means another thing in another line of business."""
_LINKED = frozenset(("image", "video", "pdf"))
"""Values that only their address is passed on of."""
_FORMS = frozenset(("name", "address", "url", "uri", "link", "code", "symbol"))
"""How a parameter may ask for a value: `company_name`, `wallet_address`, `image_url`."""
_ADDRESSES = frozenset(("url", "uri", "link"))
_SIBLINGS = 0.6
"""Two tools whose names have so many words in common (Jaccard) do the same."""
_SHARED_TOOLS, _SHARED_SHARE = 2, 0.25
"""Two servers with so many tool names in common, or so large a share of the smaller one's, are one product."""
_MENTION_SHARE, _NAMED_SHARE = 0.25, 0.25
"""A product word of one server counts as said by another in so many of its tools; a word is a product's if so many of those who say it are
named by it."""
_SAME_PRODUCT = 0.6
"""Cosine of the mean texts of two servers from which on they are one product."""
_ROWS = 512


def bridges(described: Described, tied: Collection[str]) -> list[Edge]:
    """Edges between servers, sorted by source and target; tools of worlds have none. score: how surely the value is given, times cosine.

    tied: ids of the tools that feed another of their server, or are fed by one. Two that are not have no bridge: they make no cluster.
    """
    giving: dict[str, list[tuple[int, float]]] = defaultdict(list)
    taking: dict[str, list[int]] = defaultdict(list)
    for position, (tool, profile) in enumerate(zip(described.tools, described.profiles, strict=True)):
        if tool.world is not None:
            continue
        taken = set(_taken(tool, only_needed=False))
        reads = profile.kind in ("list", "read", None) or len(required(tool.parameters)) <= 1
        for value in _taken(tool, only_needed=True):
            if value != "url" or reads:  # what else takes an address notes it down
                taking[value].append(position)
        if profile.kind == "list" or (profile.kind in ("create", "read", None) and tool.parameters):
            given: dict[str, float] = {}
            for name, weight in profile.produces.items():
                if (value_named := _values().get(name)) and _is_own(tool, value_named, is_search=profile.kind == "list"):
                    given[value_named] = max(weight, given.get(value_named, 0.0))
            for value, weight in given.items():
                if weight >= LEAST_GIVEN and value not in taken:
                    giving[value].append((position, weight))
    servers = Servers.of(described)
    found = [
        (-score, i, j, value)
        for value in sorted(giving.keys() & taking.keys())
        for i, j, score in _alike(described, value, giving[value], taking[value])
    ]
    sources: dict[int, set[str]] = defaultdict(set)
    targets: dict[int, set[str]] = defaultdict(set)
    edges = []
    for negative, i, j, value in sorted(found):
        one, other = described.tools[i], described.tools[j]
        is_full = len(sources[j]) == MAX_SOURCES or len(targets[i]) == MAX_TARGETS
        if is_full or (one.id not in tied and other.id not in tied):
            continue
        if one.server in sources[j] or other.server in targets[i] or servers.are_substitutes(one.server, other.server):
            continue
        sources[j].add(one.server)
        targets[i].add(other.server)
        edges.append(Edge(one.id, other.id, round(-negative, 4), value))
    return sorted(edges, key=lambda edge: (edge.source, edge.target))


def _is_own(tool: Tool, value: str, *, is_search: bool) -> bool:
    """Whether a tool speaks of the value itself: a shop's locations are no coordinates, an issue's URL is no page of the web."""
    known, named = vocabulary(), words(tool.name)
    names = known.universal[value]
    if value == "url" and not names.isdisjoint(named):
        verbs = known.strong.keys() if not known.strong.keys().isdisjoint(named) else known.weak.keys()
        before = takewhile(lambda word: word not in names, named)
        return all(word in _values() or word in verbs or word in known.attributes | known.generic for word in before)
    said = known.web if value == "url" and is_search else names
    return not said.isdisjoint(own_text(tool))


def _alike(
    described: Described, value: str, giving: Sequence[tuple[int, float]], taking: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """Pairs of different servers whose texts are alike enough, with their score."""
    producers, given = np.array([position for position, _ in giving]), np.array([weight for _, weight in giving])
    for start in range(0, len(taking), _ROWS):
        consumers = np.array(taking[start : start + _ROWS])
        cosine = described.own[consumers] @ described.own[producers].T
        for row, column in zip(*np.nonzero(cosine >= LEAST_COSINE_LABELLED), strict=True):
            i, j, near = int(producers[column]), int(consumers[row]), float(cosine[row, column])
            one, other = described.tools[i], described.tools[j]
            if one.server == other.server or _are_siblings(one, other):
                continue
            if one.domain != other.domain and (near < LEAST_COSINE or value in _LABELLED):
                continue
            if value not in _HOSTED or vocabulary().hosts & set(own_text(one)) & set(own_text(other)):
                yield i, j, float(given[column]) * near


def _are_siblings(one: Tool, other: Tool) -> bool:
    left, right = set(words(one.name)), set(words(other.name))
    return len(left & right) >= _SIBLINGS * len(left | right)


def _taken(tool: Tool, *, only_needed: bool) -> Iterator[str]:
    """Universal values that a tool takes as such, not by an id of theirs."""
    named = properties(tool.parameters)
    needed = required(tool.parameters) & named.keys() if len(named) > 1 and only_needed else named.keys()
    asked = [parameter_words(name) for name in sorted(needed)]
    if all(_values().keys().isdisjoint(tokens) for tokens in asked):
        return
    asked = [parameter_words(name) for name in sorted(needed) if not _is_opaque(named[name])]
    formed = {tokens[-2] for tokens in asked if len(tokens) > 1 and tokens[-1] in _FORMS and tokens[-2] in _values()}
    linked = {tokens[-2] for tokens in asked if len(tokens) > 1 and tokens[-1] in _ADDRESSES}
    ends = formed | {tokens[-1] for tokens in asked if tokens and not (len(tokens) > 1 and tokens[-2] in formed)}
    for value, names in vocabulary().universal.items():
        hits = (linked if value in _LINKED else ends) & names
        if hits and (value != "coordinates" or "coordinate" in hits or len(hits) >= 2):
            yield value


@cache
def _values() -> Mapping[str, str]:
    """Which universal value a word names."""
    return {name: value for value, names in vocabulary().universal.items() for name in names}


def _is_opaque(schema: object) -> bool:
    text = schema.get("description") if isinstance(schema, dict) else None
    return isinstance(text, str) and "id" in words(text[:60])


# ---- substitutes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Servers:
    """What is known of each server: the words that name its product, its tools' names, words that many of its tools say, its mean text."""

    products: dict[str, frozenset[str]]
    tools: dict[str, frozenset[str]]
    mentions: dict[str, frozenset[str]]
    centres: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]

    @classmethod
    def of(cls, described: Described) -> Servers:
        members: dict[str, list[int]] = defaultdict(list)
        for position, tool in enumerate(described.tools):
            members[tool.server].append(position)
        said: dict[str, frozenset[str]] = {}
        for server, positions in members.items():
            counts = Counter(word for position in positions for word in set(own_text(described.tools[position])))
            said[server] = frozenset(word for word, count in counts.items() if count >= max(1, _MENTION_SHARE * len(positions)))
        products = {server: product_words(server) for server in members}
        telling = Counter(word for found in said.values() for word in found)
        named = Counter(word for found in products.values() for word in found)
        centres = {}
        for server, positions in members.items():
            mean = described.own[positions].mean(axis=0)
            centres[server] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return cls(
            products,
            {server: frozenset(described.tools[position].name.lower() for position in positions) for server, positions in members.items()},
            {server: frozenset(word for word in found if named[word] >= _NAMED_SHARE * telling[word]) for server, found in said.items()},
            centres,
        )

    def are_substitutes(self, left: str, right: str) -> bool:
        """Whether two servers are of one product."""
        if self.products[left] & self.products[right]:
            return True
        if self.products[left] & self.mentions[right] or self.products[right] & self.mentions[left]:
            return True
        shared = len(self.tools[left] & self.tools[right])
        if shared >= _SHARED_TOOLS or shared >= _SHARED_SHARE * min(len(self.tools[left]), len(self.tools[right])) > 0:
            return True
        return float(self.centres[left] @ self.centres[right]) >= _SAME_PRODUCT


def product_words(server: str) -> frozenset[str]:
    """The words of a server's name that could name a product."""
    return frozenset(word for word in words(server) if word not in vocabulary().server_words and not word.isdigit() and len(word) > 1)
