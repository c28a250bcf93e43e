"""The gate: the first policy passes if it can do anything; a later one must lose nothing and forget nothing."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from train.gate import GateConfig, GateResult, gate

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
    return found.select("task_id", intent=pl.col("task_id").str.split("/").list.first()).unique()


def judged(new: pl.DataFrame, old: pl.DataFrame | None, **config: float) -> GateResult:
    return gate(new, old, tasks_of(new), GateConfig(**config))


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
    assert result.forgotten == {"buy": pytest.approx(0.75)}
    assert not result.passed


@pytest.mark.parametrize(("hits", "is_forgotten"), [(3, False), (2, True)])
def test_a_fall_as_large_as_the_bound_is_borne_and_a_larger_one_is_not(hits, is_forgotten):
    old, new = rollouts(buy=[4] * 8, close=[0] * 8), rollouts(buy=[hits] * 8, close=[4] * 8)
    assert bool(judged(new, old, max_forgotten=0.25).forgotten) == is_forgotten


@pytest.mark.parametrize(("size", "is_judged"), [(7, False), (8, True)])
def test_an_intent_with_too_few_tasks_is_not_judged_apart(size, is_judged):
    old, new = rollouts(buy=[4] * size, close=[0] * 30), rollouts(buy=[0] * size, close=[4] * 30)
    result = judged(new, old, min_intent_tasks=8)
    assert set(result.forgotten) == ({"buy"} if is_judged else set())
    assert result.passed != is_judged


def test_an_intent_that_was_never_mastered_cannot_be_forgotten():
    old, new = rollouts(buy=[1] * 10, close=[0] * 10), rollouts(buy=[0] * 10, close=[2] * 10)
    assert judged(new, old).passed


@pytest.mark.parametrize("config", [{"min_gain": 2.0}, {"max_forgotten": -0.1}, {"min_intent_tasks": 0}, {"max_forgoten": 0.1}])
def test_thresholds_that_mean_nothing_are_refused(config):
    with pytest.raises(ValidationError):
        GateConfig(**config)
