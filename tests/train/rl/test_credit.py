"""Credit: which tokens count, and how much; and algorithms of later days that plug in beside what is there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.scripted_steps import Step, assert_close, rows_of, take_step
from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy
from train.rl.credit import CreditBatch, chunk_return, erred_of, errors_unrewarded, turns_of, uniform
from train.rl.losses import RATIOS, chunk_ratio
from train.rl.rollout_batches import Row
from train.spec import RLSettings

MASK = torch.tensor([[1, 1, 0, 0, 1, 0, 1, 1], [0, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]])
TURNS = [[0, 0, -1, -1, 1, -1, 2, 2], [-1, 0, 0, 0, -1, -1, -1, -1], [0] * 8, [-1] * 8]


def batch(
    mask: torch.Tensor = MASK, *, erred: list[tuple[bool, ...]] | None = None, advantages: list[float] | None = None, gamma: float = 1.0
) -> CreditBatch:
    turns = turns_of(mask)
    worth = torch.tensor(advantages or [1.0] * len(mask))
    return CreditBatch(mask, turns, erred_of(turns, erred or []), worth, torch.zeros_like(mask, dtype=torch.float32), gamma)


def test_turns_are_the_runs_of_what_the_policy_wrote() -> None:
    assert turns_of(MASK).tolist() == TURNS


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=4))
def test_a_turn_ends_where_an_observation_begins(rows: list[list[bool]]) -> None:
    turns = turns_of(torch.tensor(rows).long()).tolist()
    for row, found in zip(rows, turns, strict=True):
        assert [turn >= 0 for turn in found] == row
        for place in range(1, 9):
            if row[place]:
                before = max([-1, *found[:place]])
                assert found[place] == before + (not row[place - 1])


def test_uniform_credit_is_the_whole_advantage_for_every_token() -> None:
    weights, mask = uniform(batch())
    assert weights.eq(1).all()
    assert mask.equal(MASK)


def test_no_success_makes_a_failed_call_likelier_and_a_failure_still_makes_it_rarer() -> None:
    """Given a middle turn that erred, in what did well and in what did badly, then it counts in the latter alone."""
    mask = MASK[[0, 0]]
    weights, kept = errors_unrewarded(batch(mask, erred=[(False, True, False)] * 2, advantages=[1.0, -1.0]))
    assert weights.eq(1).all()
    assert kept.tolist() == [[1, 1, 0, 0, 0, 0, 1, 1], MASK[0].tolist()]


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=4), st.sampled_from([0.5, 0.95, 1.0]))
def test_the_return_of_a_chunk_is_gamma_to_the_chunks_that_follow(rows: list[list[bool]], gamma: float) -> None:
    given_mask = torch.tensor(rows).long()
    weights, mask = chunk_return(batch(given_mask, gamma=gamma))
    assert mask.equal(given_mask)
    for found, turns in zip(weights.tolist(), turns_of(given_mask).tolist(), strict=True):
        count = max(turns) + 1
        assert found == pytest.approx([gamma ** (count - 1 - turn) if turn >= 0 else 0 for turn in turns])


def test_a_chunk_return_fades_by_chunks_and_not_by_tokens() -> None:
    """Given 12 chunks of 50 tokens, then at .95 the first weighs .57 of the last; by tokens it would weigh nothing."""
    mask = torch.tensor([([1] * 50 + [0]) * 12])
    weights, _ = chunk_return(batch(mask, gamma=0.95))
    assert weights[0, 0].item() == pytest.approx(0.95**11)
    assert 0.95**599 < 1e-13


# ---- ratios and credits in the trainer -------------------------------------------------------------------------------------------


def test_one_token_gone_astray_moves_its_turn_a_little_and_no_other() -> None:
    """Given a token a hundred times likelier in a turn of 20, then that turn's ratio is 1.26, and the next one's is 1."""
    mask = torch.tensor([[1] * 20 + [0] + [1] * 5])
    log_ratio = torch.zeros(1, 26)
    log_ratio[0, 3] = torch.tensor(100.0).log()
    ratios = chunk_ratio(log_ratio, turns_of(mask)).exp()
    assert ratios[0, :20].tolist() == pytest.approx([100 ** (1 / 20)] * 20)
    assert ratios[0, 0].item() == pytest.approx(1.26, abs=0.005)
    assert ratios[0, 21:].tolist() == [1] * 5


@pytest.fixture(scope="module")
def taken(tmp_path_factory) -> Callable[..., Step]:
    """(settings) -> a step of the trainer as it is, with rows that an earlier policy may have played."""
    policy: tuple[Any, Any] = small_policy(expert_conversations(retail_tasks("order_status")))

    def make(*, is_stale: bool = False, change: Callable[[int, Row], Row] = lambda number, row: row, **settings: Any) -> Step:
        chosen = RLSettings(draws=4, warmup_steps=0, max_tokens=24).model_copy(update=settings)
        rows = [change(number, row) for number, row in enumerate(rows_of([[1, 0, 1, 0], [0, 0, 0, 1]], len(policy[1])))]
        return take_step(policy, rows, chosen, tmp_path_factory.mktemp("step"), is_stale=is_stale)

    return make


def test_the_trainer_takes_a_credit_as_it_is(taken):
    """Given chunk returns with a gamma of .5, then the trainer takes these weights; with a gamma of 1 they change nothing."""
    plain = taken()
    flat, found = (taken(credit="chunk_return", credit_gamma=gamma) for gamma in (1.0, 0.5))
    assert_close(flat.ours[0], plain.ours[0])
    assert set(found.inputs["weights"].unique().tolist()) == {0.0, 0.5, 1.0}
    written = found.inputs["completion_mask"] * found.inputs["tool_mask"]
    assert found.inputs["weights"].equal(chunk_return(batch(written, gamma=0.5))[0])
    with pytest.raises(AssertionError, match="not close"):
        assert_close(found.ours[0], plain.ours[0])


def test_a_ratio_by_chunks_is_another_one_than_by_tokens_or_by_sequences(taken):
    """Given rows that were sampled by another policy, then these three differ; of that policy's own rows there is none."""
    on_policy = taken(ratio="chunk")
    assert_close(on_policy.ours[0], taken().ours[0])
    assert on_policy.metrics["mean_ratio"] == pytest.approx(1.0)
    found = [taken(ratio=name, is_stale=True).metrics["mean_ratio"] for name in ("token", "chunk", "sequence")]
    assert len({f"{ratio:.3g}" for ratio in found}) == 3, found


def test_a_ratio_of_ones_own_is_an_entry_of_the_table(taken, monkeypatch):
    monkeypatch.setitem(RATIOS, "chunk", lambda log_ratio, turns: log_ratio + 1.0)
    assert taken(ratio="chunk", is_stale=True).metrics["mean_ratio"] == pytest.approx(math.e * taken(is_stale=True).metrics["mean_ratio"])


def test_turns_that_erred_stand_in_no_denominator_either(taken):
    """Given successes whose first turn erred, then the step has the gradient of one whose observations these turns were."""

    def as_observation(number: int, row: Row) -> Row:
        if not row.reward:
            return row
        first = turns_of(torch.tensor([row.trace.mask]))[0] == 0
        mask = [int(one and not is_first) for one, is_first in zip(row.trace.mask, first.tolist(), strict=True)]
        return replace(row, trace=replace(row.trace, mask=mask))

    masked = taken(credit="errors_unrewarded", change=lambda number, row: replace(row, erred=(bool(row.reward), False)))
    assert masked.inputs["num_items_in_batch"] < taken().inputs["num_items_in_batch"]
    assert_close(masked.accumulated, taken(change=as_observation).accumulated)
