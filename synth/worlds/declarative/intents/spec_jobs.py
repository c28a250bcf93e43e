"""Jobs that a spec writes itself (`resolved_steps.py`): the steps are walked through in a copy of the world, and the plan, the evidence and
the answer are what they leave behind.

One idea: one walk does everything. It makes each call that a step stands for, works out what the call shows and changes, and stops with
`Unsolvable` where the request does not fit; slots are drawn by proposing rows for the steps that find them, and walking.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from storage.records import JSON, Fact, Language, Plan, Success
from synth.text.slot_kinds import Date, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds.base import Shape, Slot, Solution, Unsolvable
from synth.worlds.declarative.acting import defaults_of, failing, perform, tell_fields
from synth.worlds.declarative.domain import Domain, Entity, Field, outside
from synth.worlds.declarative.intents.base import Slots, SpecIntent, Work, answer_text, fact, grid, id_kind, misfit, pair_fact, piece
from synth.worlds.declarative.intents.refusal_intents import answer_kind
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
from synth.worlds.declarative.request_templates import fill, reply
from synth.worlds.declarative.state import State, clock_steps, shown_value
from synth.worlds.declarative.tools import LIST_LIMIT, Search, get_name, list_name, search_name, value_of

_TRIES, _TRIES_GIVEN = 24, 6
"""Proposals before a draw gives up: fewer where given slots may be what does not fit, since another seed is then the better try."""
_ROWS = 40
"""Rows drawn at random for one that suits, before all are looked through."""

Test = Callable[[State, Mapping[str, Any]], bool]


class Scripted(SpecIntent):
    """A job of the spec's own."""

    def __init__(self, domain: Domain, script: ResolvedJob) -> None:
        self.script = script
        slots: list[tuple[Slot, SlotKind]] = []
        for name, kind in script.kinds.items():
            is_required = name not in script.spec.optional
            if isinstance(kind, Entity):
                slots.append((Slot(name, kind.name, is_required, is_entity=True), id_kind(domain, kind)[1]))
            else:
                slots.append((Slot(name, kind.name, is_required), _slot_kind(domain, kind)))
        super().__init__(domain, script.name, "", slots)
        self.leaf = f"{domain.name}.{script.spec.leaf}"
        ways = self._ways = branches(script.steps)
        self.refusal = next((step.reason for way in ways for step in way if isinstance(step, Refuse)), None)
        self.needs_no_tool = all(isinstance(step, AnswerQuestion) for way in ways for step in way)
        self.acts: frozenset[str] = frozenset(step.act.name for way in ways for step in way if isinstance(step, DoAction))
        self.searches = {step.entity.name: Search(domain, step.entity) for way in ways for step in way if isinstance(step, SearchRow)}
        self.rows = {slot.name: slot.kind for slot in self.slots if slot.is_entity}
        """By name, the entity of every row that an expression can name."""
        self.rows.update({step.row: step.entity.name for way in ways for step in way if isinstance(step, (ListRow, SearchRow))})
        self._marks = frozenset(
            step.spec.condition for way in ways for step in way if isinstance(step, TellValue) and step.spec.condition is not None
        )

    # ---- what it is like ------------------------------------------------------------------------------------------------------

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return self._shape

    @cached_property
    def _shape(self) -> Shape:
        """The calls of the way through the first cases, each with the earlier ones whose rows it takes."""
        steps: list[tuple[str, tuple[int, ...]]] = []
        rows: dict[str, int] = {}
        for step in self._ways[0]:
            if isinstance(step, (GetRow, ListRow, SearchRow, DoAction)):
                parents = {rows[name] for each in _arguments(step) for name in each.value.names if name in rows}
                if not isinstance(step, DoAction):
                    rows[step.row] = len(steps)
                steps.append((_tool(step), tuple(sorted(parents))))
        return self.shape_of(steps)

    def constraints(self, slot_names: frozenset[str]) -> int:
        return sum(slot.name in slot_names and not slot.is_entity and slot.name not in self._marks for slot in self.slots)

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        """A bound beside an order: the best of those within it."""
        return any(
            bool(step.sort.value.names & slot_names)
            and any(of.filter in ("max", "min") and given.slot in slot_names for of, given in step.where.values())
            for step in self._ways[0]
            if isinstance(step, SearchRow)
        )

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        return {"en": [each.en for each in self.script.spec.says], "zh": [each.zh for each in self.script.spec.says]}

    # ---- planning -------------------------------------------------------------------------------------------------------------

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        return _Walk(self, state, slots, language).solution()

    def inside(self, slots: Slots) -> dict[str, Any]:
        """What slots are in expressions."""
        values: dict[str, Any] = {}
        for name, kind in self.script.kinds.items():
            is_mark = isinstance(kind, Kind) and kind.is_mark
            if name in slots:
                values[name] = True if is_mark else slots[name]
            elif is_mark:
                values[name] = False
        return values

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _ in range(_TRIES_GIVEN if given else _TRIES):
            slots = self._propose_slots(state, slot_names, given, rng)
            try:
                self.plan(state, slots, "en")
            except Unsolvable:
                continue
            return slots
        return None

    def _propose_slots(self, state: State, names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON]:
        slots: dict[str, JSON] = {name: value for name, value in given.items() if name in names}
        rows: dict[str, str] = {}
        for step in self._finding:
            if step.row not in rows:
                self._propose(step, state, names, slots, rows, rng)
        for slot in self.slots:
            if slot.name in names and slot.name not in slots:
                slots[slot.name] = _any_of(self.kinds[slot.kind], rng)
        return {slot.name: slots[slot.name] for slot in self.slots if slot.name in names}

    @cached_property
    def _finding(self) -> tuple[GetRow | ListRow | SearchRow, ...]:
        """The steps that find rows, each once."""
        steps = (step for way in self._ways for step in way if isinstance(step, (GetRow, ListRow, SearchRow)))
        return tuple({id(step): step for step in steps}.values())

    def _propose(
        self,
        step: GetRow | ListRow | SearchRow,
        state: State,
        names: frozenset[str],
        slots: dict[str, JSON],
        rows: dict[str, str],
        rng: random.Random,
    ) -> None:
        """A row for a step, and with it the slots that name it."""
        if isinstance(step, GetRow) and step.row in slots:
            rows[step.row] = slots[step.row]
            return
        tests = self._row_tests(step, state, {**self.inside(slots), **rows}, slots)
        key = _any_row(state, step.entity, [*tests, *self._tests.get(step.row, ())], step.row, rng)
        if key is None:
            return
        rows[step.row] = key
        row = state.row(step.entity.number, key)
        for of, each in [] if isinstance(step, GetRow) else _nameable_fields(step):
            if each.slot in names:
                slots.setdefault(each.slot, value_of(state, row, of))
        if isinstance(step, GetRow):
            slots[step.row] = key

    def _row_tests(self, step: GetRow | ListRow | SearchRow, state: State, values: Mapping[str, Any], slots: Slots) -> list[Test]:
        """What a row must be for what is said or known already."""
        if isinstance(step, GetRow):
            return []
        tests: list[Test] = []
        for of, each in _nameable_fields(step):
            if each.slot in slots if each.slot else each.value.names <= set(values):
                tests.append(_has(step, of, each.value.run(state, values)))
        return tests

    @cached_property
    def _tests(self) -> Mapping[str, list[Test]]:
        """By row, what must be so of it alone: conditions that fit, and choices of which one case holds."""
        by_name: dict[str, list[Test]] = {}
        for step in self.script.steps:
            tests = [step.test] if isinstance(step, Require) else [test for test, _ in step.cases] if isinstance(step, Choose) else []
            about = {name for test in tests for name in test.names}
            if len(about) == 1:
                by_name.setdefault(about.pop(), []).append(_any_holds(tests))
        return by_name


class _Walk:
    """One walk through the steps."""

    def __init__(self, intent: Scripted, state: State, slots: Slots, language: Language) -> None:
        self.intent, self.slots, self.language, self.domain = intent, slots, language, intent.of
        self.before = state.changes()
        self.state = State(state.base)
        self.state.restore(state.snapshot())
        self.work = Work(intent.of, self.state)
        self.values = intent.inside(slots)
        self.answers: list[str] = []
        self.facts: list[Fact] = []
        self.beside: dict[str, list[str]] = {}
        """By row, ids of those that its list shows beside it."""
        self.told: dict[str, dict[str, JSON]] = {}
        """By action that was done, what its tool told."""
        self.pools: dict[str, list[tuple[str, Any]]] = {}
        """By row, all that its search could be taken for: of its kind, whatever their bounds."""

    def solution(self) -> Solution:
        self._walk(self.intent.script.steps)
        changes = {path: value for path, value in self.state.changes().items() if self.before.get(path) != value}
        values = [each.value for each in self.facts]
        if len(set(values)) < len(values):
            raise misfit("two questions have one answer")
        facts = tuple(
            each.model_copy(update={"rivals": tuple(rival for rival in each.rivals if rival not in values)}) for each in self.facts
        )
        answer = (" " if self.language == "en" else "").join(self.answers)
        evidence = tuple(dict.fromkeys(self.work.evidence))
        success = Success(changes=changes, evidence=evidence, facts=facts, refusal=self.intent.refusal)
        return Solution(Plan(calls=tuple(self.work.calls), answer=answer), success)

    def _walk(self, steps: Sequence[ResolvedStep]) -> None:
        for step in steps:
            self._take(step)

    def _take(self, step: ResolvedStep) -> None:
        if isinstance(step, GetRow):
            if not self.state.has(step.entity.number, self.slots[step.row]):
                raise misfit("no such row")
            self.work.call(get_name(step.entity), **{step.entity.name: self.slots[step.row]})
        elif isinstance(step, ListRow):
            self._find_owned(step)
        elif isinstance(step, SearchRow):
            self._find(step)
        elif isinstance(step, DoAction):
            self._do(step)
        elif isinstance(step, Choose):
            self._choose(step)
        elif isinstance(step, Require):
            if not step.test.run(self.state, self.values):
                raise misfit(f"not so: {step.test.text}")
        elif isinstance(step, TellValue):
            self._tell(step)
        elif isinstance(step, Refuse):
            self.answers.append(step.words[self.language])
        else:
            self._answer(step)

    def _value(self, given: Argument) -> Any:
        return given.value.run(self.state, self.values)

    def _is_said(self, given: Argument) -> bool:
        return not given.slot or given.slot in self.slots

    def _find_owned(self, step: ListRow) -> None:
        owner, state = self._value(step.of), self.state
        mine = state.select(step.entity.number, ((step.owner.place, owner),))[:LIST_LIMIT]
        conditions = [(of, self._value(given)) for of, given in step.where if self._is_said(given)]
        keys = [key for key, row in mine if all(value_of(state, row, of) == value for of, value in conditions)]
        if len(keys) != 1:
            raise misfit("not exactly one of that kind")
        self.work.call(list_name(step.entity, step.owner), **{step.owner.name: owner})
        self.values[step.row] = keys[0]
        self.beside[step.row] = [key for key, _ in mine if key != keys[0]]

    def _find(self, step: SearchRow) -> None:
        search, state = self.intent.searches[step.entity.name], self.state
        conditions = {name: (of, self._value(given)) for name, (of, given) in step.where.items() if self._is_said(given)}
        order = self._value(step.sort)
        rows = search.find(state, {**{name: value for name, (_, value) in conditions.items()}, "sort": order})
        if len(rows) <= search.spec.limit:
            raise misfit("too few to choose among: looking from the wrong end would show it as well")
        by = search.orders[order][0]
        if value_of(state, rows[0][1], by) == value_of(state, rows[1][1], by):
            raise misfit("no single best")
        arguments = {name: outside(self.domain, of.type.kind, value) for name, (of, value) in conditions.items()}
        self.work.call(search_name(step.entity), **{**arguments, "sort": order})
        self.values[step.row] = rows[0][0]
        kinds = {name: value for name, (of, value) in conditions.items() if of.type.kind in ("choice", "name", "ref")}
        self.pools[step.row] = search.find(state, kinds)

    def _do(self, step: DoAction) -> None:
        act, values = step.act, defaults_of(step.act)
        arguments: dict[str, JSON] = {}
        for name, given in step.given.items():
            if self._is_said(given):
                values[name] = self._value(given)
                arguments[name] = outside(self.domain, act.params[name].type.kind, values[name])
        problem = failing(self.domain, act, self.state, values)
        if problem is not None:
            raise misfit(problem)
        self.work.call(act.name, **arguments)
        perform(self.domain, act, self.state, values)
        self.told[act.name] = tell_fields(self.domain, act, self.state, values)
        self.answers.append(reply(self.domain, act, values, self.language, step.words))

    def _choose(self, step: Choose) -> None:
        for test, steps in step.cases:
            self._see(test)
            if test.run(self.state, self.values):
                self._walk(steps)
                return
        raise misfit("no case holds")

    def _see(self, value: Compiled) -> None:
        """What an expression looks at must have been shown."""
        for read in value.reads:
            key = self.values[read.path[0]]
            entity = self.domain.entities[self.intent.rows[read.path[0]]]
            of = entity.fields[read.field]
            self.work.evidence.append(pair_fact(f'"{self.domain.id_key(entity)}"', f'"{key}"'))
            now = value_of(self.state, self.state.row(entity.number, key), of)
            self.work.evidence.append(piece(of.name, shown_value(self.domain, of, now)))

    def _tell(self, step: TellValue) -> None:
        if step.spec.condition is not None and not self.values[step.spec.condition]:
            return
        if step.of is None or step.value is None:
            value = self.told[step.row][step.name]
            is_price = step.unit == self.domain.spec.head.currency
            self.facts.append(Fact(kind="price" if is_price else "number", value=str(value)))
            text = value_spellings(Quantity(step.unit, 0, 0, ()), value, self.language)[0]
        else:
            self._see(step.value)
            value = step.value.run(self.state, self.values)
            rivals = [value_of(self.state, row, step.of) for key, row in self.pools.get(step.row, ()) if key != self.values[step.row]]
            stated_fact = fact(self.domain, step.of, value, rivals)
            self.facts.append(stated_fact.model_copy(update={"rivals": (*stated_fact.rivals, *self.beside.get(step.row, ()))}))
            text = answer_text(self.domain, step.of, value, self.language)
        self.answers.append(fill(step.spec.words or _TOLD, {**self.values, "value": text}, self.language))

    def _answer(self, step: AnswerQuestion) -> None:
        one = step.answers[self.slots[step.slot]]
        rivals = tuple(dict.fromkeys(other.value for other in step.answers.values() if other.value != one.value))
        is_price = f"{one.value} {self.domain.spec.head.currency}" in one.words.en
        self.facts.append(Fact(kind="price" if is_price else answer_kind(one.value), value=one.value, rivals=rivals))
        self.answers.append(one.words[self.language])


_TOLD = Words(en="It is {value}.", zh="是{value}。")


# ---- parts ------------------------------------------------------------------------------------------------------------------------


def _slot_kind(domain: Domain, kind: Kind) -> SlotKind:
    spec = kind.spec
    if isinstance(spec, (form.ChoiceKind, form.MarkKind)):
        return Vocabulary({key: words.names() for key, words in kind.words.items()})
    if isinstance(spec, form.DateKind):
        return Date(spec.last, domain.today)
    if isinstance(spec, form.TimeKind):
        return Vocabulary({step: {"en": step, "zh": step} for step in clock_steps(spec.first, spec.last)})
    unit = domain.spec.head.currency if isinstance(spec, schema.MoneyParam) else spec.unit
    is_whole = not isinstance(spec, schema.NumberParam)
    return Quantity(unit, spec.min, spec.max, tuple(int(value) if is_whole else value for value in spec.usual) or grid(spec))


def _any_of(kind: SlotKind, rng: random.Random) -> JSON:
    if isinstance(kind, Date):
        return rng.randrange(kind.horizon_days + 1)
    return rng.choice(tuple(kind.names) if isinstance(kind, Vocabulary) else kind.choices)


def _any_row(state: State, entity: Entity, tests: Sequence[Test], name: str, rng: random.Random) -> str | None:
    """A row that all tests pass, each as likely; None where there is none."""
    for _ in range(_ROWS):
        key = rng.choice(entity.ids)
        if all(test(state, {name: key}) for test in tests):
            return key
    fitting = [key for key in entity.ids if all(test(state, {name: key}) for test in tests)]
    return rng.choice(fitting) if fitting else None


def _has(step: ListRow | SearchRow, of: Field, value: Any) -> Test:
    return lambda state, names: bool(value_of(state, state.row(step.entity.number, names[step.row]), of) == value)


def _any_holds(tests: Sequence[Compiled]) -> Test:
    return lambda state, names: any(test.run(state, names) for test in tests)


def _nameable_fields(step: ListRow | SearchRow) -> Iterator[tuple[Field, Argument]]:
    """The fields whose values a request may name, of a row that a step finds."""
    if isinstance(step, ListRow):
        yield step.owner, step.of
        yield from step.where
    else:
        yield from ((of, given) for of, given in step.where.values() if of.filter == "equal" and of.type.kind != "flag")


def _arguments(step: GetRow | ListRow | SearchRow | DoAction) -> Iterator[Argument]:
    if isinstance(step, ListRow):
        yield step.of
    elif isinstance(step, SearchRow):
        yield from (given for _, given in step.where.values())
    elif isinstance(step, DoAction):
        yield from step.given.values()


def _tool(step: GetRow | ListRow | SearchRow | DoAction) -> str:
    if isinstance(step, GetRow):
        return get_name(step.entity)
    if isinstance(step, ListRow):
        return list_name(step.entity, step.owner)
    return search_name(step.entity) if isinstance(step, SearchRow) else step.act.name
