"""The observer: everything about a simulated conversation that code can check, by name (acceptance of definition P2).

Each goal is judged by `verify.judge`, the one judge there is: on what had been said and shown up to its answer, on its own calls and
those that nobody planned, and on the state of the world at that moment. Beside it: calls keep to their tools' signatures and fail only
where a fault was planned, the plan is covered with at most two calls more, no forbidden tool is called, a withheld fact is not used
before it was revealed, and what the user dropped has changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.conversation import ExecutedCall, Turn
from storage.records import JSON, Fact, Message, Task, Tool, ToolCall, canonical_json, leaves, parse_arguments
from synth.blueprints.blueprint import MAX_EXTRA_CALLS, Blueprint, Goal, schema_problems
from synth.tasks.verify import judge
from synth.text.claims import has_word, normalise
from synth.worlds.base import World


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened. changes: `World.changes()` after each assistant text. injected: ids of calls whose answer was replaced."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    changes: tuple[Mapping[str, JSON], ...]
    injected: frozenset[str]


def observe(
    world: type[World], blueprint: Blueprint, keys: Keys, seen: Seen, tools: Mapping[str, Tool], *, extra: int | None
) -> dict[str, bool]:
    """All checks by name, in a fixed order; a conversation passes if all hold.

    world, keys: the blueprint's.
    tools: those on offer, by name.
    extra: `extra_calls` of these keys and calls, None where the plan is not covered.
    """
    calls = [call for turn in seen.turns for step in turn.steps for call in step.calls]
    complete = len(seen.turns) == len(blueprint.turns) == len(seen.changes)
    checks = {
        "complete": complete,
        "schema_valid": all(
            call.tool in tools and call.arguments is not None and not schema_problems(tools[call.tool], call.arguments) for call in calls
        ),
        "no_unplanned_errors": all(call.status not in ("error", "missing") or call.call_id in seen.injected for call in calls),
        "covers_plan": extra is not None and extra <= MAX_EXTRA_CALLS,
        "no_forbidden_tool": not {call.tool for call in calls} & set(blueprint.forbidden_tools),
        "waits_for_facts": _waits(world, blueprint, seen.turns),
        "end_state": complete and dict(seen.changes[-1]) == _last_state(blueprint),
    }
    for index, goal in enumerate(blueprint.goals):
        if not complete:
            break
        if goal.is_abandoned:
            checks[f"goal_{index}.dropped"] = _left_alone(blueprint, index, seen)
            continue
        for name, holds in _judge_goal(world, blueprint, keys, index, seen).items():
            if name != "ended_with_text":
                checks[f"goal_{index}.{name}"] = holds
    return checks


@dataclass(frozen=True, slots=True)
class Keys:
    """Planned calls as keys that equal calls share: of every node, and of every goal's nodes."""

    of_nodes: tuple[str, ...]
    of_goals: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, blueprint: Blueprint) -> Keys:
        keys = tuple(_key(node.tool, node.values()) for node in blueprint.nodes)
        goals: dict[int, set[str]] = {}
        for node, key in zip(blueprint.nodes, keys, strict=True):
            goals.setdefault(node.goal, set()).add(key)
        return cls(keys, {goal: frozenset(found) for goal, found in goals.items()})


def extra_calls(keys: Keys, calls: Sequence[ExecutedCall], injected: frozenset[str]) -> int | None:
    """Calls beyond the planned ones, spoilt ones apart; None where a planned call was not made, or not answered."""
    made = [_key(call.tool, call.arguments) for call in calls if call.call_id not in injected and call.status not in ("error", "missing")]
    for wanted in keys.of_nodes:
        if wanted not in made:
            return None
        made.remove(wanted)
    return len(made)


def _key(tool: str, arguments: Mapping[str, JSON] | None) -> str:
    return f"{tool} {canonical_json(arguments)}"


def _waits(world: type[World], blueprint: Blueprint, turns: Sequence[Turn]) -> bool:
    """Whether no call carries a withheld value, in any of its forms, before the turn that reveals it."""
    open_until = {fact: turn.t for turn in blueprint.turns for fact in turn.reveals}
    for turn in blueprint.turns:
        for fact in turn.withholds:
            early = [call for done in turns[turn.t : open_until.get(fact, len(turns))] for step in done.steps for call in step.calls]
            given = [normalise(str(value)) for call in early for _, value in leaves(call.arguments or {})]
            if given and any(_carries(text, form) for form in fact_forms(world, blueprint, fact) for text in given):
                return False
    return True


def fact_forms(kind: type[World], blueprint: Blueprint, fact: str) -> set[str]:
    """How a call may carry what a fact (`goal.slot`) says, and nothing else that the user says in this conversation.

    kind: the world of the blueprint.
    """
    world = kind(blueprint.world_seed)
    index, slot = fact.split(".", 1)
    goal = blueprint.goals[int(index)]
    forms = set(world.slot_forms(goal.intent, goal.slots))
    for number, other in enumerate(blueprint.goals):
        rest = {name: value for name, value in other.slots.items() if name != slot} if number == int(index) else other.slots
        forms -= world.slot_forms(other.intent, rest)
    return {normalise(form) for form in forms}


def _carries(given: str, form: str) -> bool:
    """Whether an argument carries a form: a number as it is (30 is not in 2026-05-30), anything else word for word."""
    return given == form or (not form.replace(".", "").isdigit() and has_word(given, form))


def _last_state(blueprint: Blueprint) -> dict[str, JSON]:
    return blueprint.goals[-1].changes


def _turn_of(blueprint: Blueprint, goal: int) -> int:
    """The turn whose reply settles a goal."""
    return next(turn.t for turn in blueprint.turns if goal in turn.settles)


def _left_alone(blueprint: Blueprint, index: int, seen: Seen) -> bool:
    """Whether nothing had changed when a goal was dropped, against the moment before it was asked."""
    asked_at = next(turn.t for turn in blueprint.turns if any(blueprint.nodes[n].goal == index for step in turn.steps for n in step))
    before = seen.changes[asked_at - 1] if asked_at > 0 else {}
    return dict(seen.changes[asked_at]) == dict(before)


def _judge_goal(world: type[World], blueprint: Blueprint, keys: Keys, index: int, seen: Seen) -> dict[str, bool]:
    goal, at = blueprint.goals[index], _turn_of(blueprint, index)
    together = blueprint.turns[at].settles
    messages = _heard_by(blueprint, keys, together, index, at, seen)
    facts = tuple(fact for other in together for fact in blueprint.goals[other].facts)
    expected = blueprint.goals[together[-1]].changes
    task = goal_task(blueprint, goal, facts=facts, changes=expected)
    return judge(world, task, messages, seen.changes[at]).checks


def goal_task(blueprint: Blueprint, goal: Goal, *, facts: tuple[Fact, ...], changes: Mapping[str, JSON]) -> Task:
    """One goal of a conversation as a task for the judge. Slots that were only pointed at are left out: observations must ground them."""
    said = {name: value for name, value in goal.slots.items() if name not in goal.hidden}
    return Task.model_validate(  # at once: cheaper than records made one in the other
        {
            "id": f"{blueprint.id}/{goal.frame_id}",
            "world": blueprint.world,
            "world_seed": blueprint.world_seed,
            "intent": goal.intent,
            "leaf": goal.leaf,
            "frame_id": goal.frame_id,
            "slots": said,
            "language": blueprint.language,
            "messages": (),
            "tools": blueprint.tools,
            "plan": {},
            "success": {"changes": dict(changes), "evidence": goal.evidence, "facts": facts, "refusal": goal.refusal},
            "difficulty": -1 if goal.refusal is not None else 1,
            "division": "seed",
        }
    )


def _heard_by(blueprint: Blueprint, keys: Keys, together: Sequence[int], index: int, at: int, seen: Seen) -> list[Message]:
    """The conversation as far as it bears on one goal: what users and tools had said by the goal's answer, the goal's own calls, and
    those that nobody planned, made since the last answer."""
    if len(blueprint.goals) == 1 and at == len(blueprint.turns) - 1:
        return list(seen.messages)
    own, planned = keys.of_goals.get(index, frozenset()), set(keys.of_nodes)
    opened_at = _opening_turn(blueprint, together, at)
    last_answer = max((turn.t for turn in blueprint.turns if turn.t < at and _is_judged(blueprint, turn.settles)), default=-1)
    out: list[Message] = []
    turn = -1

    def counts(call: ToolCall) -> bool:
        key = _key(call.function.name, parse_arguments(call.function.arguments))
        return turn >= opened_at if key in own else key not in planned and turn > last_answer

    for message in seen.messages:
        turn += message.role == "user"
        if turn > at:
            break
        if message.role != "assistant":
            out.append(message)
        elif message.tool_calls:
            kept = tuple(call for call in message.tool_calls if counts(call))
            if kept:
                out.append(message if len(kept) == len(message.tool_calls) else message.model_copy(update={"tool_calls": kept}))
        elif turn == at:
            out.append(message)
    return out


def _is_judged(blueprint: Blueprint, goals: Sequence[int]) -> bool:
    return any(not blueprint.goals[goal].is_abandoned for goal in goals)


def _opening_turn(blueprint: Blueprint, together: Sequence[int], at: int) -> int:
    """The turn in which the work on these goals began."""
    working = [turn.t for turn in blueprint.turns if any(blueprint.nodes[n].goal in together for step in turn.steps for n in step)]
    return min(working, default=at)
