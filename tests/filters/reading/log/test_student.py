"""A student ranks texts as its teacher does, and reads any bytes."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.reading.log.student import teach

WORDS = ["cancel", "move", "reservation", "room", "bill", "dog", "tree", "run", "blue", "seven", "lamp", "order", "paint", "river"]


def texts(count: int, seed: int) -> pl.Series:
    rng = random.Random(seed)
    return pl.Series("norm", [" ".join(rng.choices(WORDS, k=rng.randint(2, 8))) for _ in range(count)])


def teacher(norm: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A score by words and by one pair of words."""
    return np.array([0.3 * ("reservation" in text) + 0.4 * ("cancel reservation" in text) for text in norm], np.float32)


def test_it_agrees_with_its_teacher_on_texts_that_it_has_not_seen() -> None:
    known, unseen = texts(2000, 1), texts(1000, 2)
    student = teach(known, teacher(known))
    assert np.corrcoef(student.scores(unseen), teacher(unseen))[0, 1] > 0.9


def test_a_shuffled_teacher_teaches_nothing() -> None:
    known, unseen = texts(2000, 1), texts(1000, 2)
    shuffled = np.random.default_rng(0).permutation(teacher(known))
    assert abs(np.corrcoef(teach(known, shuffled).scores(unseen), teacher(unseen))[0, 1]) < 0.3


def test_batches_give_the_scores_of_the_whole() -> None:
    known = texts(500, 1)
    student = teach(known, teacher(known))
    whole = student.scores(known)
    assert np.array_equal(np.concatenate([student.scores(known[:100]), student.scores(known[100:])]), whole)


def test_no_text_teaches_a_student_without_weights() -> None:
    empty = pl.Series("norm", [], dtype=pl.String)
    student = teach(empty, np.zeros(0, np.float32))
    assert student.scores(pl.Series(["cancel"])).tolist() == [0.0] and student.scores(empty).size == 0


@settings(max_examples=200)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_text_has_a_finite_score(given_texts: list[str]) -> None:
    known = texts(50, 3)
    scores = teach(known, teacher(known)).scores(pl.Series("norm", given_texts))
    assert scores.shape == (len(given_texts),) and np.isfinite(scores).all()
