"""Measures a policy on a suite: plays what is not played yet, saves the figures, and refuses a policy that learned from the suite.

What it does not do: open the engine, hold the store's lock, or print (`flows/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.journal import Journal
from storage.store import Store
from synth.engines.base import Engine
from synth.rollouts.episode import IN_FLIGHT
from train.measure.suites.figures import Accuracy, Disagreement, accuracies, disagreements, measurement_id, save_sessions
from train.measure.suites.overlap import check_policy_overlap
from train.measure.suites.play import MAX_TOKENS, Progress, Session, run_cases
from train.measure.suites.suite import Suite, SuiteCase

FOLDER = "suites"
"""Folder of a store with the conversations, a file (JSON Lines) a suite and policy."""


@dataclass(frozen=True)
class Measured:
    """What a suite says of a policy. file: the conversations, with both verdicts; None without a store."""

    suite: str
    note: str
    sessions: Sequence[Session]
    file: Path | None

    @property
    def accuracies(self) -> list[Accuracy]:
        return accuracies(self.sessions)

    @property
    def disagreements(self) -> list[Disagreement]:
        return disagreements(self.sessions)

    @property
    def failures(self) -> list[str]:
        """Why conversations are not rated."""
        return [session.failure for session in self.sessions if session.failure and not session.outcome.is_rated]


def measure_suite(
    engine: Engine,
    suite: Suite,
    cases: Sequence[SuiteCase],
    policy_id: str,
    *,
    store: Store | None,
    max_tokens: int = MAX_TOKENS,
    in_flight: int = IN_FLIGHT,
    progress: Progress | None = None,
) -> Measured:
    """Plays the cases and saves the figures in the store, whose lock the caller holds; without a store, nothing is kept.

    Raises:
        BadInput: the policy was trained on questions of the suite. EngineFailure, BudgetSpent: as `run_cases`; what was played is kept.
    """
    journal = None
    if store is not None:
        check_policy_overlap(store, policy_id, suite.name, [text for case in cases for text in case.said])
        folder = store.root / FOLDER
        folder.mkdir(exist_ok=True)
        journal = Journal(folder / f"{suite.name}-{measurement_id(suite, policy_id, max_tokens)}.jsonl")
    sessions = run_cases(engine, suite, cases, max_tokens=max_tokens, in_flight=in_flight, journal=journal, progress=progress)
    if store is not None:
        save_sessions(store, suite, policy_id, sessions, max_tokens=max_tokens)
    return Measured(suite.name, suite.note, sessions, None if journal is None else journal.path)
