"""The scripted user and assistant, and the rules of the scripted judge: free, and the same bytes every time.

The user says its turns in order, whatever the assistant answers. The assistant executes a blueprint's plan turn by turn; it repeats a call
once that failed, and tries a tool that is down before it takes the planned way around it. It reads the dialogue only for its position and
the last results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import JSON, Cost, Language, Message, Tool, is_error, plain_json
from synth.blueprints.blueprint import Blueprint, TurnPlan
from synth.roles.base import Grades
from synth.tasks.reward import presentation

TEACHER = "scripted"
"""Name of the scripted roles in configurations, and as stored in `teacher`."""
LEAST_GRADE = 4
"""Lowest grade of an accepted trajectory."""


class ScriptedUser:
    cost = Cost()

    def __init__(self, turns: Sequence[TurnPlan]) -> None:
        self._texts = [turn.text for turn in turns]
        self.turns = (0, 0)

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        turn = sum(message.role == "user" for message in dialogue)
        if turn >= len(self._texts):
            return None
        self.turns = (turn + 1, turn + 1)
        return self._texts[turn]


class ScriptedAssistant:
    name = TEACHER
    cost = Cost()

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        self._tried_first = {p.at: p.tried for p in blueprint.perturbations if p.tried is not None}
        self._pending: list[tuple[int, ...]] = []
        self._last: tuple[int, ...] = ()
        self._is_retry = False
        self._call_count = 0

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        turn = self._blueprint.turns[sum(message.role == "user" for message in dialogue) - 1]
        if dialogue[-1].role == "user":
            self._pending, self._last, self._is_retry = list(turn.steps), (), False
        failed = self._failed_nodes(dialogue) if self._last and not self._is_retry else ()
        if failed:
            self._is_retry = True
            return self._planned_calls(failed)
        self._is_retry = False
        if self._pending:
            tried = next((self._tried_first.pop(n) for n in self._pending[0] if n in self._tried_first), None)
            if tried is not None:
                self._last = ()
                return self._calls([(tried.tool, tried.arguments)])
            self._last = self._pending.pop(0)
            return self._planned_calls(self._last)
        return Message(role="assistant", content=turn.reply)

    def _failed_nodes(self, dialogue: Sequence[Message]) -> tuple[int, ...]:
        """Nodes of the last step's calls that returned an error."""
        results = dialogue[-len(self._last) :]
        return tuple(node for node, result in zip(self._last, results, strict=True) if is_error(result.content or ""))

    def _planned_calls(self, nodes: Sequence[int]) -> Message:
        return self._calls([(self._blueprint.nodes[n].tool, self._blueprint.nodes[n].values()) for n in nodes])

    def _calls(self, calls: Sequence[tuple[str, Mapping[str, JSON]]]) -> Message:
        tool_calls = [
            {"id": f"call_{number}", "function": {"name": tool, "arguments": plain_json(arguments)}}
            for number, (tool, arguments) in enumerate(calls, self._call_count)
        ]
        self._call_count += len(tool_calls)
        return Message.model_validate({"role": "assistant", "tool_calls": tool_calls})  # one call: cheaper than a record for every call


def scripted_grades(language: Language, checks: Mapping[str, bool], extra_calls: int | None, dialogue: Sequence[Message]) -> Grades:
    """Grades by rule. checks, extra_calls: as `observer.observe` returns them.

    planning: one point off for every call beyond the plan (retries of planned faults do not count); 1 if the plan is not covered.
    fidelity: 5 if every answer and argument is grounded, else 1.
    presentation: replies are in the user's language, and none is empty, too long, or contains a placeholder.
    """
    grounded = all(holds for name, holds in checks.items() if name.endswith(("grounded_answer", "grounded_arguments")))
    texts = [message.content or "" for message in dialogue if message.role == "assistant" and not message.tool_calls]
    return Grades(
        planning=1 if extra_calls is None else max(1, 5 - extra_calls),
        fidelity=5 if grounded else 1,
        presentation=round(1 + 4 * min((presentation(text, language) for text in texts), default=0.0)),
    )
