"""Training the tiny policy on a set of conversations: so many tokens, on one thread, the same bytes again.

One idea: an experiment of dozens of trainings is paid in seconds of processor time, so this loop computes logits only where the assistant
writes and packs batches by length. The loss, and what is learnt from, is that of `train/sft/sft.py`: what the chat template marks as the
assistant's.

What it does not do: anything that a single stage of the cascade needs (plateaus, metrics, releases): that is `train/sft/sft.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from benchmarks.experiment.config import Learning
from storage.errors import HeadraceError
from storage.records import Message

_POOLED = 256
"""Conversations that are sorted by length at once."""


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a conversation, and where the assistant wrote them; both of one length."""

    ids: tuple[int, ...]
    is_written: tuple[bool, ...]

    @property
    def tokens(self) -> int:
        return len(self.ids)


def examples_of(tokenizer: Any, conversations: Sequence[Sequence[Message]]) -> list[Example]:
    """Conversations as the chat template renders and marks them."""
    found = []
    for messages in conversations:
        made = tokenizer.apply_chat_template(
            [message.to_openai() for message in messages], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        found.append(Example(tuple(made["input_ids"]), tuple(bool(mark) for mark in made["assistant_masks"])))
    return found


def train(model: Any, examples: Sequence[Example], learning: Learning, *, seed: int) -> list[float]:
    """Trains `model` in place until it has read `learning.tokens` tokens; returns the loss of every step, in nats a token.

    Raises:
        HeadraceError: there is nothing to learn from, or the loss is no number.
    """
    if not any(any(example.is_written) for example in examples):
        raise HeadraceError("there is nothing that the assistant wrote in these conversations; a policy cannot learn from them")
    torch.manual_seed(seed)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    batches, read, losses = _batches(examples, learning.batch_tokens, random.Random(seed)), 0, list[float]()
    while read < learning.tokens:
        batch = next(batches)
        for group in optimiser.param_groups:
            group["lr"] = _rate(learning, len(losses), read / learning.tokens)
        losses.append(_step(model, optimiser, batch))
        if not losses[-1] < float("inf"):
            raise HeadraceError(f"the training diverged at step {len(losses)}; lower learning.learning_rate")
        read += sum(example.tokens for example in batch)
    model.eval()
    return losses


def _rate(learning: Learning, step: int, share: float) -> float:
    warm = min(1.0, (step + 1) / max(1, learning.warmup_steps))
    return learning.learning_rate * warm * (1 - share * (1 - learning.final_rate_share))


def _step(model: Any, optimiser: torch.optim.Optimizer, batch: Sequence[Example]) -> float:
    width = max(example.tokens for example in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    written = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, example in enumerate(batch):
        ids[row, : example.tokens] = torch.tensor(example.ids)
        written[row, : example.tokens] = torch.tensor(example.is_written)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # padding comes last, so nothing looks at it
    targets = written[:, 1:]
    loss = functional.cross_entropy(model.lm_head(hidden[:, :-1][targets]), ids[:, 1:][targets])
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.item())


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
