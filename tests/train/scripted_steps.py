"""One step of RL, real but for its rollouts: random tokens with rewards of the test's choice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer

import train.rl.rl
from storage.records import Outcome
from synth.rollouts.episode import Trace
from tests.train.tiny_policies import copy_of
from train.rl.losses import LOSSES
from train.rl.rl import PolicyTrainer, train_rl
from train.rl.rollback import Rollback
from train.rl.rollout_batches import Batch, Row
from train.spec import RLSettings

Rewards = Sequence[Sequence[float | None]]
"""By task and draw; None for a rollout that was spoilt."""

_OF_TRL = {"lite_ppo": "dapo", "grpo": "grpo", "dapo": "dapo", "dr_grpo": "dr_grpo", "gspo": "grpo", "rft": "dapo", "ipa": "dapo"}


@dataclass
class Step:
    """What a step was computed from (rows as TRL shuffled them; of several parts the last), the gradients of each part as the trainer
    computed them and as TRL's own loss does over all rows, those that the parts add up to, the step's metrics, and the model after it."""

    inputs: dict[str, torch.Tensor]
    losses: list[tuple[float, float]]
    ours: list[Sequence[torch.Tensor]]
    trls: list[Sequence[torch.Tensor]]
    accumulated: list[torch.Tensor]
    metrics: dict[str, float]
    model: Any

    @property
    def advantages(self) -> list[float]:
        """In order of the rows: the last token of a prompt is the number of its row."""
        return self.inputs["advantages"][self.order].tolist()

    @property
    def order(self) -> torch.Tensor:
        return self.inputs["prompt_ids"][:, -1].argsort()


def rows_of(rewards: Rewards, tokens: int, *, seed: int = 4) -> list[Row]:
    """Random tokens, prompts and answers of unequal length, and a gap of observations, so that most answers have two turns."""
    rng, rows = random.Random(seed), list[Row]()
    for task, draws in enumerate(rewards):
        for reward in draws:
            length = rng.randint(4, 30)
            prompt = [*(rng.randrange(3, tokens) for _ in range(2 + task)), len(rows)]
            ids = [rng.randrange(3, tokens) for _ in range(length)]
            mask = [int(not 2 <= place < length // 2) for place in range(length)]
            outcome = Outcome.INFRA_FAILURE if reward is None else Outcome.SUCCESS if reward else Outcome.POLICY_FAILURE
            rows.append(Row(f"task-{task}", outcome, reward, reward, Trace(prompt, ids, mask, [-1.0] * length), (False, False)))
    return rows


def take_step(
    policy: tuple[Any, Any],
    rows: Sequence[Row],
    settings: RLSettings,
    scratch: Path,
    *,
    is_stale: bool = False,
    rollback: Rollback | None = None,
) -> Step:
    """One step of `train_rl` from a copy of the policy; is_stale: the rows were played by an earlier one."""
    found = Step({}, [], [], [], [], {}, copy_of(policy[0]))

    class Watched(PolicyTrainer):
        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            loss = super()._compute_loss(model, dict(inputs))
            trl = _as_trl(self, settings, model, inputs)
            weights = list(model.parameters())
            found.ours.append(torch.autograd.grad(loss, weights, retain_graph=True))
            found.trls.append(torch.autograd.grad(trl, weights, retain_graph=True))
            found.losses.append((loss.item(), trl.item()))
            found.inputs = inputs
            return loss

        def training_step(self, model: Any, *arguments: Any) -> torch.Tensor:
            loss = super().training_step(model, *arguments)
            found.accumulated = [weights.grad.clone() for weights in model.parameters()]
            return loss

    settings = settings.model_copy(update={"max_steps": 1, "tasks_a_step": len(rows) // settings.draws, "max_grad_norm": 1e9})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gc.collect", lambda *_: 0)  # which a trainer calls, and which takes a second after many tests
        patch.setattr(train.rl.rl, "PolicyTrainer", Watched)
        patch.setattr(train.rl.rl, "play_batch", lambda *_, **__: Batch(0, -1 if is_stale else 0, tuple(rows)))
        (found.metrics,) = train_rl(found.model, policy[1], lambda step, again=0: (), settings, seed=0, scratch=scratch, rollback=rollback)
    return found


def _as_trl(trainer: Any, settings: RLSettings, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """The loss that TRL computes for what the settings name, over all rows; it knows no weights of credit.

    The divergence from a reference is GRPO's, which TRL would multiply by the ratio.
    """
    trainer.args.use_bias_correction_kl = False
    chosen = train.rl.rl.objective(settings)
    trainer.loss_type = _OF_TRL[settings.loss]
    trainer.importance_sampling_level = settings.ratio or LOSSES[settings.loss].ratio
    if trainer.importance_sampling_level not in ("token", "sequence"):
        trainer.importance_sampling_level = "token"
    trainer.epsilon_low, trainer.epsilon_high = chosen.clip_low, chosen.clip_high
    trainer.max_completion_length = settings.max_turns * settings.max_tokens
    counted = {name: list(values) for name, values in trainer._metrics["train"].items()}
    loss = GRPOTrainer._compute_loss(trainer, model, dict(inputs))
    trainer._metrics["train"].clear()
    trainer._metrics["train"].update(counted)
    return loss


def assert_close(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: float = 1e-5) -> None:
    """Equal up to sums in another order in fp32: `tolerance` of the largest entry of the whole gradient."""
    largest = max(part.abs().max().item() for part in expected)
    assert largest > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)
