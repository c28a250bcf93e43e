"""The order of a conversation: recipes of goals, and who says and calls what when.

A recipe lists goals (an intent and slot names each) and what happens around them: withheld facts, faults, checks, questions first, goals
asked in one breath, a goal that is dropped. `schedule` lays a recipe and the plans of its goals out as turns and calls, without a word
of text: the planner fills in the words, the sketch needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from storage.records import JSON
from synth.blueprints import Argument, Node, Perturbation, TurnPlan
from synth.worlds import WORLDS

Source = str | tuple[int, int]
"""`user`, `const`, or (goal, position of the call in that goal's plan)."""


@dataclass(frozen=True, slots=True)
class GoalRecipe:
    """withheld: a slot that the user leaves out until asked. is_chained: a slot value follows from the previous goal's answer and is only
    pointed at. is_joint: asked in one breath with the goal before. asks_first: the assistant asks before it acts. is_dropped: and then
    the user changes their mind. fault: the `fault_at`-th reading call (modulo their number) fails once. check: something is read again
    before the answer (`self`) or because the user wants it (`asked`)."""

    intent: str
    slots: frozenset[str]
    withheld: str | None = None
    is_chained: bool = False
    is_joint: bool = False
    asks_first: bool = False
    is_dropped: bool = False
    fault: Literal["error", "empty"] | None = None
    fault_at: int = 0
    check: Literal["self", "asked"] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    world: str
    goals: tuple[GoalRecipe, ...]
    is_parallel: bool
    operators: tuple[str, ...] = ()

    def with_goal(self, index: int, goal: GoalRecipe, operator: str) -> Recipe:
        goals = (*self.goals[:index], goal, *self.goals[index + 1 :])
        return replace(self, goals=goals, operators=(*self.operators, operator))


@dataclass(frozen=True, slots=True)
class GoalPlan:
    """The calls of one goal, as far as they are made: tool, arguments, and each top-level argument's source."""

    calls: tuple[tuple[str, Mapping[str, JSON]], ...]
    sources: tuple[Mapping[str, Source], ...]


@lru_cache(maxsize=16)
def changing_tools(world: str) -> frozenset[str]:
    return frozenset(tool.name for tool in WORLDS[world].tools if tool.changes_state)


@dataclass(frozen=True, slots=True)
class Schedule:
    """kinds: of each turn: `open`, `reveal`, `agree` or `recheck`. lead: the goal each turn is about (the first of a joint group)."""

    nodes: tuple[Node, ...]
    turns: tuple[TurnPlan, ...]
    kinds: tuple[str, ...]
    leads: tuple[int, ...]
    perturbations: tuple[Perturbation, ...]


class _Scheduler:
    def __init__(self, recipe: Recipe, plans: Sequence[GoalPlan]) -> None:
        self.recipe, self.plans = recipe, plans
        self.changing = changing_tools(recipe.world)
        self.nodes: list[Node] = []
        self.turns: list[TurnPlan] = []
        self.kinds: list[str] = []
        self.leads: list[int] = []
        self.perturbations: list[Perturbation] = []
        self._number: dict[tuple[int, int], int] = {}

    def run(self) -> Schedule:
        start, goals = 0, self.recipe.goals
        while start < len(goals):
            end = start + 1
            while end < len(goals) and goals[end].is_joint:
                end += 1
            self._segment(tuple(range(start, end)))
            start = end
        return Schedule(tuple(self.nodes), tuple(self.turns), tuple(self.kinds), tuple(self.leads), tuple(self.perturbations))

    def _segment(self, members: tuple[int, ...]) -> None:
        lead = members[0]
        goal = self.recipe.goals[lead]
        kind = "open"
        if goal.withheld is not None:
            self._turn("open", lead, withholds=(f"{lead}.{goal.withheld}",), is_question=True)
            kind = "reveal"
        revealed = (f"{lead}.{goal.withheld}",) if goal.withheld is not None else ()
        numbers = [number for member in members for number in self._add(member)]
        acts = [number for number in numbers if self.nodes[number].tool in self.changing]
        if goal.is_dropped and numbers:
            self.perturbations.append(Perturbation(at=numbers[0], kind="goal_shift"))
            self._turn(kind, lead, numbers, reveals=revealed, is_question=True)
            return
        check = self._check(lead, numbers, acts) if len(members) == 1 else None
        pause = numbers.index(acts[0]) if acts else 1
        if goal.asks_first and 0 < pause < len(numbers) and len(members) == 1:
            self._turn(kind, lead, numbers[:pause], reveals=revealed, is_question=True)
            numbers, kind, revealed = numbers[pause:], "agree", ()
        if check is not None and goal.check == "self":
            self._turn(kind, lead, numbers, reveals=revealed, settles=members, last=check)
        elif check is not None:
            self._turn(kind, lead, numbers, reveals=revealed)
            self._turn("recheck", lead, (), settles=members, last=check)
        else:
            self._turn(kind, lead, numbers, reveals=revealed, settles=members)

    def _add(self, index: int) -> list[int]:
        """The nodes of a goal, and the fault that is planned for one of them."""
        numbers: list[int] = []
        for position, ((tool, arguments), sources) in enumerate(zip(self.plans[index].calls, self.plans[index].sources, strict=True)):
            named = {name: self._argument(value, sources[name]) for name, value in arguments.items()}
            after = {argument.node for argument in named.values() if argument.node is not None}
            if tool in self.changing:
                after |= {number for number in numbers if self.nodes[number].tool not in self.changing}
            number = len(self.nodes)
            self._number[index, position] = number
            numbers.append(number)
            self.nodes.append(Node(n=number, goal=index, tool=tool, arguments=named, after=tuple(sorted(after))))
        goal = self.recipe.goals[index]
        reads = [number for number in numbers if self.nodes[number].tool not in self.changing]
        if goal.fault is not None and reads:
            self.perturbations.append(Perturbation(at=reads[goal.fault_at % len(reads)], kind=goal.fault))
        return numbers

    def _argument(self, value: JSON, source: Source) -> Argument:
        if isinstance(source, tuple):
            return Argument(src="node", value=value, node=self._number[source])
        return Argument(src="user" if source == "user" else "hidden" if source == "hidden" else "const", value=value)

    def _check(self, lead: int, numbers: Sequence[int], acts: Sequence[int]) -> int | None:
        wanted = self.recipe.goals[lead].check
        reads = [number for number in numbers if number not in acts and (not acts or number < acts[0])]
        if wanted is None or not reads:
            return None
        repeated = self.nodes[reads[-1]]
        after = tuple(sorted({*numbers, *repeated.after}))
        self.nodes.append(repeated.model_copy(update={"n": len(self.nodes), "after": after, "is_check": True}))
        return len(self.nodes) - 1

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
        self.turns.append(
            TurnPlan(
                t=len(self.turns), text="", reveals=reveals, withholds=withholds, steps=steps, is_question=is_question, settles=settles
            )
        )
        self.kinds.append(kind)
        self.leads.append(lead)

    def _steps(self, numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """One call a message or, where calls may be parallel, all that wait for the same things together."""
        if not self.recipe.is_parallel:
            return tuple((number,) for number in numbers)
        level: dict[int, int] = {}
        for number in numbers:
            level[number] = 1 + max((level[parent] for parent in self.nodes[number].after if parent in level), default=-1)
        return tuple(tuple(number for number in numbers if level[number] == depth) for depth in range(max(level.values(), default=-1) + 1))


def schedule(recipe: Recipe, plans: Sequence[GoalPlan]) -> Schedule:
    """Who says and calls what when; texts are left empty."""
    return _Scheduler(recipe, plans).run()
