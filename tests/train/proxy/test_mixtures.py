"""Mixtures, and what a ridge says of them: known effects are found, absent ones are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.proxy.mixtures import draw_data, draw_mixtures, fit_ridge, gains, weights

OWN = np.array([0.5, 0.3, 0.2])
EFFECTS = np.array([-0.4, 0.0, 0.3])


def losses(shares: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    return 1.0 + np.sqrt(shares) @ EFFECTS + np.random.default_rng(seed).normal(0.0, noise, len(shares))


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=12), st.integers(1, 30))
def test_mixtures_are_shares(parts: list[float], count: int) -> None:
    own = np.array(parts) / sum(parts)

    drawn = draw_mixtures(own, count, np.random.default_rng(0))

    assert drawn.shape == (count, len(parts))
    assert (drawn >= 0).all()
    assert np.allclose(drawn.sum(axis=1), 1)


def test_drawn_data_has_each_source_near_its_share() -> None:
    tokens = [50] * 300
    members = {"a": list(range(200)), "b": list(range(200, 300))}

    positions = draw_data({"a": 0.25, "b": 0.75}, members, tokens, 8_000, seed=1)

    of_a = sum(tokens[at] for at in positions if at < 200)
    assert abs(of_a - 2_000) <= 50
    assert abs(sum(tokens[at] for at in positions) - 8_000) <= 100


def test_a_source_that_is_too_small_is_repeated() -> None:
    positions = draw_data({"a": 1.0}, {"a": [0, 1]}, [10, 10], 100, seed=0)

    assert len(positions) == 10
    assert set(positions) == {0, 1}


def test_gains_find_the_source_that_lowers_the_loss() -> None:
    shares = draw_mixtures(OWN, 40, np.random.default_rng(3))

    found = {one.source: one for one in gains(["good", "plain", "bad"], shares, losses(shares, 0.01), OWN, budget=100_000)}

    assert found["good"].low > 0
    assert found["bad"].high < 0
    replaced = 0.9 * OWN + [0.1, 0.0, 0.0]
    assert found["good"].gain == pytest.approx((np.sqrt(OWN) - np.sqrt(replaced)) @ EFFECTS, rel=0.1)


def test_a_source_gains_more_where_there_is_little_of_it() -> None:
    shares = draw_mixtures(np.array([0.8, 0.2]), 40, np.random.default_rng(3))
    alike = 1.0 - np.sqrt(shares).sum(axis=1) / 10

    much, little = gains(["much", "little"], shares, alike, np.array([0.8, 0.2]), budget=100_000)

    assert little.gain == pytest.approx((np.sqrt([0.72, 0.28]).sum() - np.sqrt([0.8, 0.2]).sum()) / 10, rel=0.02)
    assert much.gain < 0


@pytest.mark.parametrize("size", [0.0, 0.05, 0.3])
def test_intervals_cover_the_true_gains_as_often_as_they_say(size: float) -> None:
    """Given effects that are absent, modest or strong beside the noise, then 95 % of the intervals hold the gain that made the losses."""
    rng, own = np.random.default_rng(4), np.array([0.3, 0.25, 0.2, 0.15, 0.07, 0.03])
    replaced = 0.9 * own + 0.1 * np.eye(6)
    covered = []
    for _ in range(150):
        shares, effects = draw_mixtures(own, 24, rng), rng.normal(0.0, size, 6)
        found = gains(list("abcdef"), shares, 1.0 + np.sqrt(shares) @ effects + rng.normal(0.0, 0.03, 24), own, budget=100_000)
        true = (np.sqrt(own) - np.sqrt(replaced)) @ effects
        covered += [one.low <= gain <= one.high for one, gain in zip(found, true.tolist(), strict=True)]

    assert 0.92 <= np.mean(covered) <= 0.98


def test_sources_that_differ_by_chance_have_equal_weights() -> None:
    shares = draw_mixtures(OWN, 40, np.random.default_rng(4))
    found = gains(["a", "b", "c"], shares, np.random.default_rng(5).normal(1.0, 0.05, 40), OWN, budget=100_000)

    assert all(one.low <= 0 <= one.high for one in found)
    assert weights(found) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_the_ridge_predicts_mixtures_that_it_has_not_seen() -> None:
    shares = draw_mixtures(OWN, 60, np.random.default_rng(6))
    fit = fit_ridge(shares[:40], losses(shares[:40], 0.01))

    predicted, realised = fit.predict(shares[40:]), losses(shares[40:], 0.0)

    assert np.corrcoef(predicted, realised)[0, 1] > 0.95
    assert fit.predict(shares[:40]).mean() == pytest.approx(fit.intercept)


def test_the_penalty_is_large_where_shares_explain_nothing() -> None:
    shares = draw_mixtures(OWN, 40, np.random.default_rng(7))
    noise = np.random.default_rng(8).normal(1.0, 0.05, 40)

    assert fit_ridge(shares, noise).penalty > fit_ridge(shares, losses(shares, 0.001)).penalty


def test_weights_favour_a_clear_gain_and_keep_the_mean() -> None:
    shares = draw_mixtures(OWN, 40, np.random.default_rng(3))
    found = weights(gains(["good", "plain", "bad"], shares, losses(shares, 0.01), OWN, budget=100_000))

    assert found["good"] > found["plain"] > found["bad"]
    assert np.mean(list(found.values())) == pytest.approx(1, abs=1e-3)
