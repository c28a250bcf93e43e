"""Rows of log-probabilities, and the losses of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from train.rl.credit import turns_of
from train.rl.losses import Objective, TokenLosses, Whole, average_loss, token_losses
from train.rl.rl import objective
from train.spec import RLSettings

LONGEST = 16
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12}


@dataclass
class Rows:
    """B rows of T tokens in double precision, with what a step's denominators are."""

    logps: torch.Tensor
    old: torch.Tensor
    ref: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    mask: torch.Tensor
    sampled: torch.Tensor

    @property
    def turns(self) -> torch.Tensor:
        return turns_of(self.mask)

    @property
    def whole(self) -> Whole:
        return Whole(float(self.mask.sum()), len(self.mask), LONGEST)

    def loss(self, chosen: Objective, whole: Whole | None = None) -> torch.Tensor:
        return average_loss(self.tokens(chosen).losses, self.mask, chosen.average, whole or self.whole)

    def tokens(self, chosen: Objective) -> TokenLosses:
        return token_losses(self.logps, self.old, self.advantages, self.weights, self.turns, chosen, self.ref, self.sampled)

    def gradient(self, chosen: Objective, whole: Whole | None = None) -> torch.Tensor:
        self.logps = self.logps.detach().requires_grad_()
        (found,) = torch.autograd.grad(self.loss(chosen, whole), self.logps)
        return found

    def only(self, keep: Any) -> Rows:
        return Rows(*(getattr(self, name)[keep] for name in self.__dataclass_fields__))


@st.composite
def rows(draw: Any, most: int = 5) -> Rows:
    """Answers of 1 to 8 tokens, some with an observation in them, by policies that differ a little, a good deal, or not at all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, width, spread = draw(st.integers(1, most)), 8, draw(st.sampled_from([0.0, 2e-4, 0.1, 0.6]))
    lengths = rng.integers(1, width + 1, count)
    mask = (np.arange(width) < lengths[:, None]) & ((rng.random((count, width)) < 0.8) | (np.arange(width) == 0))
    logps = -rng.random((count, width)) * 3
    old, ref = (logps + rng.normal(0, scale, (count, width)) for scale in (spread, 0.4))
    advantages = np.where(rng.random(count) < 0.3, 0, rng.normal(0, 1.5, count))
    engine = old + rng.normal(0, 2, (count, width)) * (rng.random((count, 1)) < 0.5)
    matrices = (torch.tensor(value, dtype=torch.float64) for value in (logps, old, ref, advantages, np.ones_like(logps), mask, engine))
    return Rows(*matrices)


def of(loss: str, **more: Any) -> Objective:
    return objective(RLSettings(loss=loss, **more))
