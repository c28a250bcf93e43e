"""The exchange rate of traces and RL: where the curves cross, what is kept, and what to buy at a price."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from storage.errors import BadInput
from tests.train.warm_processes import warm_workers
from train.proxy import world_study
from train.proxy.exchange_rate import RL, START, ExchangeConfig, crossing, exchange_rate, points_of, summarise, train_point

SMALL = ExchangeConfig(frames=30, experts=24, sft_tokens=5_000, held_out=16, traces=(0, 8), trace_tokens=5_000, steps=1, seeds=1)


def test_the_curve_is_crossed_where_it_first_reaches_the_level() -> None:
    counts = (0, 10, 100)
    assert crossing(counts, (0.1, 0.2, 0.4), 0.2) == pytest.approx(10)
    assert 10 < crossing(counts, (0.1, 0.2, 0.4), 0.3) < 100
    assert crossing(counts, (0.1, 0.3, 0.2), 0.25) < 10, "a dip after a point does not undo it"
    assert crossing(counts, (0.1, 0.2, 0.4), 0.1) == 0
    assert crossing(counts, (0.1, 0.2, 0.4), 0.41) == float("inf")


def test_a_known_rate_is_found_with_an_interval_and_decides_at_a_price() -> None:
    """Given scripted successes by which RL is worth about ten traces, then the rate says so, and the cheaper rung comes first."""
    config = ExchangeConfig(traces=(0, 10, 100), seeds=4, steps=10)
    rng = np.random.default_rng(0)
    rate = {0: 0.2, 10: 0.4, 100: 0.6, RL: 0.4, START: 0.1}
    success = {(seed, count): (rng.random(400) < rate[count]).astype(float) for seed, count in points_of(config)}

    found = summarise(config, success)

    assert 5 < found.traces < 25
    assert found.low <= found.traces <= found.high
    assert found.break_even() == pytest.approx(640 / found.traces)
    assert [found.per_money(trace, 1.0)[0][0].name for trace in (1.0, 1000.0)] == ["traces", "RL"]


def test_the_points_of_a_killed_call_are_kept_and_prices_need_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm_workers(monkeypatch)
    kept = tmp_path / "price.jsonl"
    seen: list[tuple[int, int]] = []

    first = exchange_rate("hotel", SMALL, kept, processes=2, progress=lambda _, done, total: seen.append((done, total)))
    lines = kept.read_text().splitlines()
    kept.write_text("\n".join(lines[:-1]) + "\n")
    again = exchange_rate("hotel", SMALL, kept, processes=1)

    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert again == first
    assert sorted(kept.read_text().splitlines()) == sorted(lines)


def test_numbers_of_traces_that_do_not_rise_from_none_are_refused() -> None:
    for traces in ((10, 20), (0, 20, 10), (0, 5, 5)):
        with pytest.raises(ValidationError, match="traces must rise from 0"):
            ExchangeConfig(traces=traces)


def test_rl_above_the_whole_curve_has_a_price_that_is_only_a_bound() -> None:
    config = ExchangeConfig(traces=(0, 10), seeds=1, steps=10)
    found = summarise(
        config, {(0, 0): np.full(20, 0.1), (0, 10): np.full(20, 0.2), (0, RL): np.full(20, 0.9), (0, START): np.full(20, 0.1)}
    )
    assert (found.traces, found.break_even()) == (float("inf"), 64.0)


def test_what_makes_the_policy_worse_than_it_was_is_no_gain() -> None:
    """Given that repeating the first experts hurts, then gains are above the policy as it is."""
    config = ExchangeConfig(traces=(0, 10), seeds=1, steps=10)
    rates = {0: 0.1, 10: 0.25, RL: 0.2, START: 0.3}

    found = summarise(config, {(0, count): np.full(20, rate) for count, rate in rates.items()})

    assert [rung.gain.mean for rung in found.rungs] == pytest.approx([-0.2, -0.05, -0.1])
    assert found.start.mean == pytest.approx(0.3)
    assert found.traces == 0, "RL makes it worse, so it is worth no trace"


def test_a_world_with_too_few_further_traces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world_study.draw
    monkeypatch.setattr(world_study, "draw", lambda *arguments, **options: plain(*arguments, **options)[: SMALL.experts + 3])
    with pytest.raises(BadInput, match="hotel gives 3 further traces, 8 are asked for"):
        train_point("hotel", SMALL, 0, 0)
