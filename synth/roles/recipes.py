"""Recipes: what a conversation shall be like, before any world is asked whether it can be had.

A recipe lists goals (an intent and slot names each) and what happens around them: withheld facts, faults, checks, questions first, goals
asked in one breath, a goal that is dropped. `native` draws one as it comes; evolution operators change one towards what is rare; `sketch`
says, from the shapes of known plans alone, which modes and which complexity it would have. Thousands of recipes cost as much as one
conversation, so the planner looks at many and drafts few.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Literal

from storage.records import JSON, Frame, Message, RefusalReason, derive_turns
from synth.blueprints import Argument, Node, Perturbation, Prediction, TurnPlan, predict
from synth.roles.phrases import can_point_at, can_withhold, slots_of
from synth.solver import execute, solve
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Unsolvable

Source = str | tuple[int, int]
"""`user`, `const`, or (goal, position of the call in that goal's plan)."""

_SKELETON_SEEDS = 40
_OPTIONAL_SHARE = 0.35
_IDLE_SHARE = 0.15
"""Of goals: refused, or answered without a call."""
_NATIVE_SHARE = 0.1
"""How often an unsteered conversation has any one of the things that operators add."""


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


# ---- the calls of a conversation, in order ---------------------------------------------------------------------------


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


# ---- sketches -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def changing_tools(world: str) -> frozenset[str]:
    return frozenset(tool.name for tool in WORLDS[world].tools if tool.changes_state)


@lru_cache(maxsize=4096)
def _typical_slots(world: str, intent: str, shape: str) -> frozenset[str]:
    """The smallest set of slots that has this plan shape: a function of the intent alone, so that sketches do not depend on history."""
    found = WORLDS[world].intents[intent]
    required = frozenset(slot.name for slot in found.slots if slot.is_required)
    optional = sorted(slot.name for slot in found.slots if not slot.is_required)
    for size in range(len(optional) + 1):
        for extra in combinations(optional, size):
            if str(found.shape(required | set(extra))) == shape:
                return required | set(extra)
    return required


@lru_cache(maxsize=4096)
def skeleton(world: str, intent: str, slots: frozenset[str]) -> GoalPlan | None:
    """A plan of this intent in the first of a few fixed seeds that has one, executed to see what feeds what; None where none has."""
    for seed in range(_SKELETON_SEEDS):
        place = make_world(world, seed)
        frame = Frame(world=world, intent=intent, slots=place.draw_slots(intent, slots, random.Random(seed)))
        try:
            solution = solve(place, frame, "en")
        except Unsolvable:
            continue
        said = " ".join(sorted(place.slot_forms(intent, frame.slots)))
        done = execute(place, [Message(role="user", content=said)], solution.plan.calls, "done.")
        return GoalPlan(tuple((call.tool, call.arguments) for call in solution.plan.calls), sources_of(done.messages, 0))
    return None


def sources_of(messages: Sequence[Message], goal: int) -> tuple[dict[str, Source], ...]:
    """Where each top-level argument of each call of one executed goal comes from."""
    positions: dict[str, int] = {}
    found: list[dict[str, Source]] = []
    for call in (call for turn in derive_turns(messages) for step in turn.steps for call in step.calls):
        positions[call.call_id] = len(positions)
        found.append(merged_sources(call.arguments or {}, call.sources, {key: (goal, at) for key, at in positions.items()}))
    return tuple(found)


def merged_sources(arguments: Mapping[str, JSON], sources: Mapping[str, str], calls: Mapping[str, tuple[int, int]]) -> dict[str, Source]:
    """One source a top-level argument: the latest call that any part of it comes from, else the user, else const."""
    out: dict[str, Source] = {}
    for name in arguments:
        parts = [source for path, source in sources.items() if path == name or path.startswith(f"{name}.")]
        fed = [calls[source] for source in parts if source in calls]
        out[name] = max(fed) if fed else "user" if "user" in parts else "const"
    return out


def sketch(recipe: Recipe) -> Prediction | None:
    """Modes and complexity that the recipe would have; None where one of its goals has no plan."""
    plans: list[GoalPlan] = []
    for index, goal in enumerate(recipe.goals):
        intent = WORLDS[recipe.world].intents[goal.intent]
        plan = skeleton(recipe.world, goal.intent, _typical_slots(recipe.world, goal.intent, str(intent.shape(goal.slots))))
        if plan is None:
            return None
        extra = goal.slots - {slot for slot, found in slots_of(recipe.world, goal.intent).items() if found.is_required}
        plans.append(_placed(plan, index, goal, len(extra), changing_tools(recipe.world), plans))
    laid_out = schedule(recipe, plans)
    faults = frozenset(p.at for p in laid_out.perturbations if p.kind != "goal_shift")
    return predict(laid_out.nodes, laid_out.turns, faults, changing_tools(recipe.world))


def _placed(plan: GoalPlan, index: int, goal: GoalRecipe, extra: int, changing: frozenset[str], before: Sequence[GoalPlan]) -> GoalPlan:
    """A skeleton as goal number `index`: cut at its first act if it is dropped, fed by the goal before if it is chained."""
    calls, sources = plan.calls, [dict(found) for found in plan.sources]
    if goal.is_dropped:
        reads = next((at for at, (tool, _) in enumerate(calls) if tool in changing), len(calls))
        calls, sources = calls[:reads], sources[:reads]
    for found in sources:
        for name, source in found.items():
            if isinstance(source, tuple):
                found[name] = (index, source[1])
    if goal.is_chained and index > 0 and before[index - 1].calls and calls:
        fed = next((name for name, source in sources[0].items() if source == "user"), None)
        if fed is not None:
            sources[0][fed] = (index - 1, len(before[index - 1].calls) - 1)
    return GoalPlan(calls, tuple(sources))


# ---- drawing and changing recipes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kitchen:
    """What recipes are made of: a world, the tools on offer, and the intents that these can serve."""

    world: str
    tools: frozenset[str]
    intents: tuple[str, ...]

    def busy(self) -> tuple[str, ...]:
        """The intents that are done by calls."""
        return tuple(name for name in self.intents if _calls(self.world, name))

    def of_domain(self, domain: str) -> tuple[str, ...]:
        return tuple(name for name in self.intents if WORLDS[self.world].intents[name].domain == domain)


def kitchen(world: str, tools: frozenset[str]) -> Kitchen:
    """All intents of the world whose plans, with required slots alone, need no other tools."""
    fitting = [
        name
        for name, intent in WORLDS[world].intents.items()
        if set(intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools) <= tools
    ]
    return Kitchen(world, tools, tuple(fitting))


def _goal(kitchen: Kitchen, intents: Sequence[str], rng: random.Random) -> GoalRecipe:
    idle = [name for name in intents if not _calls(kitchen.world, name)]
    busy = [name for name in intents if _calls(kitchen.world, name)]
    intent = rng.choice(idle if not busy or (idle and rng.random() < _IDLE_SHARE) else busy)
    found = WORLDS[kitchen.world].intents[intent]
    required = frozenset(slot.name for slot in found.slots if slot.is_required)
    chosen = required | {slot.name for slot in found.slots if not slot.is_required and rng.random() < _OPTIONAL_SHARE}
    return GoalRecipe(intent, chosen if set(_planned(kitchen.world, intent, chosen)) <= kitchen.tools else required)


def native(kitchen: Kitchen, rng: random.Random, *, domain: str | None = None) -> Recipe:
    """A conversation as it comes: mostly one goal, now and then with one of the things that operators add.

    Raises:
        ValueError: the kitchen has no intent of that domain.
    """
    main = kitchen.of_domain(domain) if domain is not None else kitchen.intents
    if not main:
        raise ValueError(f"no intent of domain {domain} can be served by these tools")
    goals = [_goal(kitchen, main, rng)]
    for _ in range(rng.choices((0, 1, 2), weights=(6, 3, 1))[0]):
        goal = _goal(kitchen, kitchen.intents, rng)
        goals.insert(0 if not _calls(kitchen.world, goal.intent) and rng.random() < 0.5 else len(goals), goal)
    recipe = Recipe(kitchen.world, tuple(goals), is_parallel=rng.random() < 0.5)
    for operator in ("deepen", "withhold", "inject_fault", "goal_shift", "ask_first", "verify"):
        if rng.random() < _NATIVE_SHARE:
            recipe = OPERATORS[operator](recipe, kitchen, rng) or recipe
    return replace(recipe, operators=())


def domain_of(recipe: Recipe) -> str:
    """The domain of a conversation: that of its first goal that is done by calls, else of its first."""
    busy = [goal for goal in recipe.goals if _calls(recipe.world, goal.intent)]
    return WORLDS[recipe.world].intents[(busy or recipe.goals)[0].intent].domain


@lru_cache(maxsize=65536)
def _planned(world: str, intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """The tools of a plan with these slots, in order."""
    return WORLDS[world].intents[intent].shape(slots).tools


def _reads_before_acting(recipe: Recipe, goal: GoalRecipe) -> bool:
    tools = _planned(recipe.world, goal.intent, goal.slots)
    changing = changing_tools(recipe.world)
    return bool(tools) and tools[0] not in changing and any(tool in changing for tool in tools)


def _has_pause(recipe: Recipe, goal: GoalRecipe) -> bool:
    """Whether there is a moment at which to ask before going on: before the first act, else after the first of several calls."""
    tools = _planned(recipe.world, goal.intent, goal.slots)
    return len(tools) >= 2 and tools[0] not in changing_tools(recipe.world)


def _has_calls(recipe: Recipe, goal: GoalRecipe) -> bool:
    return bool(_planned(recipe.world, goal.intent, goal.slots))


@lru_cache(maxsize=1024)
def _calls(world: str, intent: str) -> bool:
    """Whether an intent is done by calls at all."""
    return bool(_planned(world, intent, _required(world, intent)))


def _pick(recipe: Recipe, rng: random.Random, fits: Callable[[int, GoalRecipe], bool]) -> int | None:
    fitting = [index for index, goal in enumerate(recipe.goals) if fits(index, goal)]
    return rng.choice(fitting) if fitting else None


def _add_constraint(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """One more optional slot."""

    def missing(goal: GoalRecipe) -> list[str]:
        found = WORLDS[recipe.world].intents[goal.intent]
        spare = [slot.name for slot in found.slots if slot.name not in goal.slots]
        return [name for name in spare if set(_planned(recipe.world, goal.intent, goal.slots | {name})) <= kitchen.tools]

    index = _pick(recipe, rng, lambda _, goal: bool(missing(goal)))
    if index is None:
        return None
    goal = recipe.goals[index]
    return recipe.with_goal(index, replace(goal, slots=goal.slots | {rng.choice(missing(goal))}), "add_constraint")


def _deepen(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """A further goal about what the last one brought up ("cancel that one")."""
    if len(recipe.goals) >= 3 or recipe.goals[-1].is_dropped or not _has_calls(recipe, recipe.goals[-1]):
        return None
    fitting = [
        name
        for name in kitchen.intents
        if _calls(recipe.world, name) and any(slot.is_entity and can_point_at(slot) for slot in slots_of(recipe.world, name).values())
    ]
    if not fitting:
        return None
    goal = replace(_goal(kitchen, fitting, rng), is_chained=True)
    return replace(recipe, goals=(*recipe.goals, goal), operators=(*recipe.operators, "deepen"))


def _withhold(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """A fact is left out until the assistant asks."""

    def open_slots(goal: GoalRecipe) -> list[str]:
        slots = slots_of(recipe.world, goal.intent)
        return [name for name in sorted(goal.slots) if can_withhold(slots[name])]

    def fits(index: int, goal: GoalRecipe) -> bool:
        leads = index + 1 == len(recipe.goals) or not recipe.goals[index + 1].is_joint
        dropped_before = index > 0 and recipe.goals[index - 1].is_dropped
        return (
            bool(open_slots(goal)) and goal.withheld is None and leads and not goal.is_joint and not goal.is_chained and not dropped_before
        )

    index = _pick(recipe, rng, lambda at, goal: fits(at, goal) and _may_be_open(recipe, goal))
    if index is None:
        return None
    return recipe.with_goal(index, replace(recipe.goals[index], withheld=rng.choice(open_slots(recipe.goals[index]))), "withhold")


def _may_be_open(recipe: Recipe, goal: GoalRecipe) -> bool:
    """A request that is refused for lack of information must not be completed by asking."""
    return WORLDS[recipe.world].intents[goal.intent].refusal is not RefusalReason.MISSING_INFORMATION


def _inject_fault(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """A reading call fails once."""
    changing = changing_tools(recipe.world)

    def has_reads(goal: GoalRecipe) -> bool:
        return any(tool not in changing for tool in _planned(recipe.world, goal.intent, goal.slots))

    index = _pick(recipe, rng, lambda _, goal: goal.fault is None and has_reads(goal))
    if index is None:
        return None
    fault: Literal["error", "empty"] = "error" if rng.random() < 0.7 else "empty"
    return recipe.with_goal(index, replace(recipe.goals[index], fault=fault, fault_at=rng.randrange(4)), "inject_fault")


def _merge_goals(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """Two goals in one breath; a second is drawn where there is only one."""
    if recipe.goals[-1].is_dropped or not _is_plain(recipe, recipe.goals[-1]):
        return None
    if len(recipe.goals) < 3:
        recipe = replace(recipe, goals=(*recipe.goals, _goal(kitchen, kitchen.intents, rng)))
    last, previous = recipe.goals[-1], recipe.goals[-2]
    if not _is_plain(recipe, last) or not _is_plain(recipe, previous) or last.is_joint or previous.is_joint:
        return None
    return recipe.with_goal(len(recipe.goals) - 1, replace(last, is_joint=True), "merge_goals")


def _is_plain(recipe: Recipe, goal: GoalRecipe) -> bool:
    """Whether a goal can share a turn with another: it is done by calls, and nothing interrupts it."""
    interrupted = goal.withheld or goal.is_chained or goal.asks_first or goal.is_dropped or goal.check
    return not interrupted and _has_calls(recipe, goal) and WORLDS[recipe.world].intents[goal.intent].refusal is None


def _goal_shift(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """A goal is dropped before anything is changed, for another."""
    fitting = [
        index
        for index, goal in enumerate(recipe.goals[:-1])
        if _is_plain(recipe, goal) and _reads_before_acting(recipe, goal) and not goal.is_joint and not recipe.goals[index + 1].is_joint
    ]
    fitting = [index for index in fitting if not recipe.goals[index + 1].is_chained and recipe.goals[index + 1].withheld is None]
    if fitting:
        index = rng.choice(fitting)
        return recipe.with_goal(index, replace(recipe.goals[index], is_dropped=True), "goal_shift")
    candidates = [name for name in kitchen.intents if _reads_before_acting(recipe, GoalRecipe(name, _required(recipe.world, name)))]
    if len(recipe.goals) >= 3 or not candidates or recipe.goals[0].withheld is not None:
        return None
    dropped = replace(_goal(kitchen, candidates, rng), is_dropped=True)
    return replace(recipe, goals=(dropped, *recipe.goals), operators=(*recipe.operators, "goal_shift"))


@lru_cache(maxsize=1024)
def _required(world: str, intent: str) -> frozenset[str]:
    return frozenset(slot.name for slot in WORLDS[world].intents[intent].slots if slot.is_required)


def _parallel(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """Independent calls in one message, or one after another."""
    return replace(recipe, is_parallel=not recipe.is_parallel, operators=(*recipe.operators, "parallel"))


def _ask_first(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """The assistant asks before it acts, or goes on."""
    index = _pick(recipe, rng, lambda at, goal: _can_pause(recipe, at) and not goal.asks_first and _has_pause(recipe, goal))
    return None if index is None else recipe.with_goal(index, replace(recipe.goals[index], asks_first=True), "ask_first")


def _verify(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe | None:
    """Something is read again before the answer (after an act: to see that it arrived), or because the user wants it."""
    index = _pick(recipe, rng, lambda at, goal: _can_pause(recipe, at) and goal.check is None and _has_calls(recipe, goal))
    if index is None:
        return None
    goal = recipe.goals[index]
    return recipe.with_goal(index, replace(goal, check="self" if rng.random() < 0.6 else "asked"), "verify")


def _can_pause(recipe: Recipe, index: int) -> bool:
    """Whether a goal has its turn to itself and is carried through."""
    goal, is_last = recipe.goals[index], index + 1 == len(recipe.goals)
    return not goal.is_joint and not goal.is_dropped and (is_last or not recipe.goals[index + 1].is_joint)


Operator = Callable[[Recipe, Kitchen, random.Random], Recipe | None]
OPERATORS: Mapping[str, Operator] = {
    "add_constraint": _add_constraint,
    "deepen": _deepen,
    "withhold": _withhold,
    "inject_fault": _inject_fault,
    "merge_goals": _merge_goals,
    "goal_shift": _goal_shift,
    "ask_first": _ask_first,
    "verify": _verify,
    "parallel": _parallel,
}
"""How a recipe evolves; each gives None where it does not apply."""


def evolved(recipe: Recipe, kitchen: Kitchen, rng: random.Random) -> Recipe:
    """The recipe after one operator drawn at random; unchanged where that does not apply."""
    return OPERATORS[rng.choice(list(OPERATORS))](recipe, kitchen, rng) or recipe
