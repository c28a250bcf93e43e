"""The user that is a language model: it knows who it is, what it wants and what to say next, and sees the words that were exchanged; no
tool, no call, no result.

Every turn is checked against the script before anyone hears it (`script.py`). One that strays is written again with what was wrong; a user
that will not keep to its script ends the conversation as a `user_failure`, which is nothing the assistant is blamed for.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Cost, Message
from synth.engines.base import ChatRequest, Engine
from synth.prompts import prompt
from synth.roles.base import UserFailed
from synth.roles.model_assistant import TEMPERATURE, seed_of
from synth.roles.user_script import Script, strayed

PROMPT = "user"
MAX_TOKENS = 300
_HEARD = 12
"""Messages that a user remembers."""
_REPAIRS = 2
"""How often a turn may be written again."""


class ModelUser:
    """One conversation's user. seed: of the conversation, any text that is its own."""

    def __init__(self, engine: Engine, script: Script, seed: str, *, temperature: float = TEMPERATURE) -> None:
        self._engine, self._script, self._seed = engine, script, seed
        self._temperature = temperature
        self.cost = Cost()
        self.turns = (0, 0)

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        """The next thing to say, or None at the end of the script.

        Raises:
            UserFailed: no try kept to the script. EngineFailure, BudgetSpent: as the engine's `chat`.
        """
        turn = sum(message.role == "user" for message in dialogue)
        if turn >= len(self._script.lines):
            return None
        heard = [message for message in dialogue if message.role in ("user", "assistant") and message.content and not message.tool_calls]
        messages = prompt(PROMPT).messages(script=self._script, line=self._script.lines[turn], heard=heard[-_HEARD:])
        problems: list[str] = []
        for attempt in range(_REPAIRS + 1):
            seed = seed_of("user", self._seed, turn, attempt)
            (answer,) = self._engine.chat([ChatRequest(messages, (), self._temperature, MAX_TOKENS, seed)])
            self.cost += answer.cost
            text = (answer.message.content or "").strip().strip('"“”').strip()
            problems = strayed(self._script, turn, text, dialogue)
            if not problems:
                self.turns = (self.turns[0] + 1, self.turns[1] + (attempt == 0))
                return text
            messages = (*messages, Message(role="assistant", content=text), _told(problems))
        self.turns = (self.turns[0] + 1, self.turns[1])
        raise UserFailed(f"turn {turn}: {problems[0]}")


def _told(problems: Sequence[str]) -> Message:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return Message(role="user", content=f"Not yet:\n{lines}\nWrite the whole message again, and nothing else.")
