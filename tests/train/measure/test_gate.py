"""The gate: the first policy passes if it can do anything; a later one must lose nothing and forget nothing."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from train.config import GateConfig
from train.measure.gate import GateResult, gate

SAMPLES = 4


def rollouts(**successes: list[int]) -> pl.DataFrame:
    """Rollouts of an intent's tasks: successes, of four samples, task by task."""
    rows = [
        {"task_id": f"{intent}/{index}", "outcome": "success" if draw < hits else "policy_failure"}
        for intent, counts in successes.items()
        for index, hits in enumerate(counts)
        for draw in range(SAMPLES)
    ]
    return pl.DataFrame(rows)


def tasks_of(found: pl.DataFrame) -> pl.DataFrame:
    intent = pl.col("task_id").str.split("/").list.first()
    mode = pl.when(intent.str.starts_with("compute")).then(pl.lit("code")).otherwise(pl.lit("acts"))
    return found.select("task_id", world=pl.lit("shop"), intent=intent, mode=mode).unique()


def judged(new: pl.DataFrame, old: pl.DataFrame | None, *earlier: pl.DataFrame, **config: float) -> GateResult:
    return gate(new, old, tasks_of(new), GateConfig(**config), earlier=earlier)


@given(counts=st.lists(st.integers(0, SAMPLES), min_size=1, max_size=12))
def test_the_first_policy_passes_if_and_only_if_it_succeeds_sometimes(counts):
    result = judged(rollouts(buy=counts), None)
    assert result.passed == (sum(counts) > 0)
    assert result.difference is None


def test_spoilt_rollouts_are_no_success_of_a_first_policy():
    spoilt = rollouts(buy=[0, 0]).vstack(pl.DataFrame({"task_id": ["buy/0"], "outcome": ["infra_failure"]}))
    assert not judged(spoilt, None).passed


@given(pairs=st.lists(st.tuples(st.integers(0, SAMPLES), st.integers(0, SAMPLES)), min_size=1, max_size=24))
def test_a_policy_with_a_lower_mean_is_refused_and_no_other(pairs):
    old, new = [first for first, _ in pairs], [second for _, second in pairs]
    result = judged(rollouts(buy=new), rollouts(buy=old), max_forgotten=1.0)
    assert result.passed == (sum(new) >= sum(old))
    assert result.difference.mean == pytest.approx((sum(new) - sum(old)) / (SAMPLES * len(pairs)))


@pytest.mark.parametrize(("min_gain", "passes"), [(-0.2, True), (0.0, False), (0.2, False)])
def test_the_loss_that_is_borne_is_configured(min_gain, passes):
    old, slightly_worse = rollouts(buy=[4] * 10), rollouts(buy=[4] * 9 + [2])
    assert judged(slightly_worse, old, min_gain=min_gain).passed == passes


def test_a_forgotten_intent_refuses_whatever_the_mean_gains():
    old, new = rollouts(buy=[4] * 10, close=[0] * 30), rollouts(buy=[1] * 10, close=[4] * 30)
    result = judged(new, old)
    assert result.difference.low > 0
    assert result.checks == {"no_loss": True, "nothing_forgotten": False}
    assert result.forgotten == {"shop.buy": pytest.approx(0.75)}
    assert not result.passed


@pytest.mark.parametrize(("hits", "is_forgotten"), [(3, False), (2, True)])
def test_a_fall_as_large_as_the_bound_is_borne_and_a_larger_one_is_not(hits, is_forgotten):
    old, new = rollouts(buy=[4] * 8, close=[0] * 8), rollouts(buy=[hits] * 8, close=[4] * 8)
    assert bool(judged(new, old, max_forgotten=0.25).forgotten) == is_forgotten


@pytest.mark.parametrize(("size", "is_judged"), [(7, False), (8, True)])
def test_an_intent_with_too_few_tasks_is_not_judged_apart(size, is_judged):
    old, new = rollouts(buy=[4] * size, close=[0] * 30), rollouts(buy=[0] * size, close=[4] * 30)
    result = judged(new, old, min_intent_tasks=8)
    assert set(result.forgotten) == ({"shop.buy"} if is_judged else set())
    assert result.passed != is_judged


def test_intents_with_few_tasks_are_judged_together():
    """Given three intents of three tasks that are all forgotten, none of which could be judged alone."""
    few = {f"ask_{number}": [4, 4, 4] for number in range(3)}
    old, new = rollouts(**few, close=[0] * 30), rollouts(**{intent: [0, 0, 0] for intent in few}, close=[4] * 30)
    assert judged(new, old).forgotten == {"few": pytest.approx(1.0)}


def test_tasks_that_need_a_program_are_judged_together_whatever_their_intents():
    """Given two intents with programs that fall by a half each, and others of theirs that do not, so that no intent alone shows it."""
    old = rollouts(compute_total=[4] * 6, compute_mean=[4] * 6, close=[0] * 30, ask=[4] * 40)
    new = rollouts(compute_total=[2] * 6, compute_mean=[2] * 6, close=[4] * 30, ask=[4] * 40)
    assert judged(new, old, min_intent_tasks=10).forgotten == {"code": pytest.approx(0.5), "few": pytest.approx(0.5)}


def test_nothing_is_forgotten_step_by_step():
    """Given three policies, each a little worse than the one before at one intent, then the last is held against the first too."""
    first, second, third = (rollouts(buy=[hits] * 10, close=[other] * 30) for hits, other in ((4, 0), (3, 2), (2, 4)))
    assert judged(second, first).passed
    assert judged(third, second).passed
    assert judged(third, second, first).forgotten == {"shop.buy": pytest.approx(0.5)}


def test_an_intent_that_was_never_mastered_cannot_be_forgotten():
    old, new = rollouts(buy=[1] * 10, close=[0] * 10), rollouts(buy=[0] * 10, close=[2] * 10)
    assert judged(new, old).passed


@pytest.mark.parametrize("config", [{"min_gain": 2.0}, {"max_forgotten": -0.1}, {"min_intent_tasks": 0}, {"max_forgoten": 0.1}])
def test_thresholds_that_mean_nothing_are_refused(config):
    with pytest.raises(ValidationError):
        GateConfig(**config)
