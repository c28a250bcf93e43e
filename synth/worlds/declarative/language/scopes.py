"""What names mean in a spec's expressions: parameters of an action, or fields of a row.

One idea: a scope looks names up in entities that are still being made, so a spec's parts may refer to each other in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import date
from typing import Any

from synth.worlds.declarative.domain import Entity, Field, Param
from synth.worlds.declarative.language.expression_types import Attribute, ExpressionError, Silent, Type


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a spec so far. broken: entities, fields (`loan.due`) and parameters that were complained of already."""

    today: date
    entities: dict[str, Entity]
    broken: set[str]


class _Scope:
    """What both kinds of expressions share: attributes along references, and counts."""

    def __init__(self, names: Known) -> None:
        self.known, self.today = names, names.today

    def attribute(self, entity: str, name: str) -> Attribute | None:
        owner = self.known.entities.get(entity)
        field = owner.fields.get(name) if owner is not None else None
        if owner is None or field is None:
            return None
        if field.place >= 0:
            return Attribute(field.type, owner.number, field.place)
        if field.derived is None:
            if self.is_broken(f"{entity}.{name}"):
                raise Silent
            raise ExpressionError(f"{entity}.{name} is derived further down; put {entity} above")
        return Attribute(field.type, owner.number, -1, field.derived.run)

    def attributes(self, entity: str) -> list[str]:
        return list(self.known.entities[entity].fields)

    def counter(self, entity: str, fields: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], int]:
        owner = self.known.entities[entity]
        if any(owner.fields[name].place < 0 for name in fields):
            raise ExpressionError("count: only by fields that are stored, not by derived ones")
        number, places = owner.number, tuple(owner.fields[name].place for name in fields)
        return lambda state, values: state.count(number, places, values)

    def is_broken(self, name: str) -> bool:
        return name in self.known.broken


class ActScope(_Scope):
    """Names are the parameters of an action; at run time they are looked up in a mapping."""

    is_keyed = True

    def __init__(self, names: Known, params: Mapping[str, Param]) -> None:
        super().__init__(names)
        self.params = params

    def root(self, name: str) -> tuple[Type, Callable[[Any, Any], Any]] | None:
        param = self.params.get(name)
        if param is not None and param.is_either:
            raise ExpressionError(f"{name!r} may be missing (`either`); only `tells` and `by` of `counts` can name it")
        return None if param is None else (param.type, lambda state, names: names[name])

    def roots(self) -> list[str]:
        return list(self.params)


class RowScope(_Scope):
    """Names are the fields of the row that stand above the one that is worked out; at run time the row is a tuple.

    `self` is the row as a reference. is_start: for the first value of a stored field: rows of entities further down do not exist yet, and
    nothing is counted.
    """

    is_keyed = False

    def __init__(self, names: Known, entity: Entity, target: Field, *, is_start: bool) -> None:
        super().__init__(names)
        self.entity, self.target, self.is_start = entity, target, is_start

    def root(self, name: str) -> tuple[Type, Callable[[Any, Any], Any]] | None:
        if name not in self.roots():
            return None
        if name == "self":
            return Type("ref", self.entity.name), lambda state, row: row[-1]
        field = self.entity.fields[name]
        if field.place >= 0:
            place = field.place
            return field.type, lambda state, row: row[place]
        if field.derived is None:
            raise Silent
        return field.type, field.derived.run

    def roots(self) -> list[str]:
        names = list(self.entity.fields)
        above = names[: names.index(self.target.name) + self.is_start]
        if self.is_start:
            return [name for name in above if self.entity.fields[name].place >= 0]
        return ["self", *above, *(each.name for each in self.entity.stored if each.name not in above)]

    def attribute(self, entity: str, name: str) -> Attribute | None:
        other = self.known.entities.get(entity)
        if other is not None and name in other.fields and self.is_start:
            if other.number >= self.entity.number:
                raise ExpressionError(f"`starts` can only use entities above; put {entity} before {self.entity.name}")
            if other.fields[name].place < 0:
                raise ExpressionError(f"`starts` cannot use {entity}.{name}, which is derived")
        return super().attribute(entity, name)

    def counter(self, entity: str, fields: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], int]:
        if self.is_start:
            raise ExpressionError("`starts` cannot count; use `derived`")
        return super().counter(entity, fields)


class JobScope(_Scope):
    """Names are the slots and rows of a job; at run time they are looked up in a mapping. missing: slots that may be unsaid. broken: names
    that were complained of already."""

    is_keyed = True

    def __init__(self, names: Known, types: Mapping[str, Type], missing: frozenset[str], broken: Set[str]) -> None:
        super().__init__(names)
        self.types, self.missing, self.broken = types, missing, broken

    def root(self, name: str) -> tuple[Type, Callable[[Any, Any], Any]] | None:
        if name not in self.types:
            return None
        if name in self.missing:
            raise ExpressionError(f"{name!r} may be left unsaid; it can stand alone only")
        return self.types[name], lambda state, names: names[name]

    def roots(self) -> list[str]:
        return list(self.types)

    def is_broken(self, name: str) -> bool:
        return name in self.broken or super().is_broken(name)
