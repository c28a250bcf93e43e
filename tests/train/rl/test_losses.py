"""Losses against their papers' formulas, written out row by row and token by token, and against TRL's own; and what must never matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import train.spec
from tests.train.loss_rows import EXACT, LONGEST, Rows, of, rows
from tests.train.scripted_steps import Rewards, Step, assert_close, rows_of, take_step
from tests.train.tiny_policies import copy_of, expert_conversations, retail_tasks, small_policy
from train.rl.credit import CREDITS
from train.rl.losses import LOSSES, RATIOS, divergence
from train.rl.rewards import AGGREGATES, SCORERS
from train.rl.rollout_batches import Row
from train.spec import RLSettings
from train.tiny import save_policy

# ---- formulas, as the papers have them ---------------------------------------------------------------------------------------


def surrogate(ratio: float, advantage: float, low: float, high: float) -> float:
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)


def written(one: Rows, row: int) -> list[int]:
    return [token for token in range(one.mask.shape[1]) if one.mask[row, token]]


def ratio(one: Rows, row: int, token: int) -> float:
    return math.exp(one.logps[row, token] - one.old[row, token])


def by_token(one: Rows, row: int, low: float, high: float) -> list[float]:
    return [surrogate(ratio(one, row, token), float(one.advantages[row]), low, high) for token in written(one, row)]


def grpo(one: Rows) -> float:
    """1/G sum_i 1/|o_i| sum_t min(r A, clip(r) A)."""
    return -sum(sum(by_token(one, row, 0.2, 0.2)) / len(written(one, row)) for row in range(len(one.mask))) / len(one.mask)


def dapo(one: Rows, high: float = 0.28) -> float:
    """1/(sum_i |o_i|) sum_i sum_t min(r A, clip(r, 1 - .2, 1 + .28) A)."""
    lengths = sum(len(written(one, row)) for row in range(len(one.mask)))
    return -sum(sum(by_token(one, row, 0.2, high)) for row in range(len(one.mask))) / lengths


def lite_ppo(one: Rows) -> float:
    """PPO's clip, averaged over the batch's tokens."""
    return dapo(one, high=0.2)


def dr_grpo(one: Rows) -> float:
    """1/G sum_i 1/L sum_t min(r A, clip(r) A), L a constant."""
    return -sum(sum(by_token(one, row, 0.2, 0.2)) / LONGEST for row in range(len(one.mask))) / len(one.mask)


def gspo(one: Rows) -> float:
    """1/G sum_i min(s A, clip(s) A), s = exp(1/|y| sum_t log r)."""
    total = 0.0
    for row in range(len(one.mask)):
        logs = [math.log(ratio(one, row, token)) for token in written(one, row)]
        total += surrogate(math.exp(sum(logs) / len(logs)), float(one.advantages[row]), 3e-4, 4e-4)
    return -total / len(one.mask)


def rft(one: Rows) -> float:
    """Where every row has its reward for an advantage, its value is minus the mean of that over tokens, whatever was sampled by whom."""
    total = sum(float(one.advantages[row]) * len(written(one, row)) for row in range(len(one.mask)))
    return -total / float(one.mask.sum())


def ipa(one: Rows) -> float:
    """1/(sum_i |o_i|) sum_c m_c |c| A for positive A, and m_c [rho_c]_0^1 |c| A for negative; rho_c and m_c by geometric means."""
    total = 0.0
    for row in range(len(one.mask)):
        chunks: dict[int, list[int]] = {}
        for token in written(one, row):
            chunks.setdefault(int(one.turns[row, token]), []).append(token)
        for tokens in chunks.values():
            rho = math.prod(ratio(one, row, token) for token in tokens) ** (1 / len(tokens))
            mismatch = math.exp(sum(float(one.old[row, token] - one.sampled[row, token]) for token in tokens) / len(tokens))
            worth = float(one.advantages[row]) * len(tokens) * (mismatch <= 5)
            total += worth if worth > 0 else min(rho, 1.0) * worth
    return -total / float(one.mask.sum())


FORMULAS: dict[str, Callable[[Rows], float]] = {
    "lite_ppo": lite_ppo,
    "grpo": grpo,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
    "gspo": gspo,
    "rft": rft,
    "ipa": ipa,
}


def test_every_name_that_settings_may_have_is_in_its_table_and_no_other() -> None:
    tables = {"Loss": LOSSES, "Ratio": RATIOS, "Credit": CREDITS, "Aggregate": AGGREGATES, "Scorer": SCORERS}
    for name, table in tables.items():
        assert set(table) == set(get_args(getattr(train.spec, f"{name}Name")))
    assert set(FORMULAS) == set(LOSSES)


@pytest.mark.parametrize("name", LOSSES)
@given(one=rows())
def test_a_loss_is_its_papers_formula(name: str, one: Rows) -> None:
    assert one.loss(of(name)).item() == pytest.approx(FORMULAS[name](one), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@given(one=rows())
def test_the_divergence_from_the_reference_is_added_token_by_token(name: str, one: Rows) -> None:
    """Given k3, exp(d) - d - 1 for d = log ref - log pi, then it is averaged as the loss is."""
    plain, held = of(name), of(name, beta=0.3)
    total = 0.0
    for row in range(len(one.mask)):
        far = [float(one.ref[row, token] - one.logps[row, token]) for token in written(one, row)]
        kls = [math.exp(d) - d - 1 for d in far]
        shares = {"rows": len(kls) * len(one.mask), "tokens": float(one.mask.sum()), "constant": LONGEST * len(one.mask)}
        total += sum(kls) / shares[plain.average]
    assert one.loss(held).item() - one.loss(plain).item() == pytest.approx(0.3 * total, rel=1e-9, abs=1e-12)


def test_the_divergence_over_samples_is_the_kullback_leibler_divergence() -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(20)) for _ in range(2))
    drawn = rng.choice(20, size=200_000, p=p)
    found = divergence(torch.tensor(np.log(q[drawn]) - np.log(p[drawn])))
    assert found.min() >= 0
    assert found.mean().item() == pytest.approx(float((p * np.log(p / q)).sum()), rel=0.02)


# ---- gradients -----------------------------------------------------------------------------------------------------------------


@given(one=rows())
def test_where_the_policy_sampled_itself_every_loss_is_a_policy_gradient(one: Rows) -> None:
    """Given no ratio, then a token's gradient is minus its advantage by the denominator."""
    one.old, one.sampled = one.logps.clone(), one.logps.clone()
    lengths, count = one.mask.sum(dim=1, keepdim=True), len(one.mask)
    denominators = {"tokens": one.mask.sum(), "rows": lengths * count, "constant": torch.tensor(LONGEST * count)}
    for name in LOSSES:
        expected = -one.advantages[:, None] * one.mask / denominators[LOSSES[name].average]
        torch.testing.assert_close(one.gradient(of(name)), expected, **EXACT)


@given(one=rows())
def test_rejection_sampling_learns_the_likelihood_of_what_succeeded_whoever_sampled_it(one: Rows) -> None:
    one.advantages = (one.advantages > 0).double()
    expected = -one.advantages[:, None] * one.mask / one.mask.sum()
    torch.testing.assert_close(one.gradient(of("rft")), expected, **EXACT)


def plain_sequence_ratio(log_ratio: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """One number a row, its gradient shared by all tokens alike."""
    mask = turns >= 0
    return ((log_ratio * mask).sum(dim=1) / mask.sum(dim=1))[:, None].expand_as(log_ratio)


@given(one=rows())
def test_the_sequence_ratio_has_the_gradient_of_one_number_a_row(one: Rows) -> None:
    """Given equal weights, then GSPO's form by tokens is that of the paper; given others, it alone gives each token its own weight."""
    chosen = of("gspo", clip_low=0.5, clip_high=0.5)
    plain = replace(chosen, ratio=plain_sequence_ratio)
    torch.testing.assert_close(one.gradient(chosen), one.gradient(plain), **EXACT)
    one.weights = torch.zeros_like(one.mask).index_fill(1, torch.tensor([0]), 1.0)
    own, shared = one.gradient(chosen), one.gradient(plain)
    assert not own[:, 1:].any()
    torch.testing.assert_close(own.sum(dim=1), shared.sum(dim=1), **EXACT)


def test_a_ratio_beyond_its_bounds_has_no_gradient_where_that_would_carry_it_further() -> None:
    """Given ratios of e^-1, 1 and e, then only the small one of what did well, and the large one of what did badly, still move."""
    drift = torch.tensor([[-1.0, 0.0, 1.0]] * 2, dtype=torch.float64)
    ones = torch.ones_like(drift)
    one = Rows(drift, torch.zeros_like(drift), drift, torch.tensor([1.0, -1.0], dtype=torch.float64), ones, ones, drift)
    chosen = of("lite_ppo")
    moves = one.gradient(chosen) != 0
    assert moves.tolist() == [[True, True, False], [False, True, True]]
    assert (one.tokens(chosen).is_clipped == ~moves).all()


def test_clip_higher_lets_rare_tokens_grow_further() -> None:
    """Given a ratio of 1.25 of what did well, then DAPO still learns from it and Lite PPO does not."""
    ones = torch.ones(1, 1, dtype=torch.float64)
    one = Rows(ones * math.log(1.25), ones * 0, ones, ones[0], ones, ones, ones)
    assert one.gradient(of("dapo")).item() == pytest.approx(-1.25)
    assert one.gradient(of("lite_ppo")).item() == 0
    assert one.gradient(of("lite_ppo", clip_high=0.28)).item() == pytest.approx(-1.25)


# ---- what must never matter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@given(one=rows())
def test_rows_without_advantage_may_be_left_out(name: str, one: Rows) -> None:
    busy, gradient = one.advantages != 0, one.gradient(of(name))
    assert not gradient[~busy].any()
    if busy.any():
        torch.testing.assert_close(one.only(busy).gradient(of(name), one.whole), gradient[busy], **EXACT)
        assert one.only(busy).loss(of(name), one.whole).item() == pytest.approx(one.loss(of(name)).item(), abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@given(one=rows(), beta=st.sampled_from([0.0, 0.1]), nonsense=st.sampled_from([-1e4, 0.0, 1e4]))
def test_tokens_that_the_policy_did_not_write_matter_to_nothing(name: str, one: Rows, beta: float, nonsense: float) -> None:
    """Given whatever in padding and observations, then loss and gradient are the same numbers, and theirs is none."""
    chosen = of(name, beta=beta)
    loss, gradient = one.loss(chosen).item(), one.gradient(chosen)
    assert not gradient[one.mask == 0].any()
    one.old = torch.where(one.mask == 0, nonsense, one.old)
    assert one.loss(chosen).item() == loss
    torch.testing.assert_close(one.gradient(chosen), gradient, rtol=0, atol=0)


@pytest.mark.parametrize("name", LOSSES)
@given(one=rows(), cut=st.integers(0, 5))
def test_a_step_may_be_cut_in_parts(name: str, one: Rows, cut: int) -> None:
    chosen, places = of(name), (slice(0, cut), slice(cut, None))
    parts = [one.only(place) for place in places]
    assert sum(part.loss(chosen, one.whole).item() for part in parts) == pytest.approx(one.loss(chosen).item(), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "growth"), [("lite_ppo", 4), ("dapo", 4), ("dr_grpo", 4), ("rft", 4), ("ipa", 4), ("grpo", 1), ("gspo", 1)]
)
def test_what_a_reply_four_times_as_long_weighs(name: str, growth: int) -> None:
    """Given a short and a long reply that did equally well, then by tokens the long one has four times the gradient; by rows as much."""
    mask = torch.zeros(2, 8, dtype=torch.float64)
    mask[0, :2], mask[1, :] = 1, 1
    one = Rows(mask * -1, mask * -1, mask, torch.ones(2, dtype=torch.float64), torch.ones_like(mask), mask, mask * -1)
    short, long = one.gradient(of(name)).sum(dim=1)
    assert long.item() == pytest.approx(growth * short.item())


# ---- in the trainer, against TRL's own ----------------------------------------------------------------------------------------

SETTINGS = RLSettings(draws=4, learning_rate=1e-3, warmup_steps=0, max_tokens=24)
REWARDS: Rewards = [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, None, 0, None], [None, None, None, None], [0, 0, 0, 1]]
"""Mixed, all good, all bad, partly spoilt, wholly spoilt, mixed."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> tuple[Any, Any]:
    """A policy that has moved away from the one in its folder."""
    model, tokenizer = small_policy(expert_conversations(retail_tasks("order_status")))
    folder = tmp_path_factory.mktemp("policy")
    save_policy(model, tokenizer, folder)
    model.config._name_or_path = str(folder)
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.05 * weights.std() * torch.randn_like(weights))
    return model, tokenizer


@pytest.fixture(scope="module")
def played(policy) -> Callable[[float], list[Row]]:
    """(spread) -> rows by a policy whose log-probabilities differ by so much from ours."""
    model = copy_of(policy[0]).eval()

    def make(spread: float, rewards: Rewards = REWARDS) -> list[Row]:
        found, rng = list[Row](), np.random.default_rng(1)
        for row in rows_of(rewards, len(policy[1])):
            start, ids = len(row.trace.prompt_ids), torch.tensor([row.trace.prompt_ids + row.trace.ids])
            with torch.inference_mode():
                logps = torch.log_softmax(model(ids).logits[0, start - 1 : -1], dim=-1).gather(1, ids[0, start:, None])[:, 0]
            sampled = (logps.numpy() + rng.normal(0, spread, len(logps))) * np.array(row.trace.mask)
            found.append(replace(row, trace=replace(row.trace, logprobs=sampled.tolist())))
        return found

    return make


@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("is_stale", [False, True])
@pytest.mark.parametrize("name", ["lite_ppo", "grpo", "dapo", "dr_grpo", "gspo"])
def test_a_step_has_the_loss_and_the_gradient_of_trls_own(name, is_stale, beta, policy, played, tmp_path):
    """Given rows of this policy or of an earlier one, idle and spoilt ones among them, then what we leave out changes nothing."""
    spread = 1e-3 if name == "gspo" else 0.3
    found = take_step(policy, played(spread), SETTINGS.model_copy(update={"loss": name, "beta": beta}), tmp_path, is_stale=is_stale)
    ((ours, trls),) = found.losses
    assert_close(found.ours[0], found.trls[0])
    assert ours == pytest.approx(trls, abs=1e-6)
    assert found.metrics["idle_share"] == (0.0 if beta else pytest.approx(14 / 24))
    assert (found.metrics["clipped_share"] > 0.01) == is_stale
    assert found.metrics["sampled_kl"] == pytest.approx(spread**2 / 2, rel=0.4)
    if beta:
        assert found.metrics["kl"] > 1e-3


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("micro_batch_size", [12, 4])
def test_a_step_in_parts_has_the_gradient_of_one_batch(name, micro_batch_size, policy, played, tmp_path):
    """Given a credit mask too, which is in the denominators, then what the parts of a step add up to is what the whole one gives."""
    settings = SETTINGS.model_copy(update={"loss": name, "credit": "errors_unrewarded"})
    rows = [replace(row, erred=(number % 3 == 0, False)) for number, row in enumerate(played(0.2))]
    whole = take_step(policy, rows, settings, tmp_path, is_stale=True)
    parts = take_step(policy, rows, settings.model_copy(update={"micro_batch_size": micro_batch_size}), tmp_path, is_stale=True)
    assert len(parts.ours) == 24 // micro_batch_size
    assert_close(parts.accumulated, whole.accumulated)
    assert_close([sum(part) for part in zip(*parts.ours, strict=True)], whole.ours[0])


# ---- advantages ----------------------------------------------------------------------------------------------------------------


def advantages(found: Step) -> np.ndarray:
    return np.array(found.advantages).reshape(-1, SETTINGS.draws)


@pytest.mark.parametrize("name", ["lite_ppo", "grpo", "dr_grpo"])
def test_advantages_are_rewards_less_their_groups_mean_by_what_the_loss_says(name, policy, played, tmp_path):
    rewards = np.array([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0.25, 0]])
    found = take_step(policy, played(0.0, rewards.tolist()), SETTINGS.model_copy(update={"loss": name}), tmp_path)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    by = {"lite_ppo": rewards.std(ddof=1), "grpo": rewards.std(axis=1, ddof=1, keepdims=True), "dr_grpo": 1}[name]
    np.testing.assert_allclose(advantages(found), centred / (by + (0 if name == "dr_grpo" else 1e-4)), atol=1e-5)


def test_the_deviation_of_a_group_makes_much_of_nothing_and_that_of_the_batch_does_not(policy, played, tmp_path):
    """Given seven rewards of .9 and one of .901 among groups that do differ, then by the batch's deviation its advantage is .002. By the
    group's it is 2.65, as the formula has it (population's deviation, nothing added); TRL's (sample's deviation + 1e-4) makes it 1.93."""
    rewards = [[0.9] * 7 + [0.901], [1, 0] * 4, [0, 0, 1, 0] * 2]
    assert (0.901 - np.mean(rewards[0])) / np.std(rewards[0]) == pytest.approx(2.6458, abs=1e-4)
    by_group, by_batch = (
        take_step(policy, played(0.0, rewards), SETTINGS.model_copy(update={"loss": name, "draws": 8}), tmp_path).advantages[7]
        for name in ("grpo", "lite_ppo")
    )
    assert by_group == pytest.approx(1.929, abs=1e-3)
    assert by_batch == pytest.approx(0.002, abs=2e-4)


def test_gspo_learns_nothing_from_a_group_that_hardly_differs(policy, played, tmp_path):
    rewards = [[0.9, 0.9, None, 0.95], [1, 0, 1, 0]]
    found = advantages(take_step(policy, played(0.0, rewards), SETTINGS.model_copy(update={"loss": "gspo"}), tmp_path))
    assert not found[0].any()
    assert found[1].all()


def test_rejection_sampling_has_rewards_for_advantages(policy, played, tmp_path):
    """Given a group of successes alone, then it is learned from, and no failure is, and nothing that was spoilt."""
    found = take_step(policy, played(0.0), SETTINGS.model_copy(update={"loss": "rft"}), tmp_path)
    assert advantages(found).tolist() == [[0.0 if reward is None else reward for reward in group] for group in REWARDS]
    assert found.metrics["idle_share"] == pytest.approx(1 - 8 / 24)
