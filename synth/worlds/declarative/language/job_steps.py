"""A spec's own jobs, from what they say to what they mean: slots with their kinds, steps with rows, actions and expressions resolved.

One idea: steps are resolved one after the other in a scope that grows by the rows that they find, and what a step may look at is what the
steps before it have shown; so a job that compiles asks nobody to know what no tool told.
`intents/scripted.py` makes plans of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.records import Language, RefusalReason
from synth.text.refusals import REFUSALS, refusal_reasons
from synth.worlds.declarative.domain import Act, Domain, Entity, Field, filter_name
from synth.worlds.declarative.language import job_schema as form
from synth.worlds.declarative.language.expression_types import DATE, FLAG, REAL, TIME, WHOLE, Compiled, Type
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.read import Job, Step
from synth.worlds.declarative.language.scopes import JobScope, Known
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.tools import View, sorts, view_fields

Add = Callable[[str, str], None]
"""(path, what is wrong)"""
_LANGUAGES: tuple[Language, Language] = ("en", "zh")
Compile = Callable[[str, Any, Type | None, str], Compiled | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of slots. words: of a choice or mark."""

    name: str
    spec: form.KindSpec
    type: Type
    words: Mapping[str, Words]

    @property
    def is_mark(self) -> bool:
        return isinstance(self.spec, form.MarkKind)


@dataclass(frozen=True, slots=True)
class Given:
    """An argument. slot: the slot that it is and no more; it is left out where that is."""

    value: Compiled
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """The row of a slot is looked at."""

    row: str
    entity: Entity


@dataclass(frozen=True, slots=True)
class Owned:
    """The only row of an owner with these values is found in their list."""

    row: str
    entity: Entity
    owner: Field
    of: Given
    where: tuple[tuple[Field, Given], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The first row of a search is found. where: by filter."""

    row: str
    entity: Entity
    where: Mapping[str, tuple[Field, Given]]
    sort: Given


@dataclass(frozen=True, slots=True)
class Deed:
    """An action is done. words: what one says of it, if not the action's own reply."""

    act: Act
    given: Mapping[str, Given]
    words: Words | None


@dataclass(frozen=True, slots=True)
class Choice:
    cases: tuple[tuple[Compiled, tuple[Any, ...]], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    test: Compiled


@dataclass(frozen=True, slots=True)
class Telling:
    """What is told: the value of a field of a row; or, where that is none, what an action has told, in `unit`."""

    spec: form.TellStep
    row: str
    name: str
    value: Compiled | None = None
    of: Field | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Refusing:
    reason: RefusalReason
    words: Words


@dataclass(frozen=True, slots=True)
class Answering:
    slot: str
    answers: Mapping[str, form.Answer]


Resolved = Look | Owned | Found | Deed | Choice | Fit | Telling | Refusing | Answering


@dataclass(frozen=True, slots=True)
class Script:
    """A job. kinds: by slot, in order, the kind or the entity whose row it names."""

    name: str
    spec: form.IntentSpec
    kinds: Mapping[str, Kind | Entity]
    steps: tuple[Resolved, ...]


def paths(steps: Sequence[Resolved]) -> list[list[Resolved]]:
    """Every way through some steps, one a combination of cases."""
    prefixes: list[list[Resolved]] = [[]]
    for step in steps:
        if isinstance(step, Choice):
            prefixes = [[*way, step, *more] for way in prefixes for _, inner in step.cases for more in paths(inner)]
        else:
            prefixes = [[*way, step] for way in prefixes]
    return prefixes


def last_steps(steps: Sequence[Resolved]) -> list[Resolved]:
    """What each way through some steps ends in."""
    return [way[-1] for way in paths(steps) if way]


@dataclass(slots=True)
class _Place:
    """Where a step stands.

    types: of names.
    views: by row, what has shown it.
    done: actions.
    broken: names that were complained of already.
    """

    types: dict[str, Type]
    views: dict[str, tuple[Entity, View]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def copy(self) -> _Place:
        return _Place({**self.types}, {**self.views}, {*self.done}, {*self.broken})


class Scripts:
    """Resolves the jobs of a spec. add, compile: as `resolve.py` has them."""

    def __init__(self, domain: Domain, names: Known, add: Add, compile_: Compile) -> None:
        self.domain, self.known, self.add, self.compile = domain, names, add, compile_
        self.kinds = {name: kind for name, spec in domain.spec.kinds.items() if (kind := self._kind(name, spec)) is not None}
        self.ran: set[str] = set()

    def all(self) -> tuple[Script, ...]:
        scripts = tuple(self._script(name, job) for name, job in self.domain.spec.intents.items())
        for name in self.domain.spec.procedures:
            if name not in self.ran:
                self.add(f"procedures.{name}", "no intent runs it; leave it out, or `run` it")
        return scripts

    # ---- slots ----------------------------------------------------------------------------------------------------------------

    def _kind(self, name: str, spec: form.KindSpec) -> Kind | None:
        path = f"kinds.{name}"
        if name in self.domain.entities:
            self.add(path, "is the name of an entity, whose rows are a kind already; take another name")
        if isinstance(spec, form.MarkKind):
            return Kind(name, spec, FLAG, {name: spec.words})
        if isinstance(spec, form.ChoiceKind):
            words: Mapping[str, Words] = spec.values
            if spec.like is not None:
                entity, _, key = spec.like.partition(".")
                of = self.domain.entities[entity].fields.get(key) if entity in self.domain.entities else None
                if of is None or of.type.kind not in ("choice", "name"):
                    candidates = [
                        f"{each.name}.{one.name}"
                        for each in self.domain.by_number
                        for one in each.fields.values()
                        if one.type.kind in ("choice", "name")
                    ]
                    self.add(f"{path}.like", f"no choice or name {spec.like!r}; {nearest(spec.like, candidates)}")
                    return None
                words = of.words
                return Kind(name, spec, of.type, words)
            return Kind(name, spec, Type("choice", values=frozenset(words)), words)
        types = {"integer": WHOLE, "money": WHOLE, "number": REAL, "date": DATE, "time": TIME}
        return Kind(name, spec, types[spec.type], {})

    def _script(self, name: str, job: Job) -> Script:
        path, spec = f"intents.{name}", job.spec
        kinds: dict[str, Kind | Entity] = {}
        kinds_and_entities: dict[str, Kind | Entity] = {**self.kinds, **self.domain.entities}
        for slot, kind in spec.slots.items():
            if kind in kinds_and_entities:
                kinds[slot] = kinds_and_entities[kind]
            elif kind not in self.domain.spec.kinds:
                self.add(f"{path}.slots.{slot}", f"no kind or entity {kind!r}; {nearest(kind, kinds_and_entities)}")
        for slot in spec.optional:
            if slot not in spec.slots:
                self.add(f"{path}.optional", f"no slot {slot!r}; {nearest(slot, spec.slots)}")
        types = {slot: Type("ref", of.name) if isinstance(of, Entity) else of.type for slot, of in kinds.items()}
        steps = _Steps(self, spec, kinds).resolve_steps(job.steps, _Place(types, broken=set(spec.slots) - set(types)), f"{path}.steps", ())
        self._ends(steps, path)
        return Script(name, spec, kinds, steps)

    def _ends(self, steps: Sequence[Resolved], path: str) -> None:
        """Every way through a job comes to something, and refuses only at its end, always or never for the same reason."""
        ways = paths(steps)
        if not all(any(isinstance(step, (Deed, Telling, Refusing, Answering)) for step in way) for way in ways):
            self.add(path, "comes to nothing; let it `do`, `tell`, `answer` or `refuse` something in every case")
        reasons = {next((step.reason for step in way if isinstance(step, Refusing)), None) for way in ways}
        if len(reasons) > 1:
            self.add(path, "refuses in some cases only, or for several reasons; make an intent of each")
        if any(isinstance(step, (Refusing, Answering)) for way in ways for step in way[:-1]):
            self.add(path, "`refuse` and `answer` are last steps")


class _Steps:
    """Resolves the steps of one job."""

    def __init__(self, scripts: Scripts, spec: form.IntentSpec, kinds: Mapping[str, Kind | Entity]) -> None:
        self.scripts, self.spec, self.kinds, self.domain = scripts, spec, kinds, scripts.domain
        self.add = scripts.add
        marks = {slot for slot, kind in kinds.items() if isinstance(kind, Kind) and kind.is_mark}
        self.missing = frozenset(spec.optional) - marks

    def resolve_steps(self, steps: Sequence[Step], place: _Place, path: str, running: tuple[str, ...]) -> tuple[Resolved, ...]:
        resolved_steps: list[Resolved] = []
        for at, step in enumerate(steps):
            where = f"{path}[{at}]"
            if isinstance(step.spec, form.RunStep):
                resolved_steps += self._procedure(step.spec.run, place, where, running)
                continue
            one = self._step(step, place, where, running)
            if one is not None:
                resolved_steps.append(one)
        return tuple(resolved_steps)

    def _procedure(self, name: str, place: _Place, path: str, running: tuple[str, ...]) -> tuple[Resolved, ...]:
        procedures = self.domain.spec.procedures
        if name not in procedures or name in running:
            problem = f"no procedure {name!r}; {nearest(name, procedures)}" if name not in procedures else f"{name!r} runs itself"
            self.add(f"{path}.run", problem)
            return ()
        self.scripts.ran.add(name)
        return self.resolve_steps(procedures[name], place, f"procedures.{name}", (*running, name))

    def _step(self, step: Step, place: _Place, path: str, running: tuple[str, ...]) -> Resolved | None:
        spec = step.spec
        if isinstance(spec, form.GetStep):
            return self._look(spec, place, path)
        if isinstance(spec, form.ListStep):
            return self._list_step(spec, place, path)
        if isinstance(spec, form.SearchStep):
            return self._search_step(spec, place, path)
        if isinstance(spec, form.DoStep):
            return self._do_step(spec, place, path)
        if isinstance(spec, form.ChooseStep):
            cases = []
            for at, (case, steps) in enumerate(step.cases):
                where = f"{path}.choose[{at}]"
                test = self._compile(case.condition, place, FLAG, f"{where}.if")
                self._is_shown(test, place, f"{where}.if")
                inner = self.resolve_steps(steps, place.copy(), f"{where}.steps", running)
                cases += [] if test is None else [(test, inner)]
            return Choice(tuple(cases))
        if isinstance(spec, form.FitsStep):
            test = self._compile(spec.fits, place, FLAG, f"{path}.fits")
            return None if test is None else Fit(test)
        if isinstance(spec, form.TellStep):
            return self._telling(spec, place, path)
        if isinstance(spec, form.RefuseStep):
            for language in _LANGUAGES:
                if refusal_reasons(spec.words[language]) != {spec.refuse}:
                    usual = REFUSALS[spec.refuse][language]
                    self.add(f"{path}.words.{language}", f"does not name {spec.refuse.value!r} as the reason; say so, as: {usual}")
            return Refusing(spec.refuse, spec.words)
        assert isinstance(spec, form.AnswerStep)
        return self._answering(spec, step, path)

    # ---- expressions ----------------------------------------------------------------------------------------------------------

    def _compile(self, text: str, place: _Place, expect: Type | None, path: str) -> Compiled | None:
        return self.scripts.compile(text, JobScope(self.scripts.known, place.types, self.missing, place.broken), expect, path)

    def _argument(self, text: str, place: _Place, expect: Type, path: str) -> Given | None:
        """An argument; a slot alone may be one that nobody says."""
        slot = text.strip()
        is_slot = slot in self.kinds and slot in place.types
        scope = JobScope(self.scripts.known, place.types, self.missing - {slot} if is_slot else self.missing, place.broken)
        value = self.scripts.compile(text, scope, expect, path)
        self._is_shown(value, place, path)
        return None if value is None else Given(value, slot if is_slot else "")

    def _is_shown(self, value: Compiled | None, place: _Place, path: str) -> None:
        """What an expression looks at has been shown by the steps before."""
        if value is None:
            return
        if value.counts:
            self.add(path, "counts rows, and no step before shows how many there are")
        for read in value.reads:
            if read.path[0] in place.broken:
                continue
            entity, view = place.views.get(read.path[0], (None, None))
            text = ".".join((*read.path, read.field))
            if entity is None or view is None:
                self.add(path, f"looks at {text}, and no step before shows {read.path[0]!r}")
            elif len(read.path) > 1 or entity.fields[read.field] not in view_fields(entity, view):
                self.add(path, f"looks at {text}, which the step that shows {read.path[0]!r} does not show")

    # ---- steps ----------------------------------------------------------------------------------------------------------------

    def _look(self, spec: form.GetStep, place: _Place, path: str) -> Look | None:
        entity = self.kinds.get(spec.get)
        if spec.get in place.broken:
            return None
        if not isinstance(entity, Entity):
            place.broken |= {slot for slot, of in self.kinds.items() if isinstance(of, Entity)}
            rows = [slot for slot, of in self.kinds.items() if isinstance(of, Entity)]
            self.add(f"{path}.get", f"no slot {spec.get!r} that names a row; {nearest(spec.get, rows)}")
            return None
        if "get" not in entity.spec.tools:
            self.add(f"{path}.get", f"{entity.name} has no `get` tool")
            return None
        place.views[spec.get] = entity, "get"
        return Look(spec.get, entity)

    def _row(self, entity: Entity, name: str | None, view: View, place: _Place, path: str) -> str:
        row = name or entity.name
        if row in place.types:
            self.add(path, f"{row!r} is there already; call it something else with `as`")
            place.broken.add(entity.name)
            return row
        place.types[row] = Type("ref", entity.name)
        place.views[row] = entity, view
        return row

    def _entity(self, name: str, place: _Place, path: str) -> Entity | None:
        entity = self.domain.entities.get(name)
        if entity is None:
            place.broken |= set(self.domain.entities)
            self.add(path, f"no entity {name!r}; {nearest(name, self.domain.entities)}")
        return entity

    def _list_step(self, spec: form.ListStep, place: _Place, path: str) -> Owned | None:
        entity = self._entity(spec.list, place, f"{path}.list")
        if entity is None:
            return None
        owner = next(iter(entity.owners()), None)
        if owner is None or owner.place < 0:
            place.broken |= set(self.domain.entities)
            self.add(f"{path}.list", f"rows of {entity.name} belong to nobody; make a reference `owned`")
            return None
        of = self._argument(spec.of, place, owner.type, f"{path}.of")
        where = []
        for name, text in spec.where.items():
            each = entity.fields.get(name)
            if each is None or each not in view_fields(entity, "list"):
                self.add(
                    f"{path}.where.{name}",
                    f"its list shows no {name!r}; {nearest(name, [one.name for one in view_fields(entity, 'list')])}",
                )
                continue
            given = self._argument(text, place, each.type, f"{path}.where.{name}")
            where += [] if given is None else [(each, given)]
        row = self._row(entity, spec.row, "list", place, f"{path}.list")
        return None if of is None else Owned(row, entity, owner, of, tuple(where))

    def _search_step(self, spec: form.SearchStep, place: _Place, path: str) -> Found | None:
        entity = self._entity(spec.search, place, f"{path}.search")
        if entity is None:
            return None
        orders = sorts(entity)
        if "search" not in entity.spec.tools or not orders:
            place.broken |= set(self.domain.entities)
            self.add(f"{path}.search", f"{entity.name} has no search with an order; give it `search`, and a field `low` or `high`")
            return None
        filters = {filter_name(each): each for each in entity.fields.values() if each.filter != "none"}
        where: dict[str, tuple[Field, Given]] = {}
        for name, text in spec.where.items():
            if name not in filters:
                self.add(f"{path}.where.{name}", f"no filter {name!r}; {nearest(name, filters)}")
                continue
            given = self._argument(text, place, filters[name].type, f"{path}.where.{name}")
            if given is not None:
                where[name] = filters[name], given
        needed = entity.spec.tools.search.needs if entity.spec.tools.search is not None else ()
        for name in needed:
            if name not in spec.where:
                self.add(f"{path}.where", f"the search needs {name!r}")
        sort = self._argument(spec.sort, place, Type("choice", values=frozenset(orders)), f"{path}.sort")
        row = self._row(entity, spec.row, "search", place, f"{path}.search")
        return None if sort is None else Found(row, entity, where, sort)

    def _do_step(self, spec: form.DoStep, place: _Place, path: str) -> Deed | None:
        act = self.domain.acts.get(spec.do)
        if act is None:
            self.add(f"{path}.do", f"no action {spec.do!r}; {nearest(spec.do, self.domain.acts)}")
            return None
        for name in spec.given:
            if name not in act.params:
                self.add(f"{path}.with.{name}", f"no parameter {name!r} of {act.name}; {nearest(name, act.params)}")
        given: dict[str, Given] = {}
        for name, param in act.params.items():
            text = spec.given.get(name, name if name in place.types and not (param.is_either and spec.given) else None)
            if text is None:
                if param.is_required and name not in place.broken:
                    self.add(path, f"{act.name} needs {name!r}, and nothing here is called so; give it under `with`")
                continue
            value = self._argument(text, place, param.type, f"{path}.with.{name}")
            if value is not None:
                given[name] = value
        for names in act.either.values():
            if sum(name in given for name in names) != 1:
                self.add(path, f"{act.name} takes one of {', '.join(names)}; give one under `with`")
        place.done.add(act.name)
        return Deed(act, given, spec.words)

    def _telling(self, spec: form.TellStep, place: _Place, path: str) -> Telling | None:
        if spec.condition is not None:
            kind = self.kinds.get(spec.condition)
            if not (isinstance(kind, Kind) and kind.is_mark):
                marks = [slot for slot, of in self.kinds.items() if isinstance(of, Kind) and of.is_mark]
                self.add(f"{path}.if", f"no mark {spec.condition!r} among the slots; {nearest(spec.condition, marks)}")
        row, _, name = spec.tell.partition(".")
        if row in place.done and row not in place.types:
            tells = self.domain.spec.actions[row].tells
            if name not in tells or tells[name].unit is None:
                fitting = [f"{row}.{each}" for each, field in tells.items() if field.unit is not None]
                self.add(f"{path}.tell", f"{row} tells no number {name!r} with a unit; {nearest(spec.tell, fitting)}")
                return None
            return Telling(spec, row, name, unit=str(tells[name].unit))
        value = self._compile(spec.tell, place, None, f"{path}.tell")
        if value is None:
            return None
        self._is_shown(value, place, f"{path}.tell")
        if value.type.kind == "flag":
            self.add(f"{path}.tell", "is yes or no, which anybody guesses; tell something else")
        entity = self.domain.entities.get(place.types[row].entity)
        return None if entity is None else Telling(spec, row, name, value, entity.fields[name])

    def _answering(self, spec: form.AnswerStep, step: Step, path: str) -> Answering | None:
        kind = self.kinds.get(spec.answer)
        if not (isinstance(kind, Kind) and kind.type.kind == "choice"):
            self.add(f"{path}.answer", f"no slot {spec.answer!r} of a choice")
            return None
        for name in sorted(set(kind.words) ^ set(step.answers)):
            self.add(f"{path}.from.{name}", "is missing" if name in kind.words else f"no value of {kind.name}; {nearest(name, kind.words)}")
        return Answering(spec.answer, step.answers)
