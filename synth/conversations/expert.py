"""The scripted teacher of a task: executes its plan."""

from __future__ import annotations

from storage.conversation import derive_turns
from storage.errors import HeadraceError
from storage.records import CODE_TOOL, Message, Outcome, Task, Trajectory
from synth.blueprints.diversity import Profile
from synth.conversations.conversation_play import blueprint_of
from synth.conversations.task_in_context import play_expert
from synth.roles.scripted import TEACHER
from synth.roles.simulate import profile, trajectory_id
from synth.tasks.solver import expert_messages
from synth.tasks.verify import verify_teacher
from synth.worlds.base import World


def expert_trajectory(world: type[World], task: Task) -> Trajectory:
    """The task's plan, executed and verified: `teacher = scripted`.

    world: the task's.

    Raises:
        HeadraceError: the plan fails, which an admitted task's plan never does.
    """
    messages, reward, checks = _play(world, task)
    if not all(checks.values()):
        failed = ", ".join(name for name, holds in checks.items() if not holds)
        raise HeadraceError(f"the expert plan of task {task.id} fails {failed}; was the world changed without a new version?")
    return Trajectory(
        id=trajectory_id(task.id, TEACHER, messages),
        task_id=task.id,
        messages=messages,
        outcome=Outcome.SUCCESS,
        reward=reward,
        checks=checks,
        teacher=TEACHER,
    )


def _play(world: type[World], task: Task) -> tuple[tuple[Message, ...], float, dict[str, bool]]:
    """Messages, reward and checks of the executed plan."""
    if task.conversation is not None:
        played = play_expert(world, task)
        return played.messages, played.verdict.reward, played.verdict.checks
    messages = tuple(expert_messages(world, task))
    verified = verify_teacher(world, task, messages)
    return messages, verified.reward, verified.checks


def expert_profile(world: type[World], task: Task) -> Profile | None:
    """The profile of the executed plan; None if the plan has a program, which is not executed for this."""
    if any(call.tool == CODE_TOOL for call in task.plan.calls):
        return None
    messages = expert_messages(world, task) if task.conversation is None else _play(world, task)[0]
    domain = world.intents[task.intent].domain if task.conversation is None else blueprint_of(task).domain
    return profile(task.world, domain, derive_turns(messages), {tool.name: tool for tool in world.tools})
