"""Why a stored conversation failed: each failed check with what was expected and what was there.

One idea: the conversation is replayed in its world and judged again, so the difference of the end state, the facts that the answer lacks
and the values without a source are known, and not only the names of the checks. The verdict in the store stays as it is.
It covers rollouts and trajectories of tasks, and the conversations of blueprints. It explains no conversation whose world is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from storage.conversation import derive_turns, mentions
from storage.explanations.conversation_text import call_text, parse_messages
from storage.explanations.explain_conversation import FailedCheck, list_names
from storage.explanations.store_rows import failed_names
from storage.records import JSON, Fact, Message, Task, parse_arguments
from storage.store import Store
from synth.blueprints.blueprint import Blueprint, Goal
from synth.context.view import open_world
from synth.conversations.conversation_play import ConversationPlay
from synth.roles.observer import Transcript, judge_goal
from synth.roles.world_tools import WorldTools
from synth.tasks.verify import Verdict, verify
from synth.text.refusals import refusal_reasons
from synth.worlds import WORLDS
from synth.worlds.base import World

DEMANDS = {
    "ended_with_text": "the conversation ends with a text of the assistant",
    "ended_in_time": "the assistant ends its turn before its limit of messages, and its text before its limit of tokens",
    "own_words": "the answer is in words, without a JSON object",
    "known_tools": "every call names a tool on offer",
    "well_formed": "the arguments of every call are a JSON object",
    "grounded_arguments": "every value in a call comes from the user or from an earlier result",
    "evidence": "the assistant looks before it acts: results show these values before its first change (if it changes nothing: at all)",
    "end_state": "the state at the end differs from the start in exactly the ways that the task asks for",
    "facts": "the answer states these facts, and no wrong ones beside them",
    "grounded_answer": "every figure, id and name of the answer comes from the conversation",
    "to_the_point": "the answer does not list nearly all values that were observed",
    "refusal": "the answer refuses for the right reason, or does not refuse",
    "observations": "a replay gives the same results",
    "plan_covered": "every call of the plan was made",
    "state": "after this turn the state is that of the plan: nothing is changed before the user asks for it",
    "asked_for": "the assistant also does what the user asks for beside the goals: a second look, or calls at once",
    "question": "the assistant asks the user, because something is missing",
    "complete": "all turns of the plan were played",
    "schema_valid": "every call fits the signature of its tool",
    "no_unplanned_errors": "only planned faults give errors",
    "covers_plan": "every call of the plan was made, with at most two others",
    "no_forbidden_tool": "no call changes what the plan does not change",
    "waits_for_facts": "no call uses a value before the user says it",
    "dropped": "a goal that the user drops changes nothing",
    "judge": "every grade of the judge is high enough",
}
"""Check -> what must hold; of `turn_1.goal_0.facts` the last word counts."""

_FIGURE = re.compile(r"[A-Za-z]*\d[\w:-]*")


def failed_checks(store: Store, row: Mapping[str, Any]) -> Sequence[FailedCheck]:
    """The failed checks of a row of `trajectories` or `rollouts`, in their order."""
    names, messages = failed_names(row["checks"]), parse_messages(row["messages"])
    try:
        verdicts = _replayed(store, row, messages)
    except Exception:  # whatever a world does, its conversation can be shown
        verdicts = None
    if verdicts is None:
        return [FailedCheck(one.check, DEMANDS.get(_last(one.check), "")) for one in list_names(store, row)]
    return [FailedCheck(name, DEMANDS.get(_last(name), ""), *verdicts.compare(name, messages)) for name in names]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


class _Replayed:
    """The verdicts on a conversation that was judged again.

    goals: the part of a check's name before the check (`goal_0.`, `turn_1.goal_0.`; empty for a task) -> what the goal asked for, and the
        verdict on it.
    states: the part before the check -> (expected changes, changes).
    answers: the part before the check -> the text that ended its turn; the last text of the assistant for other checks.
    """

    def __init__(self, world: type[World], tools: Sequence[str]) -> None:
        self.world, self.tools = world, tools
        self.goals: dict[str, tuple[Goal | Task, Verdict]] = {}
        self.answers: dict[str, str] = {}
        self.states: dict[str, tuple[Mapping[str, JSON], Mapping[str, JSON]]] = {}

    def compare(self, name: str, messages: Sequence[Message]) -> tuple[str, str]:
        """What a check expected, and what was there."""
        prefix, check = name[: len(name) - len(_last(name))], _last(name)
        answer = self.answers.get(prefix) or next(reversed(_answers(messages)), "")
        if check in ("end_state", "state", "dropped") and prefix in self.states:
            return _compare_states(*self.states[prefix])
        if prefix in self.goals:
            asked, verdict = self.goals[prefix]
            success = asked.success if isinstance(asked, Task) else asked
            if check == "facts":
                return _fact_texts(verdict.unstated), f"the answer “{answer}”"
            if check == "evidence":
                return _fact_texts(verdict.unshown), "no result showed this in time"
            if check == "refusal":
                return _reason_text([success.refusal] if success.refusal else []), _reason_text(sorted(refusal_reasons(answer)))
        if check == "grounded_answer":
            return "", f"“{answer}”{_not_in_conversation(answer, messages)}"
        if check == "grounded_arguments":
            return "", _sourceless(self.world, messages)
        if check == "known_tools":
            called = {call.function.name for message in messages for call in message.tool_calls}
            return f"one of {', '.join(self.tools)}", ", ".join(sorted(called - set(self.tools)))
        if check == "well_formed":
            return "", _malformed(messages)
        return "", f"“{answer}”" if answer else "no text at the end"


def find_origin(store: Store, row: Mapping[str, Any]) -> Task | Blueprint | None:
    """What a row of `trajectories` or `rollouts` was played for: its task, else its blueprint; None if the store has neither."""
    tasks = store.query("SELECT spec FROM tasks WHERE task_id = ?", [row["task_id"]])["spec"]
    if len(tasks):
        return Task.model_validate_json(tasks[0])
    specs = store.query("SELECT spec FROM blueprints WHERE blueprint_id = ?", [row.get("blueprint_id")])["spec"]
    return Blueprint.model_validate_json(specs[0]) if len(specs) and "turns" in json.loads(specs[0] or "{}") else None


def _replayed(store: Store, row: Mapping[str, Any], messages: Sequence[Message]) -> _Replayed | None:
    """None if the world, the task or the blueprint is not there any more."""
    origin = find_origin(store, row)
    if origin is None or origin.world not in WORLDS:
        return None
    if isinstance(origin, Blueprint):
        return _replay_blueprint(origin, messages)
    return _replay_task(origin, messages) if origin.conversation is None else _replay_turns(origin, messages)


def _replay_task(task: Task, messages: Sequence[Message]) -> _Replayed:
    kind = WORLDS[task.world]
    replayed, world = _Replayed(kind, task.tools), open_world(kind, task)
    for message in messages[len(task.messages) :]:
        for call in message.tool_calls:
            world.call(call.function.name, call.function.arguments)
    replayed.goals[""] = task, verify(kind, task, messages)
    replayed.states[""] = task.success.changes, world.changes()
    return replayed


def _replay_turns(task: Task, messages: Sequence[Message]) -> _Replayed:
    """A rollout of a task whose user goes on, turn by turn."""
    blueprint, kind = Blueprint.model_validate(task.conversation), WORLDS[task.world]
    replayed, play = _Replayed(kind, task.tools), ConversationPlay(kind, blueprint, task.context)
    for place, message in enumerate(messages):
        if message.role != "assistant":
            continue
        if message.tool_calls:
            play.call(message)
            continue
        turn = len(play.verdicts)
        play.end_turn(messages[: place + 1])
        state = (play.judge.expected_changes[turn], play.changes())
        replayed.states[f"turn_{turn}."], replayed.answers[f"turn_{turn}."] = state, message.content or ""
        for index, verdict in play.verdicts[turn].goals.items():
            replayed.goals[f"turn_{turn}.goal_{index}."] = blueprint.goals[index], verdict
            replayed.states[f"turn_{turn}.goal_{index}."] = (blueprint.goals[index].changes, state[1])
            replayed.answers[f"turn_{turn}.goal_{index}."] = message.content or ""
        if turn + 1 == len(blueprint.turns):
            break
    play.close()
    return replayed


def _replay_blueprint(blueprint: Blueprint, messages: Sequence[Message]) -> _Replayed:
    """A synthesised conversation, judged as the observer does."""
    kind = WORLDS[blueprint.world]
    replayed, world = _Replayed(kind, blueprint.tools), kind(blueprint.world_seed)
    tools, changes = WorldTools(world, blueprint), list[Mapping[str, JSON]]()
    for message in messages:
        for call in message.tool_calls:
            tools.run(call)
        if message.role == "assistant" and not message.tool_calls:
            changes.append(world.changes())
    world.close()
    transcript = Transcript(tuple(messages), derive_turns(messages), tuple(changes), frozenset(tools.injected))
    replayed.states[""] = blueprint.goals[-1].changes, changes[-1] if changes else {}
    if len(transcript.turns) == len(blueprint.turns) == len(changes):
        for turn in blueprint.turns:
            for index in turn.settles:
                if blueprint.goals[index].is_abandoned:
                    continue
                replayed.goals[f"goal_{index}."] = blueprint.goals[index], judge_goal(kind, blueprint, index, transcript)
                replayed.states[f"goal_{index}."] = blueprint.goals[turn.settles[-1]].changes, changes[turn.t]
                replayed.answers[f"goal_{index}."] = _answers(messages)[turn.t]
    return replayed


# ---- texts ------------------------------------------------------------------------------------------------------------------


def _answers(messages: Sequence[Message]) -> list[str]:
    """The texts of the assistant that end a turn."""
    return [message.content or "" for message in messages if message.role == "assistant" and not message.tool_calls]


def _compare_states(expected: Mapping[str, JSON], found: Mapping[str, JSON]) -> tuple[str, str]:
    """Only the paths that differ."""
    paths = sorted(path for path in expected.keys() | found.keys() if expected.get(path, ...) != found.get(path, ...))
    wanted, there = ("\n".join(f"{path} {_change(side, path)}" for path in paths) for side in (expected, found))
    return wanted, there


def _change(side: Mapping[str, JSON], path: str) -> str:
    if path not in side:
        return "is not changed"
    return "is removed" if side[path] is None else f"becomes {json.dumps(side[path], ensure_ascii=False)}"


def _fact_texts(facts: Sequence[Fact]) -> str:
    return "\n".join(f"{fact.value}" + (f", and not {' or '.join(fact.rivals)}" if fact.rivals else "") for fact in facts)


def _reason_text(reasons: Sequence[str]) -> str:
    return f"a refusal: {', '.join(str(reason).replace('_', ' ') for reason in reasons)}" if reasons else "no refusal"


def _not_in_conversation(answer: str, messages: Sequence[Message]) -> str:
    """The ids and numbers of an answer that no message of the user, the tools or the system holds."""
    said = [message.content or "" for message in messages if message.role != "assistant"]
    missing = [word for word in dict.fromkeys(_FIGURE.findall(answer)) if not any(mentions(text, word) for text in said)]
    return f"\nnot in the conversation: {', '.join(missing)}" if missing else ""


def _sourceless(world: type[World], messages: Sequence[Message]) -> str:
    """The calls with values that need a source and have none."""
    grounded = {
        tool.name: {name for name, schema in tool.parameters.get("properties", {}).items() if schema.get("x-grounded")}
        for tool in world.tools
    }
    return "\n".join(
        f"{name}={(call.arguments or {}).get(name.partition('.')[0])} in {call_text(call.tool, call.arguments or {})}"
        for turn in derive_turns(messages)
        for step in turn.steps
        for call in step.calls
        for name, source in call.sources.items()
        if source == "const" and name.partition(".")[0] in grounded.get(call.tool, ())
    )


def _malformed(messages: Sequence[Message]) -> str:
    calls = [call.function for message in messages for call in message.tool_calls]
    broken = [f"{call.name}({call.arguments})" for call in calls if parse_arguments(call.arguments) is None]
    last = messages[-1].content or "" if messages else ""
    return "\n".join(broken) or f"a call as text: “{last}”"
