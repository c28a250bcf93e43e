"""Acting on what a request names: look first where a condition must be seen, then act; or, where a business rule is in the way, refuse.

One idea: an act, a way of naming each of its rows, and which of its conditions shall fail (none, or one rule). Slots are drawn parameter
by parameter, each tried against the conditions that are decided by then, so that what is drawn is almost always solvable, and what a rule
forbids is found the same way with that rule turned round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from storage.records import JSON, Language, RefusalReason
from synth.worlds.base import Shape, Slot, SlotKind, Solution
from synth.worlds.spec import schema
from synth.worlds.spec.domain import Act, Condition, Domain, Entity, Param
from synth.worlds.spec.intents.base import (
    Slots,
    SpecIntent,
    Work,
    grid,
    inside,
    looks_of,
    misfit,
    outside,
    piece,
    row_at,
    say,
    shuffled,
    value_kind,
)
from synth.worlds.spec.intents.finders import ById, Finder
from synth.worlds.spec.state import State, clock_steps, shown
from synth.worlds.spec.tools import defaults_of, filter_name, perform, search_name, value_of
from synth.worlds.spec.wording import act_wordings, done_words, object_of

_ATTEMPTS = 20
_NEAR = 8

Test = Callable[[State, Mapping[str, Any]], bool]


class Doing(SpecIntent):
    """finders: by parameter that is a row. against: the name of the rule that forbids it, or empty."""

    def __init__(self, domain: Domain, act: Act, name: str, finders: Mapping[str, Finder], *, against: str = "") -> None:
        self.act, self.finders, self.against = act, finders, against
        slots: list[tuple[Slot, SlotKind]] = []
        for param in act.params.values():
            if param.name in finders:
                slots += finders[param.name].slots
            else:
                kind, of = value_kind(domain, act.name, param)
                slots.append((Slot(param.name, kind, is_required=param.is_required), of))
        group = act.spec.group or (act.on.spec.group if act.on is not None else None) or (act.on.name if act.on is not None else "desk")
        super().__init__(domain, name, group, slots)
        self.looks, self.tallies = looks_of(domain, act)
        self.rule = next((each.rule for each in act.conditions if each.name == against), None) if against else None
        if against:
            self.refusal = RefusalReason.RULE
        self._defaults = defaults_of(act)
        self._steps = self._plan_steps()
        self._checks = self._by_param()
        self._pools = {name: self._pool_of(name) for name in finders}

    # ---- conditions -----------------------------------------------------------------------------------------------------------

    def _by_param(self) -> dict[str, list[Test]]:
        """The conditions, turned round where the rule shall fail, by the last parameter that they need."""
        order = list(self.act.params)
        found: dict[str, list[Test]] = {name: [] for name in order}
        for condition in self.act.conditions:
            last = max((order.index(name) for name in condition.test.names if name in order), default=0)
            found[order[last]].append(_wanted(condition, self.against))
        for transfer in self.act.transfers:
            found[order[-1]].append(_covers(transfer))
        return found

    def _holds(self, state: State, values: Mapping[str, Any]) -> bool:
        """Whether exactly the wanted conditions fail."""
        return all(test(state, values) for tests in self._checks.values() for test in tests)

    def _pool_of(self, name: str) -> tuple[tuple[int, Any], ...]:
        """What a row must be, as far as it can be looked up: (place, value)."""
        entity = self.of.entities[self.act.params[name].type.entity]
        found = []
        for condition in self.act.conditions:
            if condition.name != self.against or not self.against:
                for root, field, value in condition.test.equalities:
                    if root == name and entity.fields[field].place >= 0:
                        found.append((entity.fields[field].place, value))
        return tuple(found)

    # ---- drawing --------------------------------------------------------------------------------------------------------------

    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        for _ in range(_ATTEMPTS):
            values: dict[str, Any] = dict(self._defaults)
            slots: dict[str, JSON] = {}
            if all(self._choose(state, param, values, slots, slot_names, given, rng) for param in self.act.params.values()):
                return {slot.name: slots[slot.name] for slot in self.slots if slot.name in slots}
        return None

    def _choose(
        self,
        state: State,
        param: Param,
        values: dict[str, Any],
        slots: dict[str, JSON],
        names: frozenset[str],
        given: Slots,
        rng: random.Random,
    ) -> bool:
        """Gives one parameter a value that the conditions decided by it allow; whether there is one."""
        tests = self._checks[param.name]
        finder = self.finders.get(param.name)
        if finder is None:
            if not param.is_required and param.name not in names:
                return all(test(state, values) for test in tests)
            for said in [given[param.name]] if param.name in given else _sayable(param, rng):
                values[param.name] = inside(param.type.kind, said)
                if all(test(state, values) for test in tests):
                    slots[param.name] = said
                    return True
            return False
        for key, named in self._proposed(state, finder, param, values, names, given, rng):
            if key in values.values() and any(values.get(name) == key for name in self.finders if name != param.name):
                continue
            values[param.name] = key
            if all(test(state, values) for test in tests):
                slots.update(named)
                return True
        return False

    def _proposed(
        self, state: State, finder: Finder, param: Param, values: Mapping[str, Any], names: frozenset[str], given: Slots, rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        pool = self._pools[param.name]
        table = state.base.table(finder.entity.number)
        fixed = {slot: value for slot, value in given.items() if not any(each.name == slot and each.is_entity for each, _ in finder.slots)}
        if pool or state.changed.get(finder.entity.number):
            keys: Sequence[str] = [key for key, _ in state.select(finder.entity.number, pool)]
        else:
            keys = finder.entity.ids
        near = [key for key in self._near(state, finder.entity, param, values) if key in table.rows] if isinstance(finder, ById) else []
        if near:
            yield from finder.propose(state, names, fixed, near[:_NEAR], rng)
        yield from finder.propose(state, names, fixed, [key for key in keys if key in table.rows] if state.changed else keys, rng)

    def _near(self, state: State, entity: Entity, param: Param, values: Mapping[str, Any]) -> list[str]:
        """Rows that the ones chosen so far refer to, or that refer to them."""
        found: list[str] = []
        for name, finder in self.finders.items():
            key = values.get(name)
            if key is None or name == param.name:
                continue
            row = state.row(finder.entity.number, key)
            found += [row[each.place] for each in finder.entity.stored if each.type.kind == "ref" and each.type.entity == entity.name]
            for each in entity.stored:
                if each.type.kind == "ref" and each.type.entity == finder.entity.name:
                    found += [other for other, _ in state.select(entity.number, ((each.place, key),))]
        return list(dict.fromkeys(found))

    # ---- planning -------------------------------------------------------------------------------------------------------------

    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        work = Work(self.of, state)
        values: dict[str, Any] = dict(self._defaults)
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
        self._look(work, values)
        if self.rule is not None:
            words = self.rule.words[language]
            return work.solution(say(language, f"That is against the rules: {words}", f"按规定不能这样做：{words}"), refusal=self.refusal)
        work.call(self.act.name, **arguments)
        changes, told = self._done(state, values)
        return work.solution(self._answer(values, told, language), changes=changes)

    def _look(self, work: Work, values: Mapping[str, Any]) -> None:
        """The rows that conditions read are seen, and what is read there."""
        for look in self.looks:
            key, row = row_at(self.of, self.act, work.state, values, look.path)
            work.look(look.entity, key, needs_all=look.needs_all)
            work.evidence += [piece(each.name, shown(self.of, each, value_of(work.state, row, each))) for each in look.fields]
        for tally in self.tallies:
            kinds = tally.entity.fields
            found = {name: run(work.state, values) for name, run in tally.filters}
            total = work.state.count(tally.entity.number, tuple(kinds[name].place for name in found), tuple(found.values()))
            work.call(
                search_name(tally.entity),
                **{filter_name(kinds[name]): outside(self.of, kinds[name].type.kind, value) for name, value in found.items()},
            )
            work.evidence.append(piece("total", total))

    def _done(self, state: State, values: Mapping[str, Any]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
        """What the act changes, and what its tool tells, worked out on a copy."""
        copy = State(state.base)
        copy.restore(state.snapshot())
        before = state.changes()
        told = perform(self.of, self.act, copy, values)
        return {path: value for path, value in copy.changes().items() if before.get(path) != value}, told

    def _answer(self, values: Mapping[str, Any], told: Sequence[Mapping[str, JSON]], language: Language) -> str:
        target = object_of(self.act)
        entity = self.of.entities[self.act.params[target].type.entity] if target else None
        text = done_words(self.act, entity, values[target] if target else "", language)
        for row in told:
            if "new" in row:
                noun = self.of.entities[row["new"]].noun[language]
                text += say(language, f" The new {noun} is {row['id']}.", f"新的{noun}是{row['id']}。")
        return text

    def _plan_steps(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The calls of the usual plan, each with the earlier ones that it follows from."""
        steps: list[tuple[str, tuple[int, ...]]] = []
        shows: dict[tuple[str, ...], int] = {}
        for name, finder in self.finders.items():
            start = len(steps)
            steps += [(step.tool, tuple(start + parent for parent in step.parents)) for step in finder.steps]
            for path in finder.covers:
                shows[(name, *path)] = len(steps) - 1 if not path else start
        for look in self.looks:
            at = shows.get(look.path)
            if at is not None and not look.needs_all:
                continue
            parent = at if at is not None else shows.get(look.path[:-1])
            shows[look.path] = len(steps)
            steps.append((f"get_{look.entity.name}", () if parent is None else (parent,)))
        for tally in self.tallies:
            parents = tuple(sorted({shows[path] for path in tally.after if path in shows}))
            steps.append((search_name(tally.entity), parents))
        if not self.against:
            steps.append((self.act.name, tuple(range(len(steps)))))
        return tuple(steps)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(self._steps)

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        return {language: act_wordings(self.of, self.act, self.finders, language) for language in ("en", "zh")}


def _wanted(condition: Condition, against: str) -> Test:
    run = condition.test.run
    if against and condition.name == against:
        return lambda state, values: not run(state, values)
    return run


def _covers(transfer: Any) -> Test:
    row, entity, place, _ = transfer.source
    other, other_entity, other_place, _ = transfer.target

    def test(state: State, values: Mapping[str, Any]) -> bool:
        amount, key = transfer.amount.run(state, values), row.run(state, values)
        if (entity, key, place) == (other_entity, other.run(state, values), other_place):
            return False
        return bool(0 <= amount <= state.row(entity, key)[place])

    return test


def _sayable(param: Param, rng: random.Random) -> Iterable[JSON]:
    """Values of a parameter that a request can name, in random order."""
    spec = param.spec
    if isinstance(spec, schema.ChoiceParam):
        return shuffled(param.words, rng, len(param.words))
    if isinstance(spec, schema.FlagParam):
        return ["yes"]
    if isinstance(spec, schema.DateParam):
        return shuffled(range(spec.first, spec.last + 1), rng, 12)
    if isinstance(spec, schema.TimeParam):
        return shuffled(clock_steps(spec.first, spec.last), rng, 12)
    return shuffled(grid(spec), rng, 12)
