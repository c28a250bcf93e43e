"""Required observations: as many as decide a rule, in any order, and no others."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

from storage.records import Call, Frame, RefusalReason, Task
from synth.tasks.solver import NotAdmitted, admit, execute, training_seed
from synth.tasks.verify import judge
from synth.tasks.wording import render
from synth.worlds import WORLDS, make_world
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Act, Condition, Field
from synth.worlds.declarative.intents.acts import ActIntent
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.problems import SpecError
from synth.worlds.declarative.language.yaml_text import parse_text
from synth.worlds.declarative.library_worlds import library_specs
from synth.worlds.declarative.rows.state import Row, State, shown_value
from synth.worlds.declarative.tools import list_name, search_name

DOMAINS = [*(name for name in library_specs() if name != "retail"), "gen-1", "gen-2", "gen-3", "gen-5", "gen-7", "gen-8"]
POSSIBLE_STATES = 120


def spec_world(name: str) -> type[SpecWorld]:
    world = WORLDS[name]
    assert issubclass(world, SpecWorld)
    return world


@cache
def tasks(world: type[SpecWorld], intent: ActIntent, count: int) -> list[Task]:
    admitted: list[Task] = []
    rng = random.Random(f"{world.name}/{intent.name}")
    for _ in range(count):
        names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < 0.5)
        seed = training_seed(rng.randrange(2**20))
        frame = Frame(world=world.name, intent=intent.name, slots=make_world(world.name, seed).draw_slots(intent.name, names, rng))
        try:
            text = render(WORLDS[frame.world], frame, "en", rng)
            admitted.append(admit(WORLDS[frame.world], frame, text=text, language="en", seed=seed, division="seed"))
        except NotAdmitted as refused:
            assert refused.reason == "misfit", (intent.name, refused)
    return admitted


def by_ids(world: type[SpecWorld]) -> list[ActIntent]:
    """Every act with its rows named by their ids, and every trap."""
    return [each for each in world.jobs() if isinstance(each, ActIntent) and (each.against or each.name == each.act.name)]


# ---- a policy that stops observing as soon as the rules are decided ---------------------------------------------------------------


class PossibleState(State):
    """A state that agrees with the observed rows; all other rows have random values."""

    def __init__(self, real: State, observed: set[tuple[int, str]], rng: random.Random) -> None:
        super().__init__(real.base)
        self.real, self.observed, self.rng = real, observed, rng
        self.imagined: dict[tuple[int, str], Row] = {}

    def row(self, entity: int, key: str) -> Row:
        if (entity, key) in self.observed:
            return self.real.row(entity, key)
        if (entity, key) not in self.imagined:
            fields = self.base.domain.by_number[entity].stored
            self.imagined[entity, key] = (*(self._value(each) for each in fields), key)
        return self.imagined[entity, key]

    def _referenced(self, entity: str) -> list[str]:
        """Rows to which observed rows refer: an unobserved reference may lead to the same row."""
        tables = self.base.domain.by_number
        return [
            self.real.row(number, key)[each.place]
            for number, key in sorted(self.observed)
            for each in tables[number].stored
            if each.type.kind == "ref" and each.type.entity == entity
        ]

    def _value(self, of: Field) -> Any:
        spec, rng = of.spec, self.rng
        if isinstance(spec, schema.RefField):
            return rng.choice([*self.base.domain.entities[spec.to].ids[:2], *self._referenced(spec.to)])
        if of.words:
            return rng.choice(list(of.words))
        if isinstance(spec, schema.FlagField):
            return rng.random() < 0.5
        if isinstance(spec, schema.TimeField):
            return rng.choice([spec.first, spec.last])
        low, high = (spec.first, spec.last) if isinstance(spec, schema.DateField) else (spec.min, spec.max)
        return rng.choice([-(10**6), low, rng.randint(int(low), int(high)), high, 10**6])


@dataclass
class Policy:
    """Observes the rows of the rules one after the other, until no unobserved row can change the decision."""

    world: type[SpecWorld]
    act: Act
    state: State
    values: Mapping[str, Any]
    is_backwards: bool
    observed: set[tuple[int, str]] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)

    def judge(self, rule: Condition) -> None:
        if rule.test.counts or any(self._is_derived(each.path, each.field) for each in rule.test.reads):
            for count in rule.test.counts:
                self._observe(*(each.path for each in count.reads))
            self._observe(*(each.path for each in rule.test.reads))
            self._count(rule)
            return
        order = [each.path for each in rule.test.reads]
        for path in reversed(order) if self.is_backwards else order:
            if self._is_open(rule):
                self._observe(path)
        assert not self._is_open(rule)

    def _is_open(self, rule: Condition) -> bool:
        rng, now = random.Random(5), bool(rule.test.run(self.state, self.values))
        return any(bool(rule.test.run(PossibleState(self.state, self.observed, rng), self.values)) != now for _ in range(POSSIBLE_STATES))

    def _is_derived(self, path: tuple[str, ...], name: str) -> bool:
        entity = self.world.domain.entities[self.act.params[path[0]].type.entity]
        for step in path[1:]:
            entity = self.world.domain.entities[entity.fields[step].type.entity]
        return entity.fields[name].derived is not None

    def _observe(self, *paths: tuple[str, ...]) -> None:
        for path in paths:
            entity, key = self.world.domain.entities[self.act.params[path[0]].type.entity], self.values[path[0]]
            for step in (*path[1:], None):
                if (entity.number, key) not in self.observed:
                    self.observed.add((entity.number, key))
                    self._call(f"get_{entity.name}", **{entity.name: key})
                if step is not None:
                    row, of = self.state.row(entity.number, key), entity.fields[step]
                    key, entity = row[of.place], self.world.domain.entities[of.type.entity]

    def _count(self, rule: Condition) -> None:
        for count in rule.test.counts:
            entity = self.world.domain.entities[count.entity]
            filters = [(entity.fields[name], run(self.state, self.values)) for name, run in count.filters]
            owner = next((each for each in entity.owners() if each in dict(filters)), None)
            if owner is not None and (self.is_backwards or "search" not in entity.spec.tools):
                self._call(list_name(entity, owner), **{owner.name: dict(filters)[owner]})
            else:
                self._call(search_name(entity), **{each.name: shown_value(self.world.domain, each, value) for each, value in filters})

    def _call(self, tool: str, /, **arguments: Any) -> None:
        public = self.world.domain.public[tool]
        self.calls.append(Call(tool=public.tool, arguments={public.arguments[name]: value for name, value in arguments.items()}))


def passes(task: Task, calls: list[Call]) -> bool:
    done = execute(make_world(task.world, task.world_seed), task.messages, calls, task.plan.answer)
    return judge(WORLDS[task.world], task, done.messages, done.changes).success


def expression_values(world: type[SpecWorld], intent: ActIntent, task: Task) -> dict[str, Any]:
    """The values of the action's parameters, as rules use them."""
    kinds = {name: param.type.kind for name, param in intent.act.params.items()}
    values = {name: task.slots[name] == "yes" if kinds[name] == "flag" else task.slots[name] for name in kinds if name in task.slots}
    return {**intent.defaults, **values}


@pytest.mark.parametrize("is_backwards", [False, True])
@pytest.mark.parametrize("name", DOMAINS)
def test_a_policy_that_observes_until_the_rules_are_decided_passes(name: str, is_backwards: bool) -> None:
    """Given any action or forbidden action, when a policy observes the rows of its rules in any order until they are decided, then it
    passes; where no rule needs an observation it passes without one, elsewhere it fails without one."""
    world = spec_world(name)
    for intent in by_ids(world):
        for task in tasks(world, intent, 2):
            state = world(task.world_seed).now
            policy = Policy(world, intent.act, state, expression_values(world, intent, task), is_backwards)
            for rule in intent.act.conditions:
                if rule.rule is not None and intent.against in ("", rule.name):
                    policy.judge(rule)
            act = [] if intent.against else [task.plan.calls[-1]]
            assert passes(task, [*policy.calls, *act]), (intent.name, policy.calls, task.success.evidence)
            assert len(task.plan.calls) <= len(policy.calls) + len(act)
            assert passes(task, act) is not bool(policy.calls), intent.name


def test_an_act_that_no_rule_forbids_takes_one_call() -> None:
    world = spec_world("library")
    for name in ("return_book", "report_lost", "cancel_hold", "pay_fees"):
        assert world.intents[name].shape(frozenset()).tools == (name,)


# ---- rules put together from several tests ----------------------------------------------------------------------------------------


def starter(condition: str, **loans: Any) -> type[SpecWorld]:
    """The starter spec with another condition. loans: keys of the status field of loans, if each member has 45 of them."""
    raw = copy.deepcopy(parse_text(files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")))
    raw["actions"]["lend_tool"]["rules"]["deposit_covers"]["if"] = condition
    if loans:
        raw["entities"]["member"]["rows"] = "20"
        raw["entities"]["loan"] |= {"rows": "900", "id": "l####"}
        raw["entities"]["loan"]["fields"]["status"] |= loans
    world = compile_spec(raw)
    WORLDS.register(world)
    return world


def planned_tools(world: type[SpecWorld], intent: str, count: int = 24) -> set[tuple[str, ...]]:
    act_intent = world.intents[intent]
    assert isinstance(act_intent, ActIntent)
    return {tuple(call.tool for call in task.plan.calls) for task in tasks(world, act_intent, count)}


@pytest.mark.parametrize(
    ("condition", "trapped", "free"),
    [
        ("member.deposit >= 20 and tool.fee <= 30", [("get_member",), ("get_tool",)], [("get_member", "get_tool", "lend_tool")]),
        ("member.deposit >= 60 or tool.fee <= 10", [("get_member", "get_tool")], [("get_member", "lend_tool"), ("get_tool", "lend_tool")]),
        (
            "not (member.deposit < 60 and tool.fee > 10)",
            [("get_member", "get_tool")],
            [("get_member", "lend_tool"), ("get_tool", "lend_tool")],
        ),
        ("days <= 7 or member.level == plus", [("get_member",)], [("lend_tool",), ("get_member", "lend_tool")]),
        ("days <= 7 and member.level == plus", [(), ("get_member",)], [("get_member", "lend_tool")]),
        ("days <= 7", [()], [("lend_tool",)]),
    ],
)
def test_only_the_tests_that_decide_a_rule_are_observed(
    condition: str, trapped: list[tuple[str, ...]], free: list[tuple[str, ...]]
) -> None:
    world = starter(condition)
    assert planned_tools(world, "lend_tool_against_deposit_covers") == set(trapped)
    assert planned_tools(world, "lend_tool") == set(free)


THREE = "(member.deposit >= 20 or tool.fee <= 30) and (member.level == plus or tool.fee <= 50) and (member.deposit >= 10 or tool.fee <= 55)"
FOUR = "member.deposit >= 5 or tool.branch.opens <= '09:50' or member.level == plus or tool.branch.city in (Elmwick, Pineford)"


@pytest.mark.parametrize("condition", [THREE, f"not ({THREE})", FOUR, f"days <= 3 or ({THREE}) or tool.kind == saw"])
@pytest.mark.parametrize("intent", ["lend_tool", "lend_tool_against_deposit_covers"])
def test_every_deciding_set_of_tests_passes(condition: str, intent: str) -> None:
    """Given rules that many sets of tests decide, when a policy observes any of these sets, then it passes; no piece of evidence follows
    from another, and no policy passes without an observation where one is needed."""
    world = starter(condition)
    act_intent = world.intents[intent]
    assert isinstance(act_intent, ActIntent)
    (rule,) = (each for each in act_intent.act.conditions if each.rule is not None)
    for task in tasks(world, act_intent, 16):
        act = [] if act_intent.against else [task.plan.calls[-1]]
        for is_backwards in (False, True):
            policy = Policy(world, act_intent.act, world(task.world_seed).now, expression_values(world, act_intent, task), is_backwards)
            policy.judge(rule)
            assert passes(task, [*policy.calls, *act]), (policy.calls, task.success.evidence)
        assert passes(task, act) is not bool(policy.calls)
        clauses = [{each.value, *each.alternatives} for each in task.success.evidence]
        assert not any(one <= other for one in clauses for other in clauses if one is not other)
        assert len(clauses) <= 16


def test_one_observation_is_enough_where_it_decides_three_parts() -> None:
    """Given a rule with eight deciding sets, when a policy observes the tool alone, it passes where the fee fulfils one part of each `or`,
    and fails where it must observe the member too."""
    world = starter(THREE)
    act_intent = world.intents["lend_tool"]
    assert isinstance(act_intent, ActIntent)
    counts = {True: 0, False: 0}
    for task in tasks(world, act_intent, 24):
        state, tool = world(task.world_seed).now, task.slots["tool"]
        fields = world.domain.entities["tool"].fields
        settles = state.row(world.domain.entities["tool"].number, str(tool))[fields["fee"].place] <= 30
        assert passes(task, [Call(tool="get_tool", arguments={"tool": tool}), task.plan.calls[-1]]) is settles
        counts[settles] += 1
    assert all(counts.values())


def test_a_list_that_is_cut_off_shows_no_count() -> None:
    """Given members with more loans than their list shows, then loans of one status are counted by a search; where none tells, the spec is
    refused, but for a rule on how many loans there are at all: that the list says."""
    rule = "count(loan, member=member, status=out) <= 36"
    assert planned_tools(starter(rule, filter="equal"), "lend_tool") == {("search_loans", "lend_tool")}
    with pytest.raises(SpecError, match="a list shows only 20 of the rows that a rule counts"):
        starter(rule, filter="none")
    raw_count = starter("count(loan, member=member) <= 45", filter="none")
    assert {plan[-1] for plan in planned_tools(raw_count, "lend_tool")} == {"lend_tool"}


def test_an_action_may_move_money_out_of_rows_that_no_tool_shows() -> None:
    """Given an action that moves money out of rows that no tool shows, then no observation is required: its tool reports errors."""
    raw = copy.deepcopy(parse_text(files("synth.worlds.declarative").joinpath("starter.yaml").read_text(encoding="utf-8")))
    raw["entities"]["branch"]["fields"]["purse"] = {"type": "money", "min": "0", "max": "90", "label": "purse / 钱箱"}
    raw["entities"]["branch"]["tools"] = []
    raw["actions"]["return_tool"]["moves"] = [{"amount": "5", "from": "loan.tool.branch.purse", "to": "loan.member.deposit"}]
    world = compile_spec(raw)
    WORLDS.register(world)
    assert planned_tools(world, "return_tool") == {("return_tool",)}


def test_refusals_are_by_the_rule() -> None:
    world = starter("days <= 7")
    trap = world.intents["lend_tool_against_deposit_covers"]
    assert isinstance(trap, ActIntent)
    for task in tasks(world, trap, 4):
        assert (task.plan.calls, task.success.evidence, task.success.refusal) == ((), (), RefusalReason.RULE)
