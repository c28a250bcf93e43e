"""Credit: which tokens count, and how much; and algorithms of later days that plug in beside what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.scripted_steps import Step, assert_close, rows_of, take_step
from tests.train.tiny_policies import expert_conversations, retail_tasks, small_policy
from train.rl.credit import CREDITS, Credit, CreditBatch, erred_of, errors_unrewarded, turns_of, uniform
from train.rl.losses import RATIOS
from train.rl.rollout_batches import Row
from train.spec import RLSettings

MASK = torch.tensor([[1, 1, 0, 0, 1, 0, 1, 1], [0, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]])
TURNS = [[0, 0, -1, -1, 1, -1, 2, 2], [-1, 0, 0, 0, -1, -1, -1, -1], [0] * 8, [-1] * 8]


def batch(mask: torch.Tensor = MASK, *, erred: list[tuple[bool, ...]] | None = None, advantages: list[float] | None = None) -> CreditBatch:
    turns = turns_of(mask)
    worth = torch.tensor(advantages or [1.0] * len(mask))
    return CreditBatch(mask, turns, erred_of(turns, erred or []), worth, torch.zeros_like(mask, dtype=torch.float32))


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


# ---- what plugs in ---------------------------------------------------------------------------------------------------------------


def ipa(gamma: float) -> Credit:
    """IPA's chunk weights (arXiv 2512.24873, equation 7): gamma to the number of chunks that follow."""

    def weigh(given: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
        last = given.turns.max(dim=1, keepdim=True).values
        return torch.where(given.turns >= 0, gamma ** (last - given.turns), 0.0), given.mask

    return weigh


def chunk_ratio(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """IPA's (equation 8): the geometric mean over the tokens of a turn, with each token's own gradient."""
    turns = turns_of(mask)
    mean = torch.zeros_like(log_ratio)
    for turn in range(int(turns.max()) + 1):
        inside = turns == turn
        mean += inside * ((log_ratio * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1))[:, None]
    return mean.detach() + log_ratio - log_ratio.detach()


def test_chunk_weights_are_constant_inside_a_turn_and_nothing_outside() -> None:
    weights, mask = ipa(0.5)(batch())
    assert mask.equal(MASK)
    assert weights.tolist() == [[0.25, 0.25, 0, 0, 0.5, 0, 1, 1], [0, 1, 1, 1, 0, 0, 0, 0], [1] * 8, [0] * 8]


def test_one_token_gone_astray_moves_its_turn_a_little_and_no_other() -> None:
    """Given a token a hundred times likelier in a turn of 20, then that turn's ratio is 1.26, and the next one's is 1."""
    mask = torch.tensor([[1] * 20 + [0] + [1] * 5])
    log_ratio = torch.zeros(1, 26)
    log_ratio[0, 3] = torch.tensor(100.0).log()
    ratios = chunk_ratio(log_ratio, mask).exp()
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


def test_a_credit_of_ones_own_is_an_entry_of_the_table(taken, monkeypatch):
    """Given IPA's weights, then the trainer takes them as they are; with a gamma of 1 they change nothing."""
    monkeypatch.setitem(CREDITS, "ipa", ipa(0.5))
    monkeypatch.setitem(CREDITS, "flat", ipa(1.0))
    plain, flat, found = taken(), taken(credit="flat"), taken(credit="ipa")
    assert_close(flat.ours[0], plain.ours[0])
    assert set(found.inputs["weights"].unique().tolist()) == {0.0, 0.5, 1.0}
    written = found.inputs["completion_mask"] * found.inputs["tool_mask"]
    assert found.inputs["weights"].equal(ipa(0.5)(batch(written))[0])
    with pytest.raises(AssertionError, match="not close"):
        assert_close(found.ours[0], plain.ours[0])


def test_a_ratio_of_ones_own_is_an_entry_of_the_table(taken, monkeypatch):
    """Given rows that were sampled by another policy, then a ratio by turns is another one than by tokens, and of that policy's own rows
    it is none."""
    monkeypatch.setitem(RATIOS, "chunk", chunk_ratio)
    with monkeypatch.context() as patch:
        patch.setattr(
            "tests.train.scripted_steps._as_trl", lambda trainer, settings, model, inputs: sum(w.sum() for w in model.parameters())
        )
        by_turn, on_policy = taken(ratio="chunk", is_stale=True), taken(ratio="chunk")
    by_token = taken(is_stale=True)
    assert_close(on_policy.ours[0], taken().ours[0])
    assert by_turn.metrics["mean_ratio"] != pytest.approx(by_token.metrics["mean_ratio"], rel=1e-3)
    assert on_policy.metrics["mean_ratio"] == pytest.approx(1.0)


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
