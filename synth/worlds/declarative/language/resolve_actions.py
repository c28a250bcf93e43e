"""Resolves the actions of a spec: parameters, conditions, effects and replies.

One idea: all expressions of an action are compiled in one scope, whose names are its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from synth.worlds.declarative.arguments import default_of
from synth.worlds.declarative.domain import (
    Act,
    ActCounter,
    Condition,
    Creation,
    Entity,
    Field,
    Finding,
    Param,
    ResultField,
    Setting,
    Transfer,
    is_searched,
    listing_owner,
)
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.expression_types import FLAG, PLAIN_TYPES, WHOLE, Compiled, Type
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.read import Action
from synth.worlds.declarative.language.scopes import ActScope, SpecContext
from synth.worlds.declarative.language.spec_schema import Move
from synth.worlds.declarative.language.values import OpenWords, Words

T = TypeVar("T")
Label = Callable[[Any, str, str], Words]
"""(field or parameter, its name, its path) -> what it is called."""


def resolve_action(context: SpecContext, label: Label, name: str, number: int, action: Action) -> Act:
    """The action `name`, as far as it can be resolved; its problems are in `context`."""
    return _ActionResolver(context, label, name, action).resolve(number)


class _ActionResolver:
    def __init__(self, context: SpecContext, label: Label, name: str, action: Action) -> None:
        self.context, self.label, self.name, self.action, self.path = context, label, name, action, f"actions.{name}"
        self.entities, self.broken, self.add = context.entities, context.broken, context.add

    def resolve(self, number: int) -> Act:
        spec = self.action.spec
        on = self.entities.get(spec.on) if spec.on is not None else None
        if spec.on is not None and on is None:
            self.add(f"{self.path}.on", f"no entity {spec.on!r}; {nearest(spec.on, self.entities)}")
            self.broken.add(spec.on)
        params = self._params(on)
        act = Act(self.name, number, spec, on, params)
        self.scope = ActScope(self.context, params)
        act.conditions = self._conditions()
        act.settings = _present(self._setting(target, text, f"{self.path}.sets.{target}") for target, text in spec.sets.items())
        act.transfers = _present(self._transfer(move, f"{self.path}.moves[{at}]") for at, move in enumerate(self.action.moves))
        act.creations = _present(self._creation(entity, values, f"{self.path}.creates.{entity}") for entity, values in spec.creates.items())
        act.either = spec.either
        act.counters = _present(self._total(act, total) for total in self.action.counts)
        act.result_fields = _present(self._reply_field(act, field) for field in self.action.tells)
        if act.is_reading:
            self._resolve_reading(act)
        else:
            self._check_changes(act)
        if not act.is_reading and any(param.spec.optional for param in params.values()):
            self.add(f"{self.path}.takes", "`optional` is for tools that only read; give a `default`")
        self._check_visibility(act)
        required = [name for name, param in params.items() if param.is_required]
        self.context.check_requests(spec.says, params, required, "parameter", self.path)
        return act

    def _check_changes(self, act: Act) -> None:
        spec = act.spec
        if not (spec.sets or spec.moves or spec.creates or spec.counts):
            self.add(self.path, "changes nothing; give `sets`, `moves`, `creates` or `counts`, or `shows` for a tool that only reads")
        if not act.params and not spec.creates:
            self.add(self.path, "takes nothing; give `on` or `takes`")

    # ---- tools that only read -------------------------------------------------------------------------------------------------

    def _resolve_reading(self, act: Act) -> None:
        spec = act.spec
        for key in ("sets", "moves", "creates", "counts", "tells", "rules", "either"):
            if getattr(spec, key):
                self.add(f"{self.path}.{key}", "does not go with `shows` and `finds`: a tool that only reads changes and forbids nothing")
        shown = ((name, self._compile(text, None, f"{self.path}.shows.{name}")) for name, text in spec.shows.items())
        act.result_fields = tuple(ResultField(name, value=value) for name, value in shown if value is not None)
        for each in act.result_fields:
            if each.value is not None and not each.value.type.is_number and read_field(self.entities, act, each.value) is None:
                self.add(f"{self.path}.shows.{each.name}", "is neither a field along references, as loan.member.level, nor a number")
        act.finding = next(iter(_present(self._finding(name, values) for name, values in spec.finds.items())), None)

    def _finding(self, name: str, values: Mapping[str, str]) -> Finding | None:
        path, entity = f"{self.path}.finds", self.entities.get(name)
        if entity is None:
            self.add(path, f"no entity {name!r}; {nearest(name, self.entities)}")
            return None
        filters = []
        for key, text in values.items():
            field = entity.fields.get(key)
            if field is None:
                self.add(f"{path}.{name}.{key}", f"no field {key!r} of {name}; {nearest(key, entity.fields)}")
            elif (value := self._filter_value(text, field.type, f"{path}.{name}.{key}")) is not None:
                filters.append((field, value, text if text in self.scope.params and self.scope.params[text].spec.optional else ""))
        return Finding(entity, tuple(filters))

    def _filter_value(self, text: str, expect: Type, path: str) -> Compiled | None:
        self.scope.allows_optional = text in self.scope.params
        value = self._compile(text, expect, path)
        self.scope.allows_optional = False
        return value

    def _compile(self, text: str, expect: Type | None, path: str) -> Compiled | None:
        return self.context.compile(text, self.scope, expect, path)

    # ---- parameters -----------------------------------------------------------------------------------------------------------

    def _params(self, on: Entity | None) -> dict[str, Param]:
        params: dict[str, Param] = {}
        if on is not None:
            row = schema.RefParam(type="ref", to=on.name)
            params[on.name] = Param(on.name, row, Type("ref", on.name), on.noun, {}, is_person=on.spec.person)
        for name, spec in self.action.takes.items():
            where = f"{self.path}.takes.{name}"
            if name in params:
                self.add(where, "is the row that it acts on already; take another name")
                continue
            words: Mapping[str, Words] = {}
            if isinstance(spec, schema.RefParam):
                if spec.to not in self.entities:
                    self.add(f"{where}.to", f"no entity {spec.to!r}; {nearest(spec.to, self.entities)}")
                    self.broken |= {spec.to, name}
                kind = Type("ref", spec.to)
            elif isinstance(spec, schema.ChoiceParam):
                words = self._choices(spec, where, name)
                kind = Type("choice", values=frozenset(words))
            elif isinstance(spec, schema.NameParam):
                words = self._names(spec, where, name)
                kind = Type("name")
            else:
                kind = PLAIN_TYPES[spec.type]
            is_person = isinstance(spec, schema.RefParam) and spec.to in self.entities and self.entities[spec.to].spec.person
            params[name] = Param(name, spec, kind, self.label(spec, name, where), words, self._default(spec, kind, where), is_person)
        self._mark_either(params)
        return params

    def _mark_either(self, params: Mapping[str, Param]) -> None:
        for name, among in self.action.spec.either.items():
            where = f"{self.path}.either.{name}"
            rows = [each for each, param in params.items() if param.type.kind == "ref" and each != self.action.spec.on]
            if name in params or name in self.entities:
                self.add(where, "is a parameter or an entity already; take another name")
            if len(among) < 2:
                self.add(where, "name two parameters or more, one of which is given")
            for each in among:
                if each not in rows:
                    self.add(where, f"no row {each!r} in `takes`; {nearest(each, rows)}")
                else:
                    params[each].is_either = True

    def _names(self, spec: schema.NameParam, where: str, name: str) -> Mapping[str, Words]:
        names = {
            f"{entity.name}.{field.name}": field.words
            for entity in self.entities.values()
            for field in entity.fields.values()
            if isinstance(field.words, OpenWords)
        }
        if spec.like not in names:
            self.add(f"{where}.like", f"no name {spec.like!r} that is `open`; {nearest(spec.like, names)}")
            self.broken.add(name)
        return names.get(spec.like, {})

    def _choices(self, spec: schema.ChoiceParam, where: str, name: str) -> Mapping[str, Words]:
        if spec.like is None:
            return spec.values
        choices = {
            f"{entity.name}.{field.name}": field.words
            for entity in self.entities.values()
            for field in entity.fields.values()
            if isinstance(field.spec, schema.ChoiceField)
        }
        if spec.like not in choices:
            self.add(f"{where}.like", f"no choice {spec.like!r}; {nearest(spec.like, choices)}")
            self.broken.add(name)
        return choices.get(spec.like, {})

    def _default(self, spec: schema.ParamSpec, kind: Type, where: str) -> Any:
        if spec.default is None:
            return False if spec.type == "flag" else None
        try:
            return default_of(spec, kind)
        except ValueError as error:
            self.add(f"{where}.default", str(error))
            return spec.default

    # ---- conditions -----------------------------------------------------------------------------------------------------------

    def _conditions(self) -> tuple[Condition, ...]:
        conditions = []
        for at, need in enumerate(self.action.needs):
            path = f"{self.path}.needs[{at}]"
            test = self._compile(need.condition, FLAG, f"{path}.if")
            places = dict.fromkeys(re.findall(r"\{[^{}]*\}", need.message or ""))
            insertions = ((place, self._compile(place[1:-1], None, f"{path}.else")) for place in places)
            placeholders = tuple((place, value) for place, value in insertions if value is not None)
            if test is not None:
                conditions.append(Condition("", test, need.message or f"this needs: {need.condition}", placeholders=placeholders))
        for name, rule in self.action.rules.items():
            test = self._compile(rule.condition, FLAG, f"{self.path}.rules.{name}.if")
            if test is not None:
                conditions.append(Condition(name, test, f"against the rules: {name.replace('_', ' ')}", rule))
        return tuple(conditions)

    def _check_visibility(self, act: Act) -> None:
        """Checks that a tool shows what rules read. The action's tool reports a failed need itself."""
        for condition in (each for each in act.conditions if each.rule is not None):
            for read in condition.test.reads:
                entity = self._entity_at(act, read.path)
                if entity is not None and "get" not in entity.spec.tools:
                    field = ".".join((*read.path, read.field))
                    self.add(self.path, f"its rules look at {field}, but {entity.name} has no `get` tool to see it by")
            for count in condition.test.counts:
                counted = self.entities[count.entity]
                filters = [counted.fields[name] for name, _ in count.filters]
                if listing_owner(counted, filters) is None and not is_searched(counted, filters):
                    by = " and ".join(each.name for each in filters)
                    self.add(self.path, f"its rules count {count.entity} by {by}, which no search by equality and no owner's list shows")

    def _entity_at(self, act: Act, path: tuple[str, ...]) -> Entity | None:
        param = act.params.get(path[0])
        entity = self.entities.get(param.type.entity) if param is not None else None
        for name in path[1:]:
            field = entity.fields.get(name) if entity is not None else None
            entity = self.entities.get(field.type.entity) if field is not None else None
        return entity

    # ---- effects --------------------------------------------------------------------------------------------------------------

    def _setting(self, target: str, text: str, path: str) -> Setting | None:
        place = self._target(target, path)
        if place is None:
            return None
        row, entity, field = place
        value = self._compile(text, field.type, path)
        return Setting(row, entity.number, field.place, field.name, value) if value is not None else None

    def _target(self, target: str, path: str) -> tuple[Compiled, Entity, Field] | None:
        """The row and the stored field that `loan.member.fees` names."""
        prefix, dot, name = target.rpartition(".")
        if not dot:
            self.add(path, f"name a field of a row, as {next(iter(self.scope.params), 'row')}.{target}")
            return None
        row = self._compile(prefix, None, path)
        if row is None:
            return None
        if row.type.kind != "ref":
            self.add(path, f"{prefix!r} is {row.type}, which has no fields")
            return None
        entity = self.entities.get(row.type.entity)
        if entity is None:
            return None
        field = entity.fields.get(name)
        if field is None:
            self.add(path, f"no field {name!r} of {entity.name}; {nearest(name, entity.fields)}")
            return None
        if field.place < 0:
            self.add(path, f"{name!r} is derived and cannot be set")
            return None
        return row, entity, field

    def _transfer(self, move: Move, path: str) -> Transfer | None:
        amount = self._compile(move.amount, WHOLE, f"{path}.amount")
        ends = [self._target(text, f"{path}.{key}") for key, text in (("from", move.source), ("to", move.target))]
        for key, end in zip(("from", "to"), ends, strict=True):
            if end is not None and end[2].type != WHOLE:
                self.add(f"{path}.{key}", f"{end[2].name!r} is {end[2].type}; only whole numbers and money move")
        if amount is None or ends[0] is None or ends[1] is None:
            return None
        source, target = ((row, entity.number, field.place, field.name) for row, entity, field in (ends[0], ends[1]))
        return Transfer(amount, source, target)

    def _creation(self, name: str, values: Mapping[str, str], path: str) -> Creation | None:
        entity = self.entities.get(name)
        if entity is None:
            self.add(path, f"no entity {name!r}; {nearest(name, self.entities)}")
            return None
        if not entity.spec.grows:
            self.add(path, f"{name} has `grows: false`; leave that out where an action creates some")
        for key in values:
            if key not in entity.fields:
                self.add(f"{path}.{key}", f"no field {key!r} of {name}; {nearest(key, entity.fields)}")
            elif entity.fields[key].place < 0:
                self.add(f"{path}.{key}", "is derived and cannot be given")
        missing = [each.name for each in entity.stored if each.name not in values]
        if missing:
            self.add(path, f"a new {name} also needs {', '.join(missing)}")
        given = [each for each in entity.stored if each.name in values]
        fields = _present([self._compile(values[each.name], each.type, f"{path}.{each.name}") for each in given])
        return Creation(entity.number, fields) if len(fields) == len(entity.stored) else None

    def _total(self, act: Act, name: str) -> ActCounter | None:
        spec, path = self.action.counts[name], f"{self.path}.counts.{name}"
        if name in self.entities or name == "acts":
            self.add(path, "is the name of an entity, or `acts`; take another")
        names = [*act.params, *act.either]
        for each in spec.by:
            if each not in names:
                self.add(f"{path}.by", f"no parameter {each!r}; {nearest(each, names)}")
        add = self._compile(spec.add, WHOLE, f"{path}.add")
        by = tuple(dict.fromkeys(param for each in spec.by for param in act.either.get(each, (each,))))
        return None if add is None else ActCounter(name, by, add)

    def _reply_field(self, act: Act, name: str) -> ResultField | None:
        text = self.action.tells[name].value
        if text in act.either or (text in act.params and act.params[text].is_either):
            return ResultField(name, param=text)
        value = self._compile(text, None, f"{self.path}.tells.{name}")
        return None if value is None else ResultField(name, value=value)


def read_field(entities: Mapping[str, Entity], act: Act, value: Compiled) -> Field | None:
    """The field that an expression is, along references from a parameter; None if it is more than that."""
    root, *path = value.text.split(".")
    if not path or root not in act.params:
        return None
    entity = entities.get(act.params[root].type.entity)
    field = None
    for name in path:
        field = entity.fields.get(name) if entity is not None else None
        entity = entities.get(field.type.entity) if field is not None else None
    return field


def _present(parts: Iterable[T | None]) -> tuple[T, ...]:
    """The parts that could be resolved."""
    return tuple(part for part in parts if part is not None)
