"""Stops a training that diverged.

One idea: check the weights, not the loss. Every cause (an exploding loss or gradient, a too high learning rate, a damaged input policy)
leads to weights that are not finite, and all later work is wasted.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.errors import HeadraceError


class StopDiverged(TrainerCallback):
    """Raises HeadraceError if a weight is not finite, before the first step or after any."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any) -> None:
        if not _is_finite(model):
            raise HeadraceError("the input policy has weights that are infinite or no number; train the stage before this one again")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any) -> None:
        if not _is_finite(model):
            raise HeadraceError(
                f"training diverged: weights are infinite or no number after step {state.global_step}; "
                f"lower `learning_rate` (now {args.learning_rate:g})"
            )


def _is_finite(model: torch.nn.Module) -> bool:
    return all(bool(torch.isfinite(weights).all()) for weights in model.parameters())
