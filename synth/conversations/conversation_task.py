"""Tasks of whole conversations: the user goes on after the first request, and each goal is judged when it is answered.

Such a task holds its blueprint: the simulated user says the blueprint's turns, its planned faults happen again, and `ConversationJudge`
judges the policy. It is admitted if the scripted assistant passes, and an assistant that makes no call fails, whether it gives the right
answers or refuses everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.records import Call, Division, Frame, Language, Message, Plan, Success, Task, content_id
from synth.blueprints.blueprint import Blueprint, Goal, Node
from synth.blueprints.draft import PlanFailed
from synth.blueprints.redraw import redraw
from synth.conversations.conversation_play import Act, blueprint_of, run_conversation
from synth.roles.scripted import ScriptedAssistant
from synth.tasks.difficulty import score_shape
from synth.tasks.solver import NotAdmitted, Use
from synth.text.refusals import REFUSALS
from synth.worlds.base import Shape, World


def conversation_task(
    world: type[World],
    blueprint: Blueprint,
    *,
    division: Division,
    use: Use = "train",
    blueprint_id: str | None = None,
    frame_id: str | None = None,
) -> Task:
    """The task of a blueprint, admitted.

    Args:
        world: the blueprint's.
        blueprint_id: of the stored blueprint that it was drawn again from; None if it is stored itself.
        frame_id: of the conversation whose sibling it is; None for its own.

    Raises:
        NotAdmitted: a condition of admission does not hold.
    """
    stored, conversation = blueprint_id or blueprint.id, blueprint.model_dump(mode="json")
    frame = frame_id or conversation_frame(conversation)
    main = next((goal for index, goal in _goals(blueprint) if any(node.goal == index for node in blueprint.nodes)), _goals(blueprint)[0][1])
    refused = [goal.refusal for _, goal in _goals(blueprint)]
    system = world(blueprint.world_seed).system_prompt
    task = Task(
        id=content_id("task", blueprint.id, stored, frame, division, use),
        world=blueprint.world,
        world_seed=blueprint.world_seed,
        intent=main.intent,
        leaf=main.leaf,
        frame_id=frame,
        slots=main.slots,
        language=blueprint.language,
        messages=(*([Message(role="system", content=system)] if system else []), Message(role="user", content=blueprint.turns[0].text)),
        tools=blueprint.tools,
        plan=Plan(calls=tuple(Call(tool=node.tool, arguments=node.values()) for node in blueprint.nodes), answer=blueprint.turns[-1].reply),
        success=Success(changes=blueprint.goals[-1].changes, refusal=refused[0] if len(set(refused)) == 1 else None),
        difficulty=rate_difficulty(blueprint),
        blueprint_id=stored,
        division=division,
        use=use,
        conversation=conversation,
    )
    _check_admission(world, task, blueprint)
    return task


def conversation_frame(blueprint: Mapping[str, Any]) -> str:
    """Id of what a conversation asks for: the frames of its goals, in order, and its course. Equal for equal conversations.

    blueprint: as JSON.
    """
    goals = [goal["frame_id"] for goal in blueprint["goals"]]
    return content_id("frame", blueprint["world"], goals, blueprint["template"], blueprint["is_parallel"])


def goal_frames(task: Task) -> list[Frame]:
    """What a task asks for: the frames of its goals, in order; one for a task with one request."""
    goals = [(task.intent, task.slots)] if task.conversation is None else [(goal.intent, goal.slots) for goal in blueprint_of(task).goals]
    return [Frame(world=task.world, intent=intent, slots=slots) for intent, slots in goals]


def conversation_sibling(world: type[World], task: Task, index: int, *, language: Language, division: Division, use: Use) -> Task:
    """Sibling `index` of a task: the same conversation about other individuals, with the origin's frame and blueprint.

    Raises:
        NotAdmitted: no seed gave one.
    """
    try:
        drawn = redraw(world, blueprint_of(task), key=task.frame_id, index=index, language=language, use=use)
    except PlanFailed as failed:
        raise NotAdmitted(failed.reason, failed.detail) from failed
    return conversation_task(world, drawn, division=division, use=use, blueprint_id=task.blueprint_id, frame_id=task.frame_id)


def _goals(blueprint: Blueprint) -> list[tuple[int, Goal]]:
    return [(index, goal) for index, goal in enumerate(blueprint.goals) if not goal.is_abandoned]


def rate_difficulty(blueprint: Blueprint) -> int:
    """The static difficulty of all goals together (P6): -1 where all are refused, 0 without a call, else 1 to 5."""
    if all(goal.refusal for _, goal in _goals(blueprint)):
        return -1
    shape = Shape(tuple((node.tool, _parents(node)) for node in blueprint.nodes))
    constraints = sum(len(goal.slots) for _, goal in _goals(blueprint))
    return score_shape(shape, constraints, has_conflict=False, names_a_tool=True).r if blueprint.nodes else 0


def _parents(node: Node) -> tuple[int, ...]:
    return tuple(sorted({argument.node for argument in node.arguments.values() if argument.node is not None}))


def _check_admission(world: type[World], task: Task, blueprint: Blueprint) -> None:
    _, expert = run_conversation(world, task, ScriptedAssistant(blueprint).act)
    if not expert.passed:
        raise NotAdmitted("expert_fails", ", ".join(name for name, holds in expert.checks.items() if not holds))
    if blueprint.nodes and run_conversation(world, task, _says([turn.reply for turn in blueprint.turns]))[1].passed:
        raise NotAdmitted("idle_passes")
    for refusal in REFUSALS.values():
        if not task.success.refusal and run_conversation(world, task, _says([refusal[task.language]] * len(blueprint.turns)))[1].passed:
            raise NotAdmitted("reward_hack", "always_refuse")


def _says(texts: list[str]) -> Act:
    """An assistant that makes no call, and says one text a turn."""
    return lambda messages, _: Message(role="assistant", content=texts[sum(message.role == "user" for message in messages) - 1])
