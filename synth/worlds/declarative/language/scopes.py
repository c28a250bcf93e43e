"""What names mean in a spec's expressions: parameters of an action, fields of a row, or slots and rows of a job.

One idea: a scope looks names up in entities that are still being resolved, so the parts of a spec may refer to each other in any order.
`SpecContext` is what all resolvers share: the entities so far, the problems so far, and the check that a request text is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date
from typing import Any

from storage.records import Language
from synth.worlds.declarative.domain import Entity, Field, Param
from synth.worlds.declarative.language.expression_types import AlreadyReported, Attribute, Compiled, ExpressionError, Scope, Type
from synth.worlds.declarative.language.expressions import compile_expression
from synth.worlds.declarative.language.problems import USUAL, Problem, nearest
from synth.worlds.declarative.language.values import Words

_REQUEST = re.compile(r"(?:[^\[\]{}]|\{\w+\}|\[(?:[^\[\]{}]|\{\w+\})*\])*")
"""A request text: {name} for a parameter or slot, [ ] around a part that may be missing."""


class SpecContext:
    """What is known of a spec while it is resolved.

    today: the day that dates of the spec count from.
    languages: of the spec.
    entities: by name; their expressions may still be missing.
    broken: names of entities, fields (`loan.due`) and parameters that have a reported problem.
    problems: everything wrong so far.
    """

    def __init__(self, today: date, languages: tuple[Language, ...]) -> None:
        self.today, self.languages = today, languages
        self.entities: dict[str, Entity] = {}
        self.broken: set[str] = set()
        self.problems: list[Problem] = []

    def add(self, path: str, text: str, rank: int = USUAL) -> None:
        problem = Problem(path, text, rank)
        if problem not in self.problems:  # a procedure is resolved for each intent that runs it
            self.problems.append(problem)

    def compile(self, text: str, scope: Scope, expect: Type | None, path: str) -> Compiled | None:
        """The compiled expression; None after a problem was reported."""
        try:
            return compile_expression(text, scope, expect)
        except ExpressionError as error:
            self.add(path, str(error))
        except AlreadyReported:
            pass
        return None

    def check_requests(self, requests: Sequence[Words], names: Iterable[str], required: Iterable[str], subject: str, path: str) -> None:
        """Checks that request texts name every required parameter or slot and no unknown one."""
        for at, words in enumerate(requests):
            for language in self.languages:
                where = f"{path}.says[{at}]" + (f".{language}" if len(self.languages) > 1 else "")
                if not _REQUEST.fullmatch(words[language]):
                    self.add(where, "brackets do not match; write parameters as {name}, what may be left out in [ ]")
                    continue
                used = set(re.findall(r"\{(\w+)\}", words[language]))
                for name in sorted(used - set(names)):
                    self.add(where, f"no {subject} {name!r}; {nearest(name, names)}")
                missing = [name for name in required if name not in used]
                if missing:
                    self.add(where, f"leaves out {', '.join(f'{{{name}}}' for name in missing)}")


class _Scope:
    """What all scopes share: attributes along references, and counts."""

    def __init__(self, context: SpecContext) -> None:
        self.context, self.today = context, context.today

    def attribute(self, entity: str, name: str) -> Attribute | None:
        owner = self.context.entities.get(entity)
        field = owner.fields.get(name) if owner is not None else None
        if owner is None or field is None:
            return None
        if field.place >= 0:
            return Attribute(field.type, owner.number, field.place)
        if field.derived is None:
            if self.is_broken(f"{entity}.{name}"):
                raise AlreadyReported
            raise ExpressionError(f"{entity}.{name} is derived further down; put {entity} above")
        return Attribute(field.type, owner.number, -1, field.derived.run)

    def attributes(self, entity: str) -> list[str]:
        return list(self.context.entities[entity].fields)

    def counter(self, entity: str, fields: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], int]:
        owner = self.context.entities[entity]
        number, places = owner.number, tuple(owner.fields[name].place for name in fields)
        if any(place < 0 for place in places):
            raise ExpressionError("count: only by fields that are stored, not by derived ones")
        return lambda state, values: state.count(number, places, values)

    def has_row(self, entity: str, key: str) -> bool:
        owner = self.context.entities.get(entity)
        return owner is not None and key in owner.known_ids

    def is_broken(self, name: str) -> bool:
        return name in self.context.broken


class ActScope(_Scope):
    """Names are the parameters of an action. At run time a mapping holds their values.

    allows_optional: whether the expression may name parameters that calls may leave out.
    """

    is_keyed = True

    def __init__(self, context: SpecContext, params: Mapping[str, Param]) -> None:
        super().__init__(context)
        self.params = params
        self.allows_optional = False

    def root(self, name: str) -> tuple[Type, Callable[[Any, Any], Any]] | None:
        param = self.params.get(name)
        if param is not None and param.spec.optional and not self.allows_optional:
            raise ExpressionError(f"{name!r} may be left out (`optional`); it can only stand alone, in `finds`")
        if param is not None and param.is_either:
            raise ExpressionError(f"{name!r} may be missing (`either`); only `tells` and `by` of `counts` can name it")
        return None if param is None else (param.type, lambda state, names: names[name])

    def roots(self) -> list[str]:
        return list(self.params)


class RowScope(_Scope):
    """Names are fields of the row, and `self` is the row as a reference. At run time the row is a tuple.

    target: the field whose value the expression gives; only fields above it have names, and stored fields if it is derived.
    is_start: the expression gives the first value of a stored field. Entities further down have no rows yet, and nothing is counted.
    """

    is_keyed = False

    def __init__(self, context: SpecContext, entity: Entity, target: Field, *, is_start: bool) -> None:
        super().__init__(context)
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
            raise AlreadyReported
        return field.type, field.derived.run

    def roots(self) -> list[str]:
        names = list(self.entity.fields)
        above = names[: names.index(self.target.name) + self.is_start]
        if self.is_start:
            return [name for name in above if self.entity.fields[name].place >= 0]
        return ["self", *above, *(each.name for each in self.entity.stored if each.name not in above)]

    def attribute(self, entity: str, name: str) -> Attribute | None:
        other = self.context.entities.get(entity)
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
    """Names are the slots and rows of a job. At run time a mapping holds their values.

    types: by name.
    optional: slots that a request may leave out; no expression may use them.
    broken: names that have a reported problem.
    """

    is_keyed = True

    def __init__(self, context: SpecContext, types: Mapping[str, Type], optional: frozenset[str], broken: Set[str]) -> None:
        super().__init__(context)
        self.types, self.optional, self.broken = types, optional, broken

    def root(self, name: str) -> tuple[Type, Callable[[Any, Any], Any]] | None:
        if name not in self.types:
            return None
        if name in self.optional:
            raise ExpressionError(f"{name!r} may be left unsaid; it can stand alone only")
        return self.types[name], lambda state, names: names[name]

    def roots(self) -> list[str]:
        return list(self.types)

    def is_broken(self, name: str) -> bool:
        return name in self.broken or super().is_broken(name)
