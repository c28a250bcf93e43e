"""The benchmark of the experiment: it can begin within a call, and stops in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness, synthesis
from benchmarks.experiment import diversity
from benchmarks.experiment.config import DiversityExperimentConfig
from benchmarks.experiment.result import figures, summarise
from benchmarks.harness import Deadline, OutOfTime
from benchmarks.synthesis_sections.diversity import KEYS, measure


def test_every_section_of_the_synthesis_benchmark_can_begin_within_a_call() -> None:
    assert {section.name: section.minutes for section in synthesis.sections() if section.minutes * 60 >= harness.BUDGET_S} == {}


def test_a_deadline_tells_the_minutes_left_and_never_less_than_none() -> None:
    assert Deadline(time.monotonic() + 120).minutes_left == pytest.approx(2, abs=0.1)
    assert Deadline(time.monotonic() - 120).minutes_left == 0


def test_the_experiment_gives_the_figures_that_the_benchmark_names() -> None:
    assert set(figures(summarise([], DiversityExperimentConfig(), minutes=1))) == set(KEYS)


def test_an_unfinished_experiment_is_left_for_another_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def scripted(_: Path, config: DiversityExperimentConfig, *, minutes: float, progress: Any) -> Any:
        given.append(minutes)
        return summarise([], config, minutes=minutes), tmp_path

    monkeypatch.setattr(diversity, "run_experiment", scripted)
    with pytest.raises(OutOfTime):
        measure(Deadline(time.monotonic() + 600))
    assert given == [pytest.approx(10, abs=0.1)]
