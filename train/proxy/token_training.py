"""Trains the tiny policy on a set of conversations for a number of tokens, on one thread, with the same bytes every time.

Experiments of dozens of trainings are paid in CPU seconds, so this loop computes logits only where the assistant writes, and packs
batches by length. The loss and the learned tokens are those of `train/sft/sft.py`: what the chat template marks as the assistant's.

Not done here: what one stage of the cascade needs (plateaus, metrics, checkpoints): that is `train/sft/sft.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch.nn import functional

from storage.errors import HeadraceError
from storage.records import Message

_POOLED = 256
"""Conversations that are sorted by length at once."""


class TokenTraining(BaseModel):
    """Configuration of a training that ends after a number of tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: int = Field(700_000, ge=1_000, description="Tokens read in all, repetitions counted.")
    batch_tokens: int = Field(2_500, ge=100, description="Most tokens of a step, padding counted.")
    learning_rate: float = Field(4e-3, gt=0, description="Peak rate of AdamW; linear warm-up, then linear decay.")
    warmup_steps: int = Field(20, ge=0, description="Steps of warm-up.")
    final_rate_share: float = Field(0.05, ge=0, lt=1, description="Learning rate at the end, as a share of the peak.")


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a conversation, and which of them the assistant wrote; both of one length."""

    ids: tuple[int, ...]
    is_written: tuple[bool, ...]

    @property
    def tokens(self) -> int:
        return len(self.ids)


def encode(tokenizer: Any, conversations: Sequence[Sequence[Message]]) -> list[Example]:
    """Conversations as the chat template renders and marks them."""
    examples = []
    for messages in conversations:
        encoded = tokenizer.apply_chat_template(
            [message.to_openai() for message in messages], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        examples.append(Example(tuple(encoded["input_ids"]), tuple(bool(mark) for mark in encoded["assistant_masks"])))
    return examples


def train(model: Any, examples: Sequence[Example], training: TokenTraining, *, seed: int) -> list[float]:
    """Trains `model` in place until it has read `training.tokens` tokens; returns the loss of every step, in nats a token.

    Raises:
        HeadraceError: no example has a token of the assistant, or the loss became infinite.
    """
    if not any(any(example.is_written) for example in examples):
        raise HeadraceError("the assistant wrote nothing in these conversations, so a policy cannot learn from them")
    torch.manual_seed(seed)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    batches, read, losses = _batches(examples, training.batch_tokens, random.Random(seed)), 0, list[float]()
    while read < training.tokens:
        batch = next(batches)
        for group in optimiser.param_groups:
            group["lr"] = _rate(training, len(losses), read / training.tokens)
        losses.append(_step(model, optimiser, batch))
        if not losses[-1] < float("inf"):
            raise HeadraceError(f"the training diverged at step {len(losses)}: lower learning_rate")
        read += sum(example.tokens for example in batch)
    model.eval()
    return losses


def mean_losses(model: Any, examples: Sequence[Example], batch_tokens: int = 8_000) -> list[float]:
    """The mean loss of each example, in nats per token of the assistant; 0 for one in which the assistant wrote nothing."""
    order = sorted(range(len(examples)), key=lambda at: examples[at].tokens)
    losses = [0.0] * len(examples)
    start = 0
    model.eval()
    with torch.no_grad():
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * examples[order[end]].tokens <= batch_tokens:
                end += 1
            rows = order[start:end]
            ids, written = _padded([examples[at] for at in rows])
            targets = written[:, 1:]
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][targets]
            each = functional.cross_entropy(model.lm_head(hidden), ids[:, 1:][targets], reduction="none")
            row_of = torch.nonzero(targets)[:, 0]
            sums = torch.zeros(len(rows)).index_add_(0, row_of, each)
            means = sums / targets.sum(dim=1).clamp(min=1)
            for at, mean in zip(rows, means.tolist(), strict=True):
                losses[at] = mean
            start = end
    return losses


def _rate(training: TokenTraining, step: int, share: float) -> float:
    warm = min(1.0, (step + 1) / max(1, training.warmup_steps))
    return training.learning_rate * warm * (1 - share * (1 - training.final_rate_share))


def _step(model: Any, optimiser: torch.optim.Optimizer, batch: Sequence[Example]) -> float:
    ids, written = _padded(batch)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # padding comes last, so no token attends to it
    targets = written[:, 1:]
    loss = functional.cross_entropy(model.lm_head(hidden[:, :-1][targets]), ids[:, 1:][targets])
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.item())


def _padded(batch: Sequence[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and marks, each of shape [examples, longest]."""
    width = max(example.tokens for example in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    written = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, example in enumerate(batch):
        ids[row, : example.tokens] = torch.tensor(example.ids)
        written[row, : example.tokens] = torch.tensor(example.is_written)
    return ids, written


def _batches(examples: Sequence[Example], most_tokens: int, rng: random.Random) -> Iterator[list[Example]]:
    """Endless batches of examples of like length, every example once before any comes again; at most `most_tokens` with padding, or one."""
    usable = [example for example in examples if any(example.is_written[1:])]
    while True:
        order = rng.sample(usable, len(usable))
        for start in range(0, len(order), _POOLED):
            batches: list[list[Example]] = [[]]
            for example in sorted(order[start : start + _POOLED], key=lambda each: each.tokens):
                if batches[-1] and (len(batches[-1]) + 1) * example.tokens > most_tokens:
                    batches.append([])
                batches[-1].append(example)
            rng.shuffle(batches)
            yield from batches
