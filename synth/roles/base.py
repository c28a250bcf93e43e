"""The roles of a simulated conversation, each as little as it needs to know (definition P2).

The planner writes a blueprint; the user sees the blueprint's goals and turn plan; the assistant sees tools and dialogue; the tools role
runs a world; the observer checks what code can check; the judge grades what it cannot. The scripted forms beside this file are programs
that execute a real plan in a real world, and their trajectories say `teacher = scripted`. A scripted assistant has to be handed its plan;
an assistant that is a language model never sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from storage.errors import HeadraceError
from storage.records import Cost, Message, Outcome, Tool


class RoleFailed(HeadraceError):
    """A part of the simulation went wrong that is not the assistant's doing; whose it was says the `outcome` of the conversation."""

    outcome: ClassVar[Outcome]

    def __init__(self, message: str, cost: Cost | None = None) -> None:
        """cost: what was spent on it all the same."""
        super().__init__(message)
        self.cost = cost or Cost()


class UserFailed(RoleFailed):
    """The simulated user would not keep to its script."""

    outcome = Outcome.USER_FAILURE


class ToolsFailed(RoleFailed):
    """A tool could not be run."""

    outcome = Outcome.TOOL_FAILURE


class JudgeFailed(RoleFailed):
    """The judge gave no verdict of the form that was asked for."""

    outcome = Outcome.JUDGE_FAILURE


class User(Protocol):
    @property
    def turns(self) -> tuple[int, int]:
        """What was said so far: turns, and those of them that kept to the script at the first try."""

    @property
    def cost(self) -> Cost:
        """What its turns have taken so far."""

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        """The next thing to say, or None when the user has nothing more to ask.

        Raises:
            UserFailed: it would not keep to its script.
        """


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


@dataclass(frozen=True, slots=True)
class Graded:
    """A judge's verdict. criteria: by dimension, as they were set before the conversation was seen."""

    grades: Grades
    criteria: Mapping[str, Sequence[str]]
    cost: Cost
