"""The roles of a simulated conversation, each as little as it needs to know (definition P2).

The planner writes a blueprint; the user sees the blueprint's goals and turn plan; the assistant sees tools and dialogue; the tools role
runs a world; the observer checks what code can check; the judge grades what it cannot. The scripted forms beside this file are programs
that execute a real plan in a real world, and their trajectories say `teacher = scripted`. A scripted assistant has to be handed its plan;
an assistant that is a language model never sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.records import Cost, Message, Tool


class User(Protocol):
    def speak(self, dialogue: Sequence[Message]) -> str | None:
        """The next thing to say, or None when the user has nothing more to ask."""


class Assistant(Protocol):
    @property
    def name(self) -> str:
        """As stored in `teacher`."""

    @property
    def cost(self) -> Cost:
        """What its turns have taken so far."""

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next assistant message: calls, or a text that hands the turn back to the user."""


@dataclass(frozen=True, slots=True)
class Grades:
    """1 (poor) to 5 (faultless) each: reasoning and planning; fidelity of information; presentation."""

    planning: int
    fidelity: int
    presentation: int

    @property
    def least(self) -> int:
        return min(self.planning, self.fidelity, self.presentation)
