"""Writes the expressions and sentences of the archetypes with the names that were drawn for a domain.

One idea: `$role.field` and `<role.field.value>` are replaced by the names of these parts. If the domain lacks one, the text raises
`MissingPart`, and the caller leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from synth.worlds.declarative.generate.components import FieldPart, Name, Noun
from synth.worlds.declarative.language.values import CURRENCIES_ZH

_COUNT = re.compile(r"count\(\$(\w+), ([^()]*)\)")
_PATH = re.compile(r"([$~])(\w+)((?:\.\w+)*)")
_MARK = re.compile(r"<([^<>]+)>")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeioAEIO])")
_UNITS = {"nights": "晚", "days": "天", "hours": "小时"}


class MissingPart(Exception):
    """A text mentions a part that the domain does not have."""


@dataclass(slots=True)
class EntityDraw:
    """A drawn entity.

    parts: its fields by symbol.
    names: names of the fields by symbol.
    values: names of the values of each field by their symbols; empty for fields without choices.
    """

    noun: Noun
    parts: dict[str, FieldPart] = field(default_factory=dict)
    names: dict[str, Name] = field(default_factory=dict)
    values: dict[str, dict[str, Name]] = field(default_factory=dict)
    _name_indices: dict[str, int] = field(default_factory=dict)

    def add(self, part: FieldPart, name: Name, at: int, values: dict[str, Name]) -> None:
        """Adds a field. at: index of its name in `part.names`."""
        self.parts[part.symbol], self.names[part.symbol], self.values[part.symbol] = part, name, values
        self._name_indices[part.symbol] = at

    def row_expression(self, text: str) -> str | None:
        """An expression with the names of the row's fields for `@symbol`; None if one of them is missing."""
        symbols = re.findall(r"@(\w+)", text)
        return re.sub(r"@(\w+)", lambda match: self.names[match.group(1)].key, text) if set(symbols) <= set(self.names) else None

    def unit(self, symbol: str) -> str | None:
        """The unit of a field; `units` has one for each of its possible names."""
        raw = self.parts[symbol].raw
        return str(raw["units"][self._name_indices[symbol]]) if "units" in raw else raw.get("unit")


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Finds the names of a domain's parts. entities: by role."""

    entities: Mapping[str, EntityDraw]
    currency: str

    def entity(self, role: str, symbol: str | None = None) -> EntityDraw:
        """The entity of a role.

        Raises:
            MissingPart: the domain has no such entity, or the entity has no field `symbol`.
        """
        entity = self.entities.get(role)
        if entity is None or (symbol is not None and symbol not in entity.parts):
            raise MissingPart(role if symbol is None else f"{role}.{symbol}")
        return entity

    def path_names(self, role: str, symbols: list[str]) -> list[str]:
        """The names of fields along references from a row of `role`."""
        names = []
        for at, symbol in enumerate(symbols):
            entity = self.entity(role, symbol)
            names.append(entity.names[symbol].key)
            if at + 1 < len(symbols):
                role = entity.parts[symbol].raw["ref"]
        return names

    def value(self, role: str, symbol: str, member: str) -> Name:
        """A value of a choice: by its symbol, or the `first` or `last` one."""
        values = self.entity(role, symbol).values[symbol]
        if member in values:
            return values[member]
        return list(values.values())[0 if member == "first" else -1]


@dataclass(frozen=True, slots=True)
class Scope:
    """Writes the texts of one action.

    numbers: drawn numbers by name.
    params: by symbol, the parameter's name and the role of its row (None if it is no reference).
    """

    writer: TextWriter
    numbers: dict[str, int]
    params: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def add_param(self, symbol: str, name: str, role: str | None) -> None:
        self.params[symbol] = (name, role)

    def with_numbers(self, numbers: Mapping[str, int]) -> Scope:
        return replace(self, numbers=self.numbers | dict(numbers))

    # ---- expressions ----------------------------------------------------------------------------------------------------------

    def expression(self, text: str) -> str:
        """An expression with the drawn names; raises MissingPart."""
        text = _MARK.sub(self._mark_reference, str(text))
        text = _COUNT.sub(self._count_reference, text)
        return _PATH.sub(self._path, text)

    def maybe(self, text: str) -> str | None:
        """The expression; None if it mentions a part that is missing."""
        try:
            return self.expression(text)
        except MissingPart:
            return None

    def _mark_reference(self, match: re.Match[str]) -> str:
        parts = match.group(1).split(".")
        if len(parts) == 1:
            return str(self.numbers[parts[0]])
        return f"'{self.writer.value(*parts).key}'"

    def _count_reference(self, match: re.Match[str]) -> str:
        role, filters = match.groups()
        entity = self.writer.entity(role)
        forms = []
        for each in filters.split(", "):
            symbol, _, value = each.partition("=")
            self.writer.entity(role, symbol)
            forms.append(f"{entity.names[symbol].key}={value}")
        return f"count({entity.noun.key}, {', '.join(forms)})"

    def _path(self, match: re.Match[str]) -> str:
        sign, root, fields = match.groups()
        if sign == "$":
            start, role = self.writer.entity(root).noun.key, root
        else:
            if root not in self.params:
                raise MissingPart(root)
            start, ref = self.params[root]
            role = ref or ""
        return ".".join([start, *self.writer.path_names(role, fields.split(".")[1:])])

    def new_value(self, part: FieldPart) -> str:
        """The expression for a field of a new row."""
        new = str(part.raw["new"])
        return self.params[part.symbol][0] if new == "ask" else self.expression(new)

    # ---- words ----------------------------------------------------------------------------------------------------------------

    def sentence(self, text: str, *, is_whole: bool = True) -> str | None:
        """A text in both languages; None if it mentions a part that is missing. is_whole: it starts with a capital letter."""
        english, _, chinese = str(text).partition(" / ")
        try:
            en, zh = self._render(english, "en"), self._render(chinese, "zh")
        except MissingPart:
            return None
        en = _ARTICLE.sub(r"\1n ", re.sub(r"\b([Aa])n (?![aeioAEIO])", r"\1 ", en))
        return f"{en[:1].upper() + en[1:] if is_whole else en} / {zh}"

    def plain(self, text: str) -> str:
        """A text with numbers for marks such as `<n>`."""
        return _MARK.sub(lambda match: str(self.numbers.get(match.group(1), match.group())), str(text))

    def _render(self, text: str, language: str) -> str:
        return _MARK.sub(lambda match: self._word(match.group(1).split("."), language), text)

    def _word(self, parts: list[str], language: str) -> str:
        is_zh, writer = language == "zh", self.writer
        if parts == ["currency"]:
            return CURRENCIES_ZH[writer.currency] if is_zh else writer.currency
        if len(parts) == 1 and parts[0] in self.numbers:
            return str(self.numbers[parts[0]])
        if len(parts) == 1 or parts[1] == "s":
            noun = writer.entity(parts[0]).noun
            return noun.zh if is_zh else noun.en if len(parts) == 1 else noun.plural
        if parts[-1] == "unit":
            unit = writer.entity(*parts[:2]).unit(parts[1]) or "days"
            return _UNITS[unit] if is_zh else unit
        name = writer.entity(*parts).names[parts[1]] if len(parts) == 2 else writer.value(*parts)
        return name.zh if is_zh else name.en

    def param(self, part: FieldPart, name: Name) -> dict[str, Any]:
        """The spec of a parameter.

        Raises:
            MissingPart: its label, or the field that it is like, mentions a part that is missing.
        """
        raw = part.raw
        out: dict[str, Any] = {"type": "ref", "to": self.writer.entity(raw["ref"]).noun.key} if "ref" in raw else {"type": raw["type"]}
        out["label"] = self.sentence(f"{name.en} / {name.zh}", is_whole=False)
        if out["label"] is None:
            raise MissingPart(name.key)
        if "like" in raw:
            out["like"] = self.expression(raw["like"])
        out |= {key: raw[key] for key in ("min", "max", "step", "from", "to") if key in raw}
        unit = raw.get("unit")
        if unit is not None:
            out["unit"] = self.writer.entity(*unit.split(".")).unit(unit.split(".")[1]) if "." in unit else unit
        if "phrase" in raw:
            out["phrase"] = raw["phrase"]
        return out
