"""What the figures of probes say: rank correlation with ties, and the adaptive probe replayed over draws that were made."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tags_sections.certainty import Passed, adaptive, interval, region, spearman
from filters.certainty.certainty import DrawsConfig, RegionConfig
from storage.records import Outcome
from synth.rollouts.draws import Draws, rollout_until
from tests.synth.retail_tasks import tasks
from tests.synth.scripted_engine import ScriptedEngine

OWN, REGIONS = DrawsConfig(), RegionConfig()


def test_rank_correlation_shares_the_ranks_of_ties() -> None:
    rising = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(rising, rising**3) == pytest.approx(1)
    assert spearman(rising, -rising) == pytest.approx(-1)
    # ranks 1.5 1.5 3 4 against 1 2 3 4
    assert spearman(np.array([0.0, 0.0, 5.0, 9.0]), rising) == pytest.approx(0.9486833)
    assert spearman(np.ones(4), rising) == 0


def test_difficulty_that_was_shuffled_says_nothing() -> None:
    rng = np.random.default_rng(0)
    difficulty = rng.integers(1, 5, size=300).astype(float)
    failed = np.clip(difficulty / 5 + rng.normal(0, 0.1, 300), 0, 1)
    assert spearman(difficulty, failed) > 0.8
    assert abs(spearman(rng.permutation(difficulty), failed)) < 0.2


def test_an_interval_holds_the_figure_and_narrows_with_tasks() -> None:
    flips = np.array([1.0] * 10 + [0.0] * 90)
    low, high = interval(lambda chosen: float(flips[chosen].mean()), names(100))
    assert 0.03 < low < 0.1 < high < 0.18
    many = np.tile(flips, 20)
    narrow_low, narrow_high = interval(lambda chosen: float(many[chosen].mean()), names(2_000))
    assert narrow_high - narrow_low < (high - low) / 3


def test_siblings_that_go_alike_are_one_piece_of_evidence() -> None:
    """Given a hundred frames of four tasks that all go as their frame does, then the interval is that of a hundred tasks, not of 400."""
    flips = np.array([1.0] * 10 + [0.0] * 90)
    fourfold = np.repeat(flips, 4)
    alone = interval(lambda chosen: float(flips[chosen].mean()), names(100))
    assert interval(lambda chosen: float(fourfold[chosen].mean()), [name for name in names(100) for _ in range(4)]) == pytest.approx(alone)
    low, high = interval(lambda chosen: float(fourfold[chosen].mean()), names(400))
    assert high - low < 0.6 * (alone[1] - alone[0])


def names(count: int) -> list[str]:
    return [f"frame-{number:04d}" for number in range(count)]


@pytest.mark.parametrize(
    ("draws", "made", "named"),
    [
        ([False] * 16, 8, "out_of_reach"),
        ([True] * 16, 8, "mastered"),
        ([True] + [False] * 15, 8, "uncertain"),
        ([True, False] * 8, 10, "uncertain"),
        ([True] * 7 + [False] + [True] * 8, 14, "certain"),
        ([None] * 3 + [False] * 13, 12, "out_of_reach"),
    ],
)
def test_a_probe_stops_where_its_region_is_settled(draws: Passed, made: int, named: str) -> None:
    stopped = adaptive(draws, OWN, REGIONS)
    assert (len(stopped), region(stopped, REGIONS)) == (made, named)


def test_replayed_draws_are_those_that_an_adaptive_probe_makes() -> None:
    """Given a policy that succeeds at half of the draws, and the same probe made in full and adaptively."""
    few = tasks(1)[:8]
    engine = ScriptedEngine(few, skill=0.5, name="half")

    def passed(draws: Draws) -> dict[str, list[bool]]:
        made = rollout_until(engine, few, draws)
        return {task.id: [one.outcome is Outcome.SUCCESS for one in made if one.task_id == task.id] for task in few}

    until = Draws(OWN.looks, lambda successes, rated, left: OWN.is_settled(successes, rated, left, REGIONS), {})
    whole, spent = passed(Draws.each(16)), passed(until)
    assert {task_id: list(adaptive(draws, OWN, REGIONS)) for task_id, draws in whole.items()} == spent
    assert 8 * len(few) <= sum(map(len, spent.values())) < 16 * len(few)
