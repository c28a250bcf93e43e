"""Credit: which tokens of a trajectory count, and how much of its advantage each has.

One idea: a credit is a function of a whole step. It sees every row before any is left out, and gives two matrices: tokens outside the mask
are in no sum and no denominator, as if nobody had written them; weights only scale. So credits compose: `combine` multiplies both.
An algorithm that comes later is an entry of `CREDITS`; the trainer needs no change.

What it does not do: change what a trajectory is worth (`train/rl/rewards.py`), or how a token's ratio is made (`train/rl/losses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from train.spec import CreditName


@dataclass(frozen=True)
class CreditBatch:
    """A step's trajectories, B rows of T tokens after the prompt, padded at the end.

    mask: 1 where the policy wrote the token, [B, T]. turns: which of the row's turns it was in, from 0, else -1, [B, T].
    erred: whether a call of that turn failed, or it was malformed, [B, T].
    advantages: [B]. logps: of the policy that sampled, where the mask is 1, [B, T].
    """

    mask: torch.Tensor
    turns: torch.Tensor
    erred: torch.Tensor
    advantages: torch.Tensor
    logps: torch.Tensor


Credit = Callable[[CreditBatch], tuple[torch.Tensor, torch.Tensor]]
"""-> weights [B, T], and the mask [B, T] of what counts: 1 at most where the policy wrote."""


def turns_of(mask: torch.Tensor) -> torch.Tensor:
    """Which run of ones each token of a mask is in, from 0; -1 where the mask is 0. An observation stands between any two turns."""
    written = mask.bool()
    starts = written.clone()
    starts[:, 1:] &= ~written[:, :-1]
    return torch.where(written, starts.long().cumsum(dim=1) - 1, -1)


def erred_of(turns: torch.Tensor, erred: Sequence[Sequence[bool]]) -> torch.Tensor:
    """What is known of each row's turns, spread over their tokens; a turn that nothing is known of did not err."""
    mask = torch.zeros_like(turns, dtype=torch.bool)
    for row, flags in enumerate(erred):
        for turn, is_wrong in enumerate(flags):
            if is_wrong:
                mask[row] |= turns[row] == turn
    return mask


def uniform(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Every token that the policy wrote has the whole advantage of its row."""
    return torch.ones_like(batch.mask, dtype=torch.float32), batch.mask


def errors_unrewarded(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """`uniform`, but that turns that erred count only where they are held against the policy: a success makes no failed call likelier."""
    weights, mask = uniform(batch)
    return weights, mask * ~(batch.erred & (batch.advantages > 0).unsqueeze(1))


def combine(*credits: Credit) -> Credit:
    """Products of their weights and of their masks; no credit at all is `uniform`."""

    def product(batch: CreditBatch) -> tuple[torch.Tensor, torch.Tensor]:
        weights, mask = uniform(batch)
        for credit in credits:
            others, learned = credit(batch)
            weights, mask = weights * others, mask * learned
        return weights, mask

    return product


CREDITS: Mapping[CreditName, Credit] = {"uniform": uniform, "errors_unrewarded": errors_unrewarded}
