"""Parses tool names: splits them into singular words, and into a verb and its object.

One idea: a tool name is a short English sentence without grammar (`list_order_items`, `tag_create`, `ChannelsController_list`). A list of
verbs and a few lists of other words (`tool_words.yaml`) are enough to parse it. A name in another script is one word.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from storage.records import Tool

COMPOUND_HEAD = 0.8
"""Weight of the head of a compound noun (`order` of `shipping order`)."""
_PREFIX_SHARE, _PREFIX_TOOLS = 0.6, 4
"""A first word is a prefix if this share of a server's tools have it; only for servers with at least so many tools."""


@dataclass(frozen=True)
class WordLists:
    """The word lists of `tool_words.yaml`, which explains each.

    strong_verbs, weak_verbs: verb -> class (list, create, read, change, remove, login).
    """

    strong_verbs: Mapping[str, str]
    weak_verbs: Mapping[str, str]
    prepositions: frozenset[str]
    stop_words: frozenset[str]
    attributes: frozenset[str]
    generic: frozenset[str]
    measures: frozenset[str]
    identifiers: frozenset[str]
    references: frozenset[str]
    weak_references: frozenset[str]
    ignored: frozenset[str]
    nominalisations: Mapping[str, str]
    synonyms: tuple[frozenset[str], ...]
    universal: Mapping[str, frozenset[str]]
    irregular: Mapping[str, str]
    never_singular: frozenset[str]
    abbreviations: Mapping[str, str]
    web: frozenset[str]
    cuts: frozenset[str]
    articles: frozenset[str]
    not_glued: frozenset[str]
    hosts: frozenset[str]
    server_words: frozenset[str]


@cache
def word_lists() -> WordLists:
    """The word lists; reads the file once."""
    text = yaml.safe_load(Path(__file__).with_name("tool_words.yaml").read_text(encoding="utf-8"))
    lists: dict[str, Any] = {key: frozenset(value.split()) for key, value in text.items() if isinstance(value, str)}
    classes = {key: {verb: kind for kind, verbs in text[key].items() for verb in verbs.split()} for key in ("strong_verbs", "weak_verbs")}
    return WordLists(
        strong_verbs=classes["strong_verbs"],
        weak_verbs=classes["weak_verbs"],
        synonyms=tuple(frozenset(group.split()) for group in text["synonyms"]),
        universal={value: frozenset(names.split()) for value, names in text["universal"].items()},
        **{key: text[key] for key in ("nominalisations", "irregular", "abbreviations")},
        **lists | {"stop_words": lists["stop_words"] | lists["prepositions"]},
    )


_ACRONYM_PLURAL = re.compile(r"([A-Z]{2,})s(?![a-z])")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_PARTICIPLE = re.compile(r"^[a-z]{3,}[^e]ed$")


@lru_cache(maxsize=200_000)
def words(text: str) -> tuple[str, ...]:
    """The words of a name or sentence in lower case and singular, split at all but letters and digits, and at camelCase."""
    return tuple(singular(word) for word in raw_words(text))


@lru_cache(maxsize=200_000)
def raw_words(text: str) -> tuple[str, ...]:
    """The words of a name or sentence in lower case, not made singular."""
    return tuple(_WORD.findall(_HUMP.sub(" ", _ACRONYM_PLURAL.sub(r"\1", text)).lower()))


@lru_cache(maxsize=100_000)
def singular(word: str) -> str:
    """The singular of an English noun, or the full word of an abbreviation. Other words stay."""
    lists = word_lists()
    if word in lists.irregular:
        return lists.irregular[word]
    if full_word := lists.abbreviations.get(word.removesuffix("s")):
        return full_word
    if len(word) < 4 or word in lists.never_singular or word.endswith(("ss", "us", "is", "ous")) or not word.endswith("s"):
        return "id" if word == "ids" else word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


def entity_keys(phrase: Sequence[str]) -> dict[str, float]:
    """The entities that a noun phrase names: its head (weight 1, or 0.8 in a compound) and its last two words joined (weight 1)."""
    lists = word_lists()
    nouns = [word for word in phrase if word not in lists.stop_words and len(word) > 1]
    nouns = nouns[:1] + list(takewhile(lambda word: not _PARTICIPLE.match(word), nouns[1:]))
    while nouns and nouns[-1] in lists.attributes:
        nouns.pop()
    while nouns and nouns[0] in lists.attributes:
        nouns.pop(0)
    if not nouns or nouns[-1] in lists.strong_verbs or not nouns[-1].isascii() or nouns[-1].isdigit():
        return {}
    if len(nouns) == 1:
        return {nouns[0]: 1.0}
    return {nouns[-1]: COMPOUND_HEAD, "_".join(nouns[-2:]): 1.0}


@dataclass(frozen=True, slots=True)
class ParsedName:
    """A tool name in its parts.

    verb: singular form of the verb, or None.
    kind: class of the verb (list, create, read, change, remove, login), or None.
    object: the words of the verb's object.
    tail: the words after a preposition.
    is_plural: whether the object is in the plural.
    """

    verb: str | None
    kind: str | None
    object: tuple[str, ...]
    tail: tuple[str, ...]
    is_plural: bool

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The words of the object before its head."""
        keys = entity_keys(self.object)
        return tuple(word for word in self.object if word not in keys and entity_keys([word]))


def parse_name(raw: Sequence[str]) -> ParsedName:
    """The parts of a name from `raw_words`. The verb is the first strong one, else the first weak one; its object is the words after it up
    to a preposition, else the words before it."""
    lists = word_lists()
    pairs = [(word, singular(word)) for word in raw]
    at = next((index for index, (word, token) in enumerate(pairs) if token in lists.strong_verbs and word == token), None)
    if at is None:
        at = next((index for index, (_, token) in enumerate(pairs) if token in lists.weak_verbs), None)
    if at is None:
        return _parsed_name(None, None, *_split_at_preposition(pairs))
    verb = pairs[at][1]
    head, tail = _split_at_preposition(pairs[at + 1 :])
    return _parsed_name(verb, lists.strong_verbs.get(verb) or lists.weak_verbs[verb], head or pairs[:at], tail)


def _split_at_preposition(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of a word and its singular, before and after the first preposition."""
    head = list(takewhile(lambda pair: pair[1] not in word_lists().prepositions, pairs))
    return head, pairs[len(head) + 1 :]


def _parsed_name(verb: str | None, kind: str | None, head: list[tuple[str, str]], tail: list[tuple[str, str]]) -> ParsedName:
    attributes = word_lists().attributes
    nouns = [pair for pair in head if pair[1] not in attributes]
    is_plural = bool(nouns) and nouns[-1][0] != nouns[-1][1] and nouns[-1][0].endswith(("s", "children", "people"))
    return ParsedName(verb, kind, tuple(token for _, token in head), tuple(token for _, token in tail), is_plural)


def parse_names(tools: Sequence[Tool]) -> list[ParsedName]:
    """The parsed name of each tool, without a first word that most tools of its server share, or that is part of the server's name."""
    first_words: dict[str, Counter[str]] = defaultdict(Counter)
    sizes = Counter(tool.server for tool in tools)
    for tool in tools:
        first_words[tool.server].update(words(tool.name)[:1])
    return [parse_name(_without_prefix(tool, sizes[tool.server], first_words[tool.server])) for tool in tools]


def _without_prefix(tool: Tool, server_size: int, first_words: Mapping[str, int]) -> Sequence[str]:
    """The words of a tool's name without the prefix. A first word that is the name's verb is none, nor one before verbs only."""
    raw = raw_words(tool.name)
    if len(raw) < 2:
        return raw
    first, rest = singular(raw[0]), raw[1:]
    strong_verbs = word_lists().strong_verbs
    is_shared = server_size >= _PREFIX_TOOLS and first_words[first] >= _PREFIX_SHARE * server_size
    is_main_verb = first in strong_verbs or (is_verb(first) and not any(word in strong_verbs for word in rest))
    is_prefix = (is_shared or first in words(tool.server)) and not is_main_verb and any(not is_verb(word) for word in rest)
    return rest if is_prefix else raw


def is_verb(word: str) -> bool:
    """Whether a word in the singular is a strong or weak verb."""
    return word in word_lists().strong_verbs or word in word_lists().weak_verbs
