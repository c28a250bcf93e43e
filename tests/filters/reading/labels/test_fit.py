"""Weights that are fitted on some worlds; labels are compared by meaning."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from filters.reading.labels.fit import Labelled, fit_logistic, fit_softmax, is_equal, plain_name
from filters.reading.reader import Reader
from tests.filters.reading.worlds import BANK, CINEMA, cinema


def test_a_logistic_regression_finds_what_decides() -> None:
    rng = np.random.default_rng(0)
    rows = [{"bias": 1.0, "good": float(rng.normal()), "noise": float(rng.normal())} for _ in range(800)]
    labels = [row["good"] + 0.3 * float(rng.normal()) > 0 for row in rows]
    weights = fit_logistic(rows, labels)
    assert weights["good"] > 2 and abs(weights["noise"]) < 0.5


def test_a_weight_without_data_stays_at_its_prior() -> None:
    rows = [{"bias": 1.0, "role": 0.0}] * 20
    assert fit_logistic(rows, [True] * 10 + [False] * 10, prior={"role": 2.0})["role"] == 2.0


def test_a_softmax_ranks_the_right_one_first() -> None:
    rng = np.random.default_rng(1)
    groups = []
    for _ in range(200):
        rows = [{"near": float(rng.normal()), "noise": float(rng.normal())} for _ in range(4)]
        groups.append((rows, max(range(4), key=lambda number: rows[number]["near"])))
    weights = fit_softmax(groups)
    hits = sum(
        max(range(4), key=lambda number: sum(weights[name] * value for name, value in rows[number].items())) == right
        for rows, right in groups
    )
    assert hits > 190


@pytest.mark.parametrize(("first", "second"), [("The Golden Dragon", "golden dragon"), ("Ludwig's", "ludwig's"), ("St. John", "st john")])
def test_names_are_compared_without_case_signs_and_articles(first: str, second: str) -> None:
    assert plain_name(first) == plain_name(second)


def test_values_are_compared_by_kind() -> None:
    slots = {slot.name: slot for slot in CINEMA.slots.values()}
    assert is_equal(slots["show_date"], date(2019, 3, 9), [date(2019, 3, 9)])
    assert is_equal(slots["seats"], 3.0, [3]) and not is_equal(slots["seats"], 3.0, [4])
    assert is_equal(slots["film"], "the Blue Moon", ["Blue Moon"]) and not is_equal(slots["film"], "Moon", ["Blue Moon"])


def test_a_frame_is_right_only_with_every_value() -> None:
    reader = Reader([BANK, CINEMA])
    text = "Can you find films in San Jose for tomorrow?"
    ((found, candidates),) = reader.candidates([text])
    frame = reader.choose(found, candidates).frame
    right = {"city": ["San Jose"], "show_date": [date(2019, 3, 2)]}
    assert Labelled(text, "cinema", "FindFilms", right).is_right(frame)
    for wrong in ({"city": ["San Jose"]}, {**right, "genre": ["comedy"]}, {**right, "city": ["Oakland"]}):
        assert not Labelled(text, "cinema", "FindFilms", wrong).is_right(frame)
    assert not Labelled(text, "cinema", "BookSeats", right).is_right(frame)


def test_a_label_has_its_twins() -> None:
    reader = Reader([CINEMA, cinema("other")])
    label = Labelled("Find films in Berlin", "cinema", "FindFilms", {"city": ["Berlin"]})
    assert [each.world for each in label.alternatives(reader.twins)] == ["cinema", "other"]


def test_a_prior_that_is_far_off_does_not_lead_away() -> None:
    """Given labels that contradict a strong prior, then the weights are those of a start from elsewhere: the loss has one minimum."""
    rows = [{"bias": 1.0, "size": float(number)} for number in range(40)]
    labels = [number % 3 > 0 for number in range(40)]
    fitted = fit_logistic(rows, labels, prior={"size": 30.0}, decay=1e-6)
    near = fit_logistic(rows, labels, decay=1e-6)
    assert all(abs(fitted[name] - near[name]) < 0.01 for name in near)
