"""Losses of RL.

One idea: a loss is data. With the credit weights w and the advantages A, every loss is an average over tokens t of

    -m_t u_t w_t + beta (exp(d_t) - d_t - 1),  d_t = log ref_t - log pi_t
    u_t = min(s_t A, clip(s_t, 1 - low, 1 + high) A)                  surrogate: clipped (PPO)
    u_t = A e_t where A > 0, else [clip(s_t, 1 - low, 1 + high)] A e_t    surrogate: truncated (TOPR); [.] is a constant, and
                                                                          e_t = exp(log pi_t - [log pi_t]): 1, with log pi_t's gradient

Losses differ in the scale of A, in the ratio s_t of the policy to the sampling policy, in the surrogate and its bounds, and in the average.
m_t = 0 if the trainer gives the sampled token, chunk or row (as `ratio` says) a probability more than `max_mismatch` times that of the
engine that sampled it; else 1. The trainer compares only for a batch of the current policy; for a batch of an earlier policy m_t = 1.
The denominators are those of the whole step, so that rows may be left out, and a step split into parts, with the same gradient.

What it does not do: choose and weigh tokens (`train/rl/credit.py`), or score trajectories (`train/rl/rewards.py`).
Sources: GRPO arXiv 2402.03300, DAPO 2503.14476, Dr. GRPO 2503.20783, GSPO 2507.18071, Lite PPO 2508.08221,
TOPR 2503.14286, IPA 2512.24873 (equations 5, 8 and 9); definition P9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from train.spec import LossName, RatioName

Ratio = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(log ratio of the policy to the sampling policy [B, T], 0 for tokens that do not count; the number of each token's turn, from 0, -1 for
tokens that do not count [B, T]) -> logarithm of s_t [B, T]."""
Average = Literal["tokens", "rows", "constant"]
Surrogate = Literal["clipped", "truncated"]


@dataclass(frozen=True)
class Loss:
    """A preset.

    scale: divisor of the centred rewards: standard deviation of the group, of the batch, or 1.
    average: tokens: over all tokens of a step. rows: over a row's tokens, then over rows. constant: sum over tokens / (rows x most tokens
        that a policy may write in a row).
    ratio, clip_low, clip_high: defaults of s_t and its bounds.
    surrogate: u_t of the formula. max_mismatch: most ratio, of the same kind as s_t, of the trainer to the engine that sampled.
    min_std: a group whose rewards have a smaller standard deviation is not learned from.
    resample_rounds: default for the most times that such groups are replaced by fresh tasks.
    has_baseline: False: A is the reward itself, so only rollouts with a reward above 0 are learned from.
    """

    scale: Literal["group", "batch", "none"]
    average: Average
    ratio: RatioName = "token"
    clip_low: float = 0.2
    clip_high: float = 0.2
    min_std: float = 1e-6
    resample_rounds: int = 0
    has_baseline: bool = True
    surrogate: Surrogate = "clipped"
    max_mismatch: float = math.inf


LOSSES: Mapping[LossName, Loss] = {
    "lite_ppo": Loss("batch", "tokens"),
    "grpo": Loss("group", "rows"),
    "dapo": Loss("group", "tokens", clip_high=0.28, resample_rounds=2),
    "dr_grpo": Loss("none", "constant"),
    "gspo": Loss("group", "rows", ratio="sequence", clip_low=3e-4, clip_high=4e-4, min_std=0.05, resample_rounds=2),
    "rft": Loss("none", "tokens", ratio="unweighted", has_baseline=False),
    "ipa": Loss("none", "tokens", ratio="chunk", clip_low=1.0, clip_high=0.0, surrogate="truncated", max_mismatch=5.0),
}


@dataclass(frozen=True)
class Objective:
    """A loss with the values of the settings."""

    average: Average
    ratio: Ratio
    clip_low: float
    clip_high: float
    beta: float = 0.0
    surrogate: Surrogate = "clipped"
    max_mismatch: float = math.inf


@dataclass(frozen=True)
class Whole:
    """Denominators of a step, over all its parts and idle rows.

    tokens: tokens that count.
    rows: trajectories.
    longest: most tokens that a policy may write in a trajectory.
    """

    tokens: float
    rows: float
    longest: float


@dataclass(frozen=True)
class TokenLosses:
    """Per token, [B, T]: loss, ratio s_t, and whether the clip or the mismatch sets its gradient to 0. kl: to the reference policy, if
    beta > 0."""

    losses: torch.Tensor
    ratios: torch.Tensor
    is_clipped: torch.Tensor
    kl: torch.Tensor | None


def token_losses(
    logps: torch.Tensor,
    old_logps: torch.Tensor | None,
    advantages: torch.Tensor,
    weights: torch.Tensor,
    turns: torch.Tensor,
    objective: Objective,
    ref_logps: torch.Tensor | None = None,
    sampled_logps: torch.Tensor | None = None,
) -> TokenLosses:
    """The formula above; all arguments are [B, T], `advantages` is [B].

    old_logps: of the sampling policy; None: it is this policy, so s_t = 1. weights, turns: from credit; -1 for tokens that do not count.
    ref_logps: required if beta > 0. sampled_logps: of the sampling policy by the engine that sampled; None: as the trainer computes them.
    """
    mask = turns >= 0
    old_logps = logps.detach() if old_logps is None else old_logps
    ratios = torch.exp(objective.ratio((logps - old_logps) * mask, turns))
    worth = advantages.unsqueeze(1) * weights
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    if objective.surrogate == "truncated":
        factors = torch.where(worth > 0, 1.0, torch.clamp(ratios.detach(), low, high))
        surrogates, is_clipped = factors * worth * torch.exp(logps - logps.detach()), torch.zeros_like(mask)
    else:
        surrogates = torch.min(ratios * worth, torch.clamp(ratios, low, high) * worth)
        is_clipped = ((ratios < low) & (worth < 0)) | ((ratios > high) & (worth > 0))
    losses = -surrogates
    if sampled_logps is not None and objective.max_mismatch < math.inf:
        is_trusted = objective.ratio((old_logps - sampled_logps) * mask, turns) <= math.log(objective.max_mismatch)
        losses, is_clipped = losses * is_trusted, is_clipped | ~is_trusted
    if not objective.beta:
        return TokenLosses(losses, ratios, is_clipped, None)
    assert ref_logps is not None
    kl = divergence(ref_logps - logps)
    return TokenLosses(losses + objective.beta * kl, ratios, is_clipped, kl)


def average_loss(losses: torch.Tensor, mask: torch.Tensor, average: Average, whole: Whole) -> torch.Tensor:
    """A part's share of the step's loss; the shares of all parts add up to it."""
    if average == "rows":
        return ((losses * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)).sum() / whole.rows
    return (losses * mask).sum() / (whole.tokens if average == "tokens" else whole.rows * whole.longest)


def divergence(log_ratio: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1, never negative. Its mean over samples of p, with d = log q - log p, is KL(p || q) (Schulman's k3)."""
    return torch.exp(log_ratio) - log_ratio - 1


# ---- ratios ----------------------------------------------------------------------------------------------------------------------


def token_ratio(log_ratio: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """pi_t / mu_t."""
    return log_ratio


def sequence_ratio(log_ratio: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """GSPO's: geometric mean of a row's token ratios, with the gradient of each token's ratio (section 4.3).

    With equal weights in a row, the gradient of the row's mean equals that of the plain sequence ratio. With different weights from credit,
    each token uses its weight; the plain ratio would average the weights.
    """
    return chunk_ratio(log_ratio, turns.clamp(max=0))


def chunk_ratio(log_ratio: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """IPA's (equation 8): geometric mean of the token ratios of a chunk, with the gradient of each token's ratio. A chunk is a turn: what
    the policy wrote between two results of the environment."""
    slots = turns.long() + 1
    zeros = log_ratio.new_zeros(slots.shape[0], slots.shape[1] + 1)
    counts = zeros.scatter_add(1, slots, torch.ones_like(log_ratio))
    means = zeros.scatter_add(1, slots, log_ratio) / counts.clamp(min=1.0)
    return means.gather(1, slots).detach() + log_ratio - log_ratio.detach()


def no_ratio(log_ratio: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """1, with the gradient of the log-likelihood: the loss is the negative log-likelihood, weighted by the advantage."""
    return log_ratio - log_ratio.detach()


RATIOS: Mapping[RatioName, Ratio] = {"token": token_ratio, "chunk": chunk_ratio, "sequence": sequence_ratio, "unweighted": no_ratio}
