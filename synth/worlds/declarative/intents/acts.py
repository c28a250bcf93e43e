"""Intents that do an action, or refuse it where a business rule forbids it. What the rules read is observed first.

One idea: an intent is an action, a reference for each of its rows, and the conditions that must fail (none, or one rule). Slots are drawn
parameter by parameter; each value is tried against the conditions that are decided by then, so what is drawn can be solved. What a rule
forbids is drawn in the same way, with this rule negated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from storage.records import JSON, Given, Language, RefusalReason
from synth.worlds.base import Solution, misfit
from synth.worlds.declarative.acting import defaults_of, perform
from synth.worlds.declarative.domain import Act, Condition, Domain, Entity, Param, Transfer, json_value
from synth.worlds.declarative.intents.base import (
    KindedSlot,
    PlanDraft,
    Slots,
    SpecIntent,
    Step,
    expression_value,
    make_slot,
    merge_given,
    random_order,
    text_in,
    usual_values,
    value_kind,
)
from synth.worlds.declarative.intents.request_templates import act_templates, reply
from synth.worlds.declarative.intents.required_observations import observe_conditions, required_rows
from synth.worlds.declarative.intents.row_references import IdReference, RowReference
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import clock_steps
from synth.worlds.declarative.rows.state import State
from synth.worlds.declarative.tools import get_name

_BUDGET, _VALUES = 2000, 12
"""Values tried in one draw; days, times and odd numbers tried for one parameter."""
_REJECTED = 24
"""Draws that fit but that the caller rejects, before one draw gives up."""
_RELATED, _OTHERS = 8, 16
"""Rows tried for a parameter after the first: rows with references to or from the rows drawn before, and others."""

Test = Callable[[State, Mapping[str, Any]], bool]
Accepts = Callable[[Mapping[str, JSON]], bool]


class ActIntent(SpecIntent):
    """references: by parameter that is a row. against: the name of the rule that forbids the action, or empty."""

    def __init__(self, domain: Domain, act: Act, name: str, references: Mapping[str, RowReference], *, against: str = "") -> None:
        self.act, self.references, self.against = act, references, against
        slots: list[KindedSlot] = []
        decisive = {name for each in act.conditions if against and each.name == against for name in each.test.names}
        for param in act.params.values():
            if param.name in references:
                slots += [
                    (replace(slot, is_required=slot.is_required and param.is_required), kind) for slot, kind in references[param.name].slots
                ]
            else:
                is_required = param.is_required or param.name in decisive
                slots.append(make_slot(param.name, value_kind(domain, act.name, param), is_required=is_required))
        group = act.spec.group or (act.on.spec.group if act.on is not None else None) or (act.on.name if act.on is not None else "desk")
        super().__init__(domain, name, group, slots)
        self.judged = [each.test.part for each in act.conditions if each.rule is not None and against in ("", each.name)]
        """The rules that must be observed: all, or the one that forbids the action."""
        self.rule = next((each.rule for each in act.conditions if each.name == against), None) if against else None
        if against:
            self.refusal = RefusalReason.RULE
        self.defaults = defaults_of(act)
        tests = self._tests()
        self.order = self._ordered_params(tests)
        self.tests = self._tests_by_param(tests)
        self.filters = {name: self._row_filters(name) for name in references}
        self.steps = self._longest_plan()

    # ---- conditions -----------------------------------------------------------------------------------------------------------

    def _tests(self) -> list[tuple[frozenset[str], Test]]:
        """The tests that must be true, each with the parameters that it depends on; the rule that must fail is negated."""
        param_names = set(self.act.params)
        tests = [(each.test.names & param_names, _condition_test(each, self.against)) for each in self.act.conditions]
        for transfer in self.act.transfers:
            source, target = transfer.source[0].names & param_names, transfer.target[0].names & param_names
            tests += [((transfer.amount.names & param_names) | source, _covers(transfer)), (source | target, _differs(transfer))]
        return tests

    def _ordered_params(self, tests: list[tuple[frozenset[str], Test]]) -> list[Param]:
        """The parameters in the order in which they are drawn.

        The first is one that is not named by its id (few rows fit), else the row acted on; then always the one that decides most tests.
        """
        waiting = list(self.act.params.values())
        if not waiting:
            return []
        not_by_id = [name for name, reference in self.references.items() if not isinstance(reference, IdReference)]
        order = [waiting.pop(next((at for at, param in enumerate(waiting) if param.name in not_by_id), 0))]
        while waiting:
            drawn = {param.name for param in order}
            decided = [sum(param.name in names and names <= drawn | {param.name} for names, _ in tests) for param in waiting]
            order.append(waiting.pop(decided.index(max(decided))))
        return order

    def _tests_by_param(self, tests: list[tuple[frozenset[str], Test]]) -> dict[str, list[Test]]:
        """The tests by the parameter that decides them."""
        order = [param.name for param in self.order]
        by_param: dict[str, list[Test]] = {name: [] for name in order}
        for names, test in tests:
            if order:
                by_param[order[max((order.index(name) for name in names), default=0)]].append(test)
        return by_param

    def _row_filters(self, name: str) -> tuple[tuple[int, Any], ...]:
        """Values that the conditions ask of a parameter's row, as far as an index finds them: (place, value)."""
        entity = self.spec_domain.entities[self.act.params[name].type.entity]
        filters = []
        for condition in self.act.conditions:
            if condition.name != self.against or not self.against:
                for root, field_name, value in condition.test.equalities:
                    field = entity.fields[field_name] if root == name else None
                    if field is not None and field.place >= 0 and field.type.kind in ("choice", "flag", "name"):
                        filters.append((field.place, value))
        return tuple(filters)

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(
        self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random, accepts: Accepts = lambda slots: True
    ) -> dict[str, JSON] | None:
        """See `SpecIntent.draw`. accepts: whether the caller accepts a draw; after a rejected one, the last parameter changes first."""
        search = _Search(self, state, slot_names, given, rng, accepts)
        return search.drawn_slots() if search.fill(0) else None

    # ---- planning -------------------------------------------------------------------------------------------------------------

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        draft = PlanDraft(self.spec_domain, state)
        values: dict[str, Any] = dict(self.defaults)
        arguments: dict[str, JSON] = {}
        for param in self.act.params.values():
            reference = self.references.get(param.name)
            if reference is not None:
                values[param.name] = arguments[param.name] = reference.find(draft, slots)
            elif param.name in slots:
                values[param.name] = expression_value(param.type.kind, slots[param.name])
                arguments[param.name] = json_value(self.spec_domain, param.type.kind, values[param.name])
        if not all(test(state, values) for tests in self.tests.values() for test in tests):
            raise misfit("a condition is in the way" if not self.against else "the rule is not the only thing in the way")
        draft = observe_conditions(draft, self.act, self.judged, values)
        if self.rule is not None:
            words = self.rule.words[language]
            return draft.solution(
                text_in(language, f"That is against the rules: {words}", f"按规定不能这样做：{words}"), refusal=self.refusal
            )
        draft.add_call(self.act.name, **arguments)
        changes, results = self._effect(state, values)
        return draft.solution(self._answer(values, results, language), changes=changes)

    def given(self, slots: Slots) -> Given:
        return merge_given(reference.given(slots) for reference in self.references.values())

    def _effect(self, state: State, values: Mapping[str, Any]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
        """The changes of the action, and the rows that its tool reports; computed on a copy."""
        copy = State(state.base)
        copy.restore(state.snapshot())
        before = state.changes()
        results = perform(self.spec_domain, self.act, copy, values)
        return {path: value for path, value in copy.changes().items() if before.get(path) != value}, results

    def _answer(self, values: Mapping[str, Any], results: Sequence[Mapping[str, JSON]], language: Language) -> str:
        text = reply(self.spec_domain, self.act, values, language)
        for row in results:
            if "new" in row:
                noun = self.spec_domain.entities[row["new"]].noun[language]
                text += text_in(language, f" The new {noun} is {row['id']}.", f"新的{noun}是{row['id']}。")
        return text

    def _longest_plan(self) -> list[Step]:
        """The calls where every test of the rules must be observed; the values may decide an `or` with fewer calls."""
        steps: list[Step] = []
        shown_by: dict[tuple[str, ...], int] = {}
        for name, reference in self.references.items():
            start = len(steps)
            steps += [Step(step.tool, tuple(start + parent for parent in step.parents)) for step in reference.steps]
            for path in reference.shown_paths:
                shown_by[(name, *path)] = len(steps) - 1 if not path else start
        rows = required_rows(self.spec_domain, self.act, (test for part in self.judged for test in part.tests()))
        for row in rows.reads:
            at = shown_by.get(row.path)
            if at is not None and not row.needs_all:
                continue
            parent = at if at is not None else shown_by.get(row.path[:-1])
            shown_by[row.path] = len(steps)
            steps.append(Step(get_name(row.entity), () if parent is None else (parent,)))
        for count in rows.counts:
            steps.append(Step(count.tool, tuple(sorted({shown_by[path] for path in count.source_paths if path in shown_by}))))
        if not self.against:
            steps.append(Step(self.act.name, tuple(range(len(steps)))))
        return steps

    def templates(self, language: Language) -> list[str]:
        return act_templates(self.spec_domain, self.act, self.references, language)


class _Search:
    """Backtracking search: a value for one parameter after the other that passes the tests which are decided by then."""

    def __init__(self, intent: ActIntent, state: State, names: frozenset[str], given: Slots, rng: random.Random, accepts: Accepts) -> None:
        self.intent, self.state, self.names, self.given, self.rng, self.accepts = intent, state, names, given, rng, accepts
        self.values: dict[str, Any] = dict(intent.defaults)
        self.slots: dict[str, Mapping[str, JSON]] = {}
        """The slots of each parameter."""
        self.budget = _BUDGET

    def fill(self, at: int) -> bool:
        """Gives values to all parameters from number `at` on; returns whether there are such values."""
        if at == len(self.intent.order):
            return self._is_accepted()
        param = self.intent.order[at]
        for value, slots in self._options(param):
            if self.budget <= 0:
                return False
            self.budget -= 1
            if value is not None:
                self.values[param.name] = value
            if all(test(self.state, self.values) for test in self.intent.tests[param.name]):
                self.slots[param.name] = slots
                if self.fill(at + 1):
                    return True
        self.values.pop(param.name, None)
        self.slots.pop(param.name, None)
        if param.name in self.intent.defaults:
            self.values[param.name] = self.intent.defaults[param.name]
        return False

    def drawn_slots(self) -> dict[str, JSON]:
        """The values drawn so far, in the order in which the intent lists its slots."""
        given_slots = {name: value for slots in self.slots.values() for name, value in slots.items()}
        return {slot.name: given_slots[slot.name] for slot in self.intent.slots if slot.name in given_slots}

    def _is_accepted(self) -> bool:
        if self.accepts(self.drawn_slots()):
            return True
        self.budget -= _BUDGET // _REJECTED
        return False

    def _options(self, param: Param) -> Iterator[tuple[Any, dict[str, JSON]]]:
        reference = self.intent.references.get(param.name)
        if reference is not None and (param.is_required or param.name in self.names):
            used = {self.values.get(name) for name in self.intent.references}
            for key, slots in self._rows(reference, param):
                if key not in used:
                    yield key, slots
        elif not param.is_required and param.name not in self.names:
            yield None, {}
        else:
            for option in [self.given[param.name]] if param.name in self.given else _values(param, self.rng, self._numbers):
                yield expression_value(param.type.kind, option), {param.name: option}

    def _rows(self, reference: RowReference, param: Param) -> Iterator[tuple[str, dict[str, JSON]]]:
        """Rows for a parameter: first those with references to or from the rows drawn before, then any."""
        state, number = self.state, reference.entity.number
        fixed = {slot.name: self.given[slot.name] for slot, _ in reference.slots if slot.name in self.given and not slot.is_entity}
        is_first = not any(name in self.values for name in self.intent.references)
        if not is_first and isinstance(reference, IdReference):
            rows = state.base.table(number).rows
            related = [key for key in self._related(reference.entity) if key in rows]
            yield from islice(reference.propose(state, self.names, fixed, related, self.rng), _RELATED)
        filters = self.intent.filters[param.name]
        keys: Sequence[str] = state.base_keys(number, filters) if filters else reference.entity.ids
        proposed = reference.propose(state, self.names, fixed, keys, self.rng)
        yield from proposed if is_first else islice(proposed, _OTHERS)

    def _drawn_rows(self) -> Iterator[tuple[Entity, str]]:
        """Entity and id of each row drawn so far."""
        for name, reference in self.intent.references.items():
            key = self.values.get(name)
            if key is not None:
                yield reference.entity, key

    def _numbers(self) -> list[int]:
        """Numbers in the rows drawn so far: a value that is compared with one of them is decided near it."""
        return [
            self.state.row(entity.number, key)[each.place]
            for entity, key in self._drawn_rows()
            for each in entity.stored
            if each.type.kind == "whole"
        ]

    def _related(self, entity: Entity) -> list[str]:
        """Rows of an entity with references to or from the rows drawn so far."""
        keys: list[str] = []
        for other, key in self._drawn_rows():
            row = self.state.row(other.number, key)
            keys += [row[each.place] for each in other.stored if each.type.kind == "ref" and each.type.entity == entity.name]
            for each in entity.stored:
                if each.type.kind == "ref" and each.type.entity == other.name:
                    keys += [source for source, _ in self.state.select(entity.number, ((each.place, key),))]
        return list(dict.fromkeys(keys))


def _condition_test(condition: Condition, against: str) -> Test:
    run = condition.test.run
    if against and condition.name == against:
        return lambda state, values: not run(state, values)
    return run


def _covers(transfer: Transfer) -> Test:
    row, entity, place, _ = transfer.source
    amount = transfer.amount.run
    return lambda state, values: bool(0 <= amount(state, values) <= state.row(entity, row.run(state, values))[place])


def _differs(transfer: Transfer) -> Test:
    row, entity, place, _ = transfer.source
    other, other_entity, other_place, _ = transfer.target
    return lambda state, values: (entity, place) != (other_entity, other_place) or row.run(state, values) != other.run(state, values)


def _values(param: Param, rng: random.Random, near: Callable[[], Sequence[int]]) -> Iterator[JSON]:
    """Slot values of a parameter in random order; of numbers first the usual values, then those next to the numbers of `near`."""
    spec = param.spec
    if isinstance(spec, (schema.ChoiceParam, schema.NameParam)):
        yield from random_order(list(param.words), rng)
    elif isinstance(spec, schema.FlagParam):
        yield "yes"
    elif isinstance(spec, schema.DateParam):
        yield from islice(random_order(range(spec.first, spec.last + 1), rng), _VALUES)
    elif isinstance(spec, schema.TimeParam):
        yield from islice(random_order(clock_steps(spec.first, spec.last, spec.step), rng), _VALUES)
    else:
        yield from random_order(usual_values(spec), rng)
        if isinstance(spec, (schema.IntegerParam, schema.MoneyParam)):
            for value in near():
                on_step = spec.min + (value - spec.min) // spec.step * spec.step
                yield from (each for each in (on_step, on_step + spec.step, on_step - spec.step) if spec.min <= each <= spec.max)
            yield from islice(random_order(range(spec.min, spec.max + 1, spec.step), rng), _VALUES)
