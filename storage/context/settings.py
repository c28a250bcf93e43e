"""What stands between a world and the policy: the settings of the environment's context, each off by default.

It holds settings alone; `synth/context/` carries them out. A task keeps its own (`Task.context`), so that every reader of a conversation
(rollouts, verifier, exports, explanations) sees the world as the policy saw it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LEAST_CHARS = 80
"""Fewest characters that a result can be shortened to: a row and the mark of what is left out."""


class PolicyContext(BaseModel):
    """How tasks show their world to a policy: in experts, probes, RL and evaluations alike."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    observation_chars: int | None = Field(
        None,
        ge=LEAST_CHARS,
        description="Longest result of a tool, in characters. Of longer ones head and tail are shown, with the number of items left out; "
        "the tool read_more shows the rest, page by page; null: results are shown whole.",
    )
    tool_scope: Literal["world", "cluster"] | Annotated[int, Field(ge=0)] = Field(
        "world",
        description="Tools on offer: all of the task's (world), those of the business cluster that its request needs (cluster), or these "
        "and so many others, drawn by the task's id.",
    )
    reminder_every: int | None = Field(
        None,
        ge=1,
        description="After so many results in a turn, and again after as many, the result repeats the user's open request and the rules of "
        "the system prompt that share words with it; null: never.",
    )
    notes: bool = Field(
        False,
        description="Whether the policy has tools for notes of its own, write_note and read_notes. Notes change nothing in the world and "
        "are no source of an answer.",
    )

    @property
    def is_on(self) -> bool:
        """Whether it changes anything."""
        return self != PolicyContext()
