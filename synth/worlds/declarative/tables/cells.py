"""The cells of a table as values of the fields of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from synth.worlds.declarative.domain import Entity, Field, Row
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.values import clock_steps

_TRUE, _FALSE = frozenset({"true", "yes", "y", "1", "是", "有"}), frozenset({"false", "no", "n", "0", "否", "无", "没有"})


class CellReader:
    """Reads the rows of the tables of one spec.

    today: of the spec.
    places: by entity, the number of each row by what others refer to it by.
    problems: path below the entity -> what is wrong; the first of each field.
    """

    def __init__(self, today: date, places: Mapping[str, Mapping[str, int]]) -> None:
        self.today, self.places = today, places
        self.problems: dict[str, str] = {}

    def row(self, entity: Entity, cells: Mapping[str, str]) -> Row:
        """The values by place; None for fields without a cell."""
        return tuple(self._value(each, cells[each.name]) if each.name in cells else None for each in entity.stored)

    def _value(self, field: Field, cell: str) -> Any:
        try:
            return self._read(field, cell)
        except ValueError as error:
            self.problems.setdefault(f"fields.{field.name}", f"{str(cell)[:40]!r} in its table: {error}")
            return None

    def _read(self, field: Field, cell: str) -> Any:
        spec = field.spec
        if isinstance(spec, schema.RefField):
            return self._place(spec.to, cell)
        if isinstance(spec, schema.ChoiceField):
            return _choice(field, cell)
        if isinstance(spec, schema.FlagField):
            return _flag(cell)
        if isinstance(spec, schema.NameField):
            return cell
        if isinstance(spec, schema.DateField):
            return _within((date.fromisoformat(cell) - self.today).days, spec.first, spec.last, "days from today")
        if isinstance(spec, schema.TimeField):
            if cell not in clock_steps(spec.first, spec.last, spec.step):
                raise ValueError(f"no time from {spec.first} to {spec.last} in steps of {spec.step} minutes")
            return cell
        is_whole = not isinstance(spec, schema.NumberField)
        return _within(round(float(cell)) if is_whole else round(float(cell), 1), spec.min, spec.max, "what the field allows")

    def _place(self, entity: str, cell: str) -> int:
        found = self.places.get(entity, {}).get(cell)
        if found is None:
            raise ValueError(f"no row of {entity} has this key; give its `rows_from` a `key`")
        return found


def _within(value: Any, low: float, high: float, what: str) -> Any:
    if not low <= value <= high:
        raise ValueError(f"{value} is not from {low:g} to {high:g} ({what})")
    return value


def _choice(field: Field, cell: str) -> str:
    for key, words in field.words.items():
        if cell.casefold() in (key, words.en.casefold(), words.zh.casefold()):
            return key
    raise ValueError(f"no value; {nearest(cell, [words.en for words in field.words.values()])}")


def _flag(cell: str) -> bool:
    if cell.casefold() in _TRUE:
        return True
    if cell.casefold() in _FALSE:
        return False
    raise ValueError("neither yes nor no")
