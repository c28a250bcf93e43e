"""Imitation beside RL: the expert's likelihood in the lessons of a step, as a term of the step's loss.

One idea: a lesson goes with one row of the step. Wherever the trainer moves that row, when it shuffles a step or cuts it into parts, the
lesson's share of the loss goes too, so the parts add up to the whole.

What it does not do: choose what is imitated (`train/rl/rollback.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from synth.engines.local.chat_format import ChatFormat
from train.data.token_labels import IGNORED, Unlearnable, every_turn, learned_tokens
from train.rl.rollback import Rollback

Scores = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(ids, attention mask, mask of the learned tokens, all [rows, tokens]) -> their log-probabilities and entropies [rows, tokens - 1]."""
NO_LESSON = -1


class Lessons:
    """The lessons of a step as tokens.

    weight: of the mean negative log-likelihood of a step's learned tokens. longest: most tokens of a lesson; longer ones are left out.
    """

    def __init__(self, rollback: Rollback, tokenizer: Any, weight: float, longest: int) -> None:
        self._rollback, self._weight, self._longest, self._pad = rollback, weight, longest, tokenizer.pad_token_id
        self._format = ChatFormat(tokenizer)
        self._rows: list[dict[str, list[int]]] = []
        self._tokens = 0

    def begin(self, task_ids: Sequence[str]) -> torch.Tensor:
        """Takes the lessons of a batch; returns for each of its rows the number of its lesson, or NO_LESSON [B]. task_ids: of the rows."""
        lessons = self._rollback.lessons if self._weight else {}
        numbers: dict[str, int] = {}
        self._rows = []
        for task_id, (messages, tools) in lessons.items():
            try:
                row = learned_tokens(self._format, messages, every_turn, self._longest, tools=tools)
            except Unlearnable:
                continue
            numbers[task_id] = len(self._rows)
            self._rows.append(row)
        self._tokens = sum(label != IGNORED for row in self._rows for label in row["labels"])
        return torch.tensor([numbers.pop(task_id, NO_LESSON) for task_id in task_ids])

    def loss(self, numbers: torch.Tensor, scores: Scores) -> torch.Tensor | float:
        """The share of the step's term that the lessons with these numbers have."""
        rows = [self._rows[number] for number in numbers.tolist() if number != NO_LESSON]
        if not rows:
            return 0.0
        width = max(len(row["input_ids"]) for row in rows)
        ids, learned, attended = (
            torch.tensor([[*values, *[filler] * (width - len(values))] for values in matrix], device=numbers.device)
            for matrix, filler in (
                ([row["input_ids"] for row in rows], self._pad),
                ([[int(label != IGNORED) for label in row["labels"]] for row in rows], 0),
                ([[1] * len(row["input_ids"]) for row in rows], 0),
            )
        )
        logps, _ = scores(ids, attended, learned)
        return -self._weight * (logps * learned[:, 1:]).sum() / self._tokens
