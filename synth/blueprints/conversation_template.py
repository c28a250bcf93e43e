"""How recipes are drawn and changed: as they come (`native`), or one evolution operator at a time (`evolve`; P4).

Operators change the plan. Veils (`VEILS`) keep it and make it harder to see; the planner puts them over a draft.
Operators know what they may be applied to, so that no recipe contradicts itself: a goal that shares its turn with another is not
interrupted, what is dropped has been looked at, a request that is refused for want of information is not completed by asking.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from storage.records import CODE_TOOL, RefusalReason
from synth.blueprints.phrases import can_point_at, can_withhold, mentioned_values, slots_of
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate, changing_tools, required_parameters
from synth.blueprints.sketch import typical
from synth.worlds.base import World, cached_per_world

_OPTIONAL_SHARE = 0.35
_IDLE_SHARE = 0.15
"""Of goals: refused, or answered without a call."""
_CACHED = 65536
_NATIVE_SHARE = 0.1
"""How often an unsteered conversation has any one of the things that operators add."""


@dataclass(frozen=True, slots=True)
class _About:
    """What cooking needs of an intent. optional: slots in the order in which the intent lists them."""

    domain: str
    required: frozenset[str]
    optional: tuple[str, ...]
    refusal: RefusalReason | None
    is_busy: bool
    """Whether it is done by calls at all."""


@cached_per_world(_CACHED)
def _about(world: type[World], intent: str) -> _About:
    declared = world.intents[intent]
    required = frozenset(slot.name for slot in declared.slots if slot.is_required)
    optional = tuple(slot.name for slot in declared.slots if not slot.is_required)
    return _About(declared.domain, required, optional, declared.refusal, bool(declared.shape(required).calls))


@cached_per_world(4096)
def _split(world: type[World], intents: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Intents that are done without a call, and those that are done by calls."""
    return (
        tuple(name for name in intents if not _about(world, name).is_busy),
        tuple(name for name in intents if _about(world, name).is_busy),
    )


class IntentPool:
    """What recipes are made of: a world, the tools on offer, and the intents that these can serve."""

    def __init__(self, world: type[World], tools: frozenset[str], intents: tuple[str, ...]) -> None:
        self.world, self.tools, self.intents = world, tools, intents
        self.idle, self.busy = _split(world, intents)
        self.by_domain: dict[str, tuple[str, ...]] = {}
        for name in intents:
            domain = _about(world, name).domain
            self.by_domain[domain] = (*self.by_domain.get(domain, ()), name)
        self.computing = frozenset(name for name in intents if CODE_TOOL in _tools_of(world, name, _about(world, name).required))
        """Those that need a program."""
        self.droppable = tuple(name for name in intents if _reads_before_acting(world, name, _about(world, name).required))

    def computes(self, recipe: ConversationTemplate) -> bool:
        """Whether a recipe has a goal that needs a program."""
        return any(goal.intent in self.computing for goal in recipe.goals)


@cached_per_world(4096)
def intent_pool(world: type[World], tools: frozenset[str]) -> IntentPool:
    """All intents of the world whose plans, with required slots alone, need no other tools."""
    fitting = [name for name in world.intents if set(_tools_of(world, name, _about(world, name).required)) <= tools]
    return IntentPool(world, tools, tuple(fitting))


def _goal(kitchen: IntentPool, intents: tuple[str, ...], rng: random.Random) -> GoalTemplate:
    idle, busy = _split(kitchen.world, intents)
    intent = rng.choice(idle if not busy or (idle and rng.random() < _IDLE_SHARE) else busy)
    about = _about(kitchen.world, intent)
    slot_names = about.required.union([name for name in about.optional if rng.random() < _OPTIONAL_SHARE])
    return GoalTemplate(intent, slot_names if kitchen.tools.issuperset(_tools_of(kitchen.world, intent, slot_names)) else about.required)


def native(kitchen: IntentPool, rng: random.Random, *, domain: str | None = None) -> ConversationTemplate:
    """A conversation as it comes: mostly one goal, now and then with one of the things that operators add.

    Raises:
        ValueError: the kitchen has no intent of that domain.
    """
    main = kitchen.by_domain.get(domain, ()) if domain is not None else kitchen.intents
    if not main:
        raise ValueError(f"no intent of domain {domain} can be served by these tools")
    goals = [_goal(kitchen, main, rng)]
    for _ in range(rng.choices((0, 1, 2), weights=(6, 3, 1))[0]):
        goal = _goal(kitchen, kitchen.intents, rng)
        goals.insert(0 if not _about(kitchen.world, goal.intent).is_busy and rng.random() < 0.5 else len(goals), goal)
    recipe = ConversationTemplate(kitchen.world, tuple(goals), is_parallel=rng.random() < 0.5)
    for operator in ("deepen", "withhold", "inject_fault", "goal_shift", "ask_first", "verify"):
        if rng.random() < _NATIVE_SHARE:
            recipe = OPERATORS[operator](recipe, kitchen, rng) or recipe
    return recipe


def also_computing(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate:
    """The recipe with a last goal more, that needs a program; unchanged where it has no room for one, or there is none."""
    if not kitchen.computing or len(recipe.goals) >= 3 or recipe.goals[-1].is_dropped:
        return recipe
    goal = _goal(kitchen, tuple(name for name in kitchen.intents if name in kitchen.computing), rng)
    return replace(recipe, goals=(*recipe.goals, goal))


def domain_of(recipe: ConversationTemplate) -> str:
    """The domain of a conversation: that of its first goal that is done by calls, else of its first."""
    about = [_about(recipe.world, goal.intent) for goal in recipe.goals]
    return next((each for each in about if each.is_busy), about[0]).domain


@cached_per_world(_CACHED)
def _tools_of(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """The tools of a plan with these slots, in order."""
    return world.intents[intent].shape(slots).tools


@cached_per_world(_CACHED)
def _reads_before_acting(world: type[World], intent: str, slots: frozenset[str]) -> bool:
    tools, changing = _tools_of(world, intent, slots), changing_tools(world)
    return bool(tools) and tools[0] not in changing and any(tool in changing for tool in tools)


@cached_per_world(_CACHED)
def _has_reads(world: type[World], intent: str, slots: frozenset[str]) -> bool:
    return not changing_tools(world).issuperset(_tools_of(world, intent, slots))


@cached_per_world(_CACHED)
def _follow_ups(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """Intents that can be about something that an answer to this one brings up."""
    example = typical(world, intent, slots)
    if example is None:
        return ()

    def takes_up(name: str) -> bool:
        pointed = [slot for slot in slots_of(world, name).values() if slot.is_entity and can_point_at(world, slot)]
        mentions = [value for slot in pointed for value in mentioned_values(world, example.answer, name, slot.name, "en")]
        return any(value not in example.slots.values() for value in mentions)

    return tuple(name for name in world.intents if takes_up(name))


@cached_per_world(_CACHED)
def _open_slots(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """Those of the slots that a request can leave out until asked."""
    slots_by_name = slots_of(world, intent)
    return tuple(name for name in sorted(slots) if can_withhold(world, slots_by_name[name]))


def _has_pause(recipe: ConversationTemplate, goal: GoalTemplate) -> bool:
    """Whether there is a moment at which to ask before going on: before the first act, else after the first of several calls."""
    return _starts_reading(recipe, goal) and len(_tools_of(recipe.world, goal.intent, goal.slots)) >= 2


def _starts_reading(recipe: ConversationTemplate, goal: GoalTemplate) -> bool:
    tools = _tools_of(recipe.world, goal.intent, goal.slots)
    return bool(tools) and tools[0] not in changing_tools(recipe.world)


def _has_calls(recipe: ConversationTemplate, goal: GoalTemplate) -> bool:
    return bool(_tools_of(recipe.world, goal.intent, goal.slots))


def _pick(recipe: ConversationTemplate, rng: random.Random, fits: Callable[[int, GoalTemplate], bool]) -> int | None:
    fitting = [index for index, goal in enumerate(recipe.goals) if fits(index, goal)]
    return rng.choice(fitting) if fitting else None


def _add_constraint(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """One more optional slot."""

    def missing(goal: GoalTemplate) -> list[str]:
        about = _about(recipe.world, goal.intent)
        spare = [name for name in about.optional if name not in goal.slots]
        return [name for name in spare if kitchen.tools.issuperset(_tools_of(recipe.world, goal.intent, goal.slots | {name}))]

    index = _pick(recipe, rng, lambda _, goal: bool(missing(goal)))
    if index is None:
        return None
    goal = recipe.goals[index]
    return recipe.with_goal(index, replace(goal, slots=goal.slots | {rng.choice(missing(goal))}), "add_constraint")


def _deepen(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A further goal about what the last one brought up ("cancel that one")."""
    if len(recipe.goals) >= 3 or recipe.goals[-1].is_dropped or not _has_calls(recipe, recipe.goals[-1]):
        return None
    last = recipe.goals[-1]
    following = tuple(name for name in _follow_ups(recipe.world, last.intent, last.slots) if name in kitchen.busy)
    if not following:
        return None
    goal = replace(_goal(kitchen, following, rng), is_chained=True)
    return replace(recipe, goals=(*recipe.goals, goal), operators=(*recipe.operators, "deepen"))


def _withhold(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A fact is left out until the assistant asks."""

    def open_slots(goal: GoalTemplate) -> tuple[str, ...]:
        return _open_slots(recipe.world, goal.intent, goal.slots)

    def fits(index: int, goal: GoalTemplate) -> bool:
        leads = index + 1 == len(recipe.goals) or not recipe.goals[index + 1].is_joint
        dropped_before = index > 0 and recipe.goals[index - 1].is_dropped
        return (
            bool(open_slots(goal)) and goal.withheld is None and leads and not goal.is_joint and not goal.is_chained and not dropped_before
        )

    index = _pick(recipe, rng, lambda at, goal: fits(at, goal) and _may_be_open(recipe, goal))
    if index is None:
        return None
    return recipe.with_goal(index, replace(recipe.goals[index], withheld=rng.choice(open_slots(recipe.goals[index]))), "withhold")


def _may_be_open(recipe: ConversationTemplate, goal: GoalTemplate) -> bool:
    """A request that is refused for lack of information must not be completed by asking."""
    return _about(recipe.world, goal.intent).refusal is not RefusalReason.MISSING_INFORMATION


def _inject_fault(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A reading call fails once."""
    index = _pick(recipe, rng, lambda _, goal: goal.fault is None and _has_reads(recipe.world, goal.intent, goal.slots))
    if index is None:
        return None
    fault: Literal["error", "empty"] = "error" if rng.random() < 0.7 else "empty"
    return recipe.with_goal(index, replace(recipe.goals[index], fault=fault, fault_at=rng.randrange(4)), "inject_fault")


def _tool_outage(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A tool that one might try first is down; the plan is the other way."""
    needed = {tool for goal in recipe.goals for tool in _tools_of(recipe.world, goal.intent, goal.slots)}

    def spare(goal: GoalTemplate) -> list[str]:
        return [tool for tool in _substitutes(recipe.world, goal.intent, goal.slots) if tool in kitchen.tools and tool not in needed]

    index = _pick(recipe, rng, lambda _, goal: goal.down is None and not goal.is_dropped and bool(spare(goal)))
    if index is None:
        return None
    goal = recipe.goals[index]
    return recipe.with_goal(index, replace(goal, down=rng.choice(spare(goal))), "tool_outage")


@cached_per_world(_CACHED)
def _substitutes(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """Reading tools that could be called with some of what one of the intent's calls is given."""
    example = typical(world, intent, slots)
    given = [call.arguments.keys() for call in example.plan] if example is not None else []
    reading = [tool.name for tool in world.tools if not tool.changes_state]
    required = [(tool, required_parameters(world, tool)) for tool in reading]
    return tuple(tool for tool, names in required if names and any(names <= arguments for arguments in given))


def _merge_goals(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """Two goals in one breath; a second is drawn where there is only one."""
    if recipe.goals[-1].is_dropped or not _is_plain(recipe, recipe.goals[-1]):
        return None
    if len(recipe.goals) < 3:
        recipe = replace(recipe, goals=(*recipe.goals, _goal(kitchen, kitchen.intents, rng)))
    last, previous = recipe.goals[-1], recipe.goals[-2]
    if not _is_plain(recipe, last) or not _is_plain(recipe, previous) or last.is_joint or previous.is_joint:
        return None
    return recipe.with_goal(len(recipe.goals) - 1, replace(last, is_joint=True), "merge_goals")


def _is_plain(recipe: ConversationTemplate, goal: GoalTemplate) -> bool:
    """Whether a goal can share a turn with another: it is done by calls, and nothing interrupts it."""
    interrupted = goal.withheld or goal.is_chained or goal.asks_first or goal.is_dropped or goal.check
    return not interrupted and _has_calls(recipe, goal) and _about(recipe.world, goal.intent).refusal is None


def _goal_shift(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A goal is dropped before anything is changed, for another."""
    fitting = [
        index
        for index, goal in enumerate(recipe.goals[:-1])
        if _is_plain(recipe, goal)
        and _reads_before_acting(recipe.world, goal.intent, goal.slots)
        and not goal.is_joint
        and not recipe.goals[index + 1].is_joint
    ]
    fitting = [index for index in fitting if not recipe.goals[index + 1].is_chained and recipe.goals[index + 1].withheld is None]
    if fitting:
        index = rng.choice(fitting)
        return recipe.with_goal(index, replace(recipe.goals[index], is_dropped=True), "goal_shift")
    if len(recipe.goals) >= 3 or not kitchen.droppable or recipe.goals[0].withheld is not None:
        return None
    dropped = replace(_goal(kitchen, kitchen.droppable, rng), is_dropped=True)
    return replace(recipe, goals=(dropped, *recipe.goals), operators=(*recipe.operators, "goal_shift"))


def _parallel(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """Independent calls in one message, or one after another."""
    return replace(recipe, is_parallel=not recipe.is_parallel, operators=(*recipe.operators, "parallel"))


def _ask_first(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The assistant asks before it acts, or goes on."""
    index = _pick(recipe, rng, lambda at, goal: _can_pause(recipe, at) and not goal.asks_first and _has_pause(recipe, goal))
    return None if index is None else recipe.with_goal(index, replace(recipe.goals[index], asks_first=True), "ask_first")


def _verify(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """Something is read again before the answer (after an act: to see that it arrived), or because the user wants it."""
    index = _pick(recipe, rng, lambda at, goal: _can_pause(recipe, at) and goal.check is None and _starts_reading(recipe, goal))
    if index is None:
        return None
    goal = recipe.goals[index]
    return recipe.with_goal(index, replace(goal, check="self" if rng.random() < 0.6 else "asked"), "verify")


def _can_pause(recipe: ConversationTemplate, index: int) -> bool:
    """Whether a goal has its turn to itself and is carried through."""
    goal, is_last = recipe.goals[index], index + 1 == len(recipe.goals)
    return not goal.is_joint and not goal.is_dropped and (is_last or not recipe.goals[index + 1].is_joint)


Operator = Callable[[ConversationTemplate, IntentPool, random.Random], ConversationTemplate | None]
OPERATORS: Mapping[str, Operator] = {
    "add_constraint": _add_constraint,
    "deepen": _deepen,
    "withhold": _withhold,
    "inject_fault": _inject_fault,
    "tool_outage": _tool_outage,
    "merge_goals": _merge_goals,
    "goal_shift": _goal_shift,
    "ask_first": _ask_first,
    "verify": _verify,
    "parallel": _parallel,
}
"""How a recipe evolves; each gives None where it does not apply."""
MERGE_CLUSTERS = "merge_clusters"
"""The operator that gives a recipe more to cook with: the tools of two clusters of one world."""
VEILS = ("distractors", "vague_wording", "self_correction", "noisy_tools")
"""Operators that leave the plan as it is: tools beside it that are of no use; fewer plain names in the request; a value said wrongly and
put right; irrelevant fields in results."""

_NAMES = tuple(OPERATORS)


def evolve(recipe: ConversationTemplate, kitchen: IntentPool, rng: random.Random) -> ConversationTemplate:
    """The recipe after one operator drawn at random; unchanged where that does not apply."""
    return OPERATORS[rng.choice(_NAMES)](recipe, kitchen, rng) or recipe
