"""The routing experiment: every rollout is charged, a known difference is found, and no seed chooses the arm that it is measured by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.experiment.cells import Cells
from benchmarks.experiment.routing import arms
from benchmarks.experiment.routing.arms import (
    CONTROLS,
    GRID,
    SEEDS,
    RoutedCell,
    SeedCell,
    best_by_the_others,
    figures,
    first_traces,
    known_share,
    probed_share,
    two_stage,
)
from storage.errors import HeadraceError

TASKS = 400


def scripted(path: Path, success: dict[tuple[str, str], float]) -> Cells:
    cells, rng = Cells(path), np.random.default_rng(0)
    for seed in SEEDS:
        for arm in (*GRID, *CONTROLS):
            rates = {name: (rng.random(TASKS) < success.get(arm, 0.4)).astype(float).tolist() for name in ("sampled", "greedy")}
            means = {f"{name}_mean": float(np.mean(values)) for name, values in rates.items()}
            cells.add(RoutedCell(*arm, seed), rates | means | {"idle": 0.5, "traces": 100})
        cells.add(SeedCell(seed), {"sampled_mean": 0.3})
    return cells


def test_every_key_is_measured_and_a_known_difference_is_found(tmp_path: Path) -> None:
    found = figures(scripted(tmp_path / "cells.jsonl", {("hardest", "online"): 0.5, ("solved", "oracle"): 0.45}))

    assert set(found) == set(arms.KEYS)
    assert found["routing_best_minus_random"] == pytest.approx(0.1, abs=0.04)
    assert found["routing_best_minus_random_lo95"] > 0
    assert found["tags_minus_permuted_lo95"] < 0 < found["tags_minus_permuted_hi95"]
    assert found["oracle_minus_uniform"] == pytest.approx(0.05, abs=0.04)


def test_a_seed_is_measured_by_the_arm_that_the_others_choose(tmp_path: Path) -> None:
    """Given an arm that is the best of the mean, but only by one seed, then for that seed it is not chosen."""
    cells = scripted(tmp_path / "cells.jsonl", {})
    for seed in SEEDS:
        rate = 1.0 if seed == 0 else 0.3
        cells.add(RoutedCell("certain", "uniform", seed), {"sampled": [rate] * TASKS, "greedy": [rate] * TASKS})
    assert best_by_the_others(cells)[0] != ("certain", "uniform")


def test_a_probe_goes_on_only_where_its_first_draws_differ() -> None:
    draws = two_stage()
    assert draws.looks == (3, 8)
    assert [draws.is_settled(successes, 3, 0) for successes in range(4)] == [True, False, False, True]


def test_a_task_is_taken_for_what_the_draws_of_its_need_say() -> None:
    """Given a need whose tasks are mixed, one whose tasks are all or nothing, and one never solved, then the first is worth most, though
    the second succeeds as often."""
    counted = pl.DataFrame(
        {
            "task_id": list("abcdef"),
            "need": ["mixed"] * 2 + ["all or nothing"] * 2 + ["never"] * 2,
            "intent": ["one"] * 4 + ["two"] * 2,
            "difficulty": 1,
            "successes": [4, 4, 3, 0, 0, 0],
            "k": [8, 8, 3, 3, 3, 3],
        }
    )
    for share in (probed_share(counted), known_share(counted)):
        worth = dict(zip(counted["task_id"], share, strict=True))
        assert worth["a"] == worth["b"] > worth["c"] == worth["d"] >= worth["e"] == worth["f"]


def test_equal_traces_count_once_and_every_try_is_charged() -> None:
    order = pl.DataFrame({"task_id": ["a", "b", "c", "d", "e"], "cost": [1, 8, 2, 4, 1], "solved": [True, False, True, True, True]})
    solved = ["a", "c", "d", "e"]
    made = pl.DataFrame({"task_id": solved, "rollout_id": [f"r-{task}" for task in solved], "messages": ["x", "x", "y", "z"]})
    made = made.with_columns(outcome=pl.lit("success"), draw=pl.lit(0))

    traces, spent = first_traces(order, made, 2)

    assert [item.task_id for item in traces] == ["a", "d"]
    assert spent == 1 + 8 + 2 + 4
    with pytest.raises(HeadraceError, match="fewer than 4 different traces"):
        first_traces(order, made, 4)
