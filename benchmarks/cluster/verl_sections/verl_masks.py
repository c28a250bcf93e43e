"""Tokens of a rollout or a conversation whose mask, log-probability or id is wrong, to count what verl is handed wrongly.

One idea: the right mask is found from the ids alone: what stands between the chat template's assistant header and its end of turn. The
right ids are the template's for the expert's whole conversation. Nothing here imports verl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def mask_errors(tokenizer: Any, played: Mapping[str, Any], whole: str, logprob: float) -> int:
    """Wrong tokens of a stored rollout.

    whole: the expert's conversation as the chat template writes it. logprob: log-probability of every token that was sampled.
    """
    prompt, response = played["prompts"].tolist(), played["responses"].tolist()
    ids = prompt + response
    right = assistant_mask(tokenizer, ids)[len(prompt) :]
    written = tokenizer.encode(whole, add_special_tokens=False)[: len(ids)]
    wrong_ids = sum(a != b for a, b in zip(ids, written, strict=False)) + abs(len(ids) - len(written))
    logprobs = [logprob * each for each in right]
    return (
        wrong_ids
        + sum(a != b for a, b in zip(played["response_mask"].tolist(), right, strict=True))
        + sum(a != b for a, b in zip(played["rollout_log_probs"].tolist(), logprobs, strict=True))
    )


def sft_mask_errors(tokenizer: Any, ids: Sequence[int], mask: Sequence[int]) -> int:
    """Wrong tokens of a conversation. verl trains the line break after an end of turn too, which the chat template writes."""
    right, newline = assistant_mask(tokenizer, ids), tokenizer.encode("\n", add_special_tokens=False)
    after = [int(place > 0 and right[place - 1] and not right[place] and [token] == newline) for place, token in enumerate(ids)]
    return sum(a != max(b, c) for a, b, c in zip(mask, right, after, strict=True))


def assistant_mask(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """1 for what the assistant writes, its end of turn included, else 0."""
    header = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    mask, is_inside = [0] * len(ids), False
    for place, token in enumerate(ids):
        mask[place] = int(is_inside)
        is_inside = token != end if is_inside else list(ids[place + 1 - len(header) : place + 1]) == header
    return mask
