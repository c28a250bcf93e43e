"""The prior of difficulty follows from other tasks' draws, the closest first, and never from a task's own."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.certainty.certainty import RegionConfig, certainty
from filters.certainty.difficulty_prior import add_priors, difficulty_priors, task_groups
from synth.tasks.needs import need
from tests.synth.probed import drilled

K = 8
Row = tuple[int, int, int, int | None]
"""Need, intent and static difficulty, as numbers; successes of K draws, None where a task was not measured."""


def table(rows: list[Row]) -> pl.DataFrame:
    """A need belongs to one intent, so its name holds the intent's."""
    names = {"task_id": pl.String, "need": pl.String, "intent": pl.String, "difficulty": pl.Int32, "successes": pl.Int32, "k": pl.Int32}
    filled = [
        (f"t{at}", f"{intent}/{of}", str(intent), static, won, None if won is None else K)
        for at, (of, intent, static, won) in enumerate(rows)
    ]
    return pl.DataFrame(filled, schema=names, orient="row")


def first(rows: list[Row]) -> tuple[float | None, str | None, int | None]:
    return difficulty_priors(table(rows)).select("difficulty_prior", "prior_basis", "prior_draws").row(0)


successes = st.integers(0, K)
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.none() | successes), min_size=1, max_size=25)
NEW: Row = (9, 9, 9, None)
"""A task that shares no group with those of `rows`."""


def test_the_prior_of_a_need_is_shrunk_level_by_level() -> None:
    """Given one task of the need (always fails), one more of the intent (half), one more of the level (never fails), one elsewhere
    (never fails): whole 3/8, static (1.5 + 3/8)/4, intent (1.5 + static)/3, need (1 + intent)/2."""
    static = (1.5 + 3 / 8) / 4
    intent = (1.5 + static) / 3
    expected = round((1 + intent) / 2, 6)
    assert first([(0, 0, 1, None), (0, 0, 1, 0), (1, 0, 1, 4), (2, 1, 1, 8), (3, 2, 2, 8)]) == (expected, "need", K)


def test_as_data_vanish_the_prior_falls_back_to_intent_then_static_then_the_whole_then_nothing() -> None:
    """Given a task that always fails in the closest group alone, and tasks that never fail elsewhere."""
    of_need, of_intent, of_static, elsewhere = [(0, 0, 1, 0), (1, 0, 1, 0), (2, 1, 1, 0), (3, 2, 2, 8)]
    asked: Row = (0, 0, 1, None)
    by_need, by_intent, by_static, by_whole, by_nothing = (
        first([asked, *others]) for others in ([of_need, elsewhere], [of_intent, elsewhere], [of_static, elsewhere], [elsewhere], [])
    )
    assert [basis for _, basis, _ in (by_need, by_intent, by_static, by_whole, by_nothing)] == ["need", "intent", "static", "static", None]
    assert by_need[0] > by_intent[0] > by_static[0] > by_whole[0] == 0  # type: ignore[operator]
    assert by_whole[2] == 0 and by_nothing == (None, None, None)


def test_the_more_tasks_a_need_has_the_closer_its_prior_is_to_their_mean() -> None:
    priors = [first([(0, 0, 1, None), *[(0, 0, 1, 0)] * count, *[(1, 1, 2, 8)] * 20])[0] for count in (1, 2, 5, 50)]
    assert priors == sorted(priors) and 0.98 < priors[-1] < 1  # type: ignore[operator]


@given(rows, st.none() | successes)
def test_a_tasks_own_draws_never_enter_its_prior(drawn: list[Row], other: int | None) -> None:
    changed = [(*drawn[0][:3], other), *drawn[1:]]
    assert first(drawn) == pytest.approx(first(changed), abs=2e-6)


@given(rows, st.data())
def test_a_task_that_fails_more_often_lowers_no_prior(drawn: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(drawn) - 1))
    won = drawn[at][3]
    harder = [*drawn[:at], (*drawn[at][:3], None if won is None else won // 2), *drawn[at + 1 :]]
    before, after = (difficulty_priors(table(each))["difficulty_prior"].fill_null(0) for each in (drawn, harder))
    assert (after >= before - 2e-6).all()


@given(rows, st.randoms())
def test_priors_are_rates_and_the_order_of_tasks_changes_nothing(drawn: list[Row], rng: random.Random) -> None:
    priors = difficulty_priors(shuffled := table(drawn))
    assert priors["difficulty_prior"].drop_nulls().is_between(0, 1).all()
    order = list(range(len(drawn)))
    rng.shuffle(order)
    again = difficulty_priors(shuffled[order]).sort(pl.col("task_id").str.slice(1).cast(pl.Int32))
    assert again["prior_basis"].equals(priors["prior_basis"]) and again["prior_draws"].equals(priors["prior_draws"])
    assert again["difficulty_prior"].to_list() == pytest.approx(priors["difficulty_prior"].to_list(), abs=2e-6)


def test_a_task_counts_once_however_often_it_was_drawn() -> None:
    """Given one task that failed 8 times of 8, and one that succeeded 16 times of 16: their need fails at half of its tasks."""
    measured = table([(0, 0, 1, None), (0, 0, 1, 0), (0, 0, 1, 8)]).with_columns(
        successes=pl.Series([None, 0, 16], dtype=pl.Int32), k=pl.Series([None, 8, 16], dtype=pl.Int32)
    )
    assert difficulty_priors(measured).select("difficulty_prior", "prior_draws").row(0) == (0.5, 24)


def test_groups_of_real_tasks_are_their_needs_and_siblings_share_one() -> None:
    tasks = drilled("retail")[:40]
    groups = task_groups(tasks)
    assert groups["task_id"].to_list() == [task.id for task in tasks]
    assert groups["intent"].to_list() == [f"retail/{task.intent}" for task in tasks]
    assert groups.select(pl.col("need").n_unique() <= pl.len()).item()
    assert (groups.group_by("need").agg(pl.col("intent").n_unique())["intent"] == 1).all(), "a need has one intent"
    assert need.__module__ == "synth.tasks.needs"


def test_tags_get_the_priors_of_their_probe() -> None:
    """Given a policy that fails one intent and passes the others, then its tags say so of every task with a relative."""
    tasks = drilled("retail")
    groups = task_groups(tasks)
    hard = groups["intent"].mode().sort()[0]
    rollouts = groups.join(pl.DataFrame({"draw": list(range(K))}), how="cross").select(
        "task_id",
        policy_id=pl.lit("p"),
        outcome=pl.when(pl.col("intent") == hard).then(pl.lit("policy_failure")).otherwise(pl.lit("success")),
        reward=pl.when(pl.col("intent") == hard).then(0.0).otherwise(1.0),
    )
    bare = certainty(rollouts, groups, RegionConfig(), purpose="probe")
    tags = add_priors(bare, groups)
    assert bare["difficulty_prior"].null_count() == bare.height and tags.columns == bare.columns
    own = tags.join(groups.select("task_id", "intent"), on="task_id").filter(pl.col("prior_basis") != "static")
    assert own.filter(pl.col("intent") == hard)["difficulty_prior"].min() > own.filter(pl.col("intent") != hard)["difficulty_prior"].max()  # type: ignore[operator]
