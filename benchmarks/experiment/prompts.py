"""How a conversation of the experiment reads: the tools of the domain as a compact list, then what the user says.

One idea: a policy cannot know which tools a domain has that it has never seen, so the prompt names some of them, as the words that their
names are made of: `get lesson bill; defer lesson bill (days)`. System messages, which state the rules at length, are left out: the
tiny policy has no room for them, and the same holds for every arm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from storage.records import CODE_TOOL, Message, Task, Tool
from synth.worlds import WORLDS

_UNSAID = frozenset({"id", "sort", "limit"})


def shown_tools(world: str, used: Sequence[str], count: int, key: str) -> list[Tool]:
    """`count` tools of a world, those used among them (more where more are used), in an order of their own; `key` seeds the draw."""
    rng = random.Random(f"shown/{key}")
    tools = {tool.name: tool for tool in WORLDS[world].tools}
    wanted = list(dict.fromkeys(name for name in used if name in tools))
    others = [name for name in tools if name not in wanted and name != CODE_TOOL]
    names = wanted + rng.sample(others, min(len(others), max(0, count - len(wanted))))
    rng.shuffle(names)
    return [tools[name] for name in names]


def compact(tools: Sequence[Tool]) -> str:
    """The list of tools, in words, with the names of their parameters; what most have (an identifier, order and number of rows) goes
    without saying."""
    said = []
    for tool in tools:
        names = [name.replace("_", " ") for name in tool.parameters.get("properties", {}) if name not in _UNSAID]
        said.append(tool.name.replace("_", " ") + (f" ({', '.join(names)})" if names else ""))
    return "; ".join(said)


def prompted(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """A conversation without its system message, and the compact list before the user's first words."""
    first, *rest = [message for message in messages if message.role != "system"]
    return (first.model_copy(update={"content": f"{compact(tools)}\n{first.content}"}), *rest)


def prompted_task(task: Task, count: int) -> Task:
    """A task as a policy of the experiment is given it; on offer are the tools of the list."""
    tools = shown_tools(task.world, [call.tool for call in task.plan.calls], count, task.id)
    return task.model_copy(update={"messages": prompted(task.messages, tools), "tools": tuple(tool.name for tool in tools)})
