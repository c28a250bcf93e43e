"""Resolves a spec's own jobs: slots with their kinds; steps with rows, actions and expressions.

One idea: each step adds its rows to the names of the next ones, and may only use what earlier steps showed. So no job needs a value that no
tool gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from synth.text.refusals import REFUSALS, refusal_reasons
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.language import job_schema
from synth.worlds.declarative.language.expression_types import FLAG, PLAIN_TYPES, Compiled, Type
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.read import Job, Step
from synth.worlds.declarative.language.resolved_steps import (
    AnswerQuestion,
    Argument,
    Choose,
    DoAction,
    GetRow,
    Kind,
    ListRow,
    Refuse,
    Require,
    ResolvedJob,
    ResolvedStep,
    SearchRow,
    TellValue,
    branches,
)
from synth.worlds.declarative.language.scopes import JobScope, SpecContext
from synth.worlds.declarative.tools import View, search_orders, view_fields


@dataclass(slots=True)
class _StepContext:
    """What is known before a step.

    types: by name.
    views: by row, its entity and the tool that showed it.
    called: actions that earlier steps called.
    broken: names that have a reported problem.
    """

    types: dict[str, Type]
    views: dict[str, tuple[Entity, View]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def copy(self) -> _StepContext:
        return _StepContext({**self.types}, {**self.views}, {*self.called}, {*self.broken})


class JobResolver:
    """Resolves the jobs of a spec."""

    def __init__(self, domain: Domain, context: SpecContext) -> None:
        self.domain, self.context, self.add = domain, context, context.add
        self.kinds = {name: kind for name, spec in domain.spec.kinds.items() if (kind := self._kind(name, spec)) is not None}
        self.used_procedures: set[str] = set()

    def resolve_all(self) -> tuple[ResolvedJob, ...]:
        jobs = tuple(self._job(name, job) for name, job in self.domain.spec.intents.items())
        for name in self.domain.spec.procedures:
            if name not in self.used_procedures:
                self.add(f"procedures.{name}", "no intent runs it; leave it out, or `run` it")
        return jobs

    # ---- slots ----------------------------------------------------------------------------------------------------------------

    def _kind(self, name: str, spec: job_schema.KindSpec) -> Kind | None:
        path = f"kinds.{name}"
        if name in self.domain.entities:
            self.add(path, "is the name of an entity, whose rows are a kind already; take another name")
        if isinstance(spec, job_schema.MarkKind):
            return Kind(name, spec, FLAG, {name: spec.words})
        if isinstance(spec, job_schema.ChoiceKind):
            if spec.like is None:
                return Kind(name, spec, Type("choice", values=frozenset(spec.values)), spec.values)
            candidates = {
                f"{entity.name}.{field.name}": field
                for entity in self.domain.by_number
                for field in entity.fields.values()
                if field.type.kind in ("choice", "name")
            }
            similar = candidates.get(spec.like)
            if similar is None:
                self.add(f"{path}.like", f"no choice or name {spec.like!r}; {nearest(spec.like, candidates)}")
                return None
            return Kind(name, spec, similar.type, similar.words)
        return Kind(name, spec, PLAIN_TYPES[spec.type], {})

    def _job(self, name: str, job: Job) -> ResolvedJob:
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
        steps = _StepResolver(self, spec, kinds).resolve_steps(
            job.steps, _StepContext(types, broken=set(spec.slots) - set(types)), f"{path}.steps", ()
        )
        self._check_branches(steps, path)
        return ResolvedJob(name, spec, kinds, steps)

    def _check_branches(self, steps: Sequence[ResolvedStep], path: str) -> None:
        """Checks that every branch has a result, and that either none refuses or all do, for one reason and as their last step."""
        ways = branches(steps)
        if not all(any(isinstance(step, (DoAction, TellValue, Refuse, AnswerQuestion)) for step in way) for way in ways):
            self.add(path, "comes to nothing; let it `do`, `tell`, `answer` or `refuse` something in every case")
        reasons = {next((step.reason for step in way if isinstance(step, Refuse)), None) for way in ways}
        if len(reasons) > 1:
            self.add(path, "refuses in some cases only, or for several reasons; make an intent of each")
        if any(isinstance(step, (Refuse, AnswerQuestion)) for way in ways for step in way[:-1]):
            self.add(path, "`refuse` and `answer` are last steps")


class _StepResolver:
    """Resolves the steps of one job."""

    def __init__(self, jobs: JobResolver, spec: job_schema.IntentSpec, kinds: Mapping[str, Kind | Entity]) -> None:
        self.jobs, self.kinds, self.domain, self.context, self.add = jobs, kinds, jobs.domain, jobs.context, jobs.add
        marks = {slot for slot, kind in kinds.items() if isinstance(kind, Kind) and kind.is_mark}
        self.optional = frozenset(spec.optional) - marks

    def resolve_steps(self, steps: Sequence[Step], place: _StepContext, path: str, running: tuple[str, ...]) -> tuple[ResolvedStep, ...]:
        resolved_steps: list[ResolvedStep] = []
        for at, step in enumerate(steps):
            where = f"{path}[{at}]"
            if isinstance(step.spec, job_schema.RunStep):
                resolved_steps += self._procedure(step.spec.run, place, where, running)
                continue
            one = self._step(step, place, where, running)
            if one is not None:
                resolved_steps.append(one)
        return tuple(resolved_steps)

    def _procedure(self, name: str, place: _StepContext, path: str, running: tuple[str, ...]) -> tuple[ResolvedStep, ...]:
        procedures = self.domain.spec.procedures
        if name not in procedures or name in running:
            problem = f"no procedure {name!r}; {nearest(name, procedures)}" if name not in procedures else f"{name!r} runs itself"
            self.add(f"{path}.run", problem)
            return ()
        self.jobs.used_procedures.add(name)
        return self.resolve_steps(procedures[name], place, f"procedures.{name}", (*running, name))

    def _step(self, step: Step, place: _StepContext, path: str, running: tuple[str, ...]) -> ResolvedStep | None:
        spec = step.spec
        if isinstance(spec, job_schema.GetStep):
            return self._get_step(spec, place, path)
        if isinstance(spec, job_schema.ListStep):
            return self._list_step(spec, place, path)
        if isinstance(spec, job_schema.SearchStep):
            return self._search_step(spec, place, path)
        if isinstance(spec, job_schema.DoStep):
            return self._do_step(spec, place, path)
        if isinstance(spec, job_schema.ChooseStep):
            return self._choose_step(step, place, path, running)
        if isinstance(spec, job_schema.FitsStep):
            test = self._compile(spec.fits, place, FLAG, f"{path}.fits")
            return None if test is None else Require(test)
        if isinstance(spec, job_schema.TellStep):
            return self._tell_step(spec, place, path)
        if isinstance(spec, job_schema.RefuseStep):
            languages = self.domain.languages
            for language in languages:
                if refusal_reasons(spec.words[language]) != {spec.refuse}:
                    usual = REFUSALS[spec.refuse][language]
                    where = f"{path}.words" + (f".{language}" if len(languages) > 1 else "")
                    self.add(where, f"does not name {spec.refuse.value!r} as the reason; say so, as: {usual}")
            return Refuse(spec.refuse, spec.words)
        assert isinstance(spec, job_schema.AnswerStep)
        return self._answer_step(spec, step, path)

    def _choose_step(self, step: Step, place: _StepContext, path: str, running: tuple[str, ...]) -> Choose:
        cases = []
        for at, (case, steps) in enumerate(step.cases):
            where = f"{path}.choose[{at}]"
            test = self._compile(case.condition, place, FLAG, f"{where}.if")
            self._check_shown(test, place, f"{where}.if")
            case_steps = self.resolve_steps(steps, place.copy(), f"{where}.steps", running)
            if test is not None:
                cases.append((test, case_steps))
        return Choose(tuple(cases))

    # ---- expressions ----------------------------------------------------------------------------------------------------------

    def _compile(self, text: str, place: _StepContext, expect: Type | None, path: str) -> Compiled | None:
        return self.context.compile(text, JobScope(self.context, place.types, self.optional, place.broken), expect, path)

    def _argument(self, text: str, place: _StepContext, expect: Type, path: str) -> Argument | None:
        """An argument; only here may an expression be a slot that a request can leave out."""
        slot = text.strip()
        is_slot = slot in self.kinds and slot in place.types
        scope = JobScope(self.context, place.types, self.optional - {slot} if is_slot else self.optional, place.broken)
        value = self.context.compile(text, scope, expect, path)
        self._check_shown(value, place, path)
        return None if value is None else Argument(value, slot if is_slot else "")

    def _check_shown(self, value: Compiled | None, place: _StepContext, path: str) -> None:
        """Checks that earlier steps showed all that an expression reads."""
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

    def _get_step(self, spec: job_schema.GetStep, place: _StepContext, path: str) -> GetRow | None:
        entity = self.kinds.get(spec.get)
        if spec.get in place.broken:
            return None
        if not isinstance(entity, Entity):
            rows = [slot for slot, of in self.kinds.items() if isinstance(of, Entity)]
            place.broken |= set(rows)
            self.add(f"{path}.get", f"no slot {spec.get!r} that names a row; {nearest(spec.get, rows)}")
            return None
        if "get" not in entity.spec.tools:
            self.add(f"{path}.get", f"{entity.name} has no `get` tool")
            return None
        place.views[spec.get] = entity, "get"
        return GetRow(spec.get, entity)

    def _add_row(self, entity: Entity, name: str | None, view: View, place: _StepContext, path: str) -> str:
        row = name or entity.name
        if row in place.types:
            self.add(path, f"{row!r} is there already; call it something else with `as`")
            place.broken.add(entity.name)
            return row
        place.types[row] = Type("ref", entity.name)
        place.views[row] = entity, view
        return row

    def _entity(self, name: str, place: _StepContext, path: str) -> Entity | None:
        entity = self.domain.entities.get(name)
        if entity is None:
            place.broken |= set(self.domain.entities)
            self.add(path, f"no entity {name!r}; {nearest(name, self.domain.entities)}")
        return entity

    def _list_step(self, spec: job_schema.ListStep, place: _StepContext, path: str) -> ListRow | None:
        entity = self._entity(spec.list, place, f"{path}.list")
        if entity is None:
            return None
        owner = next(iter(entity.owners()), None)
        if owner is None or owner.place < 0:
            place.broken |= set(self.domain.entities)
            self.add(f"{path}.list", f"rows of {entity.name} belong to nobody; make a reference `owned`")
            return None
        of = self._argument(spec.of, place, owner.type, f"{path}.of")
        shown_fields = {each.name: each for each in view_fields(entity, "list")}
        where = []
        for name, text in spec.where.items():
            each = shown_fields.get(name)
            if each is None:
                self.add(f"{path}.where.{name}", f"its list shows no {name!r}; {nearest(name, shown_fields)}")
                continue
            argument = self._argument(text, place, each.type, f"{path}.where.{name}")
            if argument is not None:
                where.append((each, argument))
        row = self._add_row(entity, spec.row, "list", place, f"{path}.list")
        return None if of is None else ListRow(row, entity, owner, of, tuple(where))

    def _search_step(self, spec: job_schema.SearchStep, place: _StepContext, path: str) -> SearchRow | None:
        entity = self._entity(spec.search, place, f"{path}.search")
        if entity is None:
            return None
        orders = search_orders(entity)
        if "search" not in entity.spec.tools or (spec.sort is not None and not orders):
            place.broken |= set(self.domain.entities)
            self.add(f"{path}.search", f"{entity.name} has no search with an order; give it `search`, and a field `low` or `high`")
            return None
        filters = {filter_name(each): each for each in entity.filters()}
        where: dict[str, tuple[Field, Argument]] = {}
        for name, text in spec.where.items():
            if name not in filters:
                self.add(f"{path}.where.{name}", f"no filter {name!r}; {nearest(name, filters)}")
                continue
            argument = self._argument(text, place, filters[name].type, f"{path}.where.{name}")
            if argument is not None:
                where[name] = filters[name], argument
        for name in entity.spec.tools.search.needs if entity.spec.tools.search is not None else ():
            if name not in spec.where:
                self.add(f"{path}.where", f"the search needs {name!r}")
        sort = self._argument(spec.sort, place, Type("choice", values=frozenset(orders)), f"{path}.sort") if spec.sort is not None else None
        row = self._add_row(entity, spec.row, "search", place, f"{path}.search")
        return None if sort is None and spec.sort is not None else SearchRow(row, entity, where, sort)

    def _do_step(self, spec: job_schema.DoStep, place: _StepContext, path: str) -> DoAction | None:
        act = self.domain.acts.get(spec.do)
        if act is None:
            self.add(f"{path}.do", f"no action {spec.do!r}; {nearest(spec.do, self.domain.acts)}")
            return None
        for name in spec.given:
            if name not in act.params:
                self.add(f"{path}.with.{name}", f"no parameter {name!r} of {act.name}; {nearest(name, act.params)}")
        arguments: dict[str, Argument] = {}
        for name, param in act.params.items():
            text = spec.given.get(name, name if name in place.types and not (param.is_either and spec.given) else None)
            if text is None:
                if param.is_required and name not in place.broken:
                    self.add(path, f"{act.name} needs {name!r}, and nothing here is called so; give it under `with`")
                continue
            value = self._argument(text, place, param.type, f"{path}.with.{name}")
            if value is not None:
                arguments[name] = value
        for names in act.either.values():
            if sum(name in arguments for name in names) != 1:
                self.add(path, f"{act.name} takes one of {', '.join(names)}; give one under `with`")
        place.called.add(act.name)
        return DoAction(act, arguments, spec.words)

    def _tell_step(self, spec: job_schema.TellStep, place: _StepContext, path: str) -> TellValue | None:
        if spec.condition is not None:
            kind = self.kinds.get(spec.condition)
            if not (isinstance(kind, Kind) and kind.is_mark):
                marks = [slot for slot, of in self.kinds.items() if isinstance(of, Kind) and of.is_mark]
                self.add(f"{path}.if", f"no mark {spec.condition!r} among the slots; {nearest(spec.condition, marks)}")
        row, _, name = spec.tell.partition(".")
        if row in place.called and row not in place.types:
            tells = self.domain.spec.actions[row].tells
            if name not in tells or tells[name].unit is None:
                fitting = [f"{row}.{each}" for each, field in tells.items() if field.unit is not None]
                self.add(f"{path}.tell", f"{row} tells no number {name!r} with a unit; {nearest(spec.tell, fitting)}")
                return None
            return TellValue(spec, row, name, unit=str(tells[name].unit))
        value = self._compile(spec.tell, place, None, f"{path}.tell")
        if value is None:
            return None
        self._check_shown(value, place, f"{path}.tell")
        if value.type.kind == "flag":
            self.add(f"{path}.tell", "is yes or no, which anybody guesses; tell something else")
        entity = self.domain.entities.get(place.types[row].entity)
        return None if entity is None else TellValue(spec, row, name, value, entity.fields[name])

    def _answer_step(self, spec: job_schema.AnswerStep, step: Step, path: str) -> AnswerQuestion | None:
        kind = self.kinds.get(spec.answer)
        if not (isinstance(kind, Kind) and kind.type.kind == "choice"):
            self.add(f"{path}.answer", f"no slot {spec.answer!r} of a choice")
            return None
        for name in sorted(set(kind.words) ^ set(step.answers)):
            self.add(f"{path}.from.{name}", "is missing" if name in kind.words else f"no value of {kind.name}; {nearest(name, kind.words)}")
        return AnswerQuestion(spec.answer, step.answers)
