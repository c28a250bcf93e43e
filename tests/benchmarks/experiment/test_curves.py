"""Ceilings and gains: what is planted is found, and what is not there is not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiment.curves import UNKNOWN, ceiling, fit, gain, rate

SIZES = (125, 250, 500, 1000, 2000)


def planted(a: float, b: float, c: float, *, seeds: int = 3, tasks: int = 400) -> np.ndarray:
    """Success by task with these chances, shape [sizes, seeds, tasks]."""
    rng = np.random.default_rng(0)
    chances = np.array([a - b * size**-c for size in SIZES])
    return (rng.random((len(SIZES), seeds, tasks)) < chances[:, None, None]).astype(float)


def test_an_exact_curve_is_found_again() -> None:
    curve = fit(SIZES, np.array([0.7 - 4 * size**-0.5 for size in SIZES]))
    assert curve is not None
    assert (curve.a, curve.at(500)) == pytest.approx((0.7, 0.7 - 4 * 500**-0.5), abs=0.01)


def test_the_interval_of_a_ceiling_holds_what_was_planted() -> None:
    found, curve = ceiling(SIZES, planted(0.6, 6, 0.6))
    assert curve is not None
    assert found.low <= 0.6 <= found.high
    assert 0 < found.high - found.low < 0.6


def test_a_higher_planted_ceiling_separates_from_a_lower_one() -> None:
    low, _ = ceiling(SIZES, planted(0.3, 80, 1.2, tasks=1500))
    high, _ = ceiling(SIZES, planted(0.8, 200, 1.2, tasks=1500))
    assert low.high < high.low


@pytest.mark.parametrize(
    "success", [planted(0.4, 0, 1), np.zeros((5, 3, 50)), planted(0.9, 5, 0.5)[:2]], ids=["flat", "nothing", "two sizes"]
)
def test_what_cannot_be_fitted_is_unknown_or_wide(success: np.ndarray) -> None:
    found, curve = ceiling(SIZES[: len(success)], success)
    assert found == UNKNOWN if curve is None else found.low == 0.0


def test_a_gain_is_paired_by_task() -> None:
    before = [np.array([0.0, 1.0] * 100)] * 3
    after = [np.minimum(1, values + np.array([0.0, 0.0, 1.0, 0.0] * 50)) for values in before]
    found = gain(before, after)
    assert found.low > 0
    assert found.mean == pytest.approx(0.25)


def test_no_difference_on_any_task_has_an_interval_all_the_same() -> None:
    found = gain([np.zeros(200)] * 3, [np.zeros(200)] * 3)
    assert found.mean == 0
    assert -0.03 < found.low < 0 < found.high < 0.03


def test_a_rate_of_nothing_has_an_interval_all_the_same() -> None:
    found = rate([np.zeros(100)] * 3)
    assert found.mean == found.low == 0
    assert 0 < found.high < 0.05
