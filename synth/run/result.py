"""The results of a synthesis run and of its preview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.records import Cost
from synth.blueprints.diversity import Figure


@dataclass(frozen=True, slots=True)
class SynthesisResult:
    """A committed run.

    run: id of the run.
    parts: ids of its store parts, sorted.
    accepted, proposals: counts.
    tasks: number of tasks made of accepted conversations.
    rejected: reason -> number of proposals.
    figures: diversity of the accepted trajectories.
    unsteered: the same figures of the calibration set, which is the control.
    alarms: the controller's alarms, as texts, each with its round.
    notes: limits of the run (such as a missing sandbox), and why it stopped early, as texts.
    is_spent: whether it stopped early because a budget was spent.
    """

    run: str
    parts: tuple[str, ...]
    rounds: int
    accepted: int
    proposals: int
    tasks: int
    rejected: Mapping[str, int]
    figures: tuple[Figure, ...]
    unsteered: tuple[Figure, ...]
    alarms: tuple[str, ...]
    notes: tuple[str, ...]
    is_spent: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """The cost of a run's first proposals, and an estimate for the whole run.

    proposals, accepted, cost: of the preview.
    outcomes: outcome -> number of proposals of the preview.
    expected_proposals, expected_cost: of the run, extrapolated from the preview.
    """

    proposals: int
    accepted: int
    outcomes: Mapping[str, int]
    cost: Cost
    expected_proposals: int
    expected_cost: Cost
