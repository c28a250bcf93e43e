"""Agreement of people with the funnel and the judge: figures that were computed otherwise, and what is set against what."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from filters.by_hand.hand_agreement import compare, hand_agreement
from storage.by_hand.hand_rows import Annotation, Verdict, annotate
from storage.store import Store
from tests.storage.conftest import funnel_parts, write


def test_kappa_and_intervals_are_those_of_the_textbook() -> None:
    """20 pairs both keep, 5 the person alone, 10 the judge alone, 15 neither: kappa .4 (the usual example of Cohen's kappa)."""
    keeps = [True] * 25 + [False] * 25
    passes = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15

    found = compare("judge", keeps, passes)

    assert found.counts == {(True, True): 20, (True, False): 5, (False, True): 10, (False, False): 15}
    assert found.kappa == pytest.approx(0.4)
    assert (found.rate, found.verdicts) == (0.7, 50)
    assert (found.low, found.high) == pytest.approx((0.5625, 0.8090), abs=1e-3)
    assert (found.kappa_low, found.kappa_high) == pytest.approx((0.16, 0.65), abs=0.04)


def test_the_bootstrap_covers_the_kappa_that_was_planted() -> None:
    """Given samples of a known table, then nine in ten intervals at least contain its kappa (95 % are meant; 200 samples of 60)."""
    shares, generator = np.array([0.35, 0.1, 0.15, 0.4]), np.random.default_rng(5)
    truth = 0.5  # agreement .75, by chance .5
    hits = 0
    for _ in range(200):
        cells = generator.choice(4, size=60, p=shares)
        found = compare("judge", list(cells >= 2), list(cells % 2 == 1))
        hits += found.kappa_low <= truth <= found.kappa_high
    assert 180 <= hits <= 199


@pytest.mark.parametrize("keeps", [[True, True, True], [True, False, True]])
def test_where_one_side_says_one_thing_only_there_is_no_kappa(keeps: list[bool]) -> None:
    found = compare("judge", keeps, [True, True, True])
    assert math.isnan(found.kappa) and math.isnan(found.kappa_low)


def test_each_kind_is_set_against_what_was_decided_without_people(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    checks, judged = '{"state":true,"judge":true}', '{"state":true,"judge":false}'
    store.commit(
        [
            *funnel_parts(store),
            *funnel_parts(store, run="run-2", n=2),
            write(
                store,
                "trajectories",
                {"trajectory_id": "trajectory-1", "accepted": True, "checks": checks},
                {"trajectory_id": "trajectory-2", "accepted": False, "reason": "judge", "checks": judged},
                {"trajectory_id": "trajectory-3", "accepted": False, "reason": "state", "checks": '{"state":false,"judge":false}'},
                {"trajectory_id": "trajectory-4", "accepted": False, "reason": "calibration", "checks": checks},
            ),
            write(store, "rollouts", {"rollout_id": "rollout-1", "outcome": "policy_failure"}),
        ]
    )

    def say(author: str, verdict: Verdict, *items: str) -> None:
        annotate(store, Annotation(items=items, author=author, verdict=verdict, comment="so"))

    say("ada", "drop", "q-0", "trajectory-2", "rollout-1")
    say("ada", "keep", "q-0", "q-2", "trajectory-1", "trajectory-3", "trajectory-4")
    say("bo", "drop", "q-0")
    say("bo", "comment", "q-2", "trajectory-1")

    found = {one.compared: one.counts for one in hand_agreement(store)}

    assert found == {
        "funnel": {(True, True): 1, (True, False): 1, (False, True): 1, (False, False): 0},
        "accepted": {(True, True): 1, (True, False): 1, (False, True): 0, (False, False): 1},
        "judge": {(True, True): 2, (True, False): 0, (False, True): 0, (False, False): 1},
        "outcome": {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 1},
    }


def test_a_store_without_annotations_has_no_comparison(tmp_path: Path) -> None:
    assert hand_agreement(Store(tmp_path / "store")) == []
