"""The words of tools' names: split, made singular, taken apart into a verb and what it acts on.

One idea: names of tools are short English sentences without grammar (`list_order_items`, `tag_create`, `ChannelsController_list`), which a
list of verbs and a few of other words (`tool_words.yaml`) read well enough. Names in another script stay one word.
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
_PREFIX_SHARE, _PREFIX_TOOLS = 0.6, 4
"""A first word that so many of a server's tools share, where there are so many, is a prefix."""


@dataclass(frozen=True)
class Vocabulary:
    """The words of `tool_words.yaml`."""

    strong: Mapping[str, str]
    weak: Mapping[str, str]
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
def vocabulary() -> Vocabulary:
    """The words, read once."""
    text = yaml.safe_load(Path(__file__).with_name("tool_words.yaml").read_text(encoding="utf-8"))
    listed: dict[str, Any] = {key: frozenset(value.split()) for key, value in text.items() if isinstance(value, str)}
    classes = {key: {verb: kind for kind, verbs in text[key].items() for verb in verbs.split()} for key in ("strong_verbs", "weak_verbs")}
    return Vocabulary(
        strong=classes["strong_verbs"],
        weak=classes["weak_verbs"],
        synonyms=tuple(frozenset(group.split()) for group in text["synonyms"]),
        universal={value: frozenset(names.split()) for value, names in text["universal"].items()},
        **{key: text[key] for key in ("nominalisations", "irregular", "abbreviations")},
        **listed | {"stop_words": listed["stop_words"] | listed["prepositions"]},
    )


_ACRONYM_PLURAL = re.compile(r"([A-Z]{2,})s(?![a-z])")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_PARTICIPLE = re.compile(r"^[a-z]{3,}[^e]ed$")


@lru_cache(maxsize=200_000)
def words(text: str) -> tuple[str, ...]:
    """Lower-case singular words of a name or sentence: split at anything but letters and digits, and at camelCase."""
    return tuple(singular(word) for word in raw_words(text))


@lru_cache(maxsize=200_000)
def raw_words(text: str) -> tuple[str, ...]:
    """The words as they stand, in lower case."""
    return tuple(_WORD.findall(_HUMP.sub(" ", _ACRONYM_PLURAL.sub(r"\1", text)).lower()))


@lru_cache(maxsize=100_000)
def singular(word: str) -> str:
    """The singular of an English noun, a short form written out; a word that is none already stays."""
    known = vocabulary()
    if word in known.irregular:
        return known.irregular[word]
    if short := known.abbreviations.get(word.removesuffix("s")):
        return short
    if len(word) < 4 or word in known.never_singular or word.endswith(("ss", "us", "is", "ous")) or not word.endswith("s"):
        return "id" if word == "ids" else word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        return word[:-2]
    return word[:-1]


def entity_keys(phrase: Sequence[str]) -> dict[str, float]:
    """What a noun phrase names: its head (weight 1, .8 in a compound) and its last two words joined (weight 1)."""
    known = vocabulary()
    kept = [word for word in phrase if word not in known.stop_words and len(word) > 1]
    kept = kept[:1] + list(takewhile(lambda word: not _PARTICIPLE.match(word), kept[1:]))
    while kept and kept[-1] in known.attributes:
        kept.pop()
    while kept and kept[0] in known.attributes:
        kept.pop(0)
    if not kept or kept[-1] in known.strong or not kept[-1].isascii() or kept[-1].isdigit():
        return {}
    if len(kept) == 1:
        return {kept[0]: 1.0}
    return {kept[-1]: COMPOUND_HEAD, "_".join(kept[-2:]): 1.0}


@dataclass(frozen=True, slots=True)
class Action:
    """A tool's name taken apart. tail: the words after a preposition. is_plural: the object is named in the plural."""

    verb: str | None
    kind: str | None
    object: tuple[str, ...]
    tail: tuple[str, ...]
    is_plural: bool

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The object's words before its head."""
        keys = entity_keys(self.object)
        return tuple(word for word in self.object if word not in keys and entity_keys([word]))


def action(raw: Sequence[str]) -> Action:
    """The verb of a name (its first strong one, else its first), and what it acts on: the words after it up to a preposition, else those
    before it."""
    known = vocabulary()
    tokens = [singular(word) for word in raw]
    at = next((index for index, (word, one) in enumerate(zip(raw, tokens, strict=True)) if one in known.strong and word == one), None)
    if at is None:
        at = next((index for index, token in enumerate(tokens) if token in known.weak), None)
    if at is None:
        head, tail = _split(list(zip(raw, tokens, strict=True)))
        return _action(None, None, head, tail)
    verb = tokens[at]
    head, tail = _split(list(zip(raw, tokens, strict=True))[at + 1 :])
    if not head:
        head = list(zip(raw, tokens, strict=True))[:at]
    return _action(verb, known.strong.get(verb) or known.weak[verb], head, tail)


def _split(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    head = list(takewhile(lambda pair: pair[1] not in vocabulary().prepositions, pairs))
    return head, pairs[len(head) + 1 :]


def _action(verb: str | None, kind: str | None, head: list[tuple[str, str]], tail: list[tuple[str, str]]) -> Action:
    attributes = vocabulary().attributes
    named = [pair for pair in head if pair[1] not in attributes]
    is_plural = bool(named) and named[-1][0] != named[-1][1] and named[-1][0].endswith(("s", "children", "people"))
    return Action(verb, kind, tuple(one for _, one in head), tuple(one for _, one in tail), is_plural)


def actions(tools: Sequence[Tool]) -> list[Action]:
    """The names of all tools taken apart, less a first word that most tools of a server share, or that the server is named by."""
    first: dict[str, Counter[str]] = defaultdict(Counter)
    size = Counter(tool.server for tool in tools)
    for tool in tools:
        first[tool.server].update(words(tool.name)[:1])
    out = []
    for tool in tools:
        raw = raw_words(tool.name)
        if len(raw) > 1:
            word = singular(raw[0])
            shared = size[tool.server] >= _PREFIX_TOOLS and first[tool.server][word] >= _PREFIX_SHARE * size[tool.server]
            is_act = word in vocabulary().strong or (is_verb(word) and not any(rest in vocabulary().strong for rest in raw[1:]))
            if (shared or word in words(tool.server)) and not is_act and any(not is_verb(rest) for rest in raw[1:]):
                raw = raw[1:]
        out.append(action(raw))
    return out


def is_verb(word: str) -> bool:
    return word in vocabulary().strong or word in vocabulary().weak
