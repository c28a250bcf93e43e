"""Supervised fine-tuning: TRL's `SFTTrainer` on whole conversations, with loss on the assistant's text.

One idea: the rows are tokens with labels (`train/data/token_labels.py`): what a policy would sample (calls, answers, ends of turns), in the
context that an engine would show it; so turns can be left out. TRL must not tokenise the messages itself: its Arrow structs fill
in the keys of other tools as null; then the loss looks normal and no task succeeds.
A stage ends after `max_steps`, or at a plateau: when the mean loss of a window of `plateau_window` steps is less than `plateau_gain` nats
per token below that of the window before. The budget is in steps, not seconds, so that the weights do not depend on the machine's speed.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import SFTConfig, SFTTrainer, pack_dataset

from storage.errors import BadInput
from storage.records import Message, Tool
from synth.engines.local.chat_format import ChatFormat
from train.checkpoints import Checkpoints, SavedState
from train.data.token_labels import IGNORED, LEFT_OUT, Unlearnable, learned_tokens
from train.device import batch_arguments, processes, trainer_arguments
from train.divergence import StopDiverged
from train.metrics_log import LiveMetrics
from train.models.label_head import project_labels_alone
from train.models.sharding import Sharded
from train.sft.length_batching import Order
from train.spec import SFTSettings


class _Plateau(TrainerCallback):
    """Stops training at a plateau. It prevents a checkpoint of the last step, because a resume from it would train further."""

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


class OrderedTrainer(Sharded, SFTTrainer):
    """TRL's trainer with an order of rows that does not depend on the number of processes."""

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
    tools: Sequence[Sequence[Tool]] | None = None,
    live: Path | None = None,
    checkpoints: Callable[[SavedState], Checkpoints] | None = None,
    note: Callable[[str], object] = warnings.warn,
) -> list[dict[str, float]]:
    """Trains `model` in place; returns one row of metrics per step (step, loss, learning_rate).

    scratch: folder for TRL's files.
    tools: available tools of each conversation; None: no tools.
    live: file that gets the rows during training.
    checkpoints: saves checkpoints and resumes from the last; None: no checkpoints.
    note: is told how many conversations are left out, if any are.

    Raises:
        BadInput: no conversation can be trained on (each exceeds the model's window, or its template cannot write it), a batch does not
            divide, or nothing is learned.
        HeadraceError: weights are not finite, before or after any step.
    """
    project_labels_alone()
    sizes = batch_arguments(settings.batch_size, settings.micro_batch_size)
    rows = _rows(tokenizer, conversations, tools, settings, longest=_longest(model, settings), note=note)
    if settings.pack_tokens is not None:
        rows = pack(rows, settings.pack_tokens)
    fillers = [_filler(rows[0])] if processes() > 1 else []
    order = Order([len(row["input_ids"]) for row in rows], settings.batch_size, len(rows) if fillers else None)
    saved = checkpoints(order) if checkpoints else None
    metrics = LiveMetrics(live, ("step", "loss", "learning_rate"))
    plateau = _Plateau(settings.plateau_window, settings.plateau_gain)
    trainer = OrderedTrainer(
        order=order,
        model=model,
        args=SFTConfig(
            max_length=None,
            padding_free=settings.pack_tokens is not None,
            **sizes,
            **trainer_arguments(settings, seed, scratch, saved and saved.draft),
        ),
        train_dataset=Dataset.from_list([*rows, *fillers]),
        processing_class=tokenizer,
        callbacks=[StopDiverged(), plateau, metrics, *([saved] if saved else [])],
    )
    trainer.remove_callback(PrinterCallback)
    last = saved.last() if saved else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    return metrics.rows(trainer.state)


def pack(rows: Sequence[Mapping[str, list[int]]], most_tokens: int) -> list[dict[str, list[int]]]:
    """Packs of rows no longer than a pack, by TRL's best fit: `input_ids` and `labels` one after the other, and the rows' lengths in
    `seq_lengths`, by which attention and positions begin anew at each row."""
    packed = pack_dataset(Dataset.from_list(list(rows)), most_tokens, "bfd")
    return [dict(row) for row in packed]


def _longest(model: Any, settings: SFTSettings) -> int:
    """Most tokens of a conversation: the model's window, or a pack."""
    window: int = model.config.get_text_config().max_position_embeddings
    return min(window, settings.pack_tokens or window)


def _filler(row: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """A row without labels."""
    filler = {"input_ids": row["input_ids"][:2], "labels": [IGNORED, IGNORED]}
    return filler | ({"seq_lengths": [2]} if "seq_lengths" in row else {})


def _rows(
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    tools: Sequence[Sequence[Tool]] | None,
    settings: SFTSettings,
    *,
    longest: int,
    note: Callable[[str], object],
) -> list[dict[str, list[int]]]:
    """Tokens and labels of the conversations that can be trained on and have at least one learned turn."""
    rule, chat_format = LEFT_OUT[settings.leave_out], ChatFormat(tokenizer)
    offers = tools or [()] * len(conversations)
    rows, left_out = [], Counter[str]()
    for messages, offered in zip(conversations, offers, strict=True):
        try:
            rows.append(learned_tokens(chat_format, messages, rule, longest, tools=offered))
        except Unlearnable as refused:
            left_out[str(refused)] += 1
    if left_out:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        problem = f"of {len(conversations):,} conversations these cannot be trained on: {reasons}"
        if not rows:
            raise BadInput(f"{problem}; take a model with a longer window or another chat template, or other conversations")
        note(f"{problem}; they are left out")
    rows = [row for row in rows if any(label != IGNORED for label in row["labels"])]
    if not rows:
        raise BadInput(f"not one turn of {len(conversations)} conversations is learned: leave_out is {settings.leave_out}")
    return rows
