"""Reinforcement learning: TRL's `GRPOTrainer`, fed by our own rollouts through `rollout_func`, with losses of our own.

One idea: verifiable tasks are free, so no task is repeated: a `TaskSource` gives fresh tasks at every step. Each is rolled out several
times in live worlds, and the policy learns from the draws that did better than the others of the same task.
Rows without an advantage (all draws of a task succeeded, or none) are left out before the forward pass. That halves the cost of a step and
changes no gradient, because the denominators are those of the whole batch (`train/rl/losses.py`).
The reward is `RLSettings.reward` (`train/rl/rewards.py`). Failures of the infrastructure have no reward, and TRL leaves them out of the
group's mean.
A batch of the current policy needs no ratio. A batch of an earlier policy (also at the second of `updates_a_batch`) is stale: its sampled
log-probabilities are the old ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from storage.errors import BadInput
from synth.engines.base import Engine
from synth.engines.local.hf import HFEngine
from train.checkpoints import Checkpoints
from train.device import autocast, batch_arguments, processes, trainer_arguments
from train.divergence import StopDiverged
from train.metrics_log import LiveMetrics
from train.models.adapters import without_wrapper
from train.models.label_head import project_labels_alone
from train.rl.credit import CREDITS, CreditBatch, erred_of, turns_of
from train.rl.lessons import Lessons
from train.rl.losses import LOSSES, RATIOS, Objective, Whole, average_loss, divergence, token_losses
from train.rl.policy_server import PolicyServer
from train.rl.rewards import hardly_differ
from train.rl.rollback import Rollback
from train.rl.rollout_batches import Batch, TaskSource, play_batch
from train.spec import RLSettings

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl import GRPOConfig, GRPOTrainer  # after the variable that it reads

Watch = Callable[[Batch], None]
"""Called with every batch."""


class BatchQueue(Protocol):
    """Batches that others play while this process learns: `train.rl.queue.RolloutQueue`, `train.rl.trajectories.trajectory_queue`. A
    context manager that ends the others on exit.

    names: of the metrics of a batch. metrics: of the last one.
    """

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def metrics(self) -> Mapping[str, float]: ...

    def begin(self, checkpoint: Path | None) -> None: ...

    def batch(self, step: int) -> Batch: ...

    def save(self, checkpoint: Path) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


FIGURES = ("step", "reward", "rollouts", "idle_share", "loss", "entropy", "learning_rate", "mean_ratio", "clipped_share", "sampled_kl")
"""Metrics of a step. rollouts: number made, those replaced included. idle_share: share of the batch's rows without an advantage. For the
tokens of the other rows: mean entropy, mean ratio to the sampling policy, share of tokens whose gradient the clip or the mismatch sets to
0, and KL divergence from the sampling policy."""


class PolicyTrainer(GRPOTrainer):
    """TRL's trainer with our objective and credit. It skips rows without an advantage, and the padding that only they need.

    Args:
        settings: give loss, ratio and credit. rollout_func: a `_Rollouts`, which holds the current batch.
        rollback: has the lessons that each step imitates, if any.
    """

    def __init__(self, *, settings: RLSettings, rollback: Rollback | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._objective, self._loss, self._credit = objective(settings), LOSSES[settings.loss], CREDITS[settings.credit]
        self._longest, self._passes, self._gamma = settings.max_turns * settings.max_tokens, settings.updates_a_batch, settings.credit_gamma
        window = self.model.config.get_text_config().max_position_embeddings
        self._lessons = Lessons(rollback, self.processing_class, settings.rollback_imitation, window) if rollback else None

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: a checkpoint is no model to be published."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
        """TRL's rows with credit and, if the batch is stale, the sampled log-probabilities."""
        rows: dict[str, torch.Tensor] = super()._generate_and_score_completions(inputs)
        batch = self.rollout_func.batch
        rewards = [row.learned for row in batch.rows]
        rows["advantages"] = self._advantages(rows["advantages"], rewards)
        written = rows["completion_mask"] * rows["tool_mask"]
        turns = turns_of(written)
        erred = erred_of(turns, [row.erred for row in batch.rows])
        sampled = rows["sampling_per_token_logps"]
        rows["weights"], mask = self._credit(CreditBatch(written, turns, erred, rows["advantages"], sampled, self._gamma))
        rows["tool_mask"], rows["turns"] = mask, turns.masked_fill(mask == 0, -1)
        rows["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        if batch.updates * self._passes < self.state.global_step:
            rows["old_per_token_logps"] = sampled
        if self._lessons is not None:
            rows["lesson"] = self._lessons.begin([row.task_id for row in batch.rows]).to(mask.device)
        return rows

    def _advantages(self, advantages: torch.Tensor, rewards: Sequence[float | None]) -> torch.Tensor:
        """TRL's advantages, but 0 in groups whose rewards hardly differ; the rewards, if the loss has no baseline."""
        if not self._loss.has_baseline:
            return torch.tensor([reward or 0.0 for reward in rewards], device=advantages.device)
        draws = self.num_generations
        groups = (rewards[start : start + draws] for start in range(0, len(rewards), draws))
        is_uniform = torch.tensor([hardly_differ(group, self._loss.min_std) for group in groups], device=advantages.device)
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
        mask = rows["completion_mask"] * rows["tool_mask"]
        logps, entropies = self._scores(
            model,
            torch.cat([prompts, answers], dim=1),
            torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1),
            torch.cat([torch.zeros_like(prompts), mask], dim=1),
        )
        logps, entropies = logps[:, -answers.size(1) :], entropies[:, -answers.size(1) :]
        old, reference = rows.get("old_per_token_logps"), rows.get("ref_per_token_logps")
        sampled, turns = rows["sampling_per_token_logps"], rows["turns"]
        losses = token_losses(logps, old, rows["advantages"], rows["weights"], turns, self._objective, reference, sampled)
        drift = divergence((logps.detach() - sampled) * mask)
        metrics = {"entropy": entropies, "mean_ratio": losses.ratios, "clipped_share": losses.is_clipped, "sampled_kl": drift}
        metrics |= {"kl": losses.kl} if losses.kl is not None else {}
        self._count(**{name: (values * mask).sum() / mask.sum().clamp(min=1.0) for name, values in metrics.items()})
        loss = average_loss(losses.losses, mask, self._objective.average, whole)
        return loss if self._lessons is None else loss + self._lessons.loss(inputs["lesson"], partial(self._scores, model))

    def _scores(self, model: Any, ids: torch.Tensor, attended: torch.Tensor, learned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies of the learned tokens, [rows, tokens - 1]; 0 at all others."""
        with self.accelerator.autocast():
            outputs = model(input_ids=ids, attention_mask=attended, labels=ids.masked_fill(learned == 0, -100), fused_lm_head=True)
        return outputs.log_probs, outputs.entropy

    def _busy(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Whether each row contributes to the loss. With a reference policy, all rows do."""
        if self._objective.beta:
            return torch.ones_like(inputs["advantages"], dtype=torch.bool)
        counts = (inputs["weights"] * inputs["completion_mask"] * inputs["tool_mask"]).any(dim=1)
        busy: torch.Tensor = (inputs["advantages"].abs() > 1e-6) & counts
        return busy

    def _count(self, **values: torch.Tensor) -> None:
        for name, value in values.items():
            self._metrics["train"][name].append(value.item())


def objective(settings: RLSettings) -> Objective:
    """The loss of the settings, with their overrides."""
    loss = LOSSES[settings.loss]
    return Objective(
        average=loss.average,
        ratio=RATIOS[settings.ratio or loss.ratio],
        clip_low=loss.clip_low if settings.clip_low is None else settings.clip_low,
        clip_high=loss.clip_high if settings.clip_high is None else settings.clip_high,
        beta=settings.beta,
        surrogate=loss.surrogate,
        max_mismatch=loss.max_mismatch,
    )


def _trim_rows(inputs: dict[str, Any], busy: torch.Tensor) -> dict[str, Any]:
    """The busy rows without needless padding: prompts are padded at the head, answers at the tail."""
    rows = {name: value[busy] for name, value in inputs.items() if value.dim()}
    head = int(rows["prompt_mask"].any(dim=0).long().argmax())
    tail = int(rows["completion_mask"].sum(dim=1).max())
    matrices = {name: value[:, head:] if name.startswith("prompt") else value[:, :tail] for name, value in rows.items() if value.dim() == 2}
    return rows | matrices


class _Rollouts:
    """TRL's `rollout_func`. Prompts are step numbers, one per row of the step's batch. The same step gives the same batch again.

    batch: the last batch.
    """

    batch: Batch

    def __init__(self, batches: Callable[[int], Batch], watch: Watch, pad: int, measured: BatchQueue | Rollback | None = None) -> None:
        self._batches, self._watch, self._pad, self._measured = batches, watch, pad, measured
        self._step = -1

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        if int(prompts[0]) != self._step:
            self._step = int(prompts[0])
            self.batch = self._batches(self._step)
            self._watch(self.batch)
            for name, value in {"rollouts": self.batch.rollouts, **(self._measured.metrics if self._measured else {})}.items():
                trainer._metrics["train"][name].append(value)
        traces = [row.trace for row in self.batch.rows]
        return {
            "prompt_ids": [one.prompt_ids or [self._pad] for one in traces],
            "completion_ids": [one.ids or [self._pad] for one in traces],
            "logprobs": [one.logprobs or [0.0] for one in traces],
            "env_mask": [one.mask or [0] for one in traces],
            "outcome_reward": [row.learned for row in self.batch.rows],
        }


class _StopAfter(TrainerCallback):
    """Ends the training with the step that reaches a number of rollouts, earlier runs of the stage included.

    That step gets no checkpoint: a stage that is killed after it makes it again, and ends with it again.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if sum(entry.get("rollouts", 0) for entry in state.log_history) >= self._most:
            control.should_training_stop, control.should_save = True, False


def outcome(prompts: Any, completions: Any, outcome_reward: list[float | None], **_: Any) -> list[float | None]:
    """TRL's reward function: the rewards of `_Rollouts`; None if the infrastructure failed."""
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
    queue: BatchQueue | None = None,
    server: PolicyServer | None = None,
    rollback: Rollback | None = None,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics per step (`FIGURES`, and `kl` if there is a `beta`).

    source: gives `settings.tasks_a_step` tasks per step.
    scratch: folder for TRL's files.
    watch: called with every step's batch.
    checkpoints: saves checkpoints and resumes from the last; None: no checkpoints.
    live: file that gets the rows during training.
    queue: gives batches and their metrics; None: batches are played here, in turn.
    server: of this model; plays the batches. None: our engine plays them.
    rollback: where rollouts start, and what is imitated; None: they start at the request.
    With a `beta`, `model` must come from a folder, which is read again.

    Raises:
        BadInput: there are several processes; here, the one that learns also plays.
        HeadraceError: weights are infinite or no number, before or after any step; nothing of a step could be rated; see `PolicyServer`.
    """
    if processes() > 1:
        raise BadInput("an RL stage plays and learns in one process: start it without `accelerate launch` or `torchrun`")
    project_labels_alone()
    rows = settings.tasks_a_step * settings.draws
    ours = partial(HFEngine, without_wrapper(model), tokenizer, policy_version=policy_version, batch_rows=rows)
    played = queue.batch if queue else _playing(server.engine if server else ours(), source, settings, seed, server, rollback)
    passes = settings.updates_a_batch
    prompts = [str(step) for step in range(settings.max_steps) for _ in range(settings.tasks_a_step * passes)]
    measured = queue or rollback
    names = (*FIGURES, *(("kl",) if settings.beta else ()), *(measured.names if measured else ()))
    metrics = LiveMetrics(live, names, logged_as_one=passes)
    trainer = PolicyTrainer(
        rollout_func=_Rollouts(played, watch, tokenizer.pad_token_id, measured),
        settings=settings,
        rollback=rollback,
        model=model,
        args=_arguments(settings, seed, scratch, checkpoints),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        reward_funcs=outcome,
        callbacks=[
            StopDiverged(),
            metrics,
            *([checkpoints] if checkpoints else []),
            *([_StopAfter(settings.max_rollouts)] if settings.max_rollouts else []),
        ],
    )
    trainer.remove_callback(PrinterCallback)
    last = checkpoints.last() if checkpoints else None
    if queue:
        queue.begin(last)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return metrics.rows(trainer.state)


def _playing(
    engine: Engine, source: TaskSource, settings: RLSettings, seed: int, server: PolicyServer | None, rollback: Rollback | None
) -> Callable[[int], Batch]:
    """A function that plays a step's batch with the current policy."""

    def play(step: int) -> Batch:
        tasks = source(step)
        with server.awake() if server else autocast(settings.precision):
            others, starts = partial(source, step), {"starts": rollback.start} if rollback else {}
            batch = play_batch(engine, tasks, settings, step=step, updates=step, seed=seed, others=others, **starts)
        if rollback:
            rollback.watch(batch)
        return batch

    return play


def _arguments(settings: RLSettings, seed: int, scratch: Path, checkpoints: Checkpoints | None) -> GRPOConfig:
    """TRL's configuration. TRL's steps are updates, ours are batches."""
    return GRPOConfig(
        num_generations=settings.draws,
        temperature=settings.temperature,
        beta=settings.beta,
        scale_rewards=LOSSES[settings.loss].scale,
        shuffle_dataset=False,
        **batch_arguments(settings.tasks_a_step * settings.draws, settings.micro_batch_size),
        **trainer_arguments(settings, seed, scratch, checkpoints and checkpoints.draft, settings.updates_a_batch),
    )
