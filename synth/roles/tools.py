"""The tools of a conversation: a world, and the disturbances that a blueprint plans.

A planned fault replaces the first answer of one call: an error, or what the call returns with its lists emptied. The world is not
touched then, so that the retry finds everything as it was, and whoever replays a conversation can tell (`Blueprint.perturbations`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from storage.records import JSON, Message, ToolCall, canonical_json, parse_arguments
from synth.blueprints import Blueprint, Node, Perturbation
from synth.worlds import make_world
from synth.worlds.base import World


class WorldTools:
    """Runs calls of a blueprint's conversation in a world of its own."""

    def __init__(self, blueprint: Blueprint, *, world: World | None = None) -> None:
        self.world = world or make_world(blueprint.world, blueprint.world_seed)
        self._offered = frozenset(blueprint.tools)
        self._faults = _faults(blueprint.nodes, blueprint.perturbations)
        self.injected: list[str] = []
        """Ids of the calls whose answer was replaced."""

    def run(self, call: ToolCall) -> Message:
        name, arguments = call.function.name, parse_arguments(call.function.arguments)
        if name not in self._offered:
            return _observed(call, canonical_json({"error": "no such tool"}))
        fault = self._faults.pop(_key(name, arguments), None)
        if fault is None:
            return _observed(call, self.world.call(name, call.function.arguments).content)
        self.injected.append(call.id)
        if fault.kind == "error":
            return _observed(call, canonical_json({"error": fault.message}))
        before = self.world.snapshot()
        content = self.world.call(name, call.function.arguments).content
        self.world.restore(before)
        return _observed(call, emptied(content))


def emptied(content: str) -> str:
    """A result that found nothing, of the same form: its lists emptied, all else left out; `[]` where it holds no list."""
    try:
        value = json.loads(content)
    except ValueError:
        return "[]"
    if isinstance(value, dict):
        lists: dict[str, JSON] = {name: [] for name, item in value.items() if isinstance(item, list)}
        return canonical_json(lists) if lists else "[]"
    return "[]"


def _faults(nodes: Sequence[Node], perturbations: Sequence[Perturbation]) -> dict[str, Perturbation]:
    return {_key(nodes[p.at].tool, nodes[p.at].values()): p for p in perturbations if p.kind != "goal_shift"}


def _key(tool: str, arguments: dict[str, JSON] | None) -> str:
    return f"{tool} {canonical_json(arguments)}"


def _observed(call: ToolCall, content: str) -> Message:
    return Message(role="tool", tool_call_id=call.id, content=content)
