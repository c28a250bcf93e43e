"""The tools of a conversation: a world, and the perturbations that the blueprint plans.

A planned fault replaces the first result of one call by an error. A tool that is down answers every call with an error. Neither changes the
world. Noise adds irrelevant fields to a result. A replay finds all of them in `Blueprint.perturbations`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from storage.conversation import call_status
from storage.records import JSON, Message, ToolCall, canonical_json, parse_arguments
from synth.blueprints.blueprint import Blueprint, Node, Perturbation
from synth.context.view import PolicyView
from synth.roles.base import ToolsFailed
from synth.worlds.base import World


class WorldTools:
    """Executes the calls of one conversation in its world. injected: ids of the calls whose result was replaced.

    view: through which the policy sees the results; None: as they are.
    """

    def __init__(self, world: World, blueprint: Blueprint, view: PolicyView | None = None) -> None:
        self.world, self._view = world, view
        self._offered = frozenset(blueprint.tools)
        self._faults = _planned_perturbations(blueprint.nodes, blueprint.perturbations, "error")
        self._noise = {
            key: json.loads(p.message) for key, p in _planned_perturbations(blueprint.nodes, blueprint.perturbations, "noise").items()
        }
        self._down = {p.tried.tool: p.message for p in blueprint.perturbations if p.tried is not None}
        self.injected: list[str] = []

    def run(self, call: ToolCall) -> Message:
        """The result of a call, with the planned perturbation if there is one.

        Raises:
            ToolsFailed: the world or its sandbox failed.
        """
        if self._view is None:
            return self._run(call)
        if self._view.answers(call.function.name):
            return _result(call, self._view.answer(call.function.name, call.function.arguments))
        return _result(call, self._view.show(call.function.name, self._run(call).content or ""))

    def _run(self, call: ToolCall) -> Message:
        """The result of a call of the world's tools, before the policy sees it."""
        name, arguments = call.function.name, parse_arguments(call.function.arguments)
        if name not in self._offered:
            return _result(call, canonical_json({"error": "no such tool"}))
        if name in self._down:
            self.injected.append(call.id)
            return _result(call, canonical_json({"error": self._down[name]}))
        key = call_key(name, arguments) if self._faults or self._noise else ""
        fault = self._faults.pop(key, None)
        if fault is None:
            content = self._execute(name, call.function.arguments if arguments is None else arguments)
            return _result(call, noisy(content, self._noise[key]) if key in self._noise else content)
        self.injected.append(call.id)
        return _result(call, canonical_json({"error": fault.message}))

    def _execute(self, name: str, arguments: str | Mapping[str, JSON]) -> str:
        """The world's result. A world never raises for bad arguments, so any exception is its own failure."""
        try:
            return self.world.call(name, arguments).content
        except Exception as error:
            raise ToolsFailed(f"{name}: {type(error).__name__}: {error}") from error


def noisy(content: str, fields: Mapping[str, JSON]) -> str:
    """A result with irrelevant fields in the object, or in every object of a list, in the same JSON spacing. Errors and empty results are
    returned unchanged."""
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


def _planned_perturbations(nodes: Sequence[Node], perturbations: Sequence[Perturbation], kind: str) -> dict[str, Perturbation]:
    return {call_key(nodes[p.at].tool, nodes[p.at].values()): p for p in perturbations if p.kind == kind}


def call_key(tool: str, arguments: Mapping[str, JSON] | None) -> str:
    """A text that is the same for equal calls."""
    return f"{tool} {canonical_json(arguments)}"


def _result(call: ToolCall, content: str) -> Message:
    return Message(role="tool", tool_call_id=call.id, content=content)
