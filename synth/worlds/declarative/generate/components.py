"""What generated domains are made of, read once: the themes, the archetypes, and small talk.

One idea: the files are written for people (`"off-peak 闲时, family 家庭"`), and everything that a draw needs is taken apart here.
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

from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.language.values import Key

_KEY = TypeAdapter(Key)


@dataclass(frozen=True, slots=True)
class Name:
    """A key and what it is called."""

    key: str
    en: str
    zh: str


@dataclass(frozen=True, slots=True)
class Noun:
    """What the rows of a role are called in a theme. kinds: the values of its kind, if it has kinds."""

    key: str
    en: str
    plural: str
    zh: str
    measure: str
    kinds: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class Theme:
    key: str
    en: str
    zh: str
    nouns: Mapping[str, Noun]


@dataclass(frozen=True, slots=True)
class Verb:
    """key: of the tool's name. en, zh: infinitives, with `_` where the named row stands (else it follows)."""

    key: str
    en: str
    zh: str


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A field or parameter of an archetype. names: what it may be called. values: per set, by symbol, the names a value may have."""

    symbol: str
    names: tuple[Name, ...]
    raw: Mapping[str, Any]
    values: tuple[Mapping[str, tuple[Name, ...]], ...] = ()

    @property
    def share(self) -> float:
        return float(self.raw.get("p", 1))


@dataclass(frozen=True, slots=True)
class ActionPart:
    symbol: str
    verbs: tuple[Verb, ...]
    takes: tuple[FieldPart, ...]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Archetype:
    """A kind of entity. needs: roles without which it cannot be."""

    role: str
    ids: tuple[str, ...]
    rows: tuple[int, ...]
    needs: tuple[str, ...]
    fields: Mapping[str, FieldPart]
    actions: Mapping[str, ActionPart]
    called: str | None = None


@cache
def slug(text: str) -> str:
    """Text as a key of the language: lower case, letters and digits, underscores between words; no word that it keeps for itself."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    key = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    try:
        return _KEY.validate_python(key)
    except ValidationError:
        return f"{key}_one"


def _read(name: str) -> Mapping[str, Any]:
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar is text: `on` and `off` are values here
    text = files("synth.worlds.declarative.generate").joinpath(name).read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def _value(text: str) -> Name:
    """`off-peak 闲时`: the last word is the Chinese name."""
    english, _, chinese = text.strip().rpartition(" ")
    return Name(slug(english), english.replace("_", " "), chinese)


def _values(text: str) -> Mapping[str, tuple[Name, ...]]:
    """`open=new 新建|pending 待办, closed 已关闭`: by symbol, the names that a value may have."""
    values = {}
    for part in text.split(","):
        symbol, equals, rest = part.strip().partition("=")
        names = tuple(_value(each) for each in (rest if equals else part).split("|"))
        values[symbol if equals else names[0].key] = names
    return values


def _names(text: str) -> tuple[Name, ...]:
    """`price = price / 价格; rate = rate / 费率`."""
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
    """`cancel / 取消; top_up: top up / 给_充值`."""
    verbs = []
    for part in text.split(";"):
        english, _, chinese = part.partition(" / ")
        key, colon, phrase = english.partition(": ")
        verbs.append(Verb(key.strip() if colon else slug(english), (phrase if colon else english).strip(), chinese.strip()))
    return tuple(verbs)


@cache
def archetypes() -> Mapping[str, Archetype]:
    """All archetypes by role, those that others build on first."""
    by_name = {}
    for role, raw in _read("archetypes.yaml").items():
        by_name[role] = Archetype(
            role=role,
            ids=tuple(raw["id"].split()),
            rows=tuple(int(rows) for rows in raw["rows"]),
            needs=tuple(raw["needs"]),
            fields={symbol: _part(symbol, each) for symbol, each in raw["fields"].items()},
            actions={
                symbol: ActionPart(
                    symbol,
                    _verbs(each["verbs"]),
                    tuple(_part(name, param) for name, param in (each.get("takes") or {}).items()),
                    each,
                )
                for symbol, each in raw["actions"].items()
            },
            called=raw.get("called"),
        )
    return by_name


@cache
def talk() -> Mapping[str, Sequence[Any]]:
    """What a domain may be asked, and what it cannot do: `info`, `unsupported`, `impossible`."""
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
