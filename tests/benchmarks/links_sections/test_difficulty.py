"""The benchmark of the prior: it finds that needs decide where they do, and nothing where they do not."""

from __future__ import annotations

import random
from collections.abc import Callable

import polars as pl
import pytest

from benchmarks.links_sections.difficulty import DRAWS, KEYS, ceiling, figures_of
from filters.certainty.difficulty_prior import task_groups
from storage.records import Task
from tests.synth.probed import drilled


def halves() -> tuple[tuple[Task, ...], list[Task], list[Task]]:
    tasks = drilled("retail", 240)
    return tasks, list(tasks[::2]), list(tasks[1::2])


def drawn(tasks: list[Task], rate_of: Callable[[str, str], float], k: int) -> pl.DataFrame:
    """Rollouts of a policy that fails a task with the rate that its id and its need have."""
    needs = task_groups(tasks).select("task_id", "need").rows()
    rng = random.Random("draws")
    rows = [
        (task, draw, "policy_failure" if rng.random() < rate_of(task, need) else "success") for task, need in needs for draw in range(k)
    ]
    return pl.DataFrame(rows, schema=["task_id", "draw", "outcome"], orient="row")


def coin(name: str) -> float:
    return random.Random(name).random()


def test_where_the_need_decides_the_prior_says_how_hard_a_task_is_and_permuted_outcomes_do_not() -> None:
    tasks, probed, unseen = halves()
    by_need = [drawn(half, lambda _, need: coin(need), k) for half, k in ((probed, 8), (unseen, DRAWS))]
    found = figures_of(tasks, *by_need, seed=0)
    assert set(found) == set(KEYS)
    assert found["difficulty_spearman"] > 0.7
    assert abs(found["difficulty_spearman_permuted"]) < 0.15
    assert found["difficulty_spearman"] > found["difficulty_spearman_intent"] + 0.1
    assert 0.3 < found["difficulty_prior_share"] <= 1


def test_where_every_task_is_its_own_lot_the_prior_says_nothing() -> None:
    tasks, probed, unseen = halves()
    by_task = [drawn(half, lambda task, _: coin(task), k) for half, k in ((probed, 8), (unseen, DRAWS))]
    found = figures_of(tasks, *by_task, seed=0)
    assert abs(found["difficulty_spearman"]) < 0.3
    assert found["difficulty_spearman_ceiling"] > 0.95


def test_the_ceiling_falls_with_the_number_of_draws() -> None:
    _, _, unseen = halves()
    few, many = (ceiling(drawn(unseen, lambda task, _: 0.3 + 0.4 * coin(task), k)) for k in (4, 64))
    assert few < many == pytest.approx(0.9, abs=0.05)
