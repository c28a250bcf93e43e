"""Acting on what a request names: look first where a rule must be seen, then act; or, where a business rule is in the way, refuse.

One idea: an act, a way of naming each of its rows, and which of its conditions shall fail (none, or one rule). Slots are drawn parameter
by parameter, each tried against the conditions that are decided by then, so that what is drawn can be solved, and what a rule forbids is
found the same way with that rule turned round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from storage.records import JSON, Language, RefusalReason
from synth.text.slot_kinds import SlotKind
from synth.worlds.base import Shape, Slot, Solution
from synth.worlds.declarative.acting import defaults_of, perform
from synth.worlds.declarative.domain import Act, Condition, Domain, Entity, Param, Transfer
from synth.worlds.declarative.intents.base import Slots, SpecIntent, Work, grid, inside, misfit, outside, say, value_kind, wander
from synth.worlds.declarative.intents.required_observations import look, sight_of
from synth.worlds.declarative.intents.row_references import ById, Finder
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.request_templates import act_wordings, reply
from synth.worlds.declarative.state import State, clock_steps

_BUDGET, _VALUES = 2000, 12
"""Values tried in one draw; days, times and odd numbers tried for one parameter."""
_UNWANTED = 24
"""Draws that fit and are not wanted, before one draw is given up."""
_NEAR, _LATER = 8, 16
"""Rows tried for a parameter after the first: such that have to do with the earlier ones, and others."""

Test = Callable[[State, Mapping[str, Any]], bool]


class ActIntent(SpecIntent):
    """finders: by parameter that is a row. against: the name of the rule that forbids it, or empty."""

    def __init__(self, domain: Domain, act: Act, name: str, finders: Mapping[str, Finder], *, against: str = "") -> None:
        self.act, self.finders, self.against = act, finders, against
        slots: list[tuple[Slot, SlotKind]] = []
        decisive = {name for each in act.conditions if against and each.name == against for name in each.test.names}
        for param in act.params.values():
            if param.name in finders:
                slots += finders[param.name].slots
            else:
                kind, of = value_kind(domain, act.name, param)
                slots.append((Slot(param.name, kind, is_required=param.is_required or param.name in decisive), of))
        group = act.spec.group or (act.on.spec.group if act.on is not None else None) or (act.on.name if act.on is not None else "desk")
        super().__init__(domain, name, group, slots)
        self.judged = [each.test.part for each in act.conditions if each.rule is not None and against in ("", each.name)]
        """Of the rules by which it is done or refused: what comes of looking."""
        self.rule = next((each.rule for each in act.conditions if each.name == against), None) if against else None
        if against:
            self.refusal = RefusalReason.RULE
        self.defaults = defaults_of(act)
        self.order = self._ordered_params()
        self.checks = self._by_param()
        self.pools = {name: self._pool_of(name) for name in finders}

    # ---- conditions -----------------------------------------------------------------------------------------------------------

    def _tests(self) -> list[tuple[frozenset[str], Test]]:
        """What must be so, with the parameters that it depends on; the rule that shall fail is turned round."""
        param_names = set(self.act.params)
        tests = [(each.test.names & param_names, _condition_test(each, self.against)) for each in self.act.conditions]
        for transfer in self.act.transfers:
            source, target = transfer.source[0].names & param_names, transfer.target[0].names & param_names
            tests += [((transfer.amount.names & param_names) | source, _covers(transfer)), (source | target, _differs(transfer))]
        return tests

    def _ordered_params(self) -> list[Param]:
        """The parameters in the order in which they are drawn: first what is not named by its id (there are few such rows), else the row
        acted on; then always the one that decides the most."""
        tests, left = self._tests(), list(self.act.params.values())
        by_other = [name for name, finder in self.finders.items() if not isinstance(finder, ById)]
        order = [left.pop(next((at for at, param in enumerate(left) if param.name in by_other), 0))]
        while left:
            ordered_names = {param.name for param in order}
            decides = [sum(param.name in names and names <= ordered_names | {param.name} for names, _ in tests) for param in left]
            order.append(left.pop(decides.index(max(decides))))
        return order

    def _by_param(self) -> dict[str, list[Test]]:
        """The tests by the parameter that decides them."""
        order = [param.name for param in self.order]
        tests: dict[str, list[Test]] = {name: [] for name in order}
        for names, test in self._tests():
            tests[order[max((order.index(name) for name in names), default=0)]].append(test)
        return tests

    def _holds(self, state: State, values: Mapping[str, Any]) -> bool:
        """Whether exactly the wanted conditions fail."""
        return all(test(state, values) for tests in self.checks.values() for test in tests)

    def _pool_of(self, name: str) -> tuple[tuple[int, Any], ...]:
        """What a row must be, as far as it can be looked up: (place, value)."""
        entity = self.of.entities[self.act.params[name].type.entity]
        pool = []
        for condition in self.act.conditions:
            if condition.name != self.against or not self.against:
                for root, field, value in condition.test.equalities:
                    of = entity.fields[field] if root == name else None
                    if of is not None and of.place >= 0 and of.type.kind in ("choice", "flag", "name"):
                        pool.append((of.place, value))
        return tuple(pool)

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        search = _Search(self, state, slot_names, given, rng)
        return search.drawn_slots() if search.fill(0) else None

    def draw_such(
        self, state: State, slot_names: frozenset[str], rng: random.Random, is_wanted: Callable[[Mapping[str, JSON]], bool]
    ) -> dict[str, JSON] | None:
        """`draw` of values that are wanted, too; None where a few tries found none. The last parameter is drawn again first."""
        search = _Search(self, state, slot_names, {}, rng, is_wanted)
        return search.drawn_slots() if search.fill(0) else None

    # ---- planning -------------------------------------------------------------------------------------------------------------

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        values: dict[str, Any] = dict(self.defaults)
        arguments: dict[str, JSON] = {}
        for param in self.act.params.values():
            finder = self.finders.get(param.name)
            if finder is not None:
                values[param.name] = arguments[param.name] = finder.find(work, slots)
            elif param.name in slots:
                values[param.name] = inside(param.type.kind, slots[param.name])
                arguments[param.name] = outside(self.of, param.type.kind, values[param.name])
        if not self._holds(state, values):
            raise misfit("a condition is in the way" if not self.against else "the rule is not the only thing in the way")
        work = look(work, self.act, self.judged, values)
        if self.rule is not None:
            words = self.rule.words[language]
            return work.solution(say(language, f"That is against the rules: {words}", f"按规定不能这样做：{words}"), refusal=self.refusal)
        work.call(self.act.name, **arguments)
        changes, results = self._done(state, values)
        return work.solution(self._answer(values, results, language), changes=changes)

    def _done(self, state: State, values: Mapping[str, Any]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
        """What the act changes, and what its tool tells, worked out on a copy."""
        copy = State(state.base)
        copy.restore(state.snapshot())
        before = state.changes()
        results = perform(self.of, self.act, copy, values)
        return {path: value for path, value in copy.changes().items() if before.get(path) != value}, results

    def _answer(self, values: Mapping[str, Any], results: Sequence[Mapping[str, JSON]], language: Language) -> str:
        text = reply(self.of, self.act, values, language)
        for row in results:
            if "new" in row:
                noun = self.of.entities[row["new"]].noun[language]
                text += say(language, f" The new {noun} is {row['id']}.", f"新的{noun}是{row['id']}。")
        return text

    @cached_property
    def _steps(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The calls of the longest plan, each with the earlier ones that it follows from: what an `or` spares is told by the values."""
        steps: list[tuple[str, tuple[int, ...]]] = []
        shows: dict[tuple[str, ...], int] = {}
        for name, finder in self.finders.items():
            start = len(steps)
            steps += [(step.tool, tuple(start + parent for parent in step.parents)) for step in finder.steps]
            for path in finder.covers:
                shows[(name, *path)] = len(steps) - 1 if not path else start
        sight = sight_of(self.of, self.act, (test for part in self.judged for test in part.tests()))
        for row in sight.looks:
            at = shows.get(row.path)
            if at is not None and not row.needs_all:
                continue
            parent = at if at is not None else shows.get(row.path[:-1])
            shows[row.path] = len(steps)
            steps.append((f"get_{row.entity.name}", () if parent is None else (parent,)))
        for tally in sight.tallies:
            parents = tuple(sorted({shows[path] for path in tally.after if path in shows}))
            steps.append((tally.tool, parents))
        if not self.against:
            steps.append((self.act.name, tuple(range(len(steps)))))
        return tuple(steps)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return self.shape_of(self._steps)

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        return {language: act_wordings(self.of, self.act, self.finders, language) for language in ("en", "zh")}


class _Search:
    """Values for one parameter after the other, each allowed by the conditions that are decided by then; back where none is left."""

    def __init__(
        self,
        intent: ActIntent,
        state: State,
        names: frozenset[str],
        given: Slots,
        rng: random.Random,
        is_wanted: Callable[[Mapping[str, JSON]], bool] | None = None,
    ) -> None:
        self.intent, self.state, self.names, self.given, self.rng = intent, state, names, given, rng
        self.is_wanted = is_wanted
        self.params = intent.order
        self.values: dict[str, Any] = dict(intent.defaults)
        self.slots: dict[str, Mapping[str, JSON]] = {}
        """By parameter, the slots that say it."""
        self.budget = _BUDGET

    def fill(self, at: int) -> bool:
        """Whether all parameters from number `at` on could be given values."""
        if at == len(self.params):
            return self._is_wanted()
        param = self.params[at]
        tests = self.intent.checks[param.name]
        for value, slots in self._options(param):
            if self.budget <= 0:
                return False
            self.budget -= 1
            if value is not None:
                self.values[param.name] = value
            for test in tests:
                if not test(self.state, self.values):
                    break
            else:
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

    def _is_wanted(self) -> bool:
        if self.is_wanted is None or self.is_wanted(self.drawn_slots()):
            return True
        self.budget -= _BUDGET // _UNWANTED
        return False

    def _options(self, param: Param) -> Iterator[tuple[Any, dict[str, JSON]]]:
        finder = self.intent.finders.get(param.name)
        if finder is not None:
            used = {self.values.get(name) for name in self.intent.finders}
            for key, slots in self._rows(finder, param):
                if key not in used:
                    yield key, slots
        elif not param.is_required and param.name not in self.names:
            yield None, {}
        else:
            for option in [self.given[param.name]] if param.name in self.given else _sayable(param, self.rng, self._numbers):
                yield inside(param.type.kind, option), {param.name: option}

    def _rows(self, finder: Finder, param: Param) -> Iterator[tuple[str, dict[str, JSON]]]:
        """Rows for a parameter: first those that have to do with the ones chosen before, then any."""
        state, number = self.state, finder.entity.number
        fixed = {slot.name: self.given[slot.name] for slot, _ in finder.slots if slot.name in self.given and not slot.is_entity}
        is_first = not any(name in self.values for name in self.intent.finders)
        rows = state.base.table(number).rows
        if not is_first and isinstance(finder, ById):
            near = [key for key in self._near(finder.entity) if key in rows]
            yield from islice(finder.propose(state, self.names, fixed, near, self.rng), _NEAR)
        pool = self.intent.pools[param.name]
        keys: Sequence[str] = finder.entity.ids
        if pool:
            keys = state.base_keys(number, pool)
        proposed = finder.propose(state, self.names, fixed, keys, self.rng)
        yield from proposed if is_first else islice(proposed, _LATER)

    def _numbers(self) -> list[int]:
        """Numbers in the rows chosen so far: what is compared with one of them is decided close to it."""
        numbers: list[int] = []
        for name, finder in self.intent.finders.items():
            if name in self.values:
                row = self.state.row(finder.entity.number, self.values[name])
                numbers += [row[each.place] for each in finder.entity.stored if each.type.kind == "whole"]
        return numbers

    def _near(self, entity: Entity) -> list[str]:
        """Rows that the ones chosen so far refer to, or that refer to them."""
        keys: list[str] = []
        for name, finder in self.intent.finders.items():
            key = self.values.get(name)
            if key is None:
                continue
            row = self.state.row(finder.entity.number, key)
            keys += [row[each.place] for each in finder.entity.stored if each.type.kind == "ref" and each.type.entity == entity.name]
            for each in entity.stored:
                if each.type.kind == "ref" and each.type.entity == finder.entity.name:
                    keys += [other for other, _ in self.state.select(entity.number, ((each.place, key),))]
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


def _sayable(param: Param, rng: random.Random, near: Callable[[], Sequence[int]]) -> Iterator[JSON]:
    """Values of a parameter that a request can name, in random order; of numbers first round ones, then such as are `near`."""
    spec = param.spec
    if isinstance(spec, schema.ChoiceParam):
        yield from wander(list(param.words), rng)
    elif isinstance(spec, schema.FlagParam):
        yield "yes"
    elif isinstance(spec, schema.DateParam):
        yield from islice(wander(range(spec.first, spec.last + 1), rng), _VALUES)
    elif isinstance(spec, schema.TimeParam):
        yield from islice(wander(clock_steps(spec.first, spec.last), rng), _VALUES)
    else:
        yield from wander(grid(spec), rng)
        if isinstance(spec, (schema.IntegerParam, schema.MoneyParam)):
            for value in near():
                on_step = spec.min + (value - spec.min) // spec.step * spec.step
                yield from (each for each in (on_step, on_step + spec.step, on_step - spec.step) if spec.min <= each <= spec.max)
            yield from islice(wander(range(spec.min, spec.max + 1, spec.step), rng), _VALUES)
