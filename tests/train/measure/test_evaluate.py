"""Evaluation resamples tasks, pairs what it compares, and finds no difference where there is none."""

import json

import numpy as np
import polars as pl
import pytest

from storage.records import CODE_TOOL, Call
from tests.train.tiny_policies import retail_tasks
from train.config import GateConfig
from train.measure.evaluate import bootstrap, evaluation_rows, facets, paired_difference, pass_hat, task_means
from train.measure.gate import gate


def rollouts(rates: dict[str, float], samples: int = 4) -> pl.DataFrame:
    rows = [
        {"task_id": task, "outcome": "success" if draw < round(rate * samples) else "policy_failure"}
        for task, rate in rates.items()
        for draw in range(samples)
    ]
    return pl.DataFrame(rows)


def random_rates(seed: int, mean: float, tasks: int = 200) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    return {f"t{index}": float(rng.random() < mean) for index in range(tasks)}


TASKS = pl.DataFrame({"task_id": [f"t{index}" for index in range(200)]}).with_columns(
    intent=pl.when(pl.int_range(pl.len()) < 100).then(pl.lit("buy")).otherwise(pl.lit("close")),
    kind=pl.when(pl.int_range(pl.len()) < 50).then(pl.lit("refusal")).otherwise(pl.lit("act")),
    mode=pl.when(pl.int_range(pl.len()) < 150).then(pl.lit("C>F")).otherwise(pl.lit("N")),
    world=pl.lit("retail"),
    language=pl.lit("en"),
    difficulty=2,
)


def test_interval_covers_the_true_rate_about_as_often_as_it_says():
    covered = 0
    for seed in range(60):
        estimate = bootstrap([np.random.default_rng(seed).binomial(1, 0.3, 120).astype(float)], seed=seed)
        covered += estimate.low <= 0.3 <= estimate.high
    assert covered >= 51


def test_interval_covers_the_true_gain_when_seeds_share_their_tasks():
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        of_tasks = rng.normal(0.05, 0.35, 150)
        covered += (found := bootstrap([of_tasks + rng.normal(0, 0.15, 150) for _ in range(3)], seed=seed)).low <= 0.05 <= found.high
    assert covered >= 88


@pytest.mark.parametrize(("spread", "least", "most"), [(0.03, 0.88, 0.98), (0.1, 0.74, 0.92)])
def test_three_seeds_cover_a_gain_that_hardly_differs_by_seed_and_too_seldom_one_that_does(spread, least, most):
    """Given an effect with this standard deviation between seeds, then the share of intervals that hold the true gain is between these."""
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        of_tasks = rng.normal(0.1, 0.35, 150)
        found = bootstrap([of_tasks + of_seed + rng.normal(0, 0.15, 150) for of_seed in rng.normal(0, spread, 3)], seed=seed)
        covered += found.low <= 0.1 <= found.high
    assert least <= covered / 100 <= most


def test_seeds_that_disagree_widen_the_interval():
    tasks = np.tile([0.0, 1.0], 100)
    agreeing, disagreeing = bootstrap([tasks, tasks, tasks]), bootstrap([tasks * 0.5, tasks, tasks * 1.5])
    assert disagreeing.high - disagreeing.low > 2 * (agreeing.high - agreeing.low)


def test_paired_difference_sees_a_small_gain_that_unpaired_intervals_would_hide():
    old = random_rates(0, 0.5)
    new = old | {f"t{index}": 1.0 for index in range(0, 200, 10)}
    estimate = paired_difference([task_means(rollouts(old))], [task_means(rollouts(new))])
    assert 0 < estimate.low <= estimate.mean == pytest.approx(np.mean([new[t] - old[t] for t in old]))


def test_no_difference_is_found_where_there_is_none():
    first, second = (task_means(rollouts(random_rates(seed, 0.5))) for seed in (1, 2))
    estimate = paired_difference([first], [second])
    assert estimate.low < 0 < estimate.high


@pytest.mark.parametrize(("gain", "low", "high"), [(0.0, -0.1611, 0.1611), (1.0, 0.6777, 1.0)])
def test_tasks_that_all_differ_alike_leave_room_for_one_that_does_not(gain, low, high):
    """Given 20 tasks whose rates all differ by the same, then the interval is that of 20 trials, not of no width."""
    old = dict.fromkeys([f"t{index}" for index in range(20)], 0.0)
    found = paired_difference([task_means(rollouts(old))], [task_means(rollouts(dict.fromkeys(old, gain)))])
    assert (found.low, found.mean, found.high) == pytest.approx((low, gain, high), abs=1e-4)


def test_nothing_to_resample_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([np.array([])])
    with pytest.raises(ValueError, match="same tasks"):
        bootstrap([np.zeros(3), np.zeros(4)])


def test_pass_hat_counts_subsets():
    means = task_means(rollouts({"t0": 1.0, "t1": 0.5, "t2": 0.0}))
    assert pass_hat(means, 2).mean == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert pass_hat(means, 8) is None


def test_a_task_that_lost_a_rollout_is_left_out_of_the_powers_that_need_it_alone():
    spoilt = rollouts({f"t{index}": float(index < 10) for index in range(20)}).with_row_index()
    spoilt = spoilt.with_columns(outcome=pl.when(pl.col("index") == 0).then(pl.lit("infra_failure")).otherwise("outcome"))
    means = task_means(spoilt)
    assert (pass_hat(means, 2).mean, pass_hat(means, 4).mean) == (0.5, pytest.approx(9 / 19))


def test_the_interval_of_pass_hat_covers_the_true_power_about_as_often_as_it_says():
    """Given tasks of which a policy solves each with a chance of its own, uniform in 0..1, then pass^4 is the mean of p^4, 1 / 5."""
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        successes = rng.binomial(4, rng.random(120))
        means = pl.DataFrame({"task_id": [f"t{n}" for n in range(120)], "successes": successes, "samples": [4] * 120})
        found = pass_hat(means, 4)
        covered += found.low <= 0.2 <= found.high
    assert 51 <= covered < 60


def test_tasks_know_their_world_and_the_mode_of_their_plan():
    """Given plans of one call, of a call that uses a result, of a refusal and of a program, then each is of its mode family; a program
    is not run for that."""
    plain, chained, refusal = retail_tasks("order_status", "buy_pick", "close_unnamed")
    computed = Call(tool=CODE_TOOL, arguments={"code": "while True: pass"})
    program = plain.model_copy(update={"plan": plain.plan.model_copy(update={"calls": (*plain.plan.calls, computed)})})
    found = facets([plain, chained, refusal, program])
    assert found["mode"].to_list() == ["C>F", "C>S>F", "N", "code"]
    assert found["kind"].to_list() == ["look-up", "act", "refusal", "look-up"]
    assert set(found["world"]) == {"retail"} and found["intent"].to_list()[:3] == ["order_status", "buy_pick", "close_unnamed"]


def test_evaluation_rows_hold_all_and_every_facet():
    rows = evaluation_rows(rollouts(random_rates(3, 0.4)), TASKS, evaluation_id="e", policy_id="p", use="eval_in", decoding="sampled")
    assert rows.select("facet", "facet_value", "tasks").rows() == [
        ("all", "all", 200),
        ("kind", "act", 150),
        ("kind", "refusal", 50),
        ("world", "retail", 200),
        ("language", "en", 200),
        ("difficulty", "2", 200),
        ("mode", "C>F", 150),
        ("mode", "N", 50),
        ("intent", "buy", 100),
        ("intent", "close", 100),
    ]
    powers = json.loads(rows["pass_k"][0])
    assert list(powers) == ["2", "4"]
    assert powers["4"] == pytest.approx([rows[name][0] for name in ("rate", "low", "high")], abs=1e-5), "each task has one outcome"


def test_tasks_that_all_fail_or_all_succeed_have_an_interval_of_so_many_trials():
    """Given 25 tasks that always fail and 25 that always succeed, then their intervals are Wilson's for 25 trials, and that of all of
    them is a bootstrap's; the number of samples a task changes nothing."""
    rates = {f"t{index}": float(index >= 100) for index in (*range(25), *range(100, 125))}
    for samples in (1, 4):
        rows = evaluation_rows(rollouts(rates, samples), TASKS, evaluation_id="e", policy_id="p", use="eval_in", decoding="sampled")
        bounds = {value: (low, rate, high) for value, low, rate, high in rows.select("facet_value", "low", "rate", "high").iter_rows()}
        assert bounds["buy"] == pytest.approx((0.0, 0.0, 0.1332), abs=1e-4)
        assert bounds["close"] == pytest.approx((0.8668, 1.0, 1.0), abs=1e-4)
        assert bounds["2"] == bounds["all"]
        assert 0.3 < bounds["all"][0] < bounds["all"][1] == 0.5 < bounds["all"][2] < 0.7


def test_one_task_says_little():
    rows = evaluation_rows(rollouts({"t0": 0.25}), TASKS, evaluation_id="e", policy_id="p", use="eval_in", decoding="sampled")
    assert [rows.row(0, named=True)[name] for name in ("low", "rate", "high")] == pytest.approx([0.0146, 0.25, 0.8821], abs=1e-4)


def test_the_gate_lets_the_better_in_and_keeps_the_forgetful_out():
    old = {f"t{index}": 1.0 if index < 100 else 0.0 for index in range(200)}
    better = old | {f"t{index}": 1.0 for index in range(100, 150)}
    forgetful = {task: 1.0 - rate for task, rate in old.items()}
    config = GateConfig()
    assert gate(rollouts(old), None, TASKS, config).passed
    assert gate(rollouts(better), rollouts(old), TASKS, config).passed
    refused = gate(rollouts(forgetful | {"t0": 1.0}), rollouts(old), TASKS, config)
    assert not refused.passed
    assert refused.checks == {"no_loss": True, "nothing_forgotten": False}
    assert refused.forgotten["retail.buy"] == pytest.approx(0.99)
    assert not gate(rollouts(dict.fromkeys(old, 0.0)), None, TASKS, config).passed
