"""Interfaces of the roles in a simulated conversation. Each role sees only what it needs (definition P2).

The planner writes a blueprint. The user sees the blueprint's goals and turn plan. The assistant sees tools and dialogue. The tools role
executes calls in a world. The observer checks what code can check, and the judge grades the rest. Scripted roles (`scripted.py`) execute
the blueprint in a real world, and their trajectories are stored with `teacher = scripted`; a language model never sees the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from storage.errors import HeadraceError
from storage.records import Cost, Message, Outcome, Tool


class RoleFailed(HeadraceError):
    """A role other than the assistant failed; the class sets the conversation's `outcome`. cost: of the failed attempts."""

    outcome: ClassVar[Outcome]

    def __init__(self, message: str, cost: Cost | None = None) -> None:
        super().__init__(message)
        self.cost = cost or Cost()


class UserFailed(RoleFailed):
    """The simulated user did not follow its script."""

    outcome = Outcome.USER_FAILURE


class ToolsFailed(RoleFailed):
    """A tool could not be executed."""

    outcome = Outcome.TOOL_FAILURE


class JudgeFailed(RoleFailed):
    """The judge gave no verdict in the required form."""

    outcome = Outcome.JUDGE_FAILURE


class User(Protocol):
    @property
    def turns(self) -> tuple[int, int]:
        """Number of turns so far, and how many of them followed the script at the first try."""

    @property
    def cost(self) -> Cost:
        """Cost of its turns so far."""

    def speak(self, dialogue: Sequence[Message]) -> str | None:
        """The next user message, or None at the end of the script.

        Raises:
            UserFailed: the user did not follow its script.
        """


class Assistant(Protocol):
    @property
    def name(self) -> str:
        """As stored in `teacher`."""

    @property
    def cost(self) -> Cost:
        """Cost of its turns so far."""

    def act(self, dialogue: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next assistant message: tool calls, or a text that ends its turn."""


@dataclass(frozen=True, slots=True)
class Grades:
    """Grades from 1 (poor) to 5 (faultless): reasoning and planning; fidelity of information; presentation."""

    planning: int
    fidelity: int
    presentation: int

    @property
    def least(self) -> int:
        return min(self.planning, self.fidelity, self.presentation)


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """A model judge's grades. criteria: by dimension, set before the judge saw the conversation."""

    grades: Grades
    criteria: Mapping[str, Sequence[str]]
    cost: Cost
