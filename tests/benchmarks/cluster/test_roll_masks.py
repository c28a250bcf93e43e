"""The count of wrong masks finds each way in which a mask can be wrong."""

from __future__ import annotations

import pytest

from benchmarks.cluster.roll_sections.roll_masks import Marks, mask_errors

ANSWERS_AT, END, PAD = [1, 2], 9, 0
MARKS = Marks(ANSWERS_AT, END)
IDS = [5, 6, END, *ANSWERS_AT, 30, 31, END, 7, 5, 8, END, *ANSWERS_AT, 32, END, PAD, PAD]
MASK = [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]
ANSWERS = [[30, 31, END], [32, END]]


def test_a_right_mask_has_no_errors_and_an_answer_may_end_with_the_row():
    assert mask_errors(IDS, MASK, ANSWERS, MARKS) == 0
    assert mask_errors(IDS[:7], MASK[:7], [[30, 31]], MARKS) == 0


@pytest.mark.parametrize("place", range(len(IDS)))
def test_one_wrong_token_anywhere_is_one_error(place):
    mask = list(MASK)
    mask[place] = 1 - mask[place]
    assert mask_errors(IDS, mask, ANSWERS, MARKS) == 1


def test_an_answer_tokenised_anew_or_missing_or_unknown_counts_by_its_tokens():
    assert mask_errors(IDS, MASK, [[30, 33, END], [32, END]], MARKS) == 3
    assert mask_errors(IDS, MASK, [*ANSWERS, [40, 41, END]], MARKS) == 3
    assert mask_errors(IDS, MASK, ANSWERS[:1], MARKS) == 2
