"""Reinforcement learning: TRL's `GRPOTrainer`, fed by our own rollouts through `rollout_func`.

One idea: a verifiable task is free, so no task is ever repeated: a `TaskSource` gives step after step fresh ones, each is rolled out a
few times in live worlds, and what is learned is which of a task's draws did better than the others.
Rows whose advantage is zero (all draws of a task succeeded, or none) teach nothing; they are dropped before the forward pass, which
halves the cost of a step and changes no gradient, because the loss is normalised by the tokens of the whole batch, taken before.
What counts as better is `RLSettings.reward` (`train/rewards.py`). Outcomes that are nobody's merit (`infra_failure`) have no reward: TRL
leaves them out of the group's mean.
On-policy: one update a batch, no ratio, no reference model (beta = 0).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback

from synth.engines.hf import HFEngine
from train.batches import Batch, TaskSource, play_batch
from train.checkpoints import Checkpoints
from train.device import device_arguments, linear_schedule
from train.divergence import StopDiverged
from train.spec import RLSettings

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl import GRPOConfig, GRPOTrainer  # after the variable that it reads

Watch = Callable[[Batch], None]
"""Is told of every batch that is learned from."""

_PER_ROW: tuple[str, ...] = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages")
_PER_ROW += ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps")


class IdleRowsDropped(GRPOTrainer):
    """GRPO that computes nothing for rows without advantage, nor for padding that only they needed."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: a checkpoint is no model to be published."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        advantages = inputs["advantages"]
        busy = advantages.abs() > 1e-6
        self._metrics["train"]["idle_share"].append(1.0 - busy.float().mean().item())
        if not busy.any():
            busy[0] = True
        kept = {key: value[busy] if key in _PER_ROW else value for key, value in inputs.items()}
        head = int(kept["prompt_mask"].any(dim=0).long().argmax())
        tail = int(kept["completion_mask"].sum(dim=1).max())
        for key in _PER_ROW:
            if key in kept and kept[key].dim() == 2:
                kept[key] = kept[key][:, head:] if key.startswith("prompt") else kept[key][:, :tail]
        return super()._compute_loss(model, kept)


class _Rollouts:
    """TRL's `rollout_func`: prompts are step numbers, one a row of that step's batch."""

    def __init__(self, batches: Callable[[int], Batch], watch: Watch, pad: int) -> None:
        self._batches, self._watch, self._pad = batches, watch, pad

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        batch = self._batches(int(prompts[0]))
        self._watch(batch)
        traces = [row.trace for row in batch.rows]
        return {
            "prompt_ids": [one.prompt_ids or [self._pad] for one in traces],
            "completion_ids": [one.ids for one in traces],
            "logprobs": [one.logprobs for one in traces],
            "env_mask": [one.mask for one in traces],
            "outcome_reward": [row.learned for row in batch.rows],
        }


def outcome(prompts: Any, completions: Any, outcome_reward: list[float | None], **_: Any) -> list[float | None]:
    """What `_Rollouts` found, None where a rollout was spoilt by us."""
    return outcome_reward


def train_rl(
    model: Any,
    tokenizer: Any,
    source: TaskSource,
    settings: RLSettings,
    *,
    seed: int,
    scratch: Path,
    policy_version: str = "",
    watch: Watch = lambda *_: None,
    checkpoints: Checkpoints | None = None,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics a step (step, mean reward, share of idle rows, loss, entropy,
    learning rate).

    source: gives `settings.tasks_a_step` tasks a step. scratch: a folder that TRL may write to. watch: sees every step's
    rollouts. checkpoints: are kept, and the last one is gone on from; None: there are none.

    Raises:
        HeadraceError: weights are infinite or no number, before or after any step; nothing of a step could be rated.
    """
    size = settings.tasks_a_step * settings.draws
    arguments = GRPOConfig(
        output_dir=str(checkpoints.draft if checkpoints else scratch),
        max_steps=settings.max_steps,
        per_device_train_batch_size=size,
        num_generations=settings.draws,
        temperature=settings.temperature,
        beta=0.0,
        loss_type="dapo",
        scale_rewards="batch",
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        shuffle_dataset=False,
        seed=seed,
        data_seed=seed,
        logging_steps=1,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
        **device_arguments() | ({"save_strategy": "steps", "save_steps": settings.checkpoint_steps} if checkpoints else {}),
    )
    prompts = [str(step) for step in range(settings.max_steps) for _ in range(settings.tasks_a_step)]
    engine = HFEngine(model, tokenizer, policy_version=policy_version, batch_rows=size)

    def batches(step: int) -> Batch:
        return play_batch(engine, source(step), settings, step=step, updates=step, seed=seed)

    trainer = IdleRowsDropped(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        reward_funcs=outcome,
        rollout_func=_Rollouts(batches, watch, tokenizer.pad_token_id),
        callbacks=[StopDiverged(), *([checkpoints] if checkpoints else [])],
    )
    trainer.remove_callback(PrinterCallback)
    last = checkpoints.last() if checkpoints else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    names = ("step", "reward", "idle_share", "loss", "entropy", "learning_rate")
    return [{name: float(row[name]) for name in names} for row in trainer.state.log_history if "reward" in row]
