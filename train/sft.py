"""Supervised fine-tuning: TRL's `SFTTrainer` on whole conversations, with loss on what the assistant writes.

One idea: the chat template marks what the policy is to learn (`{% generation %}`: calls, answers, and the end of turn), and the rows are
tokens with labels (`train/turns.py`), so that turns can be left out. TRL would make the same tokens of plain messages, but for nested
Arrow structs, which fill in the other tools' keys as null: then the loss looks fine and no task succeeds.
A stage ends after `max_steps`, or at the loss plateau: when the mean loss of a window of `plateau_window` steps is less than
`plateau_gain` nats a token below that of the window before. Steps are the budget, never seconds, so that a stage gives the same weights
on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTConfig, SFTTrainer

from storage.errors import BadInput
from storage.records import Message
from train.device import batch_arguments, device_arguments, linear_schedule
from train.divergence import StopDiverged
from train.live import LiveMetrics
from train.spec import SFTSettings
from train.turns import IGNORED, LEFT_OUT, learned_tokens


class _Plateau(TrainerCallback):
    """Stops the training when a window of steps is hardly better than the one before it."""

    def __init__(self, window: int, gain: float) -> None:
        self._window, self._gain = window, gain
        self.losses: list[float] = []

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if "loss" not in (logs or {}):
            return
        self.losses.append(float(logs["loss"]))
        if self._window and len(self.losses) >= 2 * self._window and len(self.losses) % self._window == 0:
            now, before = self.losses[-self._window :], self.losses[-2 * self._window : -self._window]
            if (sum(before) - sum(now)) / self._window < self._gain:
                control.should_training_stop = True


def train_sft(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    settings: SFTSettings,
    *,
    seed: int,
    scratch: Path,
    live: Path | None = None,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics a step (step, loss, learning_rate).

    scratch: a folder that TRL may write to. live: a file that gets these rows as they come.

    Raises:
        BadInput: a conversation that is longer than the model's window, a batch that does not divide, nothing that is learned.
        HeadraceError: weights are infinite or no number, before or after any step.
    """
    longest, rule = model.config.max_position_embeddings, LEFT_OUT[settings.leave_out]
    rows = [learned_tokens(tokenizer, messages, rule, longest) for messages in conversations]
    rows = [row for row in rows if any(label != IGNORED for label in row["labels"])]
    if not rows:
        raise BadInput(f"not one turn of {len(conversations)} conversations is learned: leave_out is {settings.leave_out}")
    arguments = SFTConfig(
        output_dir=str(scratch),
        max_steps=settings.max_steps,
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        max_length=None,
        train_sampling_strategy="group_by_length",
        seed=seed,
        data_seed=seed,
        logging_steps=1,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
        **batch_arguments(settings.batch_size, settings.micro_batch_size),
        **device_arguments(),
    )
    metrics = LiveMetrics(live, ("step", "loss", "learning_rate"))
    plateau = _Plateau(settings.plateau_window, settings.plateau_gain)
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[StopDiverged(), plateau, metrics],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return metrics.rows(trainer.state)
