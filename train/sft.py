"""Supervised fine-tuning: TRL's `SFTTrainer` on whole conversations, with loss on what the assistant writes.

One idea: the chat template marks what the policy is to learn (`{% generation %}`: calls, answers, and the end of turn), so the rows are
plain messages. Tool-call arguments stay JSON *strings*: nested Arrow structs would fill in the other tools' keys as null, after which
the loss looks splendid and no task succeeds.
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

from storage.records import Message
from train.divergence import StopDiverged
from train.on_cpu import CPU_ARGUMENTS, linear_schedule
from train.spec import SFTSettings


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


def _rows(conversations: Sequence[Sequence[Message]]) -> Dataset:
    """Rows for TRL; every message has the same keys, and arguments are strings."""
    rows = []
    for messages in conversations:
        row = [
            {
                "role": message.role,
                "content": message.content or "",
                "tool_calls": [
                    {"type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
                    for call in message.tool_calls
                ],
            }
            for message in messages
        ]
        rows.append({"messages": row})
    return Dataset.from_list(rows)


def train_sft(
    model: Any, tokenizer: Any, conversations: Sequence[Sequence[Message]], settings: SFTSettings, *, seed: int, scratch: Path
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics a step (step, loss, learning_rate).

    scratch: a folder that TRL may write to.

    Raises:
        HeadraceError: weights are infinite or no number, before or after any step.
    """
    arguments = SFTConfig(
        output_dir=str(scratch),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.batch_size,
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        assistant_only_loss=True,
        max_length=None,
        train_sampling_strategy="group_by_length",
        seed=seed,
        data_seed=seed,
        logging_steps=1,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
        **CPU_ARGUMENTS,
    )
    plateau = _Plateau(settings.plateau_window, settings.plateau_gain)
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=_rows(conversations),
        processing_class=tokenizer,
        callbacks=[StopDiverged(), plateau],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    return [{name: row[name] for name in ("step", "loss", "learning_rate")} for row in rows]
