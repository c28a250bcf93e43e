"""The tools of a conversation: a world, and the disturbances that a blueprint plans.

A planned fault replaces the first answer of one call: an error, or what the call returns with its lists emptied. A tool that is down
answers every call with an error. The world is not touched then, so that the next call finds everything as it was. Noise puts irrelevant
fields into what a call found. Whoever replays a conversation can tell (`Blueprint.perturbations`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from storage.conversation import call_status
from storage.records import JSON, Message, ToolCall, canonical_json, parse_arguments
from synth.blueprints.blueprint import Blueprint, Node, Perturbation
from synth.roles.base import ToolsFailed
from synth.worlds.base import World


class WorldTools:
    """Runs calls of a blueprint's conversation in a world of its own."""

    def __init__(self, world: World, blueprint: Blueprint) -> None:
        self.world = world
        self._offered = frozenset(blueprint.tools)
        self._faults = _planned(blueprint.nodes, blueprint.perturbations, "error", "empty")
        self._noise = {key: json.loads(p.message) for key, p in _planned(blueprint.nodes, blueprint.perturbations, "noise").items()}
        self._down = {p.tried.tool: p.message for p in blueprint.perturbations if p.tried is not None}
        self.injected: list[str] = []
        """Ids of the calls whose answer was replaced."""

    def run(self, call: ToolCall) -> Message:
        """What a call returns, as planned or as the world has it.

        Raises:
            ToolsFailed: the world itself failed, or its sandbox.
        """
        name, arguments = call.function.name, parse_arguments(call.function.arguments)
        if name not in self._offered:
            return _observed(call, canonical_json({"error": "no such tool"}))
        if name in self._down:
            self.injected.append(call.id)
            return _observed(call, canonical_json({"error": self._down[name]}))
        key = _key(name, arguments) if self._faults or self._noise else ""
        fault = self._faults.pop(key, None)
        if fault is None:
            content = self._called(name, call.function.arguments if arguments is None else arguments)
            return _observed(call, noisy(content, self._noise[key]) if key in self._noise else content)
        self.injected.append(call.id)
        if fault.kind == "error":
            return _observed(call, canonical_json({"error": fault.message}))
        before = self.world.snapshot()
        content = self._called(name, call.function.arguments)
        self.world.restore(before)
        return _observed(call, emptied(content))

    def _called(self, name: str, arguments: str | Mapping[str, JSON]) -> str:
        """What the world returns; a world never raises for what it is given, so whatever it raises is no caller's fault."""
        try:
            return self.world.call(name, arguments).content
        except Exception as error:
            raise ToolsFailed(f"{name}: {type(error).__name__}: {error}") from error


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


def noisy(content: str, fields: Mapping[str, JSON]) -> str:
    """A result with irrelevant fields: in the object, or in every object of a list; errors and empty results stay as they are, and so does
    the way in which it is written."""
    if call_status(content) != "ok":
        return content
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict):
        value = {**value, **fields}
    elif isinstance(value, list):
        value = [{**row, **fields} if isinstance(row, dict) else row for row in value]
    else:
        return content
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if '": ' in content else (",", ":"))


def _planned(nodes: Sequence[Node], perturbations: Sequence[Perturbation], *kinds: str) -> dict[str, Perturbation]:
    return {_key(nodes[p.at].tool, nodes[p.at].values()): p for p in perturbations if p.kind in kinds}


def _key(tool: str, arguments: dict[str, JSON] | None) -> str:
    return f"{tool} {canonical_json(arguments)}"


def _observed(call: ToolCall, content: str) -> Message:
    return Message(role="tool", tool_call_id=call.id, content=content)
