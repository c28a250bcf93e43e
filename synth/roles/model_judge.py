"""The judge that is a language model: three grades, only for what code cannot decide, so it is asked where every check by code holds.

Criteria are fixed per request: a first question, which holds the request and no conversation, sets them, so that every answer to that
request meets the same bar. Its grades are worth what `judge_calibration.py` measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import JSON, Cost, Message, Tool
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.base import Graded, Grades, JudgeFailed
from synth.roles.model_assistant import seed_of

CRITERIA_PROMPT, PROMPT = "judge_criteria", "judge"
DIMENSIONS = ("planning", "fidelity", "presentation")
MAX_TOKENS = 700
_LONGEST_LINE = 2000
_CRITERIA: Mapping[str, JSON] = {
    "type": "array",
    "items": {"type": "string", "minLength": 8, "maxLength": 300},
    "minItems": 1,
    "maxItems": 3,
}
_GRADE: Mapping[str, JSON] = {
    "type": "object",
    "properties": {"why": {"type": "string", "maxLength": 400}, "grade": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["why", "grade"],
    "additionalProperties": False,
}


def _of_each(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    names: list[JSON] = list(DIMENSIONS)
    return {
        "type": "object",
        "properties": {name: dict(schema) for name in DIMENSIONS},
        "required": names,
        "additionalProperties": False,
    }


class ModelJudge:
    """Grades conversations. repairs: how often an answer that is not of its form is asked for again."""

    def __init__(self, engine: Engine, *, repairs: int = 2) -> None:
        self._engine, self._repairs = engine, repairs

    @property
    def name(self) -> str:
        return self._engine.name

    def grade(self, wanted: str, tools: Sequence[Tool], dialogue: Sequence[Message]) -> Graded:
        """Three grades, by the criteria of what was wanted.

        Args:
            wanted: what the user was after, and said; the same text has the same criteria.

        Raises:
            JudgeFailed: no answer was of the form asked for. EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        criteria, spent = self._asked(prompt(CRITERIA_PROMPT).messages(wanted=wanted, tools=tools), _of_each(_CRITERIA), wanted)
        lines = [line for message in dialogue for line in _lines(message)]
        request = prompt(PROMPT).messages(wanted=wanted, criteria=criteria, lines=lines)
        try:
            said, cost = self._asked(request, _of_each(_GRADE), wanted)
        except JudgeFailed as failed:
            raise JudgeFailed(str(failed), failed.cost + spent) from failed
        return Graded(Grades(**{name: said[name]["grade"] for name in DIMENSIONS}), criteria, spent + cost)

    def _asked(self, messages: tuple[Message, ...], schema: dict[str, JSON], wanted: str) -> tuple[dict[str, JSON], Cost]:
        request = ChatRequest(messages, (), 0.0, MAX_TOKENS, seed_of("judge", wanted), schema=schema)
        (found,) = ask(self._engine, [request], repairs=self._repairs)
        if found.problems or not isinstance(found.value, dict):
            raise JudgeFailed(f"no verdict of the form asked for: {found.problems[0]}", found.cost)
        return found.value, found.cost


def _lines(message: Message) -> list[str]:
    """A message as the judge reads it: who speaks, calls and results in one line each."""
    who = {"user": "Customer", "assistant": "Assistant", "tool": "Result", "system": "Instructions"}[message.role]
    found = [f"{who}: {(message.content or '')[:_LONGEST_LINE]}"] if message.content else []
    return found + [f"Call: {call.function.name} {call.function.arguments[:_LONGEST_LINE]}" for call in message.tool_calls]
