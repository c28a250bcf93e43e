"""The score that the taxonomy's benchmark gives."""

import numpy as np
import pytest

from benchmarks.taxonomy import adjusted_rand


def test_equal_labellings_score_one_whatever_the_names_and_drawn_ones_score_nothing() -> None:
    classes = np.repeat(["a", "b", "c"], 50)
    drawn = np.random.default_rng(0).permutation(classes)
    assert adjusted_rand(classes, np.char.add("x", classes)) == 1
    assert abs(adjusted_rand(classes, drawn)) < 0.05
    assert adjusted_rand(classes, np.full(150, "one")) == 0


def test_a_known_score() -> None:
    """One pair together in both, of 6; one in the first and two in the second labelling: (1 - 1/3) / (3/2 - 1/3)."""
    assert adjusted_rand(np.array(list("0012")), np.array(list("0011"))) == pytest.approx(4 / 7)
