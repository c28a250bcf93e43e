"""The tools that a task offers: its world's, and those of its context."""

from __future__ import annotations

from storage.context.context_tools import FUNCTIONS
from storage.records import Task, Tool
from synth.worlds.base import World

_SERVER = "context"
CONTEXT_TOOLS = {name: Tool(server=_SERVER, domain=_SERVER, **function) for name, function in FUNCTIONS.items()}
"""Name -> tool."""


def tools_of(world: type[World], task: Task) -> tuple[Tool, ...]:
    """The tools that a task offers, in its order.

    Raises:
        LookupError: one of them is gone.
    """
    by_name = (CONTEXT_TOOLS if task.context is not None else {}) | {tool.name: tool for tool in world.tools}
    if missing := [name for name in task.tools if name not in by_name]:
        raise LookupError(f"it has no tool {missing[0]} any more")
    return tuple(by_name[name] for name in task.tools)
