"""Sketches: the modes and the complexity that a template would have, from typical plans alone, without a world.

A sketch costs a fraction of a millisecond, a draft (`draft.py`) several, so the planner looks at many templates and drafts few. A sketch
uses the typical plan of each goal, from the first of a few fixed seeds that has one. It is a function of the template alone, not of
earlier sketches.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from storage.conversation import derive_turns
from storage.records import CODE_TOOL, JSON, Call, Frame, FunctionCall, Message, ToolCall, plain_json
from synth.blueprints.schedule import CallPlan, ConversationTemplate, GoalPlan, Prediction, Source, changing_tools, predict, schedule
from synth.tasks.solver import execute, solve
from synth.worlds.base import Unsolvable, World, cached_per_world

_SKELETON_SEEDS = 40
_CACHED = 65536


@cached_per_world(_CACHED)
def _typical_slots(world: type[World], intent: str, shape: str) -> frozenset[str]:
    """The smallest set of slots with this plan shape: a function of the intent alone, so sketches do not depend on history."""
    declared = world.intents[intent]
    required = frozenset(slot.name for slot in declared.slots if slot.is_required)
    optional = sorted(slot.name for slot in declared.slots if not slot.is_required)
    for size in range(len(optional) + 1):
        for extra in combinations(optional, size):
            if str(declared.shape(required | set(extra))) == shape:
                return required | set(extra)
    return required


class Skeleton(NamedTuple):
    """A typical goal: its plan, its slots' values, and its answer in English."""

    plan: GoalPlan
    slots: Mapping[str, JSON]
    answer: str


@cached_per_world(_CACHED)
def skeleton(world: type[World], intent: str, slots: frozenset[str]) -> Skeleton | None:
    """A goal of this intent in the first of a few fixed seeds that has one, executed to find its sources; None if no seed has one."""
    for seed in range(_SKELETON_SEEDS):
        place = world(seed)
        frame = Frame(world=world.name, intent=intent, slots=place.draw_slots(intent, slots, random.Random(seed)))
        try:
            solution = solve(place, frame, "en")
        except Unsolvable:
            continue
        forms = " ".join(sorted(place.slot_forms(intent, frame.slots)))
        messages = _execute_calls(place, [Message(role="user", content=forms)], solution.plan.calls)
        plan = plan_calls(world, [(call.tool, call.arguments) for call in solution.plan.calls], sources_of(messages, 0))
        return Skeleton(plan, frame.slots, solution.plan.answer)
    return None


def _execute_calls(world: World, opening: Sequence[Message], calls: Sequence[Call]) -> list[Message]:
    """The executed calls as messages; programs, which come last and are no source, are not executed."""
    done = execute(world, opening, [call for call in calls if call.tool != CODE_TOOL], "done.")
    written = [FunctionCall(name=call.tool, arguments=plain_json(call.arguments)) for call in calls if call.tool == CODE_TOOL]
    programs = [ToolCall(id=f"program_{at}", function=function) for at, function in enumerate(written)]
    return [*done.messages[:-1], *(Message(role="assistant", tool_calls=(program,)) for program in programs), done.messages[-1]]


def plan_calls(world: type[World], calls: Sequence[tuple[str, Mapping[str, JSON]]], sources: Sequence[Mapping[str, Source]]) -> GoalPlan:
    """Calls (tool, arguments) with the sources of their arguments, as a plan."""
    changing = changing_tools(world)
    return tuple(
        CallPlan.of(tool, arguments, call_sources, changes_state=tool in changing)
        for (tool, arguments), call_sources in zip(calls, sources, strict=True)
    )


def sources_of(messages: Sequence[Message], goal: int) -> tuple[dict[str, Source], ...]:
    """The source of each top-level argument of each call of one executed goal."""
    positions: dict[str, int] = {}
    by_call: list[dict[str, Source]] = []
    for call in (call for turn in derive_turns(messages) for step in turn.steps for call in step.calls):
        positions[call.call_id] = len(positions)
        by_call.append(merge_sources(call.arguments or {}, call.sources, {key: (goal, at) for key, at in positions.items()}))
    return tuple(by_call)


def merge_sources(arguments: Mapping[str, JSON], sources: Mapping[str, str], calls: Mapping[str, tuple[int, int]]) -> dict[str, Source]:
    """One source for each top-level argument: the latest call that a part of it comes from, else the user, else const."""
    out: dict[str, Source] = {}
    for name in arguments:
        parts = [source for path, source in sources.items() if path == name or path.startswith(f"{name}.")]
        fed = [calls[source] for source in parts if source in calls]
        out[name] = max(fed) if fed else "user" if "user" in parts else "const"
    return out


@cached_per_world(_CACHED)
def typical_skeleton(world: type[World], intent: str, slots: frozenset[str]) -> Skeleton | None:
    """The skeleton of an intent with these slots, from the smallest set of slots that has the same plan shape."""
    return skeleton(world, intent, _typical_slots(world, intent, str(world.intents[intent].shape(slots))))


def sketch(template: ConversationTemplate) -> Prediction | None:
    """Modes and complexity that the template would have; None if one of its goals has no plan."""
    plans: list[GoalPlan] = []
    for index, goal in enumerate(template.goals):
        fed = (index - 1, len(plans[-1]) - 1) if goal.is_chained and plans and plans[-1] else None
        plan = _place_skeleton(template.world, goal.intent, goal.slots, index, goal.is_dropped, fed)
        if plan is None:
            return None
        plans.append(plan)
    return predict(schedule(template, plans))


@cached_per_world(_CACHED)
def _place_skeleton(
    world: type[World], intent: str, slots: frozenset[str], index: int, is_dropped: bool, fed: tuple[int, int] | None
) -> GoalPlan | None:
    """A skeleton as goal number `index`: cut at its first act if it is dropped, its first call fed by the call `fed` of the goal before."""
    example, changing = typical_skeleton(world, intent, slots), changing_tools(world)
    if example is None:
        return None
    plan = example.plan
    if is_dropped:
        plan = plan[: next((at for at, call in enumerate(plan) if call.tool in changing), len(plan))]
    sources: list[dict[str, Source]] = [
        {name: (index, source[1]) if isinstance(source, tuple) else source for name, source in call.sources.items()} for call in plan
    ]
    name = next((name for name, source in sources[0].items() if source == "user"), None) if sources and fed is not None else None
    if name is not None and fed is not None:
        sources[0][name] = fed
    return plan_calls(world, [(call.tool, call.arguments) for call in plan], sources)
