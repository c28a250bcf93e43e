"""Which tool feeds which: dependency edges inferred from a catalogue's names, parameters and descriptions.

One idea: a tool *produces* weighted entities (`list_orders`: order) and *consumes* others (parameter `order_id`: order); an edge is a
match of the two, plus a little text similarity. Similarity alone finds siblings, not feeders (a test holds it against the entities).
Echoes do not count: a tool that takes an order and shows it again is no source of orders.
Where a tool declares an output schema, its fields are matched with parameters by name, type and meaning as well.

It infers, and does not run anything (worlds know better, but a user's own catalogue cannot be run); it knows a dozen short word lists and
no universal values. Half of what it says is right: of 145 tools of BFCL's multi-turn documents, whose 206 feeds were typed by hand, it
finds .36 with a precision of .52 from names, parameters and descriptions, .58 with .46 where the tools declare their outputs.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, takewhile

import numpy as np
from numpy.typing import NDArray

from storage.records import JSON, Tool
from synth.encoder import encode

THRESHOLD = 0.22
"""An edge has at least this score. On BFCL, without outputs: .20 gives precision .51 and recall .37, .25 .53 and .35, .30 .66 and .28."""
MAX_PRODUCERS = 6
"""Kept per consumer, the best ones."""


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VERBS: Mapping[str, float] = {
    **dict.fromkeys(("list", "search", "find", "query", "lookup", "browse"), 1.0),
    **dict.fromkeys(("create", "add", "open", "buy", "book", "make", "place", "register", "insert", "upload"), 0.9),
    **dict.fromkeys(("get", "read", "show", "fetch", "check", "compute", "calculate", "view", "describe", "retrieve"), 0.6),
    **dict.fromkeys(("update", "set", "edit", "cancel", "return", "exchange", "escalate", "move", "send", "pay", "close", "modify"), 0.15),
    **dict.fromkeys(("delete", "remove", "clear"), 0.0),
}
"""What a tool's verb says of its object: how surely the result holds new ones of it."""
_NO_VERB = 0.4
_PREPOSITIONS = _listed("along by for from in of on to with without at near")
_STOP_WORDS = _PREPOSITIONS | _listed("a an the all and or as is it be this that")
_ATTRIBUTES = _listed("id ids name names detail details info information list status current now central rank ranking day days")
_GENERIC = _listed(
    "query limit text date type sort sorting preference mode radius days quantity count reason filter page size max min price rating "
    "category colour color format language unit stock time departure arrival traffic in"
)
"""Parameter words that say how, not what: they hardly tie two tools together."""
_SYNONYMS = (
    _listed("place location origin destination center centre address coordinate intermediate stop poi"),
    _listed("city region area district"),
    _listed("user customer account member"),
    _listed("product item article goods"),
    _listed("file document path"),
    _listed("message email mail"),
)
_SYNONYM_WEIGHT = 0.5
_ECHO_WEIGHT = 0.2
_DESCRIPTION_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` feeds `target` (tool ids) with `entity`; score in (0, 1.1]."""

    source: str
    target: str
    score: float
    entity: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Entities of one tool with weights in [0, 1]."""

    produces: Mapping[str, float]
    consumes: Mapping[str, float]


# ---- words ----------------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Lower-case singular words of a name or sentence: split at anything but letters and digits, and at camelCase."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [_singular(word) for word in re.findall(r"[^\W_]+", spaced.lower())]


def _singular(word: str) -> str:
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word.removesuffix("s")


def entity_keys(phrase: Sequence[str]) -> dict[str, float]:
    """What a noun phrase names: its head (weight 1, .8 in a compound) and its last two words joined (weight 1)."""
    kept = list(phrase)
    while kept and kept[-1] in _ATTRIBUTES:
        kept.pop()
    while kept and kept[0] in _ATTRIBUTES:
        kept.pop(0)
    if not kept:
        return {}
    if len(kept) == 1:
        return {kept[0]: 1.0}
    return {kept[-1]: 0.8, "_".join(kept[-2:]): 1.0}


def _verb_and_object(name: str) -> tuple[str | None, list[str]]:
    """The verb of a tool's name, and the words it acts on: those after it up to a preposition, else those before it."""
    tokens = words(name)
    at = next((index for index, token in enumerate(tokens) if token in _VERBS), None)
    if at is None:
        return None, tokens
    after: list[str] = []
    for token in tokens[at + 1 :]:
        if token in _PREPOSITIONS:
            break
        after.append(token)
    return tokens[at], after or tokens[:at]


# ---- profiles -------------------------------------------------------------------------------------------------------


def _consumed(tool: Tool) -> dict[str, float]:
    required = set(tool.parameters.get("required") or ())
    found: dict[str, float] = {}
    for name, schema in _properties(tool.parameters).items():
        tokens = words(name)
        if not tokens:
            continue
        if tokens[-1] in ("id", "uuid", "token") and len(tokens) > 1:
            keys, weight = entity_keys(tokens[:-1]), 1.0
        elif tokens == ["id"]:
            keys, weight = entity_keys(_verb_and_object(tool.name)[1]), 0.9
        elif all(token in _GENERIC for token in tokens):
            keys, weight = entity_keys(tokens), 0.1
        else:
            keys, weight = entity_keys(tokens), 1.0 if schema.get("x-grounded") else 0.5
        for key, share in keys.items():
            found[key] = max(found.get(key, 0.0), share * weight * (1.0 if name in required else 0.6))
    return found


def _produced(tool: Tool, consumed: Mapping[str, float], parameters: frozenset[str]) -> dict[str, float]:
    verb, named = _verb_and_object(tool.name)
    weight = _NO_VERB if verb is None else _VERBS[verb]
    found = {key: share * weight for key, share in entity_keys(named).items()}
    own = set(found)
    first_sentence = re.split(r"[.!?。](?:\s|$)", tool.description, maxsplit=1)[0]
    for word in words(first_sentence):
        if word in parameters and word not in _STOP_WORDS and not tool.changes_state:
            found[word] = max(found.get(word, 0.0), _DESCRIPTION_WEIGHT)
    lists = weight >= 0.9
    return {
        key: value * (_ECHO_WEIGHT if consumed.get(key, 0.0) >= 0.25 and not (lists and key in own) else 1.0)
        for key, value in found.items()
        if value > 0
    }


def profiles(tools: Sequence[Tool]) -> list[Profile]:
    """What each tool produces and consumes, from the whole catalogue's vocabulary."""
    consumed = [_consumed(tool) for tool in tools]
    parameters = frozenset(key for found in consumed for key, weight in found.items() if weight >= 0.25)
    return [Profile(_with_synonyms(_produced(tool, taken, parameters)), taken) for tool, taken in zip(tools, consumed, strict=True)]


def _with_synonyms(found: Mapping[str, float]) -> dict[str, float]:
    out = dict(found)
    for group in _SYNONYMS:
        weight = max((found.get(word, 0.0) for word in group), default=0.0) * _SYNONYM_WEIGHT
        for word in group:
            if weight > out.get(word, 0.0):
                out[word] = weight
    return out


_PREAMBLE_TOOLS = 4


def without_preamble(tools: Sequence[Tool]) -> list[Tool]:
    """The tools, less what the descriptions of all tools of a server open with: that speaks of the server, not of the tool."""
    descriptions: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        descriptions[tool.server].append(tool.description)
    shared = {server: _opening(texts) if len(texts) >= _PREAMBLE_TOOLS else "" for server, texts in descriptions.items()}
    return [
        tool.model_copy(update={"description": tool.description.removeprefix(shared[tool.server]).lstrip()})
        if shared[tool.server]
        else tool
        for tool in tools
    ]


def _opening(texts: Sequence[str]) -> str:
    """The words with which all texts open: what the first and the last of them in sorted order share, all do."""
    pairs = zip(min(texts).split(" "), max(texts).split(" "), strict=False)
    return " ".join(left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


# ---- edges ----------------------------------------------------------------------------------------------------------


def texts(tool: Tool) -> tuple[str, str]:
    """What a tool says of itself, and what its parameters say."""
    properties = _properties(tool.parameters).items()
    parameters = ", ".join(f"{' '.join(words(name))} {schema.get('description') or ''}".strip() for name, schema in properties)
    return f"{' '.join(words(tool.name))}: {tool.description}", parameters or "nothing"


def _rarity(found: Sequence[Profile], tools: Sequence[Tool]) -> dict[str, float]:
    """idf of each entity over servers, scaled to at most 1."""
    holders: dict[str, set[str]] = defaultdict(set)
    for profile, tool in zip(found, tools, strict=True):
        for key in {*profile.produces, *profile.consumes}:
            holders[key].add(tool.server)
    servers = len({tool.server for tool in tools})
    return {key: math.log((servers + 1) / (len(names) + 0.5)) / math.log(servers + 1) for key, names in holders.items()}


def dependencies(tools: Sequence[Tool], *, threshold: float = THRESHOLD) -> list[Edge]:
    """All dependency edges between tools that may meet: of one world or, outside worlds, of one server. Sorted by source and target.

    Of two opposite edges the weaker one goes; of a consumer's producers the best six stay.
    """
    tools = without_preamble(tools)
    found, own, taken = profiles(tools), *_vectors(tools)
    rarity, cosine, by_schema = _rarity(found, tools), own @ taken.T, _by_schema(tools)
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for i, j in permutations(range(len(tools)), 2):
        if (tools[i].world or tools[i].server) != (tools[j].world or tools[j].server):
            continue
        linked = [
            (weight * found[j].consumes[key] * (0.5 + 0.5 * rarity[key]), key)
            for key, weight in found[i].produces.items()
            if key in found[j].consumes
        ]
        by_name = max(linked, default=(0.0, ""))
        score = by_name[0] + 0.1 * max(0.0, float(cosine[i, j])) if linked else 0.0
        best[i, j] = max((score, by_name[1]), by_schema.get((i, j), (0.0, "")))
    kept = {pair: edge for pair, edge in best.items() if edge[0] >= threshold and edge[0] >= best.get(pair[::-1], (0.0, ""))[0]}
    out = []
    for target in range(len(tools)):
        feeding = sorted(((pair, edge) for pair, edge in kept.items() if pair[1] == target), key=lambda item: (-item[1][0], item[0]))
        out += [Edge(tools[i].id, tools[target].id, round(score, 4), entity) for (i, _), (score, entity) in feeding[:MAX_PRODUCERS]]
    return sorted(out, key=lambda edge: (edge.source, edge.target))


def _vectors(tools: Sequence[Tool]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    said = [texts(tool) for tool in tools]
    vectors = encode([text for text, _ in said] + [parameters for _, parameters in said])
    return vectors[: len(tools)], vectors[len(tools) :]


def _by_schema(tools: Sequence[Tool]) -> dict[tuple[int, int], tuple[float, str]]:
    """Where tools declare what they return: the best match of an output field with a parameter of its type, by name and meaning."""
    fields = [(i, name, kind) for i, tool in enumerate(tools) for name, kind in _fields(tool.output)]
    if not fields:
        return {}
    taken = [
        (j, name, schema.get("type"))
        for j, tool in enumerate(tools)
        for name, schema in _properties(tool.parameters).items()
        if not set(words(name)) <= _GENERIC
    ]
    vectors = encode([" ".join(words(name)) for _, name, _ in (*fields, *taken)])
    cosine = vectors[: len(fields)] @ vectors[len(fields) :].T
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for row, (i, field, kind) in enumerate(fields):
        for column, (j, parameter, wanted) in enumerate(taken):
            left, right = set(words(field)), set(words(parameter))
            if i == j or kind != wanted or not left & right or field in _properties(tools[i].parameters):
                continue
            score = 0.5 * len(left & right) / len(left | right) + 0.5 * max(0.0, float(cosine[row, column]))
            best[i, j] = max(best.get((i, j), (0.0, "")), (score, parameter))
    return best


def _fields(schema: JSON) -> list[tuple[str, JSON]]:
    """Name and type of every scalar field of an output schema, however deep."""
    if isinstance(schema, list):
        return [field for one in schema for field in _fields(one)]
    if not isinstance(schema, Mapping):
        return []
    out = _fields(schema.get("items"))
    for name, item in _properties(schema).items():
        inner = _fields(item)
        is_scalar = item.get("type") not in ("object", "array") and not inner
        out += [(name, item.get("type"))] if is_scalar else inner
    return out


def _properties(schema: Mapping[str, JSON]) -> dict[str, Mapping[str, JSON]]:
    """The properties of an object schema by name. One that is no mapping (`true`: anything goes) says nothing."""
    found = schema.get("properties")
    return {name: item if isinstance(item, Mapping) else {} for name, item in found.items()} if isinstance(found, Mapping) else {}


def chains(edges: Sequence[Edge]) -> list[tuple[str, str, str]]:
    """All chains of two edges through three different tools."""
    after: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append(edge.target)
    return sorted({(a, b, c) for a in after for b in after[a] for c in after.get(b, ()) if c not in (a, b)})
