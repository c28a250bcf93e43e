"""What a tool gives and what it takes, read off its name, parameters and description: weighted *entities*.

One idea: `list_orders` produces `order`; a required parameter `order_id` consumes `order`. A tool's verb says how surely its result holds
new ones of its object; a parameter's ending says how surely it wants one. An *echo* does not count: a tool that takes an order and shows
it again is hardly a source of orders.
A schema that is unknown (`parameters` is empty) is another thing than one without parameters: only of the first are parameters guessed.

The words are in `tool_words.yaml`. English names are read; a text in another script gives nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile

from storage.records import JSON, Tool
from synth.clusters.tool_words import Action, actions, entity_keys, is_verb, raw_words, singular, vocabulary, words

PRODUCTION = {"list": 1.0, "create": 0.9, "read": 0.6, "login": 0.3, "change": 0.15, "remove": 0.0}
"""How surely the result of a tool with a verb of this class holds new ones of its object."""
NO_VERB = 0.4
SOURCE = 0.9
"""Of a reading tool that shows several, or is not told which one to show, or looks up an id."""
UNSURE_SOURCE = 0.35
"""Of a reading tool of one thing whose parameters are unknown."""
OPTIONAL = 0.6
ECHO = 0.2
ECHO_FROM = 0.25
"""An entity that a tool consumes with this weight or more is echoed, not produced."""
MODIFIER = 0.3
SAID, HINTED = 0.6, 0.3
"""What a parameter's description names by reference, and what it only names."""
TAIL, TAIL_UNKNOWN = 0.3, 0.42
_LISTED = 12
_GLUED = re.compile(r"^([a-z]{3,})(id|ids|uuid|url|name)$")
_NUMBERED = re.compile(r"^([a-z]{3,})[1-9]$")


@dataclass(frozen=True, slots=True)
class Profile:
    """Entities of one tool with weights in [0, 1]. kind: the class of its verb, or None."""

    kind: str | None
    produces: Mapping[str, float]
    consumes: Mapping[str, float]


# ---- what is consumed -----------------------------------------------------------------------------------------------


def properties(schema: Mapping[str, JSON]) -> dict[str, Mapping[str, JSON]]:
    """The properties of an object schema by name. One that is no mapping (`true`: anything goes) says nothing."""
    found = schema.get("properties")
    return {name: item if isinstance(item, Mapping) else {} for name, item in found.items()} if isinstance(found, Mapping) else {}


def required(schema: Mapping[str, JSON]) -> frozenset[str]:
    """Names of the required properties."""
    names = schema.get("required")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


_CLAUSE_END = re.compile(r"[.,;:(!?。，：（\n]")


def consumed(tool: Tool, acts: Action) -> tuple[dict[str, float], frozenset[str]]:
    """What a tool takes, and which of it by reference (a parameter that names one: its id, name, path ...)."""
    found: dict[str, float] = {}
    referred: set[str] = set()
    known = vocabulary()
    needed = required(tool.parameters)

    made = entity_keys(acts.object) if acts.kind == "create" else {}

    def take(keys: Mapping[str, float], weight: float, *, is_reference: bool = False) -> None:
        for key, share in keys.items():
            if key in made:  # the name or number of what is to be made
                continue
            found[key] = max(found.get(key, 0.0), share * weight)
            if is_reference:
                referred.add(key)

    for name, schema in properties(tool.parameters).items():
        share = 1.0 if name in needed else OPTIONAL
        for keys, weight, is_reference in _wanted(parameter_words(name), schema, acts):
            take(keys, weight * share, is_reference=is_reference)
    take(entity_keys(acts.tail), TAIL_UNKNOWN if not tool.parameters else TAIL)
    if not tool.parameters:
        own = entity_keys(acts.object)
        if acts.kind in ("read", "change", "remove") and not acts.is_plural and known.measures.isdisjoint(own):
            take(own, 0.6)
        take(dict.fromkeys(acts.modifiers, 1.0), MODIFIER)
    return found, frozenset(referred)


@lru_cache(maxsize=100_000)
def parameter_words(name: str) -> tuple[str, ...]:
    """The words of a parameter's name, a glued ending (`userid`) split off, a number (`user1`) and a purpose (`file_to_move`) dropped."""
    tokens = words(name)
    at = next((at for at in range(1, len(tokens) - 1) if tokens[at] == "to" and is_verb(tokens[at + 1])), len(tokens))
    tokens = tokens[:at]
    if tokens and (numbered := _NUMBERED.match(tokens[-1])):
        tokens = (*tokens[:-1], numbered[1])
    if tokens and tokens[-1] not in vocabulary().not_glued and (glued := _GLUED.match(tokens[-1])):
        tokens = (*tokens[:-1], glued[1], glued[2].removesuffix("s") if glued[2] == "ids" else glued[2])
    return tokens


def _wanted(tokens: tuple[str, ...], schema: Mapping[str, JSON], acts: Action) -> Iterable[tuple[dict[str, float], float, bool]]:
    """Entities that one parameter takes, their weight, and whether it takes a reference."""
    known = vocabulary()
    if not tokens or "_".join(tokens) in known.ignored:
        return
    last, stem = tokens[-1], tokens[:-1]
    if tokens in (("id",), ("uuid",), ("guid",), ("arn",), ("identifier",)):
        yield entity_keys(acts.object), 0.9, True
    elif last in known.identifiers and stem:
        yield entity_keys(stem), 1.0, True
        if last == "token":
            yield entity_keys(tokens), 1.0, True
    elif all(token in known.generic for token in tokens):
        yield {tokens[-1]: 1.0}, 0.1, False
    elif last in known.references and stem:
        yield entity_keys(stem), 1.0 if schema.get("x-grounded") else 0.7, True
        if last not in known.weak_references:
            yield {last: 1.0}, 0.56, True
    else:
        yield entity_keys(tokens), 1.0 if schema.get("x-grounded") else 0.5, False
    text = schema.get("description")
    if isinstance(text, str):
        yield *_said_of(text), False


@lru_cache(maxsize=100_000)
def _said_of(text: str) -> tuple[dict[str, float], float]:
    """The entity that a parameter's description opens with, and its weight: X of "X id" and "id of the X", less surely of "X"."""
    known = vocabulary()
    parts = _phrases(raw_words(_CLAUSE_END.split(text[:160], maxsplit=1)[0])[:12])
    for part in parts[:2]:
        phrase = [singular(word) for word in part]
        ending = len(phrase)
        while ending and phrase[ending - 1] in known.references | known.identifiers:
            ending -= 1
        is_reference = ending < len(phrase)
        if any(word.isdigit() for word in phrase) or (is_reference and not ending):
            continue
        if part is not parts[0]:
            return (entity_keys(phrase), SAID) if len(phrase) <= 4 else ({}, 0.0)
        if ending > 4 or (not is_reference and phrase[-1] in known.generic | known.attributes):
            return {}, 0.0
        return entity_keys(phrase[:ending]), SAID if is_reference else HINTED
    return {}, 0.0


def _phrases(raw: Sequence[str]) -> list[list[str]]:
    """Words cut at prepositions, conjunctions and what else is no part of a noun phrase; articles are left out."""
    out: list[list[str]] = [[]]
    for word in raw:
        if word in vocabulary().prepositions or word in vocabulary().cuts:
            out.append([])
        elif word not in vocabulary().articles:
            out[-1].append(word)
    return [part for part in out if part]


# ---- what is produced -----------------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(r"[.!?。\n](?:\s|$)")
_RETURNS = re.compile(
    r"\b(?:returns?|returning|provides?|yields?|outputs?) (?:the |an? |all |list of |array of |set of |its )*([a-z ]{3,40})", re.IGNORECASE
)
WEB = 0.6
"""How surely a search of the web gives addresses."""
_LOGIN = ("token", "access_token", "session", "connection")


def produced(tool: Tool, acts: Action, taken: Mapping[str, float], referred: frozenset[str]) -> dict[str, float]:
    """What a tool gives, echoes taken down."""
    own = entity_keys(acts.object) if acts.kind != "login" else {}
    is_resolver = tool.name.lower().endswith(("_id", "_ids")) or tool.name.endswith(("Id", "Ids"))
    weight = _production(tool, acts, own, referred, is_resolver=is_resolver)
    found = {key: share * weight for key, share in own.items()}

    def give(keys: Mapping[str, float], at: float) -> None:
        for key, share in keys.items():
            found[key] = max(found.get(key, 0.0), share * at)

    give(dict.fromkeys(acts.modifiers, 1.0), MODIFIER * weight)
    if acts.kind == "login":
        give(dict.fromkeys(_LOGIN, 1.0), 0.9)
    if thing := vocabulary().nominalisations.get(acts.verb or ""):
        give({thing: 1.0}, 0.6)
    told = _described(tool.description)
    for keys, at in told:
        give(keys, at)
    if acts.kind == "list" and not vocabulary().web.isdisjoint({*words(tool.name), *words(tool.description[:200])}):
        give({"url": 1.0}, WEB)
    if is_resolver or acts.kind == "create":
        kept = set(own)
    elif acts.kind == "list" or acts.is_plural:
        kept = {*own, *(key for keys, _ in told[:1] for key in keys)} - referred
    else:
        kept = set[str]()
    echoed = {key for key, weight in taken.items() if weight >= ECHO_FROM or key in referred} - kept
    return {key: value * (ECHO if key in echoed else 1.0) for key, value in found.items() if value > 0}


def _production(tool: Tool, acts: Action, own: Mapping[str, float], referred: frozenset[str], *, is_resolver: bool) -> float:
    if is_resolver and acts.kind in ("read", "change"):
        return SOURCE
    if acts.kind is None:
        return NO_VERB
    if acts.kind != "read":
        return PRODUCTION[acts.kind]
    if acts.is_plural:
        return SOURCE
    if not tool.parameters:
        return UNSURE_SOURCE
    return PRODUCTION["read"] if referred & own.keys() else SOURCE


@lru_cache(maxsize=100_000)
def _described(text: str) -> tuple[tuple[dict[str, float], float], ...]:
    """What a description says that a tool gives: the object of its first sentence's verb, and what it "returns" or "provides"."""
    found = []
    first = _SENTENCE_END.split(text[:400], maxsplit=1)[0]
    raw = raw_words(first)[:16]
    at = next((index for index, word in enumerate(raw[:5]) if is_verb(word) or is_verb(singular(word))), None)
    if at is not None:
        verb = singular(raw[at])
        known = vocabulary()
        kind = known.strong.get(verb) or known.weak.get(verb) or "read"
        parts = [part for part in _phrases(raw[at + 1 :]) if len(part) <= 6][:2]
        for part in parts:
            plural = singular(part[-1]) != part[-1]
            weight = SOURCE if kind == "read" and plural else PRODUCTION[kind]
            if keys := entity_keys([singular(word) for word in part]):
                found.append((keys, 0.6 * weight))
                break
            if raw[raw.index(part[-1]) + 1 : raw.index(part[-1]) + 2] not in (("of",), ("about",), ("for",), ("on",)):
                break
        if kind == "list":  # "Searches the web: fares, guides to areas ..."
            listed = _phrases(raw_words(first.partition(": ")[2].replace(",", " and ")))[:_LISTED]
            found += [(entity_keys([singular(word) for word in part]), 0.5) for part in listed if len(part) <= 3]
    for match in _RETURNS.finditer(text[:600], 1):
        phrase = list(takewhile(lambda word: word not in vocabulary().stop_words, raw_words(match[1])))[:4]
        found.append((entity_keys([singular(word) for word in phrase]), 0.5))
    return tuple(found)


def with_synonyms(found: Mapping[str, float]) -> dict[str, float]:
    """With the other words for the same thing, at half weight."""
    out = dict(found)
    for word, weight in found.items():
        for other in _synonyms().get(word, ()):
            out[other] = max(out.get(other, 0.0), 0.5 * weight)
    return out


@cache
def _synonyms() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for group in vocabulary().synonyms:
        for word in group:
            found[word] |= group - {word}
    return {word: tuple(sorted(others)) for word, others in found.items()}


def profiles(tools: Sequence[Tool]) -> list[Profile]:
    """What each tool produces and consumes."""
    out = []
    for tool, acts in zip(tools, actions(tools), strict=True):
        taken, referred = consumed(tool, acts)
        out.append(Profile(acts.kind, with_synonyms(produced(tool, acts, taken, referred)), taken))
    return out
