"""The assistant that is a language model, through any engine (`synth/engines/`).

It sees what a deployed one would: the tools on offer and the dialogue, never the blueprint. What it costs is counted over its
conversation. Each of its turns has a seed of its own, from the conversation's and its place, so a conversation that is run again asks the
same and is answered from what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import Cost, Message, Tool, content_id
from synth.engines.base import ChatRequest, Engine

MAX_TOKENS = 1024
TEMPERATURE = 0.7


def seed_of(*about: object) -> int:
    """A seed of 63 bits that is the same wherever the same is asked."""
    return int(content_id("seed", *about)[5:], 16) >> 1


class ModelAssistant:
    """One conversation's assistant.

    Args:
        seed: of the conversation, any text that is its own.
        alternatives: likeliest tokens a step that are told of with their log-probabilities; 0 for none.
    """

    def __init__(
        self, engine: Engine, seed: str, *, temperature: float = TEMPERATURE, max_tokens: int = MAX_TOKENS, alternatives: int = 0
    ) -> None:
        self._engine, self._seed = engine, seed
        self._temperature, self._max_tokens, self._alternatives = temperature, max_tokens, alternatives
        self.cost = Cost()

    @property
    def name(self) -> str:
        return self._engine.name

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next message; an answer that was cut off at `max_tokens` stands as it is, without calls.

        Raises:
            EngineFailure: the engine did not answer. BudgetSpent: nothing more may be asked.
        """
        seed = seed_of("turn", self._seed, len(dialogue))
        request = ChatRequest(tuple(dialogue), tuple(tools), self._temperature, self._max_tokens, seed, alternatives=self._alternatives)
        (answer,) = self._engine.chat([request])
        self.cost += answer.cost
        return answer.message
