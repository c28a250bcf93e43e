"""Sketches: which modes and which complexity a recipe would have, from known plans alone, before any world is asked.

A sketch costs a fraction of a millisecond, a draft (`planner.py`) several, so the planner looks at many recipes and drafts few. It takes
the typical plan of each goal, from the first of a few fixed seeds that has one; it is a function of the recipe alone, never of what
was sketched before.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from storage.records import JSON, Frame, Message, derive_turns
from synth.blueprints import Prediction, predict
from synth.roles.phrases import slots_of
from synth.roles.schedule import GoalPlan, GoalRecipe, Recipe, Source, changing_tools, schedule
from synth.solver import execute, solve
from synth.worlds import WORLDS, make_world
from synth.worlds.base import Unsolvable

_SKELETON_SEEDS = 40


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
