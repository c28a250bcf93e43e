"""Turns a spec as read into a `Domain`: references resolved, expressions compiled, all problems reported at once.

One idea: `resolve` gives either a valid `Domain` or all problems of the spec, each with its path. A part that uses a broken part is not
reported again.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from storage.records import RefusalReason, canonical_json
from synth.worlds.declarative.arguments import default_of
from synth.worlds.declarative.common_names import names_of, plural_of
from synth.worlds.declarative.domain import (
    Act,
    Condition,
    Creation,
    Domain,
    Entity,
    Field,
    Kept,
    Param,
    Setting,
    Told,
    Transfer,
    filter_name,
    is_searched,
    key_of,
    listing_for,
)
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.expression_types import DATE, FLAG, REAL, TIME, WHOLE, Compiled, ExpressionError, Silent, Type
from synth.worlds.declarative.language.expressions import compile_expression
from synth.worlds.declarative.language.job_steps import Refusing, Scripts, last_steps
from synth.worlds.declarative.language.problems import Problem, SpecError, nearest
from synth.worlds.declarative.language.read import Action, Spec, read_spec
from synth.worlds.declarative.language.scopes import ActScope, Known, RowScope
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.tools import sorts


def resolve(raw: Any, where: str = "", *, is_worded: bool = False) -> Domain:
    """The domain that a file's values describe. is_worded: how people ask for its own jobs lies in files of its own.

    Raises:
        SpecError: everything that is wrong with it.
    """
    spec, problems = read_spec(raw)
    if spec is None:
        raise SpecError(problems, where)
    work = _Resolver(spec, is_worded)
    domain = work.run(hashlib.sha256(canonical_json(_plain(raw)).encode()).hexdigest()[:16])
    if work.problems:
        raise SpecError(work.problems, where)
    return domain


def _plain(value: Any) -> Any:
    """Values of a file and of Python code alike: every scalar as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Resolver:
    def __init__(self, spec: Spec, is_worded: bool) -> None:
        self.spec, self.head, self.is_worded = spec, spec.head, is_worded
        self.problems: list[Problem] = []
        self.entities: dict[str, Entity] = {}
        self.broken: set[str] = set()
        self.known = Known(spec.head.today, self.entities, self.broken)

    def add(self, path: str, text: str) -> None:
        problem = Problem(path, text)
        if problem not in self.problems:  # a procedure is resolved for each intent that runs it
            self.problems.append(problem)

    def run(self, digest: str) -> Domain:
        for name in self.spec.entities:
            self._entity(name)
        self._names_differ()
        for entity in self.entities.values():
            self._references(entity)
            self._tools(entity)
        for entity in self.entities.values():
            self._worked_out(entity)
        acts = {name: self._act(name, number) for number, name in enumerate(self.spec.actions)}
        domain = Domain(self.head.domain, self.spec, digest, self.entities, acts, self.head.today, tuple(self.entities.values()))
        self._answers_as_usual()
        self._jobs_can_be_said()
        domain.jobs = Scripts(domain, self.known, self.add, self._compile).all()
        self._is_enough(domain)
        return domain

    # ---- entities -------------------------------------------------------------------------------------------------------------

    def _entity(self, name: str) -> None:
        spec = self.spec.entities[name]
        fields: dict[str, Field] = {}
        place = 0
        for key, given in self.spec.fields[name].items():
            stored = given.derived is None
            label = self._label(given, key, f"entities.{name}.fields.{key}")
            words = self._words(given, name, key)
            fields[key] = Field(key, given, _type(given, words), label, place if stored else -1, words)
            place += stored
        digits = spec.id.count("#")
        ids = tuple(f"{spec.id.rstrip('#')}{index:0{digits}d}" for index in range(spec.rows))
        self.entities[name] = Entity(name, len(self.entities), spec, spec.plural or plural_of(spec.noun.en), fields, ids)
        if spec.called is not None:
            called = fields.get(spec.called)
            if called is None:
                self.add(f"entities.{name}.called", f"no field {spec.called!r}; {nearest(spec.called, fields)}")
            elif called.type.kind not in ("choice", "name"):
                self.add(f"entities.{name}.called", f"{spec.called!r} is {called.type}; rows are told apart by a choice or a name")
        if fields and not place:
            self.add(f"entities.{name}.fields", "every field is derived; one at least must be stored")

    def _words(self, given: Any, entity: str, key: str) -> Mapping[str, Words]:
        if given.type == "choice":
            return dict(given.values) if given.like is None else self._like_values(given.like, f"entities.{entity}.fields.{key}.like")
        if given.type == "name":
            rows = self.spec.entities[entity].rows
            return {words.en: words for words in given.values or names_of(given.list, rows, f"{self.head.domain}/{entity}/{key}")}
        return {}

    def _like_values(self, like: str, path: str) -> Mapping[str, Words]:
        """The values of a choice of another entity."""
        entity, _, key = like.partition(".")
        choices = {
            f"{each}.{name}": of.values
            for each, fields in self.spec.fields.items()
            for name, of in fields.items()
            if isinstance(of, schema.ChoiceField) and of.like is None
        }
        if like not in choices:
            self.add(path, f"no choice {like!r}; {nearest(like, choices)}")
            self.broken.add(f"{entity}.{key}")
        return dict(choices.get(like, {}))

    def _label(self, given: Any, key: str, path: str) -> Words:
        if given.label is not None:
            return given.label  # type: ignore[no-any-return]
        if given.type == "ref" and given.to in self.spec.entities:
            return self.spec.entities[given.to].noun
        entity, _, of = (getattr(given, "like", None) or "").partition(".")
        liked = self.spec.fields.get(entity, {}).get(of)
        if liked is not None and liked.label is not None:
            return liked.label
        words = key.replace("_", " ")
        if key not in _USUAL_LABELS and given.type != "ref":
            self.add(f"{path}.label", f"is missing; what it is called in both languages, as: {words} / 中文")
        return Words(en=words, zh=_USUAL_LABELS.get(key, words))

    def _names_differ(self) -> None:
        first_use: dict[tuple[str, str], str] = {}
        for entity in self.entities.values():
            for role, text in (("id", entity.prefix), ("noun", entity.noun.en), ("noun", entity.noun.zh)):
                other = first_use.setdefault((role, text), entity.name)
                if other != entity.name:
                    self.add(f"entities.{entity.name}.{role}", f"{text!r} is that of {other} already; take another")

    def _references(self, entity: Entity) -> None:
        for each in entity.fields.values():
            path = f"entities.{entity.name}.fields.{each.name}"
            if isinstance(each.spec, schema.RefField) and each.spec.to not in self.entities:
                self.add(f"{path}.to", f"no entity {each.spec.to!r}; {nearest(each.spec.to, self.entities)}")
                suggestions = difflib.get_close_matches(each.spec.to, self.entities, n=1)
                each.type = Type("ref", suggestions[0] if suggestions else each.spec.to)
                self.broken |= set() if suggestions else {each.spec.to, f"{entity.name}.{each.name}"}
            elif each.name in self.entities and each.type != Type("ref", each.name):
                self.add(path, "is the name of an entity; call the field something else, or make it a ref to that entity")
            if isinstance(each.spec, schema.FlagField) and each.spec.phrase is not None:
                self.add(f"{path}.phrase", "a flag has no value to say; use `want`")
            if each.filter == "only" and not isinstance(each.spec, schema.FlagField):
                self.add(f"{path}.filter", f"'only' is for a flag, and this is {each.type}")
            self._groups(entity, each, path)

    def _groups(self, entity: Entity, each: Field, path: str) -> None:
        """`within` and `apart` name columns that stand before."""
        within, apart = getattr(each.spec, "within", None), getattr(each.spec, "apart", None)
        above = list(entity.fields)[: list(entity.fields).index(each.name)]
        fitting = [name for name in above if entity.fields[name].place >= 0 and entity.fields[name].type.kind in _GROUPS]
        if within is not None and each.place < 0:
            self.add(f"{path}.within", "is for a field that is stored, not for a derived one")
        elif within is not None and within not in fitting:
            self.add(f"{path}.within", f"no choice, name, flag or ref {within!r} above it; {nearest(within, fitting)}")
        other = self.entities.get(each.type.entity)
        if apart is None or other is None:
            return
        if other.number >= entity.number:
            self.add(f"{path}.apart", f"{other.name} must stand above; put it before {entity.name}")
        elif apart not in other.fields or other.fields[apart].place < 0:
            self.add(f"{path}.apart", f"no stored field {apart!r} of {other.name}; {nearest(apart, [of.name for of in other.stored])}")

    def _worked_out(self, entity: Entity) -> None:
        for each in entity.fields.values():
            for role, text in (("starts", each.spec.starts), ("derived", each.spec.derived)):
                if text is None:
                    continue
                path = f"entities.{entity.name}.fields.{each.name}.{role}"
                compiled = self._compile(text, RowScope(self.known, entity, each, is_start=role == "starts"), each.type, path)
                if compiled is not None:
                    setattr(each, role, compiled)
                else:
                    self.broken.add(f"{entity.name}.{each.name}")
            if each.spec.starts is not None and each.spec.derived is not None:
                self.add(f"entities.{entity.name}.fields.{each.name}", "give `starts` or `derived`, not both")

    def _compile(self, text: str, scope: Any, expect: Type | None, path: str) -> Compiled | None:
        try:
            return compile_expression(text, scope, expect)
        except ExpressionError as error:
            self.add(path, str(error))
        except Silent:
            pass
        return None

    # ---- actions --------------------------------------------------------------------------------------------------------------

    def _act(self, name: str, number: int) -> Act:
        action, path = self.spec.actions[name], f"actions.{name}"
        spec = action.spec
        on = self.entities.get(spec.on) if spec.on is not None else None
        if spec.on is not None and on is None:
            self.add(f"{path}.on", f"no entity {spec.on!r}; {nearest(spec.on, self.entities)}")
            self.broken.add(spec.on)
        params = self._params(action, on, path)
        act = Act(name, number, spec, on, params)
        scope = ActScope(self.known, params)
        act.conditions = self._conditions(action, scope, path)
        settings = (self._setting(target, text, scope, f"{path}.sets.{target}") for target, text in spec.sets.items())
        act.settings = tuple(each for each in settings if each is not None)
        transfers = (self._transfer(move, scope, f"{path}.moves[{at}]") for at, move in enumerate(action.moves))
        act.transfers = tuple(each for each in transfers if each is not None)
        creations = (self._creation(entity, values, scope, f"{path}.creates.{entity}") for entity, values in spec.creates.items())
        act.creations = tuple(each for each in creations if each is not None)
        act.either = spec.either
        act.kept = tuple(each for each in (self._count_kept(act, name, scope, path) for name in action.counts) if each is not None)
        act.tells = tuple(each for each in (self._told_field(act, name, scope, path) for name in action.tells) if each is not None)
        if not (spec.sets or spec.moves or spec.creates or spec.counts):
            self.add(path, "changes nothing; give `sets`, `moves`, `creates` or `counts`")
        if not params:
            self.add(path, "takes nothing; give `on` or `takes`")
        self._can_be_seen(act, path)
        needed = [name for name, param in act.params.items() if param.is_required]
        self._can_be_said(act.spec.says, act.params, needed, "parameter", path)
        return act

    def _params(self, action: Action, on: Entity | None, path: str) -> dict[str, Param]:
        params: dict[str, Param] = {}
        if on is not None:
            given = schema.RefParam(type="ref", to=on.name)
            params[on.name] = Param(on.name, given, Type("ref", on.name), on.noun, {}, is_person=on.spec.person)
        for name, spec in action.takes.items():
            where = f"{path}.takes.{name}"
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
            else:
                kind = {"integer": WHOLE, "money": WHOLE, "number": REAL, "date": DATE, "time": TIME, "flag": FLAG}[spec.type]
            is_person = isinstance(spec, schema.RefParam) and spec.to in self.entities and self.entities[spec.to].spec.person
            params[name] = Param(name, spec, kind, self._label(spec, name, where), words, self._default(spec, kind, where), is_person)
        for name, among in action.spec.either.items():
            where = f"{path}.either.{name}"
            rows = [each for each, param in params.items() if param.type.kind == "ref" and each != action.spec.on]
            if name in params or name in self.entities:
                self.add(where, "is a parameter or an entity already; take another name")
            if len(among) < 2:
                self.add(where, "name two parameters or more, one of which is given")
            for each in among:
                if each not in rows:
                    self.add(where, f"no row {each!r} in `takes`; {nearest(each, rows)}")
                else:
                    params[each].is_either = True
        return params

    def _count_kept(self, act: Act, name: str, scope: ActScope, path: str) -> Kept | None:
        spec, path = self.spec.actions[act.name].counts[name], f"{path}.counts.{name}"
        if name in self.entities or name == "acts":
            self.add(path, "is the name of an entity, or `acts`; take another")
        names = [*act.params, *act.either]
        for each in spec.by:
            if each not in names:
                self.add(f"{path}.by", f"no parameter {each!r}; {nearest(each, names)}")
        add = self._compile(spec.add, scope, WHOLE, f"{path}.add")
        by = tuple(dict.fromkeys(one for each in spec.by for one in act.either.get(each, (each,))))
        return None if add is None else Kept(name, by, add)

    def _told_field(self, act: Act, name: str, scope: ActScope, path: str) -> Told | None:
        text = self.spec.actions[act.name].tells[name].value
        if text in act.either or (text in act.params and act.params[text].is_either):
            return Told(name, param=text)
        value = self._compile(text, scope, None, f"{path}.tells.{name}")
        return None if value is None else Told(name, value=value)

    def _choices(self, spec: schema.ChoiceParam, where: str, name: str) -> Mapping[str, Words]:
        if spec.like is None:
            return spec.values
        entity, _, key = spec.like.partition(".")
        field = self.entities[entity].fields.get(key) if entity in self.entities else None
        if field is None or not isinstance(field.spec, schema.ChoiceField):
            choices = [
                f"{each.name}.{one.name}" for each in self.entities.values() for one in each.fields.values() if one.spec.type == "choice"
            ]
            self.add(f"{where}.like", f"no choice {spec.like!r}; {nearest(spec.like, choices)}")
            self.broken.add(name)
            return {}
        return field.words

    def _default(self, spec: Any, kind: Type, where: str) -> Any:
        if spec.default is None:
            return False if spec.type == "flag" else None
        try:
            return default_of(spec, kind)
        except ValueError as error:
            self.add(f"{where}.default", str(error))
            return spec.default

    def _conditions(self, action: Action, scope: ActScope, path: str) -> tuple[Condition, ...]:
        conditions = []
        for at, need in enumerate(action.needs):
            test = self._compile(need.condition, scope, FLAG, f"{path}.needs[{at}].if")
            message = need.message or f"this needs: {need.condition}"
            places = dict.fromkeys(re.findall(r"\{[^{}]*\}", need.message or ""))
            inside = ((each, self._compile(each[1:-1], scope, None, f"{path}.needs[{at}].else")) for each in places)
            worked_out = tuple((place, value) for place, value in inside if value is not None)
            if test is not None:
                conditions.append(Condition("", test, message, worked_out=worked_out))
        for name, rule in action.rules.items():
            test = self._compile(rule.condition, scope, FLAG, f"{path}.rules.{name}.if")
            if test is not None:
                conditions.append(Condition(name, test, f"against the rules: {name.replace('_', ' ')}", rule))
        return tuple(conditions)

    def _setting(self, target: str, text: str, scope: ActScope, path: str) -> Setting | None:
        place = self._target(target, scope, path)
        if place is None:
            return None
        row, entity, field = place
        value = self._compile(text, scope, field.type, path)
        return Setting(row, entity.number, field.place, field.name, value) if value is not None else None

    def _target(self, target: str, scope: ActScope, path: str) -> tuple[Compiled, Entity, Field] | None:
        """The row and the stored field that `loan.member.fees` names."""
        prefix, dot, name = target.rpartition(".")
        if not dot:
            self.add(path, f"name a field of a row, as {next(iter(scope.params), 'row')}.{target}")
            return None
        row = self._compile(prefix, scope, None, path)
        if row is None:
            return None
        if row.type.kind != "ref":
            self.add(path, f"{prefix!r} is {row.type}, which has no fields")
            return None
        entity = self.entities.get(row.type.entity)
        field = entity.fields.get(name) if entity is not None else None
        if entity is None or field is None:
            if entity is not None:
                self.add(path, f"no field {name!r} of {entity.name}; {nearest(name, entity.fields)}")
            return None
        if field.place < 0:
            self.add(path, f"{name!r} is derived and cannot be set")
            return None
        return row, entity, field

    def _transfer(self, move: schema.Move, scope: ActScope, path: str) -> Transfer | None:
        amount = self._compile(move.amount, scope, WHOLE, f"{path}.amount")
        ends = [self._target(text, scope, f"{path}.{key}") for key, text in (("from", move.source), ("to", move.target))]
        for key, end in zip(("from", "to"), ends, strict=True):
            if end is not None and end[2].type != WHOLE:
                self.add(f"{path}.{key}", f"{end[2].name!r} is {end[2].type}; only whole numbers and money move")
        if amount is None or ends[0] is None or ends[1] is None:
            return None
        source, target = ((row, entity.number, field.place, field.name) for row, entity, field in (ends[0], ends[1]))
        return Transfer(amount, source, target)

    def _creation(self, name: str, values: Mapping[str, str], scope: ActScope, path: str) -> Creation | None:
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
        fields = [
            self._compile(values[each.name], scope, each.type, f"{path}.{each.name}") for each in entity.stored if each.name in values
        ]
        if missing or any(each is None for each in fields):
            return None
        return Creation(entity.number, tuple(each for each in fields if each is not None))

    def _can_be_said(self, says: Sequence[Words], names: Iterable[str], needed: Iterable[str], subject: str, path: str) -> None:
        """Check that request texts name every required slot and no unknown one."""
        for at, words in enumerate(says):
            for language in ("en", "zh"):
                if not _SAID.fullmatch(words[language]):
                    remedy = "write parameters as {name}, what may be left out in [ ]"
                    self.add(f"{path}.says[{at}].{language}", f"brackets do not match; {remedy}")
                    continue
                used = set(re.findall(r"\{(\w+)\}", words[language]))
                for name in sorted(used - set(names)):
                    self.add(f"{path}.says[{at}].{language}", f"no {subject} {name!r}; {nearest(name, names)}")
                missing = [name for name in needed if name not in used]
                if missing:
                    self.add(f"{path}.says[{at}].{language}", f"leaves out {', '.join(f'{{{name}}}' for name in missing)}")

    def _jobs_can_be_said(self) -> None:
        for name, job in self.spec.intents.items():
            path, spec = f"intents.{name}", job.spec
            self._can_be_said(spec.says, spec.slots, [slot for slot in spec.slots if slot not in spec.optional], "slot", path)
            if not spec.says and not self.is_worded:
                self.add(f"{path}.says", "is missing; how people ask for it, as: english / 中文, with {slot} fields")

    def _can_be_seen(self, act: Act, path: str) -> None:
        """Check that a tool shows what rules read. Failed needs are reported by the action's own tool."""
        for condition in (each for each in act.conditions if each.rule is not None):
            for read in condition.test.reads:
                entity = self._entity_at(act, read.path)
                if entity is not None and "get" not in entity.spec.tools:
                    looked_at = ".".join((*read.path, read.field))
                    self.add(path, f"its rules look at {looked_at}, but {entity.name} has no `get` tool to see it by")
            for count in condition.test.counts:
                counted = self.entities[count.entity]
                filters = [counted.fields[name] for name, _ in count.filters]
                if listing_for(counted, filters) is None and not is_searched(counted, filters):
                    by = " and ".join(each.name for each in filters)
                    self.add(path, f"its rules count {count.entity} by {by}, which no search by equality and no owner's list shows")

    def _entity_at(self, act: Act, path: tuple[str, ...]) -> Entity | None:
        param = act.params.get(path[0])
        entity = self.entities.get(param.type.entity) if param is not None else None
        for name in path[1:]:
            field = entity.fields.get(name) if entity is not None else None
            entity = self.entities.get(field.type.entity) if field is not None else None
        return entity

    # ---- tools ----------------------------------------------------------------------------------------------------------------

    def _tools(self, entity: Entity) -> None:
        """Check that the settings of reading tools name existing fields, filters and orders."""
        path, tools = f"entities.{entity.name}.tools", entity.spec.tools
        for view in ("get", "search", "list"):
            for name in getattr(getattr(tools, view), "shows", ()):
                if name not in entity.fields:
                    self.add(f"{path}.{view}.shows", f"no field {name!r}; {nearest(name, entity.fields)}")
        if tools.search is not None:
            filters = [filter_name(each) for each in entity.fields.values() if each.filter != "none"]
            for name in tools.search.needs:
                if name not in filters:
                    self.add(f"{path}.search.needs", f"no filter {name!r}; {nearest(name, filters)}")
            if tools.search.sort is not None and tools.search.sort not in sorts(entity):
                self.add(f"{path}.search.sort", f"no order {tools.search.sort!r}; {nearest(tools.search.sort, sorts(entity))}")
        owners = len(entity.owners())
        if tools.list is not None and owners != 1:
            self.add(f"{path}.list", f"{owners} references are `owned`, which give a list each; say this where it is one")

    def _answers_as_usual(self) -> None:
        """Check that a domain with combined jobs has the default tools: these jobs support no others."""
        if not self.head.combined:
            return
        remedy = "say `combined: false` at the top, and write `intents`"
        for entity in self.entities.values():
            if not entity.spec.tools.is_usual:
                self.add(f"entities.{entity.name}.tools", f"jobs that are put together expect the usual answers; {remedy}")
        if self.head.naming.row_ids != "id":
            self.add("naming.row_ids", f"jobs that are put together expect the usual answers; {remedy}")
        for name, action in self.spec.actions.items():
            for key in ("tells", "either"):
                if getattr(action.spec, key):
                    self.add(f"actions.{name}.{key}", f"jobs that are put together cannot do with it; {remedy}")

    # ---- the whole ------------------------------------------------------------------------------------------------------------

    def _is_enough(self, domain: Domain) -> None:
        if len(self.entities) < schema.MIN_ENTITIES:
            self.add("entities", f"{len(self.entities)} of them; a business needs at least {schema.MIN_ENTITIES}")
        rows = sum(entity.spec.rows for entity in self.entities.values())
        if rows < schema.MIN_ROWS:
            self.add("entities", f"{rows} rows in all; at least {schema.MIN_ROWS} are needed: raise `rows`")
        tools = len(domain.acts) + sum(
            ("get" in entity.spec.tools) + ("search" in entity.spec.tools) + len(entity.owners()) for entity in self.entities.values()
        )
        if tools < schema.MIN_TOOLS:
            self.add("actions", f"{tools} tools in all; at least {schema.MIN_TOOLS} are needed: add actions")
        rules = sum(len(action.rules) for action in self.spec.actions.values())
        rules += sum(
            isinstance(step, Refusing) and step.reason is RefusalReason.RULE for job in domain.jobs for step in last_steps(job.steps)
        )
        if rules < schema.MIN_RULES:
            self.add("actions", f"{rules} business rules; at least {schema.MIN_RULES} are needed: add `rules` to actions")
        reading = {f"get_{name}" for name in self.entities} | {f"search_{key_of(entity)}" for entity in self.entities.values()}
        for name in domain.acts:
            if name in reading or name == "run_python" or name.startswith("list_"):
                self.add(f"actions.{name}", "a reading tool has such a name; take another")


def _type(given: Any, words: Mapping[str, Words]) -> Type:
    kind = given.type
    if kind == "ref":
        return Type("ref", given.to)
    if kind in ("choice", "name"):
        return Type(kind, values=frozenset(words))
    return {"integer": WHOLE, "money": WHOLE, "number": REAL, "date": DATE, "time": TIME, "flag": FLAG}[kind]


_GROUPS = ("choice", "name", "flag", "ref")
"""Kinds of fields by which rows are grouped."""
_SAID = re.compile(r"(?:[^\[\]{}]|\{\w+\}|\[(?:[^\[\]{}]|\{\w+\})*\])*")
_USUAL_LABELS = {
    "name": "姓名", "status": "状态", "price": "价格", "date": "日期", "kind": "类型", "type": "类型", "balance": "余额", "amount": "金额",
    "city": "城市", "due": "到期日", "start": "开始日期", "end": "结束日期", "quantity": "数量", "stock": "库存", "title": "名称",
    "level": "级别", "fee": "费用", "rating": "评分", "time": "时间", "reason": "原因", "total": "总额", "priority": "优先级",
    "category": "类别",
}  # fmt: skip
"""Chinese labels of fields that give none."""
