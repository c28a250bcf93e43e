"""The figures of clusters: average precision as it is defined, purity against chance, a gold that fits its catalogue."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.worlds_sections.business_clusters import UNSEEN, average_precision, purity_ratio
from synth.clusters.business_clusters import Cluster


@pytest.mark.parametrize(
    ("scores", "wanted", "expected"),
    [
        ([3.0, 2.0, 1.0], [True, True, False], 1.0),
        ([3.0, 2.0, 1.0], [False, False, True], 1 / 3),
        ([3.0, 2.0, 1.0, 0.0], [True, False, True, False], (1 + 2 / 3) / 2),
        ([0.0, 0.0, 0.0, 0.0], [True, False, False, False], 0.25),
    ],
)
def test_average_precision(scores: list[float], wanted: list[bool], expected: float) -> None:
    assert average_precision(np.array(scores), np.array(wanted)) == pytest.approx(expected)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), min_size=1, max_size=20))
def test_the_order_of_equal_scores_is_no_matter(pairs: list[tuple[float, bool]]) -> None:
    if any(is_wanted for _, is_wanted in pairs):
        scores, wanted = (np.array(column) for column in zip(*pairs, strict=True))
        there, back = average_precision(scores, wanted), average_precision(scores[::-1], wanted[::-1])
        assert there == pytest.approx(back)
        assert 0 < there <= 1


def test_clusters_of_random_tools_are_as_pure_as_chance() -> None:
    labels = {f"s.{number}": "ab"[number % 2] for number in range(200)}
    rng = np.random.default_rng(0)

    def cluster(tools: list[str]) -> Cluster:
        return Cluster("c", "d", None, tuple(tools), (), 0)

    random_ones = [cluster(list(rng.choice(sorted(labels), 6, replace=False))) for _ in range(300)]
    pure_ones = [cluster([f"s.{2 * number}" for number in rng.choice(100, 6, replace=False)]) for _ in range(300)]

    assert purity_ratio(random_ones, labels) == pytest.approx(1.0, abs=0.05)
    assert purity_ratio(pure_ones, labels) > 1.3


def test_the_gold_says_how_it_was_made_and_repeats_nothing() -> None:
    about, *rows = [json.loads(line) for line in UNSEEN.read_text().splitlines()]
    pairs = [(row["server_id"], row["producer"], row["consumer"]) for row in rows]

    assert "before the definition was scored" in about["about"]
    assert len(pairs) == len(set(pairs)) >= 100
    assert all(producer != consumer for _, producer, consumer in pairs)
    assert len({server for server, _, _ in pairs}) >= 8
