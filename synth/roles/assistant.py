"""The scripted assistant: a program that executes a blueprint's plan turn by turn, and retries a call that failed or found nothing, once.

It is handed its plan, because it cannot think of one; its trajectories say `teacher = scripted`. It reads the dialogue only to see where
it is and what the last calls returned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from storage.records import FunctionCall, Message, Tool, ToolCall, call_status
from synth.blueprints import Blueprint

TEACHER = "scripted"


class ScriptedAssistant:
    name = TEACHER

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
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
            self._last = self._pending.pop(0)
            return self._call(self._last)
        return Message(role="assistant", content=turn.reply)

    def _failed(self, dialogue: Sequence[Message]) -> tuple[int, ...]:
        """Those of the last step's calls that came back with an error, or with nothing."""
        results = dialogue[-len(self._last) :]
        return tuple(node for node, result in zip(self._last, results, strict=True) if call_status(result.content) in ("error", "empty"))

    def _call(self, nodes: Sequence[int]) -> Message:
        calls = []
        for n in nodes:
            node = self._blueprint.nodes[n]
            arguments = json.dumps(node.values(), ensure_ascii=False)
            calls.append(ToolCall(id=f"call_{self._made}", function=FunctionCall(name=node.tool, arguments=arguments)))
            self._made += 1
        return Message(role="assistant", tool_calls=tuple(calls))
