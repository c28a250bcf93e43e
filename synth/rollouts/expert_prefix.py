"""Starts in the middle of a task: the first turns of the expert's conversation, and the world as they left it.

One idea: the expert's plan is played once, with a snapshot of the world after each turn. A rollout restores one and goes on from there, so
what it does next is as real as if it had made the expert's calls itself, and none of them is made again.

What it does not do: choose the turn (`train/rl/rollback.py`). Tasks with several user turns, and tasks in a context, have state outside the
world (the user's course; pages and notes), which no snapshot holds: they have no prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.records import Message, Task
from synth.tasks.solver import execute_call
from synth.worlds.base import World


@dataclass(frozen=True, slots=True)
class ExpertPrefix:
    """messages: the task's, and the expert's first `turns` turns with their results. snapshot: of the world after them."""

    messages: tuple[Message, ...]
    snapshot: object
    turns: int

    def restored(self, kind: type[World], task: Task) -> World:
        """A world of the task's, in the state after the prefix."""
        world = kind(task.world_seed, task.given)
        world.restore(self.snapshot)
        return world


def has_prefixes(task: Task) -> bool:
    """Whether a world's snapshot is all that a conversation of the task needs to go on."""
    return task.conversation is None and task.context is None


def expert_conversation(kind: type[World], task: Task) -> tuple[tuple[Message, ...], tuple[ExpertPrefix, ...]]:
    """The executed plan as a conversation, and its prefixes of 1, 2, ... turns; without the whole, which ends with the answer.

    A turn is an assistant message, with the result of its call. The task must have prefixes (`has_prefixes`).
    """
    world, prefixes, messages = kind(task.world_seed, task.given), list[ExpertPrefix](), task.messages
    try:
        for index, call in enumerate(task.plan.calls):
            messages = (*messages, *execute_call(world, call, index))
            prefixes.append(ExpertPrefix(messages, world.snapshot(), index + 1))
    finally:
        world.close()
    return (*messages, Message(role="assistant", content=task.plan.answer)), tuple(prefixes)
