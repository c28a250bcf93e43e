"""Reads the parts of generated domains from YAML files, once per process: themes, archetypes, and general questions.

One idea: the files are short for the people who write them (`"off-peak 闲时, family 家庭"`); this module parses them into dataclasses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from synth.text.yaml_loader import TEXT_LOADER
from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.language.values import Key

_KEY = TypeAdapter(Key)


@dataclass(frozen=True, slots=True)
class Name:
    """A key of a spec with its English and Chinese label."""

    key: str
    en: str
    zh: str


@dataclass(frozen=True, slots=True)
class Noun:
    """The noun for the entity of a role in a theme.

    measure: Chinese measure word.
    kinds: values of the entity's kind field; empty if it has none.
    """

    key: str
    en: str
    plural: str
    zh: str
    measure: str
    kinds: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Theme:
    """A kind of business. nouns: by role."""

    key: str
    en: str
    zh: str
    nouns: Mapping[str, Noun]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of an action.

    key: words for the tool's name, joined by underscores.
    en, zh: infinitives; the named row replaces `_`, or follows if there is no `_`.
    """

    key: str
    en: str
    zh: str


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A field or parameter of an archetype.

    names: possible names; a draw takes one.
    raw: the entry of the YAML file.
    values: possible sets of values of a choice; each has the possible names of every value, by symbol.
    """

    symbol: str
    names: tuple[Name, ...]
    raw: Mapping[str, Any]
    values: tuple[Mapping[str, tuple[Name, ...]], ...] = ()

    @property
    def share(self) -> float:
        """Probability that a domain has it, if it can."""
        return float(self.raw.get("p", 1))


@dataclass(frozen=True, slots=True)
class ActionPart:
    """An action of an archetype. verbs: a draw takes one. takes: parameters. raw: the entry of the YAML file."""

    symbol: str
    verbs: tuple[Verb, ...]
    takes: tuple[FieldPart, ...]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Archetype:
    """A kind of entity.

    ids: possible letters of its ids.
    rows: possible numbers of rows.
    needs: roles that a domain with this role must have.
    called: symbol of the field by which requests name a row; None for the id.
    """

    role: str
    ids: tuple[str, ...]
    rows: tuple[int, ...]
    needs: tuple[str, ...]
    fields: Mapping[str, FieldPart]
    actions: Mapping[str, ActionPart]
    called: str | None = None


@cache
def slug(text: str) -> str:
    """Text as a key of the spec language: lower-case ASCII letters and digits with underscores; reserved words get a suffix."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    key = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    try:
        return _KEY.validate_python(key)
    except ValidationError:
        return f"{key}_one"


def _read(name: str) -> Mapping[str, Any]:
    text = files("synth.worlds.declarative.generate").joinpath(name).read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.load(text, Loader=TEXT_LOADER)
    return loaded


def _value(text: str) -> Name:
    """Parses `off-peak 闲时`: the last word is the Chinese name."""
    english, _, chinese = text.strip().rpartition(" ")
    return Name(slug(english), english.replace("_", " "), chinese)


def _values(text: str) -> Mapping[str, tuple[Name, ...]]:
    """Parses `open=new 新建|pending 待办, closed 已关闭`: symbol -> possible names of the value."""
    values = {}
    for part in text.split(","):
        symbol, equals, options = part.strip().partition("=")
        names = tuple(_value(each) for each in (options if equals else part).split("|"))
        values[symbol if equals else names[0].key] = names
    return values


def _names(text: str) -> tuple[Name, ...]:
    """Parses `price = price / 价格; rate = rate / 费率`."""
    names = []
    for part in text.split(";"):
        key, _, label = part.partition("=")
        english, _, chinese = label.partition(" / ")
        names.append(Name(key.strip(), english.strip(), chinese.strip()))
    return tuple(names)


def _part(symbol: str, raw: Mapping[str, Any]) -> FieldPart:
    texts: Sequence[str] = raw.get("sets") or ([raw["values"]] if "values" in raw else [])
    return FieldPart(symbol, _names(raw["as"]), raw, tuple(_values(text) for text in texts))


def _verbs(text: str) -> tuple[Verb, ...]:
    """Parses `cancel / 取消; top_up: top up / 给_充值`."""
    verbs = []
    for part in text.split(";"):
        english, _, chinese = part.partition(" / ")
        key, colon, phrase = english.partition(": ")
        verbs.append(Verb(key.strip() if colon else slug(english), (phrase if colon else english).strip(), chinese.strip()))
    return tuple(verbs)


@cache
def archetypes() -> Mapping[str, Archetype]:
    """All archetypes by role, in the order of the file: a role comes after the roles that it needs."""
    return {role: _archetype(role, raw) for role, raw in _read("archetypes.yaml").items()}


def _archetype(role: str, raw: Mapping[str, Any]) -> Archetype:
    return Archetype(
        role=role,
        ids=tuple(raw["id"].split()),
        rows=tuple(int(rows) for rows in raw["rows"]),
        needs=tuple(raw["needs"]),
        fields={symbol: _part(symbol, each) for symbol, each in raw["fields"].items()},
        actions={symbol: _action(symbol, each) for symbol, each in raw["actions"].items()},
        called=raw.get("called"),
    )


def _action(symbol: str, raw: Mapping[str, Any]) -> ActionPart:
    takes = tuple(_part(name, param) for name, param in (raw.get("takes") or {}).items())
    return ActionPart(symbol, _verbs(raw["verbs"]), takes, raw)


@cache
def talk() -> Mapping[str, Sequence[Any]]:
    """Questions that any domain may answer (`info`), and jobs that none can do (`unsupported`, `impossible`)."""
    return _read("talk.yaml")


@cache
def themes() -> tuple[Theme, ...]:
    """All themes, in the order of the file."""
    return tuple(_theme(key, raw) for key, raw in _read("themes.yaml").items())


def _theme(key: str, raw: Mapping[str, str]) -> Theme:
    english, chinese = (part.strip() for part in raw["name"].split(" / "))
    return Theme(key, english, chinese, {role: _noun(text) for role, text in raw.items() if role != "name"})


def _noun(text: str) -> Noun:
    noun, _, kinds = text.partition(" = ")
    english, chinese, measure = (part.strip() for part in noun.split(" / "))
    singular, _, plural = english.partition("|")
    return Noun(
        key=slug(singular),
        en=singular,
        plural=plural or plural_of(singular),
        zh=chinese,
        measure=measure,
        kinds=tuple(_value(part) for part in kinds.split(",")) if kinds else (),
    )
