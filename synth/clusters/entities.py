"""Infers the *entities* that a tool produces and consumes, with weights, from its name, parameters and description.

One idea: `list_orders` produces `order`; a required parameter `order_id` consumes `order`. The tool's verb sets how likely its result holds
new entities; a parameter's ending sets how likely it needs one. An *echo* has little weight: a tool that takes an order and returns it
again is hardly a source of orders.
If a schema is unknown (`parameters` is empty), its parameters are guessed; a schema without properties has no parameters.

The words are in `tool_words.yaml`. Only English is read; a text in another script gives nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile

from storage.records import JSON, Tool
from synth.clusters.tool_words import ParsedName, entity_keys, is_verb, parse_names, raw_words, singular, word_lists, words

PRODUCTION = {"list": 1.0, "create": 0.9, "read": 0.6, "login": 0.3, "change": 0.15, "remove": 0.0}
"""Class of a tool's verb -> how likely its result holds new entities of its object, 0 to 1."""
NO_VERB = 0.4
"""The same for a tool without a verb."""
SOURCE = 0.9
"""The same for a reading tool that returns several entities, takes no reference to one, or looks up an id."""
UNSURE_SOURCE = 0.35
"""The same for a reading tool of one entity whose parameters are unknown."""
OPTIONAL = 0.6
"""Factor of an optional parameter."""
ECHO = 0.2
"""Factor of an echoed entity."""
ECHO_FROM = 0.25
"""An entity that a tool consumes with at least this weight is echoed."""
MODIFIER = 0.3
"""Weight of a word before the object's head."""
DESCRIBED_REFERENCE, DESCRIBED = 0.6, 0.3
"""Weights of an entity in a parameter's description: with a reference ("id of the order"), and without."""
TAIL, TAIL_UNKNOWN = 0.3, 0.42
"""Weights of an entity after a preposition of the tool's name: with known parameters, and with unknown ones."""
_MAX_LISTED = 12
"""Entities read from a list in a description."""
_GLUED = re.compile(r"^([a-z]{3,})(id|ids|uuid|url|name)$")
_NUMBERED = re.compile(r"^([a-z]{3,})[1-9]$")


@dataclass(frozen=True, slots=True)
class Profile:
    """The entities of one tool.

    kind: class of the tool's verb, or None.
    produces, consumes: entity -> weight, 0 to 1.
    """

    kind: str | None
    produces: Mapping[str, float]
    consumes: Mapping[str, float]


# ---- consumed entities ----------------------------------------------------------------------------------------------


def properties(schema: Mapping[str, JSON]) -> dict[str, Mapping[str, JSON]]:
    """The properties of an object schema by name. A property that is no mapping (`true`: any value) becomes an empty one."""
    items = schema.get("properties")
    return {name: item if isinstance(item, Mapping) else {} for name, item in items.items()} if isinstance(items, Mapping) else {}


def required_names(schema: Mapping[str, JSON]) -> frozenset[str]:
    """Names of the required properties."""
    names = schema.get("required")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


_CLAUSE_END = re.compile(r"[.,;:(!?。，：（\n]")


def consumed_entities(tool: Tool, name: ParsedName) -> tuple[dict[str, float], frozenset[str]]:
    """The entities that a tool takes with their weights, and those that it takes by reference (by an id, name, path ...)."""
    weights: dict[str, float] = {}
    referenced: set[str] = set()
    required = required_names(tool.parameters)
    created = entity_keys(name.object) if name.kind == "create" else {}

    def add(keys: Mapping[str, float], weight: float, *, is_reference: bool = False) -> None:
        for key, share in keys.items():
            if key in created:  # a parameter that names the new entity
                continue
            weights[key] = max(weights.get(key, 0.0), share * weight)
            if is_reference:
                referenced.add(key)

    for parameter, schema in properties(tool.parameters).items():
        share = 1.0 if parameter in required else OPTIONAL
        for keys, weight, is_reference in _parameter_entities(parameter_words(parameter), schema, name):
            add(keys, weight * share, is_reference=is_reference)
    add(entity_keys(name.tail), TAIL_UNKNOWN if not tool.parameters else TAIL)
    if not tool.parameters:
        objects = entity_keys(name.object)
        if name.kind in ("read", "change", "remove") and not name.is_plural and word_lists().measures.isdisjoint(objects):
            add(objects, 0.6)
        add(dict.fromkeys(name.modifiers, 1.0), MODIFIER)
    return weights, frozenset(referenced)


@lru_cache(maxsize=100_000)
def parameter_words(name: str) -> tuple[str, ...]:
    """The words of a parameter's name, with a glued ending split (`userid`), without a number (`user1`) or purpose (`file_to_move`)."""
    tokens = words(name)
    at = next((at for at in range(1, len(tokens) - 1) if tokens[at] == "to" and is_verb(tokens[at + 1])), len(tokens))
    tokens = tokens[:at]
    if tokens and (numbered := _NUMBERED.match(tokens[-1])):
        tokens = (*tokens[:-1], numbered[1])
    if tokens and tokens[-1] not in word_lists().not_glued and (glued := _GLUED.match(tokens[-1])):
        tokens = (*tokens[:-1], glued[1], glued[2].removesuffix("s") if glued[2] == "ids" else glued[2])
    return tokens


def _parameter_entities(
    tokens: tuple[str, ...], schema: Mapping[str, JSON], name: ParsedName
) -> Iterable[tuple[dict[str, float], float, bool]]:
    """Entities that one parameter takes, their weight, and whether the parameter takes a reference to them."""
    lists = word_lists()
    if not tokens or "_".join(tokens) in lists.ignored:
        return
    last, stem = tokens[-1], tokens[:-1]
    if tokens in (("id",), ("uuid",), ("guid",), ("arn",), ("identifier",)):
        yield entity_keys(name.object), 0.9, True
    elif last in lists.identifiers and stem:
        yield entity_keys(stem), 1.0, True
        if last == "token":
            yield entity_keys(tokens), 1.0, True
    elif all(token in lists.generic for token in tokens):
        yield {tokens[-1]: 1.0}, 0.1, False
    elif last in lists.references and stem:
        yield entity_keys(stem), 1.0 if schema.get("x-grounded") else 0.7, True
        if last not in lists.weak_references:
            yield {last: 1.0}, 0.56, True
    else:
        yield entity_keys(tokens), 1.0 if schema.get("x-grounded") else 0.5, False
    text = schema.get("description")
    if isinstance(text, str):
        yield *_described_entity(text), False


@lru_cache(maxsize=100_000)
def _described_entity(text: str) -> tuple[dict[str, float], float]:
    """The entity at the start of a parameter's description, and its weight: X in "X id", "id of the X" and, with less weight, "X"."""
    lists = word_lists()
    parts = _phrases(raw_words(_CLAUSE_END.split(text[:160], maxsplit=1)[0])[:12])
    for part in parts[:2]:
        phrase = [singular(word) for word in part]
        ending = len(phrase)
        while ending and phrase[ending - 1] in lists.references | lists.identifiers:
            ending -= 1
        is_reference = ending < len(phrase)
        if any(word.isdigit() for word in phrase) or (is_reference and not ending):
            continue
        if part is not parts[0]:
            return (entity_keys(phrase), DESCRIBED_REFERENCE) if len(phrase) <= 4 else ({}, 0.0)
        if ending > 4 or (not is_reference and phrase[-1] in lists.generic | lists.attributes):
            return {}, 0.0
        return entity_keys(phrase[:ending]), DESCRIBED_REFERENCE if is_reference else DESCRIBED
    return {}, 0.0


def _phrases(raw: Sequence[str]) -> list[list[str]]:
    """Noun phrases of the words: cut at prepositions, conjunctions and the like, without articles."""
    lists = word_lists()
    phrases: list[list[str]] = [[]]
    for word in raw:
        if word in lists.prepositions or word in lists.cuts:
            phrases.append([])
        elif word not in lists.articles:
            phrases[-1].append(word)
    return [phrase for phrase in phrases if phrase]


# ---- produced entities ----------------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(r"[.!?。\n](?:\s|$)")
_RETURNS = re.compile(
    r"\b(?:returns?|returning|provides?|yields?|outputs?) (?:the |an? |all |list of |array of |set of |its )*([a-z ]{3,40})", re.IGNORECASE
)
WEB = 0.6
"""How likely a search of the web returns URLs."""
_LOGIN_ENTITIES = ("token", "access_token", "session", "connection")


def produced_entities(tool: Tool, name: ParsedName, consumed: Mapping[str, float], referenced: frozenset[str]) -> dict[str, float]:
    """The entities that a tool returns with their weights; echoed ones at a fifth. `consumed`, `referenced`: from `consumed_entities`."""
    objects = entity_keys(name.object) if name.kind != "login" else {}
    is_resolver = tool.name.lower().endswith(("_id", "_ids")) or tool.name.endswith(("Id", "Ids"))
    object_weight = _object_weight(tool, name, objects, referenced, is_resolver=is_resolver)
    weights = {key: share * object_weight for key, share in objects.items()}

    def add(keys: Mapping[str, float], weight: float) -> None:
        for key, share in keys.items():
            weights[key] = max(weights.get(key, 0.0), share * weight)

    add(dict.fromkeys(name.modifiers, 1.0), MODIFIER * object_weight)
    if name.kind == "login":
        add(dict.fromkeys(_LOGIN_ENTITIES, 1.0), 0.9)
    if noun := word_lists().nominalisations.get(name.verb or ""):
        add({noun: 1.0}, 0.6)
    described = _described_products(tool.description)
    for keys, weight in described:
        add(keys, weight)
    if name.kind == "list" and not word_lists().web.isdisjoint({*words(tool.name), *words(tool.description[:200])}):
        add({"url": 1.0}, WEB)
    if is_resolver or name.kind == "create":
        never_echoed = set(objects)
    elif name.kind == "list" or name.is_plural:
        never_echoed = {*objects, *(key for keys, _ in described[:1] for key in keys)} - referenced
    else:
        never_echoed = set[str]()
    echoed = {key for key, weight in consumed.items() if weight >= ECHO_FROM or key in referenced} - never_echoed
    return {key: weight * (ECHO if key in echoed else 1.0) for key, weight in weights.items() if weight > 0}


def _object_weight(tool: Tool, name: ParsedName, objects: Mapping[str, float], referenced: frozenset[str], *, is_resolver: bool) -> float:
    """How likely a tool's result holds new entities of its object, 0 to 1."""
    if is_resolver and name.kind in ("read", "change"):
        return SOURCE
    if name.kind is None:
        return NO_VERB
    if name.kind != "read":
        return PRODUCTION[name.kind]
    if name.is_plural:
        return SOURCE
    if not tool.parameters:
        return UNSURE_SOURCE
    return PRODUCTION["read"] if referenced & objects.keys() else SOURCE


@lru_cache(maxsize=100_000)
def _described_products(text: str) -> tuple[tuple[dict[str, float], float], ...]:
    """Entities that a tool returns by its description, with weights: objects of the first sentence's verb, and of verbs like "returns"."""
    products = []
    first_sentence = _SENTENCE_END.split(text[:400], maxsplit=1)[0]
    raw = raw_words(first_sentence)[:16]
    at = next((index for index, word in enumerate(raw[:5]) if is_verb(word) or is_verb(singular(word))), None)
    if at is not None:
        verb = singular(raw[at])
        kind = word_lists().strong_verbs.get(verb) or word_lists().weak_verbs.get(verb) or "read"
        for part in [part for part in _phrases(raw[at + 1 :]) if len(part) <= 6][:2]:
            is_plural = singular(part[-1]) != part[-1]
            weight = SOURCE if kind == "read" and is_plural else PRODUCTION[kind]
            if keys := entity_keys([singular(word) for word in part]):
                products.append((keys, 0.6 * weight))
                break
            if raw[raw.index(part[-1]) + 1 : raw.index(part[-1]) + 2] not in (("of",), ("about",), ("for",), ("on",)):
                break
        if kind == "list":  # "Searches the web: fares, guides to areas ..."
            listed = _phrases(raw_words(first_sentence.partition(": ")[2].replace(",", " and ")))[:_MAX_LISTED]
            products += [(entity_keys([singular(word) for word in part]), 0.5) for part in listed if len(part) <= 3]
    for match in _RETURNS.finditer(text[:600], 1):
        phrase = list(takewhile(lambda word: word not in word_lists().stop_words, raw_words(match[1])))[:4]
        products.append((entity_keys([singular(word) for word in phrase]), 0.5))
    return tuple(products)


def add_synonyms(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights, with the synonyms of each word at half its weight."""
    out = dict(weights)
    for word, weight in weights.items():
        for synonym in _synonyms().get(word, ()):
            out[synonym] = max(out.get(synonym, 0.0), 0.5 * weight)
    return out


@cache
def _synonyms() -> Mapping[str, tuple[str, ...]]:
    synonyms: dict[str, set[str]] = defaultdict(set)
    for group in word_lists().synonyms:
        for word in group:
            synonyms[word] |= group - {word}
    return {word: tuple(sorted(others)) for word, others in synonyms.items()}


def build_profiles(tools: Sequence[Tool]) -> list[Profile]:
    """The produced and consumed entities of each tool."""
    profiles = []
    for tool, name in zip(tools, parse_names(tools), strict=True):
        consumed, referenced = consumed_entities(tool, name)
        profiles.append(Profile(name.kind, add_synonyms(produced_entities(tool, name, consumed, referenced)), consumed))
    return profiles
