"""Writes the expressions and sentences of the archetypes with the names that were drawn for a domain.

One idea: `$role.field` and `<role.field.value>` are replaced by the names of these parts. If the domain lacks one, the text raises
`Missing`, and the caller leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from synth.worlds.declarative.generate.components import FieldPart, Name, Noun

_COUNT = re.compile(r"count\(\$(\w+), ([^()]*)\)")
_PATH = re.compile(r"([$~])(\w+)((?:\.\w+)*)")
_MARK = re.compile(r"<([^<>]+)>")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeioAEIO])")
_CURRENCIES = {"dollars": "美元", "yuan": "元", "euros": "欧元", "pounds": "英镑"}
_UNITS = {"nights": "晚", "days": "天", "hours": "小时"}


class Missing(Exception):
    """A text mentions a part that the domain does not have."""


@dataclass(slots=True)
class Chosen:
    """An entity of a domain: its noun, its fields by symbol, their names, and the names of their values by symbol."""

    noun: Noun
    parts: dict[str, FieldPart] = field(default_factory=dict)
    names: dict[str, Name] = field(default_factory=dict)
    values: dict[str, dict[str, Name]] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def add(self, part: FieldPart, name: Name, at: int, values: dict[str, Name]) -> None:
        """A field under the `at`-th of its names."""
        self.parts[part.symbol], self.names[part.symbol], self.values[part.symbol] = part, name, values
        self._places[part.symbol] = at

    def own(self, text: str) -> str | None:
        """An expression over fields of the row, each written `@symbol`; None where one of them is missing."""
        symbols = re.findall(r"@(\w+)", text)
        return re.sub(r"@(\w+)", lambda match: self.names[match.group(1)].key, text) if set(symbols) <= set(self.names) else None

    def unit(self, symbol: str) -> str | None:
        """The unit of a field; where its names have units of their own, that of the name it has."""
        raw = self.parts[symbol].raw
        if "units" in raw:
            return str(raw["units"][self._places[symbol]])
        return raw.get("unit")


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes for one domain."""

    chosen: Mapping[str, Chosen]
    currency: str

    def scope(self, numbers: Mapping[str, int]) -> Scope:
        return Scope(self, dict(numbers))

    def choice_of(self, role: str, symbol: str | None = None) -> Chosen:
        choice = self.chosen.get(role)
        if choice is None or (symbol is not None and symbol not in choice.parts):
            raise Missing(role if symbol is None else f"{role}.{symbol}")
        return choice

    def walk(self, role: str, symbols: list[str]) -> list[str]:
        """The names of fields along references from a row of `role`."""
        names = []
        for at, symbol in enumerate(symbols):
            choice = self.choice_of(role, symbol)
            names.append(choice.names[symbol].key)
            if at + 1 < len(symbols):
                role = choice.parts[symbol].raw["ref"]
        return names

    def value(self, role: str, symbol: str, member: str) -> Name:
        """A value of a choice by its symbol, or the first or last of them."""
        values = self.choice_of(role, symbol).values[symbol]
        if member in values:
            return values[member]
        return list(values.values())[0 if member == "first" else -1]


@dataclass(frozen=True, slots=True)
class Scope:
    """One action: its parameters by symbol (name, role that a reference leads to) and the numbers drawn for it."""

    writer: Writer
    numbers: dict[str, int]
    params: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def add(self, symbol: str, name: str, role: str | None) -> None:
        self.params[symbol] = (name, role)

    def with_numbers(self, numbers: Mapping[str, int]) -> Scope:
        return replace(self, numbers=self.numbers | dict(numbers))

    # ---- expressions ----------------------------------------------------------------------------------------------------------

    def expression(self, text: str) -> str:
        """Raises Missing."""
        text = _MARK.sub(self._mark_reference, str(text))
        text = _COUNT.sub(self._count_reference, text)
        return _PATH.sub(self._path, text)

    def maybe(self, text: str) -> str | None:
        """The expression, or None where it mentions what is missing."""
        try:
            return self.expression(text)
        except Missing:
            return None

    def _mark_reference(self, match: re.Match[str]) -> str:
        parts = match.group(1).split(".")
        if len(parts) == 1:
            return str(self.numbers[parts[0]])
        return f"'{self.writer.value(*parts).key}'"

    def _count_reference(self, match: re.Match[str]) -> str:
        role, filters = match.groups()
        choice = self.writer.choice_of(role)
        forms = []
        for each in filters.split(", "):
            symbol, _, value = each.partition("=")
            self.writer.choice_of(role, symbol)
            forms.append(f"{choice.names[symbol].key}={value}")
        return f"count({choice.noun.key}, {', '.join(forms)})"

    def _path(self, match: re.Match[str]) -> str:
        sign, root, rest = match.groups()
        symbols = rest.split(".")[1:]
        if sign == "$":
            start, role = self.writer.choice_of(root).noun.key, root
        else:
            if root not in self.params:
                raise Missing(root)
            start, parts = self.params[root]
            role = parts or ""
        return ".".join([start, *self.writer.walk(role, symbols)])

    def fresh(self, part: FieldPart) -> str:
        """The value of a field in a new row."""
        new = str(part.raw["new"])
        return self.params[part.symbol][0] if new == "ask" else self.expression(new)

    # ---- words ----------------------------------------------------------------------------------------------------------------

    def sentence(self, text: str, *, is_whole: bool = True) -> str | None:
        """Words in both languages, or None where they mention what is missing. is_whole: begins with a capital."""
        english, _, chinese = str(text).partition(" / ")
        try:
            en, zh = self._render(english, "en"), self._render(chinese, "zh")
        except Missing:
            return None
        en = _ARTICLE.sub(r"\1n ", re.sub(r"\b([Aa])n (?![aeioAEIO])", r"\1 ", en))
        return f"{en[:1].upper() + en[1:] if is_whole else en} / {zh}"

    def plain(self, text: str) -> str:
        """Numbers put in."""
        return _MARK.sub(lambda match: str(self.numbers.get(match.group(1), match.group())), str(text))

    def _render(self, text: str, language: str) -> str:
        return _MARK.sub(lambda match: self._word(match.group(1).split("."), language), text)

    def _word(self, parts: list[str], language: str) -> str:
        is_zh, writer = language == "zh", self.writer
        if parts == ["currency"]:
            return _CURRENCIES[writer.currency] if is_zh else writer.currency
        if len(parts) == 1 and parts[0] in self.numbers:
            return str(self.numbers[parts[0]])
        if len(parts) == 1:
            noun = writer.choice_of(parts[0]).noun
            return noun.zh if is_zh else noun.en
        if parts[1] == "s":
            noun = writer.choice_of(parts[0]).noun
            return noun.zh if is_zh else noun.plural
        if parts[-1] == "unit":
            unit = writer.choice_of(*parts[:2]).unit(parts[1]) or "days"
            return _UNITS[unit] if is_zh else unit
        name = writer.choice_of(*parts).names[parts[1]] if len(parts) == 2 else writer.value(*parts)
        return name.zh if is_zh else name.en

    def param(self, part: FieldPart, name: Name) -> dict[str, Any]:
        """A parameter as a spec has it.

        Raises:
            Missing: it is like a field that the domain does not have.
        """
        raw = part.raw
        out: dict[str, Any] = {"type": "ref", "to": self.writer.choice_of(raw["ref"]).noun.key} if "ref" in raw else {"type": raw["type"]}
        out["label"] = self.sentence(f"{name.en} / {name.zh}", is_whole=False)
        if out["label"] is None:
            raise Missing(name.key)
        if "like" in raw:
            out["like"] = self.expression(raw["like"])
        for key in ("min", "max", "step", "from", "to"):
            if key in raw:
                out[key] = raw[key]
        unit = raw.get("unit")
        if unit is not None:
            out["unit"] = self.writer.choice_of(*unit.split(".")).unit(unit.split(".")[1]) if "." in unit else unit
        if "phrase" in raw:
            out["phrase"] = raw["phrase"]
        return out
