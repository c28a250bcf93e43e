"""Intents that a spec defines itself, by steps (`resolved_steps.py`).

One idea: one walk through the steps, in a copy of the state, does everything. It makes the call of each step, computes what the call shows
and changes, collects plan, evidence and answer, and stops with `Unsolvable` where the request does not fit. Slots are drawn by proposing
rows for the steps that find them, and walking.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from storage.records import JSON, Fact, Given, Language
from synth.text.slot_kinds import Date, Quantity, SlotKind, Vocabulary
from synth.worlds.base import Solution, Unsolvable, misfit
from synth.worlds.declarative.acting import defaults_of, find_error, perform, result_values
from synth.worlds.declarative.domain import Domain, Entity, Field, Row, json_value
from synth.worlds.declarative.intents.base import (
    PlanDraft,
    Slots,
    SpecIntent,
    Step,
    answer_fact,
    answer_text,
    any_value,
    clock_kind,
    field_fact,
    id_kind,
    make_slot,
    merge_given,
    pair_fact,
    quantity_text,
    unit_of,
    usual_values,
    words_kind,
)
from synth.worlds.declarative.intents.refusal_intents import answer_kind
from synth.worlds.declarative.intents.request_templates import fill, reply
from synth.worlds.declarative.intents.row_references import filter_value, has_open_name
from synth.worlds.declarative.language import job_schema as form
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.expression_types import Compiled
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
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import LIST_LIMIT, Search, get_name, list_name, search_name, value_of

_TRIES, _TRIES_GIVEN = 24, 6
"""Proposals before a draw gives up: fewer with given slots, because these may not fit the state, and another seed is the better try."""
_ROWS = 40
"""Rows drawn at random before all rows are searched for one that passes."""
_DEFAULT_ANSWER = Words(en="It is {value}.", zh="是{value}。")

Test = Callable[[State, Mapping[str, Any]], bool]
RowStep = GetRow | ListRow | SearchRow
"""A step that finds a row."""


class ScriptedIntent(SpecIntent):
    """An intent that the spec defines by steps."""

    def __init__(self, domain: Domain, job: ResolvedJob) -> None:
        self.job = job
        slots = []
        for name, kind in job.kinds.items():
            named_kind = id_kind(domain, kind) if isinstance(kind, Entity) else (kind.name, _slot_kind(domain, kind))
            names_one = isinstance(kind, Entity) or (isinstance(named_kind[1], Vocabulary) and named_kind[1].is_open)
            slots.append(make_slot(name, named_kind, is_required=name not in job.spec.optional, is_entity=names_one))
        super().__init__(domain, job.name, "", slots)
        self.leaf = f"{domain.name}.{job.spec.leaf}"
        job_branches = branches(job.steps)
        self._first_branch = job_branches[0]
        every = list({id(step): step for branch in job_branches for step in branch}.values())
        self.refusal = next((step.reason for step in every if isinstance(step, Refuse)), None)
        self.needs_no_tool = all(isinstance(step, AnswerQuestion) for step in every)
        self.acts = frozenset(step.act.name for step in every if isinstance(step, DoAction))
        self.searches = {step.entity.name: Search(domain, step.entity) for step in every if isinstance(step, SearchRow)}
        self.rows = {name: kind.name for name, kind in job.kinds.items() if isinstance(kind, Entity)}
        """The entity of every row that an expression can name."""
        self.rows.update({step.row: step.entity.name for step in every if isinstance(step, (ListRow, SearchRow))})
        self._row_steps = [step for step in every if isinstance(step, RowStep)]
        self._marks = {step.spec.condition for step in every if isinstance(step, TellValue)}
        self._switches = [name for name, kind in job.kinds.items() if isinstance(kind, Kind) and kind.is_mark]
        self._tests = self._tests_by_row()
        self.steps = self._plan_of_first_cases()

    def _plan_of_first_cases(self) -> list[Step]:
        """The calls of the plan in which every choice takes its first case, each with the earlier calls whose rows it uses."""
        steps: list[Step] = []
        rows: dict[str, int] = {}
        for step in self._first_branch:
            if isinstance(step, (GetRow, ListRow, SearchRow, DoAction)):
                tool, arguments = _call(step)
                parents = {rows[name] for each in arguments for name in each.value.names if name in rows}
                if not isinstance(step, DoAction):
                    rows[step.row] = len(steps)
                steps.append(Step(tool, tuple(sorted(parents))))
        return steps

    def constraints(self, slot_names: frozenset[str]) -> int:
        return sum(slot.name in slot_names and not slot.is_entity and slot.name not in self._marks for slot in self.slots)

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        """Whether a search has a bound and an order: the best row within the bound."""
        return any(
            step.sort is not None
            and bool(step.sort.value.names & slot_names)
            and any(field.filter in ("max", "min") and argument.slot in slot_names for field, argument in step.where.values())
            for step in self._first_branch
            if isinstance(step, SearchRow)
        )

    def templates(self, language: Language) -> list[str]:
        return [each[language] for each in self.job.spec.says]

    # ---- planning -------------------------------------------------------------------------------------------------------------

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        return _Walk(self, state, slots, language).solution()

    def expression_values(self, slots: Slots) -> dict[str, Any]:
        """The slots as expressions use them: a mark is a boolean."""
        return {name: slots[name] for name in self.job.kinds if name in slots} | {name: name in slots for name in self._switches}

    def given(self, slots: Slots) -> Given:
        """The rows that its searches without an order look for, and those whose name a slot has."""
        searches = [step for step in self._row_steps if isinstance(step, SearchRow)]
        return merge_given(
            {step.entity.name: [description]}
            for step in searches
            if (description := self._description(step, slots)) and (step.sort is None or _names_a_row(step, description))
        )

    def _description(self, step: SearchRow, slots: Slots) -> dict[str, JSON]:
        """The filters that slots alone give."""
        values = self.expression_values(slots)
        return {name: values[argument.slot] for name, (_, argument) in step.where.items() if argument.slot in slots}

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _ in range(_TRIES_GIVEN if given else _TRIES):
            slots = self._propose_slots(state, slot_names, given, rng)
            with suppress(Unsolvable):
                self.plan(state, slots, "en")
                return slots
        return None

    def _propose_slots(self, state: State, names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON]:
        slots: dict[str, JSON] = {name: value for name, value in given.items() if name in names}
        rows: dict[str, str] = {}
        for step in self._row_steps:
            if step.row not in rows:
                self._propose_row(step, state, names, slots, rows, rng)
        for slot in self.slots:
            if slot.name in names and slot.name not in slots:
                slots[slot.name] = any_value(self.kinds[slot.kind], rng)
        return {slot.name: slots[slot.name] for slot in self.slots if slot.name in names}

    def _propose_row(
        self, step: RowStep, state: State, names: frozenset[str], slots: dict[str, JSON], rows: dict[str, str], rng: random.Random
    ) -> None:
        """Adds a row for a step, and the slots that name it."""
        if isinstance(step, GetRow) and step.row in slots:
            rows[step.row] = slots[step.row]
            return
        values = self._row_values(step, state, {**self.expression_values(slots), **rows}, slots)
        key = _any_row(state, step.entity, values, self._tests.get(step.row, ()), step.row, rng)
        if key is None:
            return
        rows[step.row] = key
        row = state.row(step.entity.number, key)
        for field, argument in _nameable_fields(step):
            if argument.slot in names:
                slots.setdefault(argument.slot, value_of(state, row, field))
        for field, argument in _bounds(step):
            bound = filter_value(state, row, field, rng) if argument.slot in names else None
            if bound is not None:
                slots.setdefault(argument.slot, bound)
        if isinstance(step, GetRow):
            slots[step.row] = key

    def _row_values(self, step: RowStep, state: State, values: Mapping[str, Any], slots: Slots) -> list[tuple[Field, Any]]:
        """The values of a row's fields that the slots, or rows found before, give."""
        return [
            (field, argument.value.run(state, values))
            for field, argument in _nameable_fields(step)
            if (argument.slot in slots if argument.slot else argument.value.names <= set(values))
        ]

    def _tests_by_row(self) -> Mapping[str, list[Test]]:
        """Tests of one row alone: `fits` steps, and choices of which one case must hold."""
        by_name: dict[str, list[Test]] = {}
        for step in self.job.steps:
            tests = [step.test] if isinstance(step, Require) else [test for test, _ in step.cases] if isinstance(step, Choose) else []
            names = {name for test in tests for name in test.names}
            if len(names) == 1:
                by_name.setdefault(names.pop(), []).append(_any_holds(tests))
        return by_name


class _Walk:
    """One walk through the steps of an intent, in a copy of the state."""

    def __init__(self, intent: ScriptedIntent, state: State, slots: Slots, language: Language) -> None:
        self.intent, self.slots, self.language, self.domain = intent, slots, language, intent.spec_domain
        self.before = state.changes()
        self.state = State(state.base)
        self.state.restore(state.snapshot())
        self.draft = PlanDraft(self.domain, self.state)
        self.values = intent.expression_values(slots)
        self.answers: list[str] = []
        self.facts: list[Fact] = []
        self.listed_beside: dict[str, list[str]] = {}
        """By row, ids of the other rows in its list."""
        self.candidates: dict[str, list[tuple[str, Any]]] = {}
        """By row, all rows that pass its search without the bounds."""
        self.equals: dict[str, tuple[str, ...]] = {}
        """By row, ids of the other rows that its search without an order found too."""
        self.told: set[str] = set()
        """Rows of which a value is told."""
        self.results: dict[str, dict[str, JSON]] = {}
        """By action, the result of its tool."""

    def solution(self) -> Solution:
        self._run(self.intent.job.steps)
        changes = {path: value for path, value in self.state.changes().items() if self.before.get(path) != value}
        values = [each.value for each in self.facts]
        if len(set(values)) < len(values):
            raise misfit("two questions have one answer")
        facts = tuple(
            each.model_copy(update={"rivals": tuple(rival for rival in each.rivals if rival not in values)}) for each in self.facts
        )
        answer = (" " if self.language == "en" else "").join(self.answers)
        return self.draft.solution(answer, changes=changes, facts=facts, refusal=self.intent.refusal)

    def _run(self, steps: Sequence[ResolvedStep]) -> None:
        for step in steps:
            match step:
                case GetRow():
                    if not self.state.has(step.entity.number, self.slots[step.row]):
                        raise misfit("no such row")
                    self.draft.add_call(get_name(step.entity), **{step.entity.name: self.slots[step.row]})
                case ListRow():
                    self._find_owned(step)
                case SearchRow():
                    self._search(step)
                case DoAction():
                    self._act(step)
                case Choose():
                    self._choose(step)
                case Require():
                    if not step.test.run(self.state, self.values):
                        raise misfit(f"not so: {step.test.text}")
                case TellValue():
                    self._tell(step)
                case Refuse():
                    self.answers.append(step.words[self.language])
                case AnswerQuestion():
                    self._answer(step)

    def _value(self, argument: Argument) -> Any:
        return argument.value.run(self.state, self.values)

    def _is_given(self, argument: Argument) -> bool:
        return not argument.slot or argument.slot in self.slots

    def _find_owned(self, step: ListRow) -> None:
        owner, state = self._value(step.of), self.state
        listed = state.select(step.entity.number, ((step.owner.place, owner),))[:LIST_LIMIT]
        conditions = [(field, self._value(argument)) for field, argument in step.where if self._is_given(argument)]
        keys = [key for key, row in listed if all(value_of(state, row, field) == value for field, value in conditions)]
        if len(keys) != 1:
            raise misfit("not exactly one of that kind")
        self.draft.add_call(list_name(step.entity, step.owner), **{step.owner.name: owner})
        self.values[step.row] = keys[0]
        self.listed_beside[step.row] = [key for key, _ in listed if key != keys[0]]

    def _search(self, step: SearchRow) -> None:
        search, state = self.intent.searches[step.entity.name], self.state
        fields = {name: field for name, (field, _) in step.where.items()}
        filters = {name: self._value(argument) for name, (_, argument) in step.where.items() if self._is_given(argument)}
        order = {"sort": self._value(step.sort)} if step.sort is not None else {}
        rows = search.find(state, filters | order)
        if not rows:
            raise misfit("nothing fits")
        if not order:
            self.equals[step.row] = tuple(key for key, _ in rows[1:])
        else:
            _require_single_best(state, search, rows, order["sort"])
        arguments = {name: json_value(self.domain, fields[name].type.kind, value) for name, value in filters.items()}
        self.draft.add_call(search_name(step.entity), **(arguments | order))
        self.values[step.row] = rows[0][0]
        kinds = {name: value for name, value in filters.items() if fields[name].type.kind in ("choice", "name", "ref")}
        self.candidates[step.row] = search.find(state, kinds)

    def _act(self, step: DoAction) -> None:
        act = step.act
        for argument in step.given.values():
            self._require_one(argument.value)
        given = {name: self._value(argument) for name, argument in step.given.items() if self._is_given(argument)}
        values = defaults_of(act) | given
        problem = find_error(self.domain, act, self.state, values)
        if problem is not None:
            raise misfit(problem)
        self.draft.add_call(act.name, **{name: json_value(self.domain, act.params[name].type.kind, value) for name, value in given.items()})
        perform(self.domain, act, self.state, values)
        self.results[act.name] = result_values(self.domain, act, self.state, values)
        self.answers.append(reply(self.domain, act, values, self.language, step.words))

    def _choose(self, step: Choose) -> None:
        for test, steps in step.cases:
            self._require_reads(test)
            if test.run(self.state, self.values):
                self._run(steps)
                return
        raise misfit("no case holds")

    def _require_reads(self, value: Compiled) -> None:
        """Adds what an expression reads to the evidence."""
        for read in value.reads:
            key = self.values[read.path[0]]
            entity = self.domain.entities[self.intent.rows[read.path[0]]]
            field = entity.fields[read.field]
            shown = shown_value(self.domain, field, value_of(self.state, self.state.row(entity.number, key), field))
            self.draft.evidence += [pair_fact(f'"{self.domain.id_key(entity)}"', f'"{key}"'), field_fact(field.name, shown)]

    def _require_one(self, value: Compiled) -> None:
        """Raises Unsolvable if a value is that of a row beside which others fit as well."""
        if any(self.equals.get(name) for name in value.names):
            raise misfit("more than one fits")

    def _tell(self, step: TellValue) -> None:
        if step.spec.condition is not None and not self.values[step.spec.condition]:
            return
        if step.of is None or step.value is None:
            value = self.results[step.row][step.name]
            is_price = step.unit == self.domain.spec.head.currency
            self.facts.append(Fact(kind="price" if is_price else "number", value=str(value)))
            text = quantity_text(step.unit, value, self.language)
        else:
            self._require_reads(step.value)
            value = step.value.run(self.state, self.values)
            if step.of.type.kind != "name" or step.row in self.told:
                self._require_one(step.value)
            self.told.add(step.row)
            others = [value_of(self.state, row, step.of) for key, row in self.candidates.get(step.row, ()) if key != self.values[step.row]]
            fact = answer_fact(self.domain, step.of, value, others)
            also_right = self._names_of_equals(step.row, step.of)
            rivals = tuple(each for each in (*fact.rivals, *self.listed_beside.get(step.row, ())) if each not in also_right)
            self.facts.append(fact.model_copy(update={"rivals": rivals, "alternatives": (*fact.alternatives, *also_right)}))
            text = answer_text(self.domain, step.of, value, self.language)
        self.answers.append(fill(step.spec.words or _DEFAULT_ANSWER, {**self.values, "value": text}, self.language))

    def _names_of_equals(self, row: str, of: Field) -> tuple[str, ...]:
        """The names of the rows that fit as well: an answer may state one of these instead."""
        entity = self.domain.entities[self.intent.rows[row]]
        values = (value_of(self.state, self.state.row(entity.number, key), of) for key in self.equals.get(row, ()))
        return tuple(dict.fromkeys(name for value in values for name in (value, of.words[value].zh)))

    def _answer(self, step: AnswerQuestion) -> None:
        answer = step.answers[self.slots[step.slot]]
        rivals = tuple(dict.fromkeys(other.value for other in step.answers.values() if other.value != answer.value))
        is_price = f"{answer.value} {self.domain.spec.head.currency}" in answer.words.en
        self.facts.append(Fact(kind="price" if is_price else answer_kind(answer.value), value=answer.value, rivals=rivals))
        self.answers.append(answer.words[self.language])


# ---- parts --------------------------------------------------------------------------------------------------------------------------


def _require_single_best(state: State, search: Search, rows: Sequence[tuple[str, Row]], order: str) -> None:
    if len(rows) <= search.spec.limit:
        raise misfit("too few to choose among: looking from the wrong end would show it as well")
    ranked_by = search.orders[order][0]
    if value_of(state, rows[0][1], ranked_by) == value_of(state, rows[1][1], ranked_by):
        raise misfit("no single best")


def _slot_kind(domain: Domain, kind: Kind) -> SlotKind:
    spec = kind.spec
    if isinstance(spec, (form.ChoiceKind, form.MarkKind)):
        return words_kind(kind.name, kind.words)[1]
    if isinstance(spec, form.DateKind):
        return Date(spec.last, domain.today)
    if isinstance(spec, form.TimeKind):
        return clock_kind(spec.first, spec.last, spec.step)
    is_whole = not isinstance(spec, schema.NumberParam)
    usual = tuple(int(value) if is_whole else value for value in spec.usual)
    return Quantity(unit_of(domain, spec), spec.min, spec.max, usual or usual_values(spec))


def _any_row(
    state: State, entity: Entity, values: Sequence[tuple[Field, Any]], tests: Sequence[Test], name: str, rng: random.Random
) -> str | None:
    """A row with these values of fields that passes all tests, each with the same probability; None if there is none."""
    stored = [(field.place, value) for field, value in values if field.derived is None]
    among = frozenset(state.base_keys(entity.number, stored)) if stored else entity.known_ids
    tests = [*(_has_value(entity, field, value, name) for field, value in values if field.derived is not None), *tests]
    for _ in range(_ROWS):
        key = rng.choice(entity.ids)
        if key in among and all(test(state, {name: key}) for test in tests):
            return key
    fitting = [key for key in entity.ids if key in among and all(test(state, {name: key}) for test in tests)]
    return rng.choice(fitting) if fitting else None


def _has_value(entity: Entity, field: Field, value: Any, name: str) -> Test:
    return lambda state, names: bool(value_of(state, state.row(entity.number, names[name]), field) == value)


def _any_holds(tests: Sequence[Compiled]) -> Test:
    return lambda state, names: any(test.run(state, names) for test in tests)


def _nameable_fields(step: RowStep) -> Iterator[tuple[Field, Argument]]:
    """The fields by which slots can name the row of a step; none if a slot holds the row's id."""
    if isinstance(step, ListRow):
        yield step.owner, step.of
        yield from step.where
    elif isinstance(step, SearchRow):
        yield from ((field, argument) for field, argument in step.where.values() if field.filter == "equal" and field.type.kind != "flag")


def _names_a_row(step: SearchRow, description: Mapping[str, JSON]) -> bool:
    return any(has_open_name(step.where[name][0]) for name in description)


def _bounds(step: RowStep) -> Iterator[tuple[Field, Argument]]:
    """The bounds of a search for the only row that fits."""
    if isinstance(step, SearchRow) and step.sort is None:
        yield from ((field, argument) for field, argument in step.where.values() if field.filter in ("max", "min"))


def _call(step: RowStep | DoAction) -> tuple[str, list[Argument]]:
    """The tool that a step calls, and its arguments."""
    match step:
        case GetRow():
            return get_name(step.entity), []
        case ListRow():
            return list_name(step.entity, step.owner), [step.of]
        case SearchRow():
            return search_name(step.entity), [argument for _, argument in step.where.values()]
        case DoAction():
            return step.act.name, [*step.given.values()]
