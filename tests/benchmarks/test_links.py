"""The cues of decisions: what stands before a decision foretells it, and no kind of decision is a coin flip."""

from __future__ import annotations

import random

import pytest

from benchmarks.links_sections.cues import KINDS, Decision, areas_of, decisions, draw


@pytest.fixture(scope="module")
def read() -> list[list[Decision]]:
    return [decisions(blueprint, messages) for blueprint, messages in draw(1_000)]


def test_every_kind_of_decision_can_be_told_from_what_stands_before_it(read: list[list[Decision]]) -> None:
    areas = areas_of(read)
    assert set(areas) == set(KINDS)
    assert min(areas.values()) >= 0.8, areas


def test_decisions_by_a_coin_would_be_noticed(read: list[list[Decision]]) -> None:
    """Given the same decisions with every second `call` a `verify` by a coin, then the classifier cannot tell that kind."""
    rng = random.Random(0)
    by_coin = [
        [
            Decision("verify" if one.kind == "verify" or (one.kind == "call" and rng.random() < 0.5) else one.kind, one.features)
            for one in conversation
        ]
        for conversation in read
    ]
    assert areas_of(by_coin)["verify"] < 0.8


def test_a_kind_that_is_hardly_decided_is_no_figure(read: list[list[Decision]]) -> None:
    with pytest.raises(ValueError, match="draw more conversations"):
        areas_of(read[:40])
