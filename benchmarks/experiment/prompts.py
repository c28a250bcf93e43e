"""How a conversation of the experiments reads: the domain's tools and rules in few words, then what the user says.

A policy cannot know which tools a domain has that it has never seen, so the prompt names some of them by the words of their names:
`get lesson bill; defer lesson bill (days)`. The rules follow, because some calls must be made before others for a rule's sake. The rest of
the system message is left out: the tiny policy has no room for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from storage.records import CODE_TOOL, Message, Task, Tool
from synth.worlds import WORLDS

SHOWN_TOOLS = 6
_UNSAID = frozenset({"id", "sort", "limit"})


def shown_tools(world: str, used: Sequence[str], offered: Sequence[str], key: str) -> list[Tool]:
    """`SHOWN_TOOLS` of the tools on offer, those used among them (more if more are used), in a drawn order. key: seed of the draw."""
    rng = random.Random(f"shown/{key}")
    tools = {tool.name: tool for tool in WORLDS[world].tools if tool.name in offered}
    wanted = list(dict.fromkeys(name for name in used if name in tools))
    others = [name for name in tools if name not in wanted and name != CODE_TOOL]
    names = wanted + rng.sample(others, min(len(others), max(0, SHOWN_TOOLS - len(wanted))))
    rng.shuffle(names)
    return [tools[name] for name in names]


def compact(tools: Sequence[Tool]) -> str:
    """The list of tools in words, with the names of their parameters, except those that most tools have."""
    entries = []
    for tool in tools:
        names = [name.replace("_", " ") for name in tool.parameters.get("properties", {}) if name not in _UNSAID]
        entries.append(tool.name.replace("_", " ") + (f" ({', '.join(names)})" if names else ""))
    return "; ".join(entries)


def rules_of(system: str) -> str:
    """The rules in a system message; empty if it states none."""
    return system.partition("Rules: ")[2].partition(" If you must refuse")[0]


def prompted(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """A conversation whose first user message also states the tools and the rules, without its system message."""
    rules = " ".join(rules_of(message.content or "") for message in messages if message.role == "system")
    first, *rest = [message for message in messages if message.role != "system"]
    return (first.model_copy(update={"content": "\n".join(filter(None, (compact(tools), rules, first.content)))}), *rest)


def prompted_task(task: Task) -> Task:
    """A task as a policy of the experiments is given it."""
    tools = shown_tools(task.world, [call.tool for call in task.plan.calls], task.tools, task.id)
    return task.model_copy(update={"messages": prompted(task.messages, tools), "tools": tuple(tool.name for tool in tools)})
