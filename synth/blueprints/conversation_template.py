"""Conversation templates: drawn at random (`draw_template`), or changed by one evolution operator at a time (`evolve`; P4).

Operators change the plan. Perturbations (`PERTURBATIONS`) keep the plan and make it harder to see; the planner applies them to a draft.
An operator applies only where the template stays free of contradictions: a goal that shares its turn with another is not interrupted, a
dropped goal has been looked up first, a request that is refused for missing information is not completed by asking.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from storage.records import CODE_TOOL, RefusalReason
from synth.blueprints.phrases import can_point_at, can_withhold, mentioned_values, slots_of
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate, changing_tools, required_parameters
from synth.blueprints.sketch import typical_skeleton
from synth.worlds.base import World, cached_per_world

_OPTIONAL_SHARE = 0.35
_IDLE_SHARE = 0.15
"""Share of goals that are refused or answered without a call."""
_CACHED = 65536
_OPERATOR_SHARE = 0.1
"""Probability that a drawn template gets the change of one operator, for each of several operators."""


@dataclass(frozen=True, slots=True)
class _IntentFacts:
    """What templates need to know of an intent.

    required, optional: slot names, the optional ones in the intent's order.
    is_busy: whether its plan has calls.
    """

    domain: str
    required: frozenset[str]
    optional: tuple[str, ...]
    refusal: RefusalReason | None
    is_busy: bool


@cached_per_world(_CACHED)
def _intent_facts(world: type[World], intent: str) -> _IntentFacts:
    declared = world.intents[intent]
    required = frozenset(slot.name for slot in declared.slots if slot.is_required)
    optional = tuple(slot.name for slot in declared.slots if not slot.is_required)
    return _IntentFacts(declared.domain, required, optional, declared.refusal, bool(declared.shape(required).calls))


@cached_per_world(4096)
def _split(world: type[World], intents: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Intents without calls, and intents with calls."""
    is_busy = {name: _intent_facts(world, name).is_busy for name in intents}
    return tuple(name for name in intents if not is_busy[name]), tuple(name for name in intents if is_busy[name])


class IntentPool:
    """The intents of a world that the tools on offer can serve.

    idle, busy: intents without and with calls.
    by_domain: domain -> intents.
    computing: intents that need a program.
    droppable: intents that look something up before they change anything.
    """

    def __init__(self, world: type[World], tools: frozenset[str], intents: tuple[str, ...]) -> None:
        self.world, self.tools, self.intents = world, tools, intents
        self.idle, self.busy = _split(world, intents)
        self.by_domain: dict[str, tuple[str, ...]] = {}
        for name in intents:
            domain = _intent_facts(world, name).domain
            self.by_domain[domain] = (*self.by_domain.get(domain, ()), name)
        self.computing = frozenset(name for name in intents if CODE_TOOL in _tools_of(world, name, _intent_facts(world, name).required))
        self.droppable = tuple(name for name in intents if _reads_before_acting(world, name, _intent_facts(world, name).required))

    def computes(self, template: ConversationTemplate) -> bool:
        """Whether a template has a goal that needs a program."""
        return any(goal.intent in self.computing for goal in template.goals)


@cached_per_world(4096)
def intent_pool(world: type[World], tools: frozenset[str]) -> IntentPool:
    """All intents of the world whose plans, with required slots alone, need no other tools."""
    fitting = [name for name in world.intents if set(_tools_of(world, name, _intent_facts(world, name).required)) <= tools]
    return IntentPool(world, tools, tuple(fitting))


def _goal(pool: IntentPool, intents: tuple[str, ...], rng: random.Random) -> GoalTemplate:
    idle, busy = _split(pool.world, intents)
    intent = rng.choice(idle if not busy or (idle and rng.random() < _IDLE_SHARE) else busy)
    about = _intent_facts(pool.world, intent)
    slot_names = about.required.union([name for name in about.optional if rng.random() < _OPTIONAL_SHARE])
    return GoalTemplate(intent, slot_names if pool.tools.issuperset(_tools_of(pool.world, intent, slot_names)) else about.required)


def draw_template(pool: IntentPool, rng: random.Random, *, domain: str | None = None) -> ConversationTemplate:
    """A random template: one to three goals, sometimes with the change of an operator.

    Raises:
        ValueError: the pool has no intent of that domain.
    """
    main = pool.by_domain.get(domain, ()) if domain is not None else pool.intents
    if not main:
        raise ValueError(f"no intent of domain {domain} can be served by these tools")
    goals = [_goal(pool, main, rng)]
    for _ in range(rng.choices((0, 1, 2), weights=(6, 3, 1))[0]):
        goal = _goal(pool, pool.intents, rng)
        goals.insert(0 if not _intent_facts(pool.world, goal.intent).is_busy and rng.random() < 0.5 else len(goals), goal)
    template = ConversationTemplate(pool.world, tuple(goals), is_parallel=rng.random() < 0.5)
    for operator in ("deepen", "withhold", "inject_fault", "goal_shift", "ask_first", "verify"):
        if rng.random() < _OPERATOR_SHARE:
            template = OPERATORS[operator](template, pool, rng) or template
    return template


def add_computing_goal(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate:
    """The template with a last goal added that needs a program; unchanged if it has no room or the pool has no such intent."""
    if not pool.computing or len(template.goals) >= 3 or template.goals[-1].is_dropped:
        return template
    goal = _goal(pool, tuple(name for name in pool.intents if name in pool.computing), rng)
    return replace(template, goals=(*template.goals, goal))


def domain_of(template: ConversationTemplate) -> str:
    """The domain of a conversation: that of its first goal with calls, else of its first goal."""
    about = [_intent_facts(template.world, goal.intent) for goal in template.goals]
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
    """Intents that can refer to a value in an answer to this one."""
    example = typical_skeleton(world, intent, slots)
    if example is None:
        return ()

    def can_follow(name: str) -> bool:
        pointed = [slot for slot in slots_of(world, name).values() if slot.is_entity and can_point_at(world, slot)]
        mentions = [value for slot in pointed for value in mentioned_values(world, example.answer, name, slot.name, "en")]
        return any(value not in example.slots.values() for value in mentions)

    return tuple(name for name in world.intents if can_follow(name))


@cached_per_world(_CACHED)
def _open_slots(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """The slots that a request can leave out until the assistant asks."""
    slots_by_name = slots_of(world, intent)
    return tuple(name for name in sorted(slots) if can_withhold(world, slots_by_name[name]))


def _starts_reading(template: ConversationTemplate, goal: GoalTemplate) -> bool:
    tools = _tools_of(template.world, goal.intent, goal.slots)
    return bool(tools) and tools[0] not in changing_tools(template.world)


def _has_calls(template: ConversationTemplate, goal: GoalTemplate) -> bool:
    return bool(_tools_of(template.world, goal.intent, goal.slots))


def _pick(template: ConversationTemplate, rng: random.Random, fits: Callable[[int, GoalTemplate], bool]) -> int | None:
    fitting = [index for index, goal in enumerate(template.goals) if fits(index, goal)]
    return rng.choice(fitting) if fitting else None


def _add_constraint(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """One more optional slot."""

    def missing(goal: GoalTemplate) -> list[str]:
        about = _intent_facts(template.world, goal.intent)
        spare = [name for name in about.optional if name not in goal.slots]
        return [name for name in spare if pool.tools.issuperset(_tools_of(template.world, goal.intent, goal.slots | {name}))]

    index = _pick(template, rng, lambda _, goal: bool(missing(goal)))
    if index is None:
        return None
    goal = template.goals[index]
    return template.with_goal(index, replace(goal, slots=goal.slots | {rng.choice(missing(goal))}), "add_constraint")


def _deepen(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """One more goal about something in the last answer ("cancel that one")."""
    if len(template.goals) >= 3 or template.goals[-1].is_dropped or not _has_calls(template, template.goals[-1]):
        return None
    last = template.goals[-1]
    following = tuple(name for name in _follow_ups(template.world, last.intent, last.slots) if name in pool.busy)
    if not following:
        return None
    goal = replace(_goal(pool, following, rng), is_chained=True)
    return replace(template, goals=(*template.goals, goal), operators=(*template.operators, "deepen"))


def _withhold(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The user leaves a value out until the assistant asks."""

    def open_slots(goal: GoalTemplate) -> tuple[str, ...]:
        return _open_slots(template.world, goal.intent, goal.slots)

    def fits(index: int, goal: GoalTemplate) -> bool:
        leads = index + 1 == len(template.goals) or not template.goals[index + 1].is_joint
        dropped_before = index > 0 and template.goals[index - 1].is_dropped
        is_apart = leads and not goal.is_joint and not goal.is_chained and not dropped_before
        # a request that is refused for missing information must not be completed by asking
        may_be_open = _intent_facts(template.world, goal.intent).refusal is not RefusalReason.MISSING_INFORMATION
        return bool(open_slots(goal)) and goal.withheld is None and is_apart and may_be_open

    index = _pick(template, rng, fits)
    if index is None:
        return None
    return template.with_goal(index, replace(template.goals[index], withheld=rng.choice(open_slots(template.goals[index]))), "withhold")


def _inject_fault(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A reading call fails once."""
    index = _pick(template, rng, lambda _, goal: not goal.has_fault and _has_reads(template.world, goal.intent, goal.slots))
    if index is None:
        return None
    return template.with_goal(index, replace(template.goals[index], has_fault=True, fault_at=rng.randrange(4)), "inject_fault")


def _tool_outage(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """A tool that the assistant might try first is down; the plan does without it."""
    needed = {tool for goal in template.goals for tool in _tools_of(template.world, goal.intent, goal.slots)}

    def spare(goal: GoalTemplate) -> list[str]:
        return [tool for tool in _substitutes(template.world, goal.intent, goal.slots) if tool in pool.tools and tool not in needed]

    index = _pick(template, rng, lambda _, goal: goal.down is None and not goal.is_dropped and bool(spare(goal)))
    if index is None:
        return None
    goal = template.goals[index]
    return template.with_goal(index, replace(goal, down=rng.choice(spare(goal))), "tool_outage")


@cached_per_world(_CACHED)
def _substitutes(world: type[World], intent: str, slots: frozenset[str]) -> tuple[str, ...]:
    """Read-only tools whose required arguments one of the intent's calls has."""
    example = typical_skeleton(world, intent, slots)
    given = [call.arguments.keys() for call in example.plan] if example is not None else []
    reading = [tool.name for tool in world.tools if not tool.changes_state]
    required = [(tool, required_parameters(world, tool)) for tool in reading]
    return tuple(tool for tool, names in required if names and any(names <= arguments for arguments in given))


def _merge_goals(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """Two goals in one request; a second is drawn if there is room for one."""
    if template.goals[-1].is_dropped or not _is_plain(template, template.goals[-1]):
        return None
    if len(template.goals) < 3:
        template = replace(template, goals=(*template.goals, _goal(pool, pool.intents, rng)))
    last, previous = template.goals[-1], template.goals[-2]
    if not _is_plain(template, last) or not _is_plain(template, previous) or last.is_joint or previous.is_joint:
        return None
    return template.with_goal(len(template.goals) - 1, replace(last, is_joint=True), "merge_goals")


def _is_plain(template: ConversationTemplate, goal: GoalTemplate) -> bool:
    """Whether a goal can share a turn with another: it has calls, and nothing interrupts it."""
    interrupted = goal.withheld or goal.is_chained or goal.asks_first or goal.is_dropped or goal.check
    return not interrupted and _has_calls(template, goal) and _intent_facts(template.world, goal.intent).refusal is None


def _goal_shift(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The user drops a goal for another before anything is changed."""
    fitting = [
        index
        for index, goal in enumerate(template.goals[:-1])
        if _is_plain(template, goal)
        and _reads_before_acting(template.world, goal.intent, goal.slots)
        and not goal.is_joint
        and not template.goals[index + 1].is_joint
    ]
    fitting = [index for index in fitting if not template.goals[index + 1].is_chained and template.goals[index + 1].withheld is None]
    if fitting:
        index = rng.choice(fitting)
        return template.with_goal(index, replace(template.goals[index], is_dropped=True), "goal_shift")
    if len(template.goals) >= 3 or not pool.droppable or template.goals[0].withheld is not None:
        return None
    dropped = replace(_goal(pool, pool.droppable, rng), is_dropped=True)
    return replace(template, goals=(dropped, *template.goals), operators=(*template.operators, "goal_shift"))


def _parallel(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The user wants independent calls made together, or not."""
    return replace(template, is_parallel=not template.is_parallel, operators=(*template.operators, "parallel"))


def _ask_first(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The user wants to be asked before anything is changed."""

    def fits(at: int, goal: GoalTemplate) -> bool:
        return _can_pause(template, at) and not goal.asks_first and _reads_before_acting(template.world, goal.intent, goal.slots)

    index = _pick(template, rng, fits)
    return None if index is None else template.with_goal(index, replace(template.goals[index], asks_first=True), "ask_first")


def _verify(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate | None:
    """The user wants a second look, before the answer or after it."""
    index = _pick(template, rng, lambda at, goal: _can_pause(template, at) and goal.check is None and _starts_reading(template, goal))
    if index is None:
        return None
    goal = template.goals[index]
    return template.with_goal(index, replace(goal, check="first" if rng.random() < 0.6 else "later"), "verify")


def _can_pause(template: ConversationTemplate, index: int) -> bool:
    """Whether a goal shares its turn with no other and is not dropped."""
    goal, is_last = template.goals[index], index + 1 == len(template.goals)
    return not goal.is_joint and not goal.is_dropped and (is_last or not template.goals[index + 1].is_joint)


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
"""Operator name -> function of (template, pool, generator), which returns None if the operator does not apply."""
MERGE_CLUSTERS = "merge_clusters"
"""The operator that offers the tools of two clusters of one world."""
PERTURBATIONS = ("distractors", "vague_wording", "self_correction", "noisy_tools")
"""Operators that keep the plan. distractors: extra tools without use. vague_wording: fewer plain names in the request. self_correction: a
value stated wrongly and corrected at once. noisy_tools: irrelevant fields in results."""

_NAMES = tuple(OPERATORS)


def evolve(template: ConversationTemplate, pool: IntentPool, rng: random.Random) -> ConversationTemplate:
    """The template after one random operator; unchanged if that does not apply."""
    return OPERATORS[rng.choice(_NAMES)](template, pool, rng) or template
