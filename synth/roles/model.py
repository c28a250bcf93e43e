"""Roles that a language model plays, through any engine (`synth/engines/`).

The assistant sees what a deployed one would: the tools on offer and the dialogue, never the blueprint. What it costs is counted over its
conversation. Each of its turns has a seed of its own, from the conversation's and its place, so a conversation that is run again asks the
same and is answered from what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Cost, Message, Tool, content_id
from synth.engines.base import ChatRequest, Engine

MAX_TOKENS = 1024
TEMPERATURE = 0.7


class ModelAssistant:
    """One conversation's assistant. seed: of the conversation, any text that is its own."""

    def __init__(self, engine: Engine, seed: str, *, temperature: float = TEMPERATURE, max_tokens: int = MAX_TOKENS) -> None:
        self._engine, self._seed = engine, seed
        self._temperature, self._max_tokens = temperature, max_tokens
        self.cost = Cost()

    @property
    def name(self) -> str:
        return self._engine.name

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next message; an answer that was cut off at `max_tokens` stands as it is, without calls.

        Raises:
            EngineFailure: the engine did not answer. BudgetSpent: nothing more may be asked.
        """
        seed = int(content_id("turn", self._seed, len(dialogue))[5:], 16) >> 1
        request = ChatRequest(tuple(dialogue), tuple(tools), self._temperature, self._max_tokens, seed)
        (answer,) = self._engine.chat([request])
        self.cost = Cost(
            prompt_tokens=self.cost.prompt_tokens + answer.prompt_tokens,
            completion_tokens=self.cost.completion_tokens + answer.completion_tokens,
            usd=self.cost.usd + answer.usd,
        )
        return answer.message
