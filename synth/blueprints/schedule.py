"""The order of a conversation: conversation templates, and who says and calls what when.

A template lists goals (an intent and slot names each) and what happens around them: withheld values, faults, checks, questions first,
goals in one request, a dropped goal. Whatever the assistant could as well do otherwise has a cue that it can see: an error, a value that
is missing, or words of the user (`Cue`). `schedule` lays a template and the plans of its goals out as turns and calls, without words: the
draft adds them, the sketch needs none. `predict` computes the modes and the complexity of the outcome, by the rules that measure executed
trajectories. A planner looks at dozens of layouts for each plan that it writes, so they are plain tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from storage.records import CODE_TOOL, JSON
from synth.blueprints.diversity import call_complexity, collapse_runs, nesting_depth
from synth.worlds.base import World, cached_per_world

Cue = Literal["ask_first", "double_check", "together"]
"""What the user asks for in the request, beside the goal: to be asked before anything is changed, a second look before the answer, or
independent calls in one message. Without these words the assistant does none of it."""

Source = str | tuple[int, int]
"""`user`, `const`, `hidden` (a value that the user never states), or (goal, position of the call in that goal's plan)."""


@dataclass(frozen=True, slots=True)
class GoalTemplate:
    """One goal of a template.

    withheld: a slot that the user leaves out until asked.
    is_chained: a slot value comes from the previous goal's answer; the request only refers to it.
    is_joint: asked in one request with the goal before.
    asks_first: the user wants to be asked before anything is changed.
    is_dropped: so too, and then the user changes their mind.
    has_fault: the `fault_at`-th reading call (modulo their number) fails once.
    check: something is read again, because the user wants a second look before the answer (`first`) or after it (`later`).
    down: a reading tool that no goal needs, that could be tried instead of a call, and that always fails.
    """

    intent: str
    slots: frozenset[str]
    withheld: str | None = None
    is_chained: bool = False
    is_joint: bool = False
    asks_first: bool = False
    is_dropped: bool = False
    has_fault: bool = False
    fault_at: int = 0
    check: Literal["first", "later"] | None = None
    down: str | None = None


@dataclass(frozen=True, slots=True)
class ConversationTemplate:
    """The goals of a conversation.

    is_parallel: the user wants independent calls made together.
    operators: those that were applied, in order.
    """

    world: type[World]
    goals: tuple[GoalTemplate, ...]
    is_parallel: bool
    operators: tuple[str, ...] = ()

    def with_goal(self, index: int, goal: GoalTemplate, operator: str) -> ConversationTemplate:
        goals = (*self.goals[:index], goal, *self.goals[index + 1 :])
        return ConversationTemplate(self.world, goals, self.is_parallel, (*self.operators, operator))


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One planned call of a goal.

    sources: source of each top-level argument.
    parents: the earlier calls among the sources.
    key: equal for equal calls.
    weight: the part of its share of CAC that does not depend on its position.
    """

    tool: str
    arguments: Mapping[str, JSON]
    sources: Mapping[str, Source]
    parents: tuple[tuple[int, int], ...]
    key: str
    weight: float

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, JSON], sources: Mapping[str, Source], *, changes_state: bool) -> CallPlan:
        parents = tuple(sorted({source for source in sources.values() if isinstance(source, tuple)}))
        depth = max(1, nesting_depth(arguments))
        weight = call_complexity(arguments=len(arguments), depth=depth, changes_state=changes_state, is_code=tool == CODE_TOOL)
        return cls(tool, arguments, sources, parents, f"{tool} {sorted(arguments.items())!r}", weight)


GoalPlan = tuple[CallPlan, ...]
"""The calls of one goal, in order."""


@cached_per_world()
def changing_tools(world: type[World]) -> frozenset[str]:
    return frozenset(tool.name for tool in world.tools if tool.changes_state)


@cached_per_world()
def required_parameters(world: type[World], tool: str) -> frozenset[str]:
    return frozenset(name for each in world.tools if each.name == tool for name in each.parameters.get("required", ()))


class Move(NamedTuple):
    """Call number `n` of a conversation. fed_by: calls whose results it uses. after: these, and other calls it must wait for."""

    n: int
    goal: int
    call: CallPlan
    fed_by: tuple[int, ...]
    after: tuple[int, ...]
    is_check: bool = False


class Turn(NamedTuple):
    """A user turn and the assistant's reply, without words; fields as in `blueprint.TurnPlan`.

    kind: `open`, `reveal`, `agree` or `recheck`.
    lead: its goal, the first of a joint group.
    cues: of all turns up to the next of kind `open`.
    """

    kind: str
    lead: int
    steps: tuple[tuple[int, ...], ...]
    reveals: tuple[str, ...]
    withholds: tuple[str, ...]
    is_question: bool
    settles: tuple[int, ...]
    cues: tuple[Cue, ...] = ()


Disturbance = Literal["error", "goal_shift"]


class Schedule(NamedTuple):
    """A conversation without words.

    numbers: (goal, position in its plan) -> number of the call.
    disturbances: (number of a call, what goes wrong there).
    outages: number of a call -> a failing call before it, and the calls whose results that uses.
    """

    moves: list[Move]
    turns: list[Turn]
    numbers: dict[tuple[int, int], int]
    disturbances: list[tuple[int, Disturbance]]
    outages: dict[int, tuple[CallPlan, tuple[int, ...]]]


class _Scheduler:
    def __init__(self, template: ConversationTemplate, plans: Sequence[GoalPlan]) -> None:
        self.template, self.plans = template, plans
        self.changing = changing_tools(template.world)
        self.moves: list[Move] = []
        self.turns: list[Turn] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self.disturbances: list[tuple[int, Disturbance]] = []
        self.outages: dict[int, tuple[CallPlan, tuple[int, ...]]] = {}

    def run(self) -> Schedule:
        start, goals = 0, self.template.goals
        while start < len(goals):
            end = start + 1
            while end < len(goals) and goals[end].is_joint:
                end += 1
            self._segment(tuple(range(start, end)))
            start = end
        return Schedule(self.moves, self.turns, self.numbers, self.disturbances, self.outages)

    def _segment(self, members: tuple[int, ...]) -> None:
        """Adds the turns of the goals that are asked for in one request, and the request's cues."""
        first = len(self.turns)
        cues = self._add_turns(members)
        if any(len(step) > 1 for turn in self.turns[first:] for step in turn.steps):
            cues.append("together")
        self.turns[first] = self.turns[first]._replace(cues=tuple(cues))

    def _add_turns(self, members: tuple[int, ...]) -> list[Cue]:
        lead = members[0]
        goal = self.template.goals[lead]
        kind, cues = "open", list[Cue]()
        if goal.withheld is not None:
            self._turn("open", lead, withholds=(f"{lead}.{goal.withheld}",), is_question=True)
            kind = "reveal"
        revealed = (f"{lead}.{goal.withheld}",) if goal.withheld is not None else ()
        numbers = [number for member in members for number in self._add(member)]
        acts = [number for number in numbers if self.moves[number].call.tool in self.changing]
        if goal.is_dropped and numbers:
            self.disturbances.append((numbers[0], "goal_shift"))
            self._turn(kind, lead, numbers, reveals=revealed, is_question=True)
            return ["ask_first"]
        check = self._check(lead, numbers, acts) if len(members) == 1 else None
        pause = numbers.index(acts[0]) if acts else 0
        if goal.asks_first and pause and len(members) == 1:
            self._turn(kind, lead, numbers[:pause], reveals=revealed, is_question=True)
            numbers, kind, revealed = numbers[pause:], "agree", ()
            cues.append("ask_first")
        if check is not None and goal.check == "first":
            self._turn(kind, lead, numbers, reveals=revealed, settles=members, last=check)
            cues.append("double_check")
        elif check is not None:
            self._turn(kind, lead, numbers, reveals=revealed)
            self._turn("recheck", lead, (), settles=members, last=check)
        else:
            self._turn(kind, lead, numbers, reveals=revealed, settles=members)
        return cues

    def _add(self, index: int) -> list[int]:
        """Adds the calls of a goal, and the planned fault of one of them."""
        numbers: list[int] = []
        reads: list[int] = []
        for position, call in enumerate(self.plans[index]):
            fed_by = tuple(sorted([self.numbers[parent] for parent in call.parents]))
            number = len(self.moves)
            needs_all = call.tool in self.changing or call.tool == CODE_TOOL
            after = tuple(sorted({*fed_by, *reads})) if needs_all else fed_by
            if call.tool not in self.changing:
                reads.append(number)
            self.numbers[index, position] = number
            numbers.append(number)
            self.moves.append(Move(number, index, call, fed_by, after))
        goal = self.template.goals[index]
        if goal.has_fault and reads:
            self.disturbances.append((reads[goal.fault_at % len(reads)], "error"))
        if goal.down is not None and not any(call.tool == goal.down for plan in self.plans for call in plan):
            self._fail(goal.down, index, numbers)
        return numbers

    def _fail(self, tool: str, index: int, numbers: Sequence[int]) -> None:
        """Adds a failing call of `tool` before the first call of the goal that has all its required arguments."""
        required = required_parameters(self.template.world, tool)
        for number, call in zip(numbers, self.plans[index], strict=True):
            if required and required <= call.arguments.keys():
                given = {name: call.arguments[name] for name in sorted(required)}
                tried = CallPlan.of(tool, given, {name: call.sources[name] for name in given}, changes_state=False)
                self.outages[number] = (tried, tuple(sorted([self.numbers[parent] for parent in tried.parents])))
                return

    def _check(self, lead: int, numbers: Sequence[int], acts: Sequence[int]) -> int | None:
        check = self.template.goals[lead].check
        reads = [number for number in numbers if number not in acts and (not acts or number < acts[0])]
        reads = [number for number in reads if self.moves[number].call.tool != CODE_TOOL]
        if check is None or not reads:
            return None
        repeated, number = self.moves[reads[-1]], len(self.moves)
        after = tuple(sorted({*numbers, *repeated.after}))
        self.moves.append(Move(number, repeated.goal, repeated.call, repeated.fed_by, after, is_check=True))
        return number

    def _turn(
        self,
        kind: str,
        lead: int,
        numbers: Sequence[int] = (),
        *,
        reveals: tuple[str, ...] = (),
        withholds: tuple[str, ...] = (),
        is_question: bool = False,
        settles: tuple[int, ...] = (),
        last: int | None = None,
    ) -> None:
        steps = (*self._steps(numbers), *(((last,),) if last is not None else ()))
        self.turns.append(Turn(kind, lead, steps, reveals, withholds, is_question, settles))

    def _steps(self, numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """One call a message or, if calls may be parallel, one message for all calls at the same depth of dependencies."""
        if not self.template.is_parallel or len(numbers) < 2:
            return tuple([(number,) for number in numbers])
        level: dict[int, int] = {}
        for number in numbers:
            level[number] = 1 + max([level[parent] for parent in self.moves[number].after if parent in level], default=-1)
        return tuple([tuple([number for number in numbers if level[number] == depth]) for depth in range(max(level.values()) + 1)])


def schedule(template: ConversationTemplate, plans: Sequence[GoalPlan]) -> Schedule:
    """The layout of a template with the plans of its goals."""
    return _Scheduler(template, plans).run()


# ---- prediction -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prediction:
    """coarse: signature m1 (`diversity.coarse_mode`). complexity: CAC."""

    coarse: str
    complexity: float


def predict(layout: Schedule) -> Prediction:
    """Modes and complexity of a conversation, by the definitions of P3, if every call does what is planned.

    A call whose first result is a planned fault is repeated once.
    """
    forecast, moves = _Forecast(layout.moves), layout.moves
    faults = {at for at, kind in layout.disturbances if kind != "goal_shift"}
    for turn in layout.turns:
        for step in turn.steps:
            tried = next((layout.outages[n] for n in step if n in layout.outages), None) if layout.outages else None
            if tried is not None:
                forecast.add_failure(*tried)
            hit = [n for n in step if n in faults] if faults else []
            forecast.add([moves[n] for n in step], spoilt=hit, is_repair=tried is not None)
            if hit:
                forecast.add([moves[n] for n in hit], spoilt=[], is_repair=True)
        forecast.tokens.append("A" if turn.is_question else "F" if turn.steps else "N")
    return Prediction(collapse_runs(forecast.tokens), forecast.total + 0.5 * max(0, len(layout.turns) - 1))


class _Forecast:
    """Accumulates mode tokens and CAC, one assistant message after another."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves, self.tokens, self.total = moves, list[str](), 0.0
        self._made_at: dict[int, int] = {}
        self._succeeded: set[str] = set()
        self._position = 0

    def add(self, group: Sequence[Move], *, spoilt: Sequence[int], is_repair: bool) -> None:
        is_again = not is_repair and any(move.call.key in self._succeeded for move in group)
        is_fed = any(move.fed_by for move in group)
        is_code = any(move.call.tool == CODE_TOOL for move in group)
        token = "X" if is_code else "S" if is_fed else "P" if len(group) > 1 else "C"
        self.tokens.append("R" if is_repair else "V" if is_again else token)
        extra = 1.0 if is_repair else 0.5 if is_again else 0.0
        for move in group:
            self.total += move.call.weight + extra + self._reach(move.fed_by)
            if move.n not in spoilt:
                self._made_at[move.n] = self._position
                self._succeeded.add(move.call.key)
        self._position += 1

    def add_failure(self, call: CallPlan, fed_by: Sequence[int]) -> None:
        """Adds a failing call."""
        self.tokens.append("S" if fed_by else "C")
        self.total += call.weight + self._reach(fed_by)
        self._position += 1

    def _reach(self, fed_by: Sequence[int]) -> float:
        if not fed_by:
            return 0.0
        hop = max([self._position - self._made_at[parent] for parent in fed_by])
        return 0.5 * len(fed_by) + 0.25 * math.log2(1 + hop)
