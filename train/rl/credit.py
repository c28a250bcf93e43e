"""Credit: which tokens of a trajectory count, and with which weight.

One idea: a credit is a function of a whole step, before any row is left out. It gives two matrices: a mask and weights. Tokens outside the
mask enter no sum and no denominator; weights only scale. A new algorithm is an entry of `CREDITS`; the trainer needs no change.

What it does not do: change a trajectory's reward (`train/rl/rewards.py`) or a token's ratio (`train/rl/losses.py`).
Source of `chunk_return`: IPA, in ROME, arXiv 2512.24873.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from train.spec import CreditName


@dataclass(frozen=True)
class CreditBatch:
    """A step's trajectories: B rows of T tokens after the prompt, padded at the end.

    mask: 1 if the policy wrote the token, [B, T].
    turns: number of the row's turn, from 0; -1 outside the mask, [B, T].
    erred: whether a call of the token's turn failed or was malformed, [B, T].
    advantages: of the rows, [B].
    logps: log-probabilities of the sampling policy, where the mask is 1, [B, T].
    gamma: discount of a turn.
    """

    mask: torch.Tensor
    turns: torch.Tensor
    erred: torch.Tensor
    advantages: torch.Tensor
    logps: torch.Tensor
    gamma: float = 1.0


Credit = Callable[[CreditBatch], tuple[torch.Tensor, torch.Tensor]]
"""-> weights [B, T], and the mask [B, T] of the tokens that count, a subset of the batch's mask."""


def turns_of(mask: torch.Tensor) -> torch.Tensor:
    """Number of the run of ones that each token is in, from 0; -1 where the mask is 0. Observations separate the turns."""
    written = mask.bool()
    starts = written.clone()
    starts[:, 1:] &= ~written[:, :-1]
    return torch.where(written, starts.long().cumsum(dim=1) - 1, -1)


def erred_of(turns: torch.Tensor, erred: Sequence[Sequence[bool]]) -> torch.Tensor:
    """The error flags of each row's turns, per token; a turn without a flag did not err."""
    mask = torch.zeros_like(turns, dtype=torch.bool)
    for row, flags in enumerate(erred):
        for turn, is_wrong in enumerate(flags):
            if is_wrong:
                mask[row] |= turns[row] == turn
    return mask


def uniform(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Every token of the policy has weight 1."""
    return torch.ones_like(batch.mask, dtype=torch.float32), batch.mask


def errors_unrewarded(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """`uniform`, but turns with an error count only if the advantage is negative: a success must not make a failed call likelier."""
    weights, mask = uniform(batch)
    return weights, mask * ~(batch.erred & (batch.advantages > 0).unsqueeze(1))


def chunk_return(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """IPA's return of a chunk (equation 7): gamma to the number of turns that follow it, the same for all its tokens. The equation counts
    to a chunk j, which is taken to be the row's last."""
    last = batch.turns.max(dim=1, keepdim=True).values
    return torch.where(batch.turns >= 0, batch.gamma ** (last - batch.turns), 0.0), batch.mask


CREDITS: Mapping[CreditName, Credit] = {"uniform": uniform, "errors_unrewarded": errors_unrewarded, "chunk_return": chunk_return}
