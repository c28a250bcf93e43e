"""The interface of suites: cases, a conversation in one, and the two verdicts on it.

One idea: somebody else's benchmark is measured as it stands. Tasks, state and checker come from its own package, and our verdict stands
beside its checker's on the same conversation, so that a difference is one of checkers and not of policies.

What it does not do: play (`play.py`), count (`figures.py`), or say which suites there are (`suite_names.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from storage.errors import BadInput
from storage.records import Call, Message, Tool


@dataclass(frozen=True)
class Reference:
    """How a case is solved.

    calls: the reference calls by turn of the user.
    answers: what to say at the end of each turn.
    """

    calls: tuple[tuple[Call, ...], ...]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class SuiteCase:
    """One case.

    id: the suite's own. group: its category.
    said: what the user says by turn, as far as it is fixed.
    tools: all that may be on offer.
    source: what the suite needs to open the case.
    """

    id: str
    group: str
    said: tuple[str, ...]
    tools: tuple[Tool, ...]
    reference: Reference
    source: Any


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on one conversation.

    theirs: of the suite's own checker; None if the conversation ended before a checker could see it, which is a failure of the policy.
    reason: why it refuses.
    ours: the checks of our verifier, by name; of a conversation that ended early, the one that says how.
    """

    theirs: bool | None
    reason: str
    ours: Mapping[str, bool]

    @property
    def accepted(self) -> bool:
        """Whether our verifier accepts."""
        return all(self.ours.values())

    @property
    def failed_checks(self) -> list[str]:
        return [check for check, holds in self.ours.items() if not holds]


class Episode(Protocol):
    """One conversation in a case."""

    def start(self) -> tuple[Message, ...]:
        """What the conversation opens with: system message, if there is one, and the user's first message.

        Raises:
            EngineFailure: an engine plays the user and gave no answer.
        """

    def offered(self) -> tuple[Tool, ...]:
        """The tools on offer now."""

    def call(self, name: str, arguments: str) -> str:
        """The observation of a call; whatever is raised is a failure of the tools."""

    def reply(self, messages: Sequence[Message]) -> str | None:
        """What the user says next, after an answer without a call; None: nothing, the conversation is over."""

    def verdicts(self, messages: Sequence[Message]) -> Verdicts:
        """The verdicts on the whole conversation."""

    def close(self) -> None:
        """Releases the state."""


class Suite(Protocol):
    """A benchmark of others.

    name: as in commands, and column `use` of table `evaluations`.
    version: what a measurement's id needs of the suite beside its name; another release of its package is another version.
    note: what a reader of its figures must know; empty for nothing.
    max_steps: most answers to one message of the user.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def max_steps(self) -> int: ...

    def cases(self, groups: Sequence[str] = (), limit: int | None = None) -> list[SuiteCase]:
        """The first `limit` cases of each of these groups; of all groups if none is named.

        Raises:
            BadInput: a group is unknown, or the suite's package is not installed.
        """

    def open(self, case: SuiteCase) -> Episode:
        """A conversation in a fresh state."""

    def close(self) -> None:
        """Ends what the suite started."""


def in_groups(cases: Sequence[SuiteCase], suite: str, groups: Sequence[str], limit: int | None) -> list[SuiteCase]:
    """The first `limit` cases of each of these groups, in the order of the groups; of all if none is named.

    Raises:
        BadInput: the suite has no such group.
    """
    known = list(dict.fromkeys(case.group for case in cases))
    if strange := [group for group in groups if group not in known]:
        raise BadInput(f"suite {suite} has no group {strange[0]!r}; it has {', '.join(known)}")
    return [case for group in dict.fromkeys(groups or known) for case in [each for each in cases if each.group == group][:limit]]
