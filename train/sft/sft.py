"""Supervised fine-tuning: TRL's `SFTTrainer` on whole conversations, with loss on what the assistant writes.

One idea: the chat template marks what the policy is to learn (`{% generation %}`: calls, answers, and the end of turn), and the rows are
tokens with labels (`train/data/token_labels.py`), so that turns can be left out. TRL would make the same tokens of plain messages, but for
nested Arrow structs, which fill in the other tools' keys as null: then the loss looks fine and no task succeeds. A stage ends after
`max_steps`, or at the loss plateau: when the mean loss of a window of `plateau_window` steps is less than `plateau_gain` nats a token below
that of the window before. Steps are the budget, never seconds, so that a stage gives the same weights on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTConfig, SFTTrainer

from storage.errors import BadInput
from storage.records import JSON, Message
from train.checkpoints import Checkpoints, Kept
from train.data.token_labels import IGNORED, LEFT_OUT, learned_tokens, marking_template
from train.device import batch_arguments, device_arguments, linear_schedule, processes
from train.divergence import StopDiverged
from train.metrics_log import LiveMetrics
from train.sft.length_batching import Order
from train.spec import SFTSettings


class _Plateau(TrainerCallback):
    """Stops the training when a window of steps is hardly better than the one before it, and lets no checkpoint be of the last step: who
    went on from that would train on."""

    def __init__(self, window: int, gain: float) -> None:
        self._window, self._gain = window, gain

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if "loss" not in (logs or {}):
            return
        if self._window and state.global_step >= 2 * self._window and state.global_step % self._window == 0:
            losses = [entry["loss"] for entry in state.log_history[-2 * self._window :]]
            if (sum(losses[: self._window]) - sum(losses[self._window :])) / self._window < self._gain:
                control.should_training_stop = True
        if control.should_training_stop:
            control.should_save = False


class OrderedTrainer(SFTTrainer):
    """TRL's trainer with an order of its rows that does not depend on how many processes share a batch."""

    def __init__(self, *, order: Order, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._order = order

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None: a checkpoint is no model to be published."""

    def _get_train_sampler(self, *_: Any) -> Order:
        return self._order


def train_sft(
    model: Any,
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    settings: SFTSettings,
    *,
    seed: int,
    scratch: Path,
    tools: Sequence[Sequence[Mapping[str, JSON]]] | None = None,
    live: Path | None = None,
    checkpoints: Callable[[Kept], Checkpoints] | None = None,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics a step (step, loss, learning_rate).

    scratch: a folder that TRL may write to. tools: on offer in each conversation, in OpenAI's form; None: the prompts list none. live: a
    file that gets these rows as they come. checkpoints: are kept, and the last one is gone on from; None: there are none.

    Raises:
        BadInput: a conversation that is longer than the model's window, a batch that does not divide, nothing that is learned.
        HeadraceError: weights are infinite or no number, before or after any step.
    """
    sizes = batch_arguments(settings.batch_size, settings.micro_batch_size)
    rows = _rows(tokenizer, conversations, tools, settings, longest=model.config.max_position_embeddings)
    fillers = [{"input_ids": rows[0]["input_ids"][:2], "labels": [IGNORED, IGNORED]}] if processes() > 1 else []
    order = Order([len(row["input_ids"]) for row in rows], settings.batch_size, len(rows) if fillers else None)
    saved = checkpoints(order) if checkpoints else None
    metrics = LiveMetrics(live, ("step", "loss", "learning_rate"))
    plateau = _Plateau(settings.plateau_window, settings.plateau_gain)
    trainer = OrderedTrainer(
        order=order,
        model=model,
        args=_arguments(settings, sizes, seed, scratch, saved),
        train_dataset=Dataset.from_list([*rows, *fillers]),
        processing_class=tokenizer,
        callbacks=[StopDiverged(), plateau, metrics, *([saved] if saved else [])],
    )
    trainer.remove_callback(PrinterCallback)
    last = saved.last() if saved else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return metrics.rows(trainer.state)


def _arguments(settings: SFTSettings, sizes: Mapping[str, int], seed: int, scratch: Path, checkpoints: Checkpoints | None) -> SFTConfig:
    """What TRL is told. sizes: `batch_arguments`."""
    saving = {"save_strategy": "steps", "save_steps": settings.checkpoint_steps} if checkpoints else {}
    return SFTConfig(
        output_dir=str(checkpoints.draft if checkpoints else scratch),
        max_steps=settings.max_steps,
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=settings.adam_beta2,
        max_grad_norm=settings.max_grad_norm,
        max_length=None,
        seed=seed,
        data_seed=seed,
        logging_steps=1,
        **linear_schedule(settings.learning_rate, settings.warmup_steps, settings.final_rate_share, settings.max_steps),
        **sizes,
        **device_arguments() | {"gradient_checkpointing": settings.gradient_checkpointing} | saving,
    )


def _rows(
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    tools: Sequence[Sequence[Mapping[str, JSON]]] | None,
    settings: SFTSettings,
    *,
    longest: int,
) -> list[dict[str, list[int]]]:
    """Tokens and labels of the conversations of which anything is learned."""
    rule, template = LEFT_OUT[settings.leave_out], marking_template(tokenizer)
    offers = tools or [()] * len(conversations)
    rows = []
    for place, (messages, offered) in enumerate(zip(conversations, offers, strict=True), 1):
        try:
            rows.append(learned_tokens(tokenizer, messages, rule, longest, tools=offered, template=template))
        except BadInput as refused:
            raise BadInput(f"conversation {place} of the split's {len(conversations)}: {refused}") from None
    rows = [row for row in rows if any(label != IGNORED for label in row["labels"])]
    if not rows:
        raise BadInput(f"not one turn of {len(conversations)} conversations is learned: leave_out is {settings.leave_out}")
    return rows
