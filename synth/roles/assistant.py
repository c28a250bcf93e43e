"""The scripted assistant: a program that executes a blueprint's plan turn by turn, and retries a call that failed, or that found nothing
where the plan says that there is something, once. Where a tool is to be tried that is down, it tries it, and then goes the plan's way.

It is handed its plan, because it cannot think of one; its trajectories say `teacher = scripted`. It reads the dialogue only to see where
it is and what the last calls returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.conversation import call_status
from storage.records import JSON, Cost, Message, Tool, plain_json
from synth.blueprints.blueprint import Blueprint

TEACHER = "scripted"


class ScriptedAssistant:
    name = TEACHER
    cost = Cost()

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._in_vain = {p.at: p.tried for p in blueprint.perturbations if p.tried is not None}
        self._emptied = {p.at for p in blueprint.perturbations if p.kind == "empty"}
        self._pending: list[tuple[int, ...]] = []
        self._last: tuple[int, ...] = ()
        self._is_retry = False
        self._made = 0

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        turn = self._blueprint.turns[sum(message.role == "user" for message in dialogue) - 1]
        if dialogue[-1].role == "user":
            self._pending, self._last, self._is_retry = list(turn.steps), (), False
        failed = self._failed(dialogue) if self._last and not self._is_retry else ()
        if failed:
            self._is_retry = True
            return self._call(failed)
        self._is_retry = False
        if self._pending:
            tried = next((self._in_vain.pop(n) for n in self._pending[0] if n in self._in_vain), None)
            if tried is not None:
                self._last = ()
                return self._calls([(tried.tool, tried.arguments)])
            self._last = self._pending.pop(0)
            return self._call(self._last)
        return Message(role="assistant", content=turn.reply)

    def _failed(self, dialogue: Sequence[Message]) -> tuple[int, ...]:
        """Those of the last step's calls that came back with an error, or with nothing where the plan expects something."""
        statuses = [call_status(result.content) for result in dialogue[-len(self._last) :]]
        return tuple(
            node
            for node, status in zip(self._last, statuses, strict=True)
            if status == "error" or (status == "empty" and node in self._emptied)
        )

    def _call(self, nodes: Sequence[int]) -> Message:
        planned = [self._blueprint.nodes[n] for n in nodes]
        return self._calls([(node.tool, node.values()) for node in planned])

    def _calls(self, calls: Sequence[tuple[str, Mapping[str, JSON]]]) -> Message:
        made = []
        for tool, arguments in calls:
            made.append({"id": f"call_{self._made}", "function": {"name": tool, "arguments": plain_json(arguments)}})
            self._made += 1
        return Message.model_validate({"role": "assistant", "tool_calls": made})  # at once: cheaper than a record for every call
