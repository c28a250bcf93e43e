"""Infers bridges: edges between servers, by a universal value (a URL, coordinates, a ticker ...) that means the same to all of them.

One idea: opaque ids do not cross servers, universal values do, but only between tools with similar texts: search -> scrape, geocode ->
weather. Substitutes (two servers of one product) get no bridge, because a user does not need both. They are found by their names, by
product names in their tools' texts, by equal tool names, and by similar texts.

Precision comes before recall: one product word shared by two server names makes the servers substitutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

import numpy as np

from storage.records import Tool
from synth.clusters.edges import Edge, ToolFeatures
from synth.clusters.entities import parameter_words, properties, required_names
from synth.clusters.tool_text import own_text
from synth.clusters.tool_words import word_lists, words

LEAST_PRODUCTION = 0.4
"""Lowest weight with which a producer gives the value."""
LEAST_COSINE, LEAST_COSINE_SAME_LABEL = 0.34, 0.22
"""Lowest cosine of the two tools' texts, and the lowest for tools with the same label (`Tool.domain`)."""
MAX_SOURCES, MAX_TARGETS = 3, 4
"""Bridges kept per consumer and per producer: the best ones, with at most one per server at the other end."""
_HOSTED = frozenset(("repository", "package"))
"""Values that are universal only on one host: both tools must name the same one (GitHub, npm ...)."""
_SAME_LABEL_ONLY = frozenset(("ticker",))
"""Values whose name means something else under another label."""
_BY_URL = frozenset(("image", "video", "pdf"))
"""Values that a tool takes only by their URL."""
_FORMS = frozenset(("name", "address", "url", "uri", "link", "code", "symbol"))
"""Last words of parameters that take a value in some form: `company_name`, `wallet_address`, `image_url`."""
_ADDRESSES = frozenset(("url", "uri", "link"))
_SIBLINGS = 0.6
"""Two tools do the same if the Jaccard index of their names' words is at least this."""
_SHARED_TOOLS, _SHARED_SHARE = 2, 0.25
"""Two servers are substitutes if they share at least so many tool names, or this share of the smaller server's."""
_MENTION_SHARE, _NAMED_SHARE = 0.25, 0.25
"""A server mentions a word that at least this share of its tools contain. A mentioned word is a product word if at least this share of the
servers that mention it have it in their name."""
_SAME_PRODUCT = 0.6
"""Two servers are substitutes if the cosine of their mean texts is at least this."""
_ROWS = 512
"""Consumers compared at once."""


def find_bridges(described: ToolFeatures, connected: Collection[str]) -> list[Edge]:
    """Edges between servers, sorted by source and target; tools of worlds have none. score: weight of production x cosine of the texts.

    connected: ids of the tools that have an edge inside their server. A bridge has at least one of them, else it could make no cluster.
    """
    producers, consumers = _tools_by_value(described)
    profiles = ServerProfiles.of(described)
    candidates = [
        (-score, i, j, value)
        for value in sorted(producers.keys() & consumers.keys())
        for i, j, score in _similar_pairs(described, value, producers[value], consumers[value])
    ]
    sources: dict[int, set[str]] = defaultdict(set)
    targets: dict[int, set[str]] = defaultdict(set)
    edges = []
    for negative_score, i, j, value in sorted(candidates):
        source, target = described.tools[i], described.tools[j]
        is_full = len(sources[j]) == MAX_SOURCES or len(targets[i]) == MAX_TARGETS
        if is_full or (source.id not in connected and target.id not in connected):
            continue
        if source.server in sources[j] or target.server in targets[i] or profiles.are_substitutes(source.server, target.server):
            continue
        sources[j].add(source.server)
        targets[i].add(target.server)
        edges.append(Edge(source.id, target.id, round(-negative_score, 4), value))
    return sorted(edges, key=lambda edge: (edge.source, edge.target))


def _tools_by_value(described: ToolFeatures) -> tuple[dict[str, list[tuple[int, float]]], dict[str, list[int]]]:
    """Universal value -> producers (position, weight), and universal value -> positions of consumers."""
    producers: dict[str, list[tuple[int, float]]] = defaultdict(list)
    consumers: dict[str, list[int]] = defaultdict(list)
    for position, (tool, profile) in enumerate(zip(described.tools, described.profiles, strict=True)):
        if tool.world is not None:
            continue
        is_reader = profile.kind in ("list", "read", None) or len(required_names(tool.parameters)) <= 1
        for value in _consumed_values(tool, only_required=True):
            if value != "url" or is_reader:  # other tools only store the URL
                consumers[value].append(position)
        if profile.kind == "list" or (profile.kind in ("create", "read", None) and tool.parameters):
            weights: dict[str, float] = {}
            for entity, weight in profile.produces.items():
                if (universal := _values().get(entity)) and _is_about(tool, universal, is_search=profile.kind == "list"):
                    weights[universal] = max(weight, weights.get(universal, 0.0))
            consumed = set(_consumed_values(tool, only_required=False))
            for value, weight in weights.items():
                if weight >= LEAST_PRODUCTION and value not in consumed:
                    producers[value].append((position, weight))
    return producers, consumers


def _is_about(tool: Tool, value: str, *, is_search: bool) -> bool:
    """Whether a tool returns the value itself: a shop's locations are no coordinates, an issue's URL is no web page."""
    lists, name = word_lists(), words(tool.name)
    value_words = lists.universal[value]
    if value == "url" and not value_words.isdisjoint(name):
        verbs = lists.strong_verbs.keys() if not lists.strong_verbs.keys().isdisjoint(name) else lists.weak_verbs.keys()
        before = takewhile(lambda word: word not in value_words, name)
        return all(word in _values() or word in verbs or word in lists.attributes | lists.generic for word in before)
    expected = lists.web if value == "url" and is_search else value_words
    return not expected.isdisjoint(own_text(tool))


def _similar_pairs(
    described: ToolFeatures, value: str, producers: Sequence[tuple[int, float]], consumers: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """Pairs of a producer and a consumer of different servers with similar texts, with their score."""
    positions, weights = np.array([position for position, _ in producers]), np.array([weight for _, weight in producers])
    for start in range(0, len(consumers), _ROWS):
        batch = np.array(consumers[start : start + _ROWS])
        cosines = described.text_vectors[batch] @ described.text_vectors[positions].T
        for row, column in zip(*np.nonzero(cosines >= LEAST_COSINE_SAME_LABEL), strict=True):
            i, j, cosine = int(positions[column]), int(batch[row]), float(cosines[row, column])
            source, target = described.tools[i], described.tools[j]
            if source.server == target.server or _are_siblings(source, target):
                continue
            if source.domain != target.domain and (cosine < LEAST_COSINE or value in _SAME_LABEL_ONLY):
                continue
            if value not in _HOSTED or word_lists().hosts & set(own_text(source)) & set(own_text(target)):
                yield i, j, float(weights[column]) * cosine


def _are_siblings(left: Tool, right: Tool) -> bool:
    """Whether two tools do the same, by their names."""
    left_words, right_words = set(words(left.name)), set(words(right.name))
    return len(left_words & right_words) >= _SIBLINGS * len(left_words | right_words)


def _consumed_values(tool: Tool, *, only_required: bool) -> Iterator[str]:
    """Universal values that a tool takes directly, not by their id."""
    schemas = properties(tool.parameters)
    names = required_names(tool.parameters) & schemas.keys() if len(schemas) > 1 and only_required else schemas.keys()
    if all(_values().keys().isdisjoint(parameter_words(name)) for name in names):
        return
    parameters = [parameter_words(name) for name in sorted(names) if not _is_opaque(schemas[name])]
    with_form = {tokens[-2] for tokens in parameters if len(tokens) > 1 and tokens[-1] in _FORMS and tokens[-2] in _values()}
    by_url = {tokens[-2] for tokens in parameters if len(tokens) > 1 and tokens[-1] in _ADDRESSES}
    last_words = with_form | {tokens[-1] for tokens in parameters if tokens and not (len(tokens) > 1 and tokens[-2] in with_form)}
    for value, value_words in word_lists().universal.items():
        hits = (by_url if value in _BY_URL else last_words) & value_words
        if hits and (value != "coordinates" or "coordinate" in hits or len(hits) >= 2):
            yield value


@cache
def _values() -> Mapping[str, str]:
    """Word -> the universal value that it names."""
    return {name: value for value, names in word_lists().universal.items() for name in names}


def _is_opaque(schema: object) -> bool:
    """Whether the first 60 characters of a parameter's description name an id."""
    text = schema.get("description") if isinstance(schema, dict) else None
    return isinstance(text, str) and "id" in words(text[:60])


# ---- substitutes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerProfiles:
    """Features of each server, by its key.

    products: words of its name that could name a product.
    tools: names of its tools, in lower case.
    mentions: product words that many of its tools contain.
    centres: unit vector of its mean text.
    """

    products: dict[str, frozenset[str]]
    tools: dict[str, frozenset[str]]
    mentions: dict[str, frozenset[str]]
    centres: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]

    @classmethod
    def of(cls, described: ToolFeatures) -> ServerProfiles:
        """The profiles of all servers of these tools."""
        members: dict[str, list[int]] = defaultdict(list)
        for position, tool in enumerate(described.tools):
            members[tool.server].append(position)
        frequent: dict[str, frozenset[str]] = {}
        for server, positions in members.items():
            counts = Counter(word for position in positions for word in set(own_text(described.tools[position])))
            frequent[server] = frozenset(word for word, count in counts.items() if count >= max(1, _MENTION_SHARE * len(positions)))
        products = {server: product_words(server) for server in members}
        servers_with = Counter(word for server_words in frequent.values() for word in server_words)
        servers_named = Counter(word for server_words in products.values() for word in server_words)

        def is_product(word: str) -> bool:
            return servers_named[word] >= _NAMED_SHARE * servers_with[word]

        centres = {}
        for server, positions in members.items():
            mean = described.text_vectors[positions].mean(axis=0)
            centres[server] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return cls(
            products,
            {server: frozenset(described.tools[position].name.lower() for position in positions) for server, positions in members.items()},
            {server: frozenset(filter(is_product, server_words)) for server, server_words in frequent.items()},
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
    """The words of a server's name that could name its product."""
    return frozenset(word for word in words(server) if word not in word_lists().server_words and not word.isdigit() and len(word) > 1)
