"""Decisions of the gate in words: a difference that chance explains is called that."""

from __future__ import annotations

import pytest

from train.measure.evaluate import Estimate, describe_difference
from train.measure.promotions import Promotion


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Estimate(0.012, -0.03, 0.054), "the gain of 1.2 points is within noise (95 %: -3.0 to +5.4)"),
        (Estimate(0.06, 0.01, 0.11), "the gain of 6.0 points is more than noise (95 %: +1.0 to +11.0)"),
        (Estimate(-0.02, -0.05, 0.01), "the loss of 2.0 points is within noise (95 %: -5.0 to +1.0)"),
        (Estimate(0.0, -0.1, 0.1), "there is no difference (95 %: -10.0 to +10.0)"),
    ],
)
def test_differences_are_said_with_their_noise(difference: Estimate, words: str) -> None:
    assert describe_difference(difference) == words


def test_decisions_are_said_with_their_reason() -> None:
    gain = Estimate(0.012, -0.03, 0.054)
    assert Promotion("rl", "sft2", True, {}, gain).describe().startswith("rl is promoted over sft2: the gain of 1.2 points is within noise")
    assert (
        Promotion("rl", "sft2", False, {"nothing_forgotten": False}, gain)
        .describe()
        .endswith("and it lost a kind of task that an earlier policy solved")
    )
    assert Promotion("sft1", None, True, {}, None).describe() == "sft1 is promoted: it is the first policy, and it solved a task"
