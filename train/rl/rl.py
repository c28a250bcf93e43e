"""Reinforcement learning: TRL's `GRPOTrainer`, fed by our own rollouts through `rollout_func`, with losses of our own.

One idea: a verifiable task is free, so no task is ever repeated: a `TaskSource` gives step after step fresh ones, each is rolled out a
few times in live worlds, and what is learned is which of a task's draws did better than the others.
Rows that nothing is learned from (no advantage, as where all draws of a task succeeded, or none) are left out before the forward pass,
which halves the cost of a step and changes no gradient, because every loss is divided by what the whole batch has (`train/rl/losses.py`).
What counts as better is `RLSettings.reward` (`train/rl/rewards.py`). Outcomes that are nobody's merit (`infra_failure`) have no reward: TRL
leaves them out of the group's mean.
A batch that the policy of now has played needs no ratio; one that an earlier policy has played, as at the second of `updates_a_batch`, is
stale: then the log-probabilities that were sampled are the old ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback

from storage.errors import BadInput
from synth.engines.local.hf import HFEngine
from train.checkpoints import Checkpoints
from train.device import batch_arguments, device_arguments, linear_schedule, processes
from train.divergence import StopDiverged
from train.metrics_log import LiveMetrics
from train.rl.credit import CREDITS, CreditBatch, erred_of, turns_of
from train.rl.losses import LOSSES, RATIOS, Objective, Whole, average_loss, divergence, token_losses
from train.rl.queue import METRICS as QUEUE_METRICS
from train.rl.queue import RolloutQueue
from train.rl.rewards import hardly_differ
from train.rl.rollout_batches import Batch, TaskSource, play_batch
from train.spec import RLSettings

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl import GRPOConfig, GRPOTrainer  # after the variable that it reads

Watch = Callable[[Batch], None]
"""Is told of every batch that is learned from."""
FIGURES = ("step", "reward", "idle_share", "loss", "entropy", "learning_rate", "mean_ratio", "clipped_share", "sampled_kl")
"""Of a step. idle_share: rows that nothing is learned from; of the others' tokens: mean entropy, mean ratio to the policy that sampled, how
many the clip cuts off, and the divergence from that policy."""


class PolicyTrainer(GRPOTrainer):
    """TRL's trainer with our objective and credit, computing nothing for rows that nothing is learned from, nor for padding that only they
    needed.

    Args:
        settings: name loss, ratio and credit. rollout_func: `_Rollouts`, which keep the batch that they gave.
    """

    def __init__(self, *, settings: RLSettings, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._objective, self._loss, self._credit = objective(settings), LOSSES[settings.loss], CREDITS[settings.credit]
        self._longest, self._passes = settings.max_turns * settings.max_tokens, settings.updates_a_batch

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: a checkpoint is no model to be published."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
        """TRL's rows, each token with its credit; where the batch is stale, with the log-probabilities that it was sampled with."""
        rows: dict[str, torch.Tensor] = super()._generate_and_score_completions(inputs)
        batch = self.rollout_func.batch
        rewards = [row.learned for row in batch.rows]
        rows["advantages"] = self._advantages(rows["advantages"], rewards)
        written = rows["completion_mask"] * rows["tool_mask"]
        turns = turns_of(written)
        erred = erred_of(turns, [row.erred for row in batch.rows])
        sampled = rows["sampling_per_token_logps"]
        rows["weights"], mask = self._credit(CreditBatch(written, turns, erred, rows["advantages"], sampled))
        rows["tool_mask"] = mask
        rows["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        if batch.updates * self._passes < self.state.global_step:
            rows["old_per_token_logps"] = sampled
        return rows

    def _advantages(self, advantages: torch.Tensor, rewards: Sequence[float | None]) -> torch.Tensor:
        """TRL's, but 0 in groups that hardly differ; of a loss without a baseline the rewards."""
        if not self._loss.has_baseline:
            return torch.tensor([reward or 0.0 for reward in rewards], device=advantages.device)
        draws = self.num_generations
        groups = (rewards[start : start + draws] for start in range(0, len(rewards), draws))
        is_uniform = torch.tensor([hardly_differ(group, self._loss.alike_std) for group in groups], device=advantages.device)
        return advantages.masked_fill(is_uniform.repeat_interleave(draws), 0.0)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        parts = self.current_gradient_accumulation_steps
        whole = Whole(
            tokens=inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes,
            rows=len(inputs["advantages"]) * parts,
            longest=self._longest,
        )
        busy = self._busy(inputs)
        self._count(idle_share=1.0 - busy.float().mean())
        if not busy.any():
            busy[0] = True
        rows = _trim_rows(inputs, busy)
        prompts, answers = rows["prompt_ids"], rows["completion_ids"]
        logps, entropies, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([prompts, answers], dim=1),
            torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1),
            answers.size(1),
            compute_entropy=True,
        )
        mask = rows["completion_mask"] * rows["tool_mask"]
        old, reference = rows.get("old_per_token_logps"), rows.get("ref_per_token_logps")
        losses = token_losses(logps, old, rows["advantages"], rows["weights"], mask, self._objective, reference)
        drift = divergence((logps.detach() - rows["sampling_per_token_logps"]) * mask)
        metrics = {"entropy": entropies, "mean_ratio": losses.ratios, "clipped_share": losses.is_clipped, "sampled_kl": drift}
        metrics |= {"kl": losses.kl} if losses.kl is not None else {}
        self._count(**{name: (values * mask).sum() / mask.sum().clamp(min=1.0) for name, values in metrics.items()})
        return average_loss(losses.losses, mask, self._objective.average, whole)

    def _busy(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Of every row, whether anything is learned from it. A reference policy has something to say of all of them."""
        if self._objective.beta:
            return torch.ones_like(inputs["advantages"], dtype=torch.bool)
        counts = (inputs["weights"] * inputs["completion_mask"] * inputs["tool_mask"]).any(dim=1)
        busy: torch.Tensor = (inputs["advantages"].abs() > 1e-6) & counts
        return busy

    def _count(self, **values: torch.Tensor) -> None:
        for name, value in values.items():
            self._metrics["train"][name].append(value.item())


def objective(settings: RLSettings) -> Objective:
    """The loss that the settings name, with what they say otherwise."""
    loss = LOSSES[settings.loss]
    return Objective(
        average=loss.average,
        ratio=RATIOS[settings.ratio or loss.ratio],
        clip_low=loss.clip_low if settings.clip_low is None else settings.clip_low,
        clip_high=loss.clip_high if settings.clip_high is None else settings.clip_high,
        beta=settings.beta,
    )


def _trim_rows(inputs: dict[str, Any], busy: torch.Tensor) -> dict[str, Any]:
    """The rows that are busy, without padding that none of them needs: prompts are padded at their head, answers at their tail."""
    rows = {name: value[busy] for name, value in inputs.items() if value.dim()}
    head = int(rows["prompt_mask"].any(dim=0).long().argmax())
    tail = int(rows["completion_mask"].sum(dim=1).max())
    matrices = {name: value[:, head:] if name.startswith("prompt") else value[:, :tail] for name, value in rows.items() if value.dim() == 2}
    return rows | matrices


class _Rollouts:
    """TRL's `rollout_func`: prompts are step numbers, one a row of that step's batch. Who asks for a step again is given the same batch.

    batch: the last one that was given.
    """

    batch: Batch

    def __init__(self, batches: Callable[[int], Batch], watch: Watch, pad: int, queue: RolloutQueue | None = None) -> None:
        self._batches, self._watch, self._pad, self._queue = batches, watch, pad, queue
        self._step = -1

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        if int(prompts[0]) != self._step:
            self._step = int(prompts[0])
            self.batch = self._batches(self._step)
            self._watch(self.batch)
            for name, value in (self._queue.metrics if self._queue else {}).items():
                trainer._metrics["train"][name].append(value)
        traces = [row.trace for row in self.batch.rows]
        return {
            "prompt_ids": [one.prompt_ids or [self._pad] for one in traces],
            "completion_ids": [one.ids for one in traces],
            "logprobs": [one.logprobs for one in traces],
            "env_mask": [one.mask for one in traces],
            "outcome_reward": [row.learned for row in self.batch.rows],
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
    live: Path | None = None,
    queue: RolloutQueue | None = None,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics a step (`FIGURES`, and `kl` where there is a `beta`).

    source: gives `settings.tasks_a_step` tasks a step. scratch: a folder that TRL may write to. watch: sees every step's
    rollouts. checkpoints: are kept, and the last one is gone on from; None: there are none. live: a file that gets these rows as they come.
    queue: gives the batches, and figures of each (`train.queue.METRICS`); None: they are played here, in turn.
    With a `beta`, `model` must have been loaded from a folder, which is read again.

    Raises:
        BadInput: there are several processes; here, the one that learns also plays.
        HeadraceError: weights are infinite or no number, before or after any step; nothing of a step could be rated.
    """
    if processes() > 1:
        raise BadInput("an RL stage plays and learns in one process: start it without `accelerate launch` or `torchrun`")
    engine = HFEngine(model, tokenizer, policy_version=policy_version, batch_rows=settings.tasks_a_step * settings.draws)
    played = queue.batch if queue else _playing(engine, source, settings, seed)
    passes = settings.updates_a_batch
    prompts = [str(step) for step in range(settings.max_steps) for _ in range(settings.tasks_a_step * passes)]
    names = (*FIGURES, *(("kl",) if settings.beta else ()), *(QUEUE_METRICS if queue else ()))
    metrics = LiveMetrics(live, names, logged_as_one=passes)
    trainer = PolicyTrainer(
        rollout_func=_Rollouts(played, watch, tokenizer.pad_token_id, queue),
        settings=settings,
        model=model,
        args=_arguments(settings, seed, scratch, checkpoints),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        reward_funcs=outcome,
        callbacks=[StopDiverged(), metrics, *([checkpoints] if checkpoints else [])],
    )
    trainer.remove_callback(PrinterCallback)
    last = checkpoints.last() if checkpoints else None
    if queue:
        queue.begin(last)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return metrics.rows(trainer.state)


def _playing(engine: HFEngine, source: TaskSource, settings: RLSettings, seed: int) -> Callable[[int], Batch]:
    """Plays a step's batch here, by the policy of now."""

    def play(step: int) -> Batch:
        return play_batch(engine, source(step), settings, step=step, updates=step, seed=seed, others=partial(source, step))

    return play


def _arguments(settings: RLSettings, seed: int, scratch: Path, checkpoints: Checkpoints | None) -> GRPOConfig:
    """What TRL is told. Its steps are updates, ours are batches."""
    passes = settings.updates_a_batch
    updates = settings.max_steps * passes
    saving = {"save_strategy": "steps", "save_steps": settings.checkpoint_steps * passes} if checkpoints else {}
    return GRPOConfig(
        output_dir=str(checkpoints.draft if checkpoints else scratch),
        max_steps=updates,
        num_generations=settings.draws,
        temperature=settings.temperature,
        beta=settings.beta,
        scale_rewards=LOSSES[settings.loss].scale,
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        shuffle_dataset=False,
        seed=seed,
        data_seed=seed,
        logging_steps=passes,
        **batch_arguments(settings.tasks_a_step * settings.draws, settings.micro_batch_size),
        **linear_schedule(settings.learning_rate, settings.warmup_steps * passes, settings.final_rate_share, updates),
        **device_arguments() | saving,
    )
