"""What a stage forgets: the loss on general conversations that it was never trained on, before and after it.

One idea: the release of a stage has the conversations in a split of their own (`train/data/general_data.py`), and both figures are measured
in the stage's process, with the weights that it begins and ends with. Higher afterwards is forgotten. A sharded stage measures neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from storage.records import Message
from storage.releases.release import load_split, manifest_of
from storage.store import Store
from synth.engines.local.chat_format import ChatFormat
from train.data.general_data import SPLIT
from train.data.token_labels import IGNORED, Unlearnable, every_turn, learned_tokens
from train.device import autocast
from train.spec import Precision, StageSpec


def held_out_chats(store: Store, spec: StageSpec) -> list[Sequence[Message]]:
    """The general conversations that the stage's release keeps aside; none if it has none."""
    if SPLIT not in manifest_of(store, spec.release_id)["splits"]:
        return []
    return [item.conversation.messages for item in load_split(store, spec.release_id, SPLIT) if item.conversation is not None]


def general_loss(model: Any, tokenizer: Any, chats: Sequence[Sequence[Message]], precision: Precision = "auto") -> float | None:
    """Mean negative log-likelihood of the assistant's tokens, in nats a token; None without chats. Those that the model's template cannot
    write, and those longer than its window, do not count."""
    if not chats:
        return None
    device, chat_format = torch.device("cuda" if torch.cuda.is_available() else "cpu"), ChatFormat(tokenizer)
    home, was_training = model.device, model.training
    model = model.to(device).eval()
    total, count = 0.0, 0
    with torch.no_grad(), autocast(precision):
        for chat in chats:
            try:
                row = learned_tokens(chat_format, chat, every_turn, model.config.get_text_config().max_position_embeddings)
            except Unlearnable:
                continue
            labels = torch.tensor([row["labels"]], device=device)
            logits = model(input_ids=torch.tensor([row["input_ids"]], device=device)).logits[:, :-1].float()
            total += torch.nn.functional.cross_entropy(logits[0], labels[0, 1:], ignore_index=IGNORED, reduction="sum").item()
            count += int((labels[0, 1:] != IGNORED).sum())
    model.to(home).train(was_training)
    return total / count if count else None
