"""Subset selection at a fixed budget: what is taken, in which order, and that lazy greedy is greedy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.experiment.subset import SubsetWeights, select
from synth.blueprints.diversity import entropy_bits


def unit(rows: int, seed: int = 0, dimensions: int = 8) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=(rows, dimensions)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def worth(taken: Sequence[int], domains: Sequence[str], modes: Sequence[str], vectors: NDArray[np.float32]) -> float:
    """The objective, straight from its definition."""
    cover = np.maximum(vectors @ vectors[list(taken)].T, 0).max(axis=1).mean()
    return (
        entropy_bits(Counter(domains[at] for at in taken).values())
        + entropy_bits(Counter(modes[at] for at in taken).values())
        + 0.5 * float(cover)
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 25), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10_000))
def test_every_pick_is_the_best_that_was_open(pool: int, domain_count: int, mode_count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domains = [f"d{number}" for number in rng.integers(domain_count, size=pool)]
    modes = [f"m{number}" for number in rng.integers(mode_count, size=pool)]
    vectors, n = unit(pool, seed), int(rng.integers(1, pool + 1))
    cap = -(-2 * n // len(set(domains)))

    taken = select(domains, modes, vectors, n)

    for step, picked in enumerate(taken):
        before = taken[:step]
        used = Counter(domains[at] for at in before)
        options = [at for at in range(pool) if at not in before and used[domains[at]] < cap]
        best = max(worth([*before, at], domains, modes, vectors) for at in options)
        assert worth([*before, picked], domains, modes, vectors) == pytest.approx(best, abs=1e-5)


def test_a_skewed_pool_gives_an_even_subset_and_a_random_draw_does_not() -> None:
    domains = ["common"] * 90 + ["rare"] * 10
    taken = select(domains, ["C>F"] * 100, unit(100), 20)
    drawn = np.random.default_rng(0).choice(100, 20, replace=False)
    assert Counter(domains[at] for at in taken)["rare"] == 10
    assert Counter(domains[at] for at in drawn)["rare"] < 6


def test_no_domain_gives_more_than_its_cap_though_nothing_else_is_left() -> None:
    domains = ["a"] * 50 + ["b", "c", "d"]
    taken = select(domains, ["m"] * 53, unit(53), 20)
    assert Counter(domains[at] for at in taken) == {"a": 10, "b": 1, "c": 1, "d": 1}


def test_without_its_weight_a_term_says_nothing() -> None:
    domains = ["a", "a", "a", "b"]
    modes = ["m", "n", "o", "m"]
    blind = select(domains, modes, unit(4), 3, SubsetWeights(domain=0, cover=0))
    assert {modes[at] for at in blind} == {"m", "n", "o"}


def test_unequal_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="one of each"):
        select(["a"], ["m", "n"], unit(2), 1)
    assert select([], [], unit(0), 5) == []


def test_thousands_of_trajectories_take_seconds() -> None:
    rng = np.random.default_rng(1)
    domains = [f"d{number}" for number in rng.integers(30, size=3000)]
    modes = [f"m{number}" for number in rng.integers(100, size=3000)]
    begun = time.process_time()
    assert len(select(domains, modes, unit(3000, dimensions=64), 1500)) == 1500
    assert time.process_time() - begun < 20
