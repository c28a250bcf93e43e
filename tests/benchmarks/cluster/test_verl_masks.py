"""The counts of what verl is handed wrongly find one wrong mask, log-probability or id anywhere."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from benchmarks.cluster.verl_sections.verl_masks import mask_errors, sft_mask_errors

LOGPROB = -0.25
OPENING = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = "call it<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>"
MASK = [1, 1, 1, *[0] * 10, 1, 1]


class Words:
    """A tokenizer with an id for each special token, word and line break."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self.convert_tokens_to_ids(token) for token in re.findall(r"<\|\w+\|>|\w+|\n", text)]

    def convert_tokens_to_ids(self, token: str) -> int:
        return self._ids.setdefault(token, len(self._ids))


WORDS = Words()
PROMPT, RESPONSE = WORDS.encode(OPENING), WORDS.encode(ANSWERS)


def count(**wrong: int) -> int:
    """Errors of the right rollout, of which one token of each named field is changed."""
    played = {
        "prompts": np.array(PROMPT),
        "responses": np.array(RESPONSE),
        "response_mask": np.array(MASK),
        "rollout_log_probs": LOGPROB * np.array(MASK),
    }
    for field, place in wrong.items():
        played[field][place] = 1 - played[field][place]
    return mask_errors(WORDS, played, OPENING + ANSWERS, LOGPROB)


def test_a_right_rollout_has_no_errors() -> None:
    assert count() == 0


@pytest.mark.parametrize("place", range(len(MASK)))
def test_one_wrong_bit_or_log_probability_anywhere_is_one_error(place: int) -> None:
    assert count(response_mask=place) == count(rollout_log_probs=place) == 1


def test_a_mask_that_is_shifted_by_one_token_is_wrong_at_every_edge() -> None:
    whole = PROMPT + RESPONSE
    right = [0] * len(PROMPT) + MASK
    newline_after = right.index(0, len(PROMPT))
    right[newline_after] = 1
    assert sft_mask_errors(WORDS, whole, right) == 0
    assert sft_mask_errors(WORDS, whole, [*right[1:], 0]) == 4
    assert sft_mask_errors(WORDS, whole, [0] * len(right)) == sum(right)


def test_an_id_that_the_template_does_not_write_is_an_error() -> None:
    assert count(responses=1) == count(prompts=1) == 1
