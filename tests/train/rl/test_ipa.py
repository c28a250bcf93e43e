"""IPA's loss: successes are imitated, failures unlearned by a truncated ratio, and chunks that were sampled by other numbers left out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.loss_rows import EXACT, Rows, of


def chunks_of_two() -> Rows:
    """A success and a failure, each two chunks of four tokens with an observation between, whose ratios are all 3."""
    mask = torch.tensor([[1, 1, 1, 1, 0, 1, 1, 1, 1]] * 2, dtype=torch.float64)
    old = mask * -3
    return Rows(old + math.log(3), old, mask, torch.tensor([1.0, -1.0], dtype=torch.float64), torch.ones_like(mask), mask, old.clone())


@given(spread=st.sampled_from([0.0, 0.5, 3.0]))
def test_ipa_learns_a_success_as_it_is_whatever_the_ratio_and_a_failure_by_the_ratio_up_to_one(spread: float) -> None:
    """Given successes and failures whose ratios are 3 or a third, then the success has the gradient of the likelihood, and the failure a
    third of it or all of it."""
    one = chunks_of_two()
    one.old = one.logps + spread * torch.tensor([-1.0, 1.0], dtype=torch.float64)[:, None]
    one.sampled = one.old.clone()
    good, bad = one.gradient(of("ipa"))
    torch.testing.assert_close(good, -one.mask[0] / 16, **EXACT)
    torch.testing.assert_close(bad, math.exp(-spread) * one.mask[1] / 16, **EXACT)
    one.old = one.logps - 3
    assert one.gradient(of("ipa"))[1].tolist() == pytest.approx((one.mask[1] / 16).tolist()), "no more than all of it"


def test_a_chunk_that_the_engine_sampled_by_other_numbers_is_left_out_and_no_other() -> None:
    """Given a token of one chunk that the engine thought 1000 times rarer than the trainer did, then that chunk has no gradient, and the
    denominator stays. One that it thought likelier is kept: the mask has one side."""
    one = chunks_of_two()
    whole = one.gradient(of("ipa"))
    one.sampled[0, 6] -= math.log(1000)
    one.sampled[1, 0] += math.log(1000)
    found = one.gradient(of("ipa"))
    assert found[0, 5:].tolist() == [0.0] * 4
    assert one.tokens(of("ipa")).is_clipped[0].tolist() == [False] * 5 + [True] * 4
    torch.testing.assert_close(found[0, :5], whole[0, :5], **EXACT)
    torch.testing.assert_close(found[1], whole[1], **EXACT)
    torch.testing.assert_close(one.gradient(of("grpo")), replace(one, sampled=one.old).gradient(of("grpo")), rtol=0, atol=0)
