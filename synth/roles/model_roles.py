"""Assistant, user and judge that are language models, through any engine (`synth/engines/`).

The assistant sees what a deployed one would see: tools and dialogue, never the blueprint. The user sees its script and the exchanged
texts, no call and no result; every turn is checked against the script (`user_script.py`) before the assistant sees it. The judge grades
what code cannot decide, so it is asked only if every check by code holds; `judge_calibration.py` measures how far to trust it.

Each request has its own seed, a hash of the conversation and the place in it, so a repeated run sends the same requests and gets the
answers from the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import JSON, Cost, Message, Tool, content_id
from synth.engines.base import ChatRequest, Engine
from synth.engines.structured import ask
from synth.prompts import prompt
from synth.roles.base import Grades, JudgeFailed, JudgeVerdict, UserFailed
from synth.roles.user_script import Script, script_problems

TEMPERATURE = 0.7
ASSISTANT_TOKENS, USER_TOKENS, JUDGE_TOKENS = 1024, 300, 700
"""Longest answer of each role, in tokens."""
USER_PROMPT, CRITERIA_PROMPT, JUDGE_PROMPT = "user", "judge_criteria", "judge"
_MESSAGES_SEEN_BY_USER = 12
_USER_REPAIRS, _JUDGE_REPAIRS = 2, 2
"""How often an invalid answer is asked for again."""


def seed_of(*parts: object) -> int:
    """A 63-bit seed: a hash of the parts."""
    return int(content_id("seed", *parts)[5:], 16) >> 1


class ModelAssistant:
    """The assistant of one conversation.

    Args:
        seed: text that identifies the conversation.
        alternatives: number of likeliest tokens per step whose log-probabilities are kept; 0 for none.
    """

    def __init__(
        self, engine: Engine, seed: str, *, temperature: float = TEMPERATURE, max_tokens: int = ASSISTANT_TOKENS, alternatives: int = 0
    ) -> None:
        self.name = engine.name
        self._engine, self._seed = engine, seed
        self._temperature, self._max_tokens, self._alternatives = temperature, max_tokens, alternatives
        self.cost = Cost()

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next message; an answer that was cut off at `max_tokens` is kept as text, without calls.

        Raises:
            EngineFailure: the engine did not answer. BudgetSpent: the budget is used up.
        """
        seed = seed_of("turn", self._seed, len(dialogue))
        request = ChatRequest(tuple(dialogue), tuple(tools), self._temperature, self._max_tokens, seed, alternatives=self._alternatives)
        (answer,) = self._engine.chat([request])
        self.cost += answer.cost
        return answer.message


class ModelUser:
    """The user of one conversation. seed: text that identifies the conversation."""

    def __init__(self, engine: Engine, script: Script, seed: str, *, temperature: float = TEMPERATURE) -> None:
        self._engine, self._script, self._seed = engine, script, seed
        self._temperature = temperature
        self.cost = Cost()
        self.turns = (0, 0)

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        """The next user message, or None at the end of the script. A message that leaves the script is sent back with its problems.

        Raises:
            UserFailed: no try followed the script. EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        turn = sum(message.role == "user" for message in dialogue)
        if turn >= len(self._script.lines):
            return None
        heard = [message for message in dialogue if message.role in ("user", "assistant") and message.content and not message.tool_calls]
        messages = prompt(USER_PROMPT).messages(script=self._script, line=self._script.lines[turn], heard=heard[-_MESSAGES_SEEN_BY_USER:])
        problems: list[str] = []
        for attempt in range(_USER_REPAIRS + 1):
            seed = seed_of("user", self._seed, turn, attempt)
            (answer,) = self._engine.chat([ChatRequest(messages, (), self._temperature, USER_TOKENS, seed)])
            self.cost += answer.cost
            text = (answer.message.content or "").strip().strip('"“”').strip()
            problems = script_problems(self._script, turn, text, dialogue)
            if not problems:
                self.turns = (self.turns[0] + 1, self.turns[1] + (attempt == 0))
                return text
            lines = "\n".join(f"- {problem}" for problem in problems)
            repair = Message(role="user", content=f"Not yet:\n{lines}\nWrite the whole message again, and nothing else.")
            messages = (*messages, Message(role="assistant", content=text), repair)
        self.turns = (self.turns[0] + 1, self.turns[1])
        raise UserFailed(f"turn {turn}: {problems[0]}")


# ---- the judge ----------------------------------------------------------------------------------------------------------------

_DIMENSIONS = ("planning", "fidelity", "presentation")
_LONGEST_LINE = 2000
_SPEAKERS = {"user": "Customer", "assistant": "Assistant", "tool": "Result", "system": "Instructions"}
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


class ModelJudge:
    """Grades conversations in two requests. The first holds the user's request but no conversation, and sets the criteria, so all answers
    to the same request are graded by the same criteria."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine

    def grade(self, user_request: str, tools: Sequence[Tool], dialogue: Sequence[Message]) -> JudgeVerdict:
        """The grades of a conversation.

        Args:
            user_request: what the user wants, as text.

        Raises:
            JudgeFailed: no answer had the required form. EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        criteria, criteria_cost = self._ask(prompt(CRITERIA_PROMPT).messages(wanted=user_request, tools=tools), _CRITERIA, user_request)
        lines = [line for message in dialogue for line in _lines(message)]
        request = prompt(JUDGE_PROMPT).messages(wanted=user_request, criteria=criteria, lines=lines)
        try:
            grades, cost = self._ask(request, _GRADE, user_request)
        except JudgeFailed as failed:
            raise JudgeFailed(str(failed), failed.cost + criteria_cost) from failed
        return JudgeVerdict(Grades(**{name: grades[name]["grade"] for name in _DIMENSIONS}), criteria, criteria_cost + cost)

    def _ask(self, messages: tuple[Message, ...], form: Mapping[str, JSON], user_request: str) -> tuple[dict[str, JSON], Cost]:
        """A value of this form for each dimension, and its cost."""
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {name: dict(form) for name in _DIMENSIONS},
            "required": list(_DIMENSIONS),
            "additionalProperties": False,
        }
        request = ChatRequest(messages, (), 0.0, JUDGE_TOKENS, seed_of("judge", user_request), schema=schema)
        (result,) = ask(self._engine, [request], repairs=_JUDGE_REPAIRS)
        if result.problems or not isinstance(result.value, dict):
            raise JudgeFailed(f"no verdict of the form asked for: {result.problems[0]}", result.cost)
        return result.value, result.cost


def _lines(message: Message) -> list[str]:
    """A message as the judge reads it: its text, and one line for each call."""
    text = [f"{_SPEAKERS[message.role]}: {message.content[:_LONGEST_LINE]}"] if message.content else []
    return text + [f"Call: {call.function.name} {call.function.arguments[:_LONGEST_LINE]}" for call in message.tool_calls]
