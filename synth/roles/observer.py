"""The observer: every check that code can make on a simulated conversation, by name (acceptance of definition P2).

`verify.judge` judges each goal on the messages up to its answer, on its own calls and the unplanned ones, and on the state of the world
at that moment. Further checks: calls fit their tools' signatures and fail only where a fault was planned; the plan is covered with at most
two extra calls; no forbidden tool is called; a withheld fact is not used before it is revealed; a dropped goal changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.conversation import ExecutedCall, Turn
from storage.records import JSON, Fact, Message, Task, Tool, ToolCall, leaves, parse_arguments
from synth.blueprints.blueprint import MAX_EXTRA_CALLS, Blueprint, Goal, schema_problems
from synth.roles.world_tools import call_key
from synth.tasks.verify import Verdict, judge
from synth.text.claims import has_word, normalise
from synth.worlds.base import World


@dataclass(frozen=True, slots=True)
class Transcript:
    """An executed conversation.

    messages, turns: the same conversation as messages and as turns.
    changes: `World.changes()` after each assistant text.
    injected: ids of the calls whose result was replaced by a planned fault.
    """

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    changes: tuple[Mapping[str, JSON], ...]
    injected: frozenset[str]


def observe(
    world: type[World], blueprint: Blueprint, transcript: Transcript, tools: Mapping[str, Tool]
) -> tuple[dict[str, bool], int | None]:
    """All checks by name, in a fixed order, and the number of calls beyond the plan (None if the plan is not covered).

    world: the blueprint's. tools: those on offer, by name.
    """
    calls = [call for turn in transcript.turns for step in turn.steps for call in step.calls]
    node_keys = [call_key(node.tool, node.values()) for node in blueprint.nodes]
    extra = _extra_calls(node_keys, calls, transcript.injected)
    complete = len(transcript.turns) == len(blueprint.turns) == len(transcript.changes)
    checks = {
        "complete": complete,
        "schema_valid": all(
            call.tool in tools and call.arguments is not None and not schema_problems(tools[call.tool], call.arguments) for call in calls
        ),
        "no_unplanned_errors": all(call.status not in ("error", "missing") or call.call_id in transcript.injected for call in calls),
        "covers_plan": extra is not None and extra <= MAX_EXTRA_CALLS,
        "no_forbidden_tool": not {call.tool for call in calls} & set(blueprint.forbidden_tools),
        "waits_for_facts": _waits(world, blueprint, transcript.turns),
        "end_state": complete and dict(transcript.changes[-1]) == blueprint.goals[-1].changes,
    }
    for index, goal in enumerate(blueprint.goals if complete else ()):
        if goal.is_abandoned:
            checks[f"goal_{index}.dropped"] = _changed_nothing(blueprint, index, transcript)
            continue
        for name, holds in judge_goal(world, blueprint, index, transcript).checks.items():
            if name != "ended_with_text":
                checks[f"goal_{index}.{name}"] = holds
    return checks, extra


def _extra_calls(node_keys: Sequence[str], calls: Sequence[ExecutedCall], injected: frozenset[str]) -> int | None:
    """Number of calls beyond the planned ones, without injected faults; None if a planned call was not made, or failed."""
    executed = [
        call_key(call.tool, call.arguments) for call in calls if call.call_id not in injected and call.status not in ("error", "missing")
    ]
    for key in node_keys:
        if key not in executed:
            return None
        executed.remove(key)
    return len(executed)


def _waits(world: type[World], blueprint: Blueprint, turns: Sequence[Turn]) -> bool:
    """Whether no call carries a withheld value, in any spelling, before the turn that reveals it."""
    open_until = {fact: turn.t for turn in blueprint.turns for fact in turn.reveals}
    for turn in blueprint.turns:
        for fact in turn.withholds:
            early = [call for done in turns[turn.t : open_until.get(fact, len(turns))] for step in done.steps for call in step.calls]
            given = [normalise(str(value)) for call in early for _, value in leaves(call.arguments or {})]
            if given and any(_carries(text, form) for form in fact_forms(world, blueprint, fact) for text in given):
                return False
    return True


def fact_forms(kind: type[World], blueprint: Blueprint, fact: str) -> set[str]:
    """Normalised spellings by which a call may carry a fact (`goal.slot`), without those that another slot of the conversation shares."""
    world = kind(blueprint.world_seed)
    index, slot = fact.split(".", 1)
    goal = blueprint.goals[int(index)]
    forms = set(world.slot_forms(goal.intent, goal.slots))
    for number, other in enumerate(blueprint.goals):
        rest = {name: value for name, value in other.slots.items() if name != slot} if number == int(index) else other.slots
        forms -= world.slot_forms(other.intent, rest)
    return {normalise(form) for form in forms}


def _carries(given: str, form: str) -> bool:
    """Whether an argument contains a form: a number only if equal (30 is not in 2026-05-30), anything else word for word."""
    return given == form or (not form.replace(".", "").isdigit() and has_word(given, form))


def _changed_nothing(blueprint: Blueprint, index: int, transcript: Transcript) -> bool:
    """Whether the state was the same before a goal was asked for and after it was dropped."""
    asked_at = _opening_turn(blueprint, [index])
    before = transcript.changes[asked_at - 1] if asked_at > 0 else {}
    return dict(transcript.changes[asked_at]) == dict(before)


def judge_goal(world: type[World], blueprint: Blueprint, index: int, transcript: Transcript) -> Verdict:
    """The verdict on one goal of a complete conversation, when the user was to have its answer."""
    at, together = next((turn.t, turn.settles) for turn in blueprint.turns if index in turn.settles)
    messages = _messages_for_goal(blueprint, together, index, at, transcript)
    facts = tuple(fact for other in together for fact in blueprint.goals[other].facts)
    task = goal_task(blueprint, blueprint.goals[index], facts, blueprint.goals[together[-1]].changes)
    return judge(world, task, messages, transcript.changes[at])


def goal_task(blueprint: Blueprint, goal: Goal, facts: tuple[Fact, ...], changes: Mapping[str, JSON]) -> Task:
    """One goal of a conversation as a task for the judge. Slots that the user only referred to are left out: results must ground them."""
    slots = {name: value for name, value in goal.slots.items() if name not in goal.hidden}
    return Task.model_validate(  # one call: cheaper than nested records
        {
            "id": f"{blueprint.id}/{goal.frame_id}",
            "world": blueprint.world,
            "world_seed": blueprint.world_seed,
            "intent": goal.intent,
            "leaf": goal.leaf,
            "frame_id": goal.frame_id,
            "slots": slots,
            "language": blueprint.language,
            "messages": (),
            "tools": blueprint.tools,
            "plan": {},
            "success": {"changes": dict(changes), "evidence": goal.evidence, "facts": facts, "refusal": goal.refusal},
            "difficulty": -1 if goal.refusal is not None else 1,
            "division": "seed",
        }
    )


def _messages_for_goal(blueprint: Blueprint, together: Sequence[int], index: int, at: int, transcript: Transcript) -> list[Message]:
    """The messages that bear on one goal: those of users and tools up to the goal's answer, the goal's own calls, and unplanned calls made
    since the previous answer.

    together: the goals that turn `at` settles.
    """
    if len(blueprint.goals) == 1 and at == len(blueprint.turns) - 1:
        return list(transcript.messages)
    by_goal: dict[int, set[str]] = defaultdict(set)
    for node in blueprint.nodes:
        by_goal[node.goal].add(call_key(node.tool, node.values()))
    goal_messages, planned = by_goal[index], set().union(*by_goal.values())
    opened_at = _opening_turn(blueprint, together, default=at)
    judged_before = (
        turn.t for turn in blueprint.turns if turn.t < at and not all(blueprint.goals[goal].is_abandoned for goal in turn.settles)
    )
    last_answer = max(judged_before, default=-1)
    out: list[Message] = []
    turn = -1

    def counts(call: ToolCall) -> bool:
        key = call_key(call.function.name, parse_arguments(call.function.arguments))
        return turn >= opened_at if key in goal_messages else key not in planned and turn > last_answer

    for message in transcript.messages:
        turn += message.role == "user"
        if turn > at:
            break
        if message.role != "assistant":
            out.append(message)
        elif message.tool_calls:
            goal_calls = tuple(call for call in message.tool_calls if counts(call))
            if goal_calls:
                out.append(message if len(goal_calls) == len(message.tool_calls) else message.model_copy(update={"tool_calls": goal_calls}))
        elif turn == at:
            out.append(message)
    return out


def _opening_turn(blueprint: Blueprint, goals: Sequence[int], default: int = 0) -> int:
    """The turn of the first call for these goals."""
    working = (turn.t for turn in blueprint.turns if any(blueprint.nodes[n].goal in goals for step in turn.steps for n in step))
    return min(working, default=default)
