"""A task in a context for tests of whatever opens tasks: its expert has to read on."""

from __future__ import annotations

from functools import cache

from storage.context.settings import PolicyContext
from storage.records import Call, Task, parse_arguments
from synth.blueprints.single_goal import draw_drills
from synth.conversations.task_in_context import in_context
from synth.tasks.solver import NotAdmitted, expert_messages
from synth.tasks.split import STANDARD
from synth.worlds import WORLDS

NOTED = PolicyContext(observation_chars=150, notes=True)
"""Shortened results and notes: all three tools of a context."""


def expert_calls(task: Task) -> tuple[Call, ...]:
    """The calls of a task's expert, those of its context's tools among them."""
    called = [call.function for message in expert_messages(WORLDS[task.world], task) for call in message.tool_calls]
    return tuple(Call(tool=function.name, arguments=parse_arguments(function.arguments) or {}) for function in called)


@cache
def task_read_on(context: PolicyContext = NOTED) -> Task:
    """A library task whose plan alone fails in the context, as a result hides what it needs."""
    library = WORLDS["library"]
    for drill in draw_drills(library, 60, (), STANDARD, seed=0):
        try:
            task = in_context(library, drill.task, context)
        except NotAdmitted:
            continue
        if "read_more" in {call.tool for call in expert_calls(task)}:
            return task
    raise AssertionError("no task hides what its plan needs")
