"""What a run of synthesis tells of itself, and what a preview tells of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage.records import Cost
from synth.blueprints.diversity import Figure


@dataclass(frozen=True, slots=True)
class SynthesisResult:
    """A committed run.

    accepted, proposals: counts. rejected: reasons with counts. figures: of the accepted trajectories; unsteered: the same figures of the
    calibration set, the control. alarms: collapses of the controller, in words, with the round they were seen in. notes: what the run had
    to do without, and why it stopped short, in words.
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


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run's first proposals took, and what the whole is likely to take. proposals, accepted: of the preview; outcomes: counts;
    expected_*: of the run, from the shares of the preview."""

    proposals: int
    accepted: int
    outcomes: Mapping[str, int]
    cost: Cost
    expected_proposals: int
    expected_cost: Cost
