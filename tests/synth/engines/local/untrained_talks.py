"""Conversations for the engine `hf:` without a trained policy: a model with all that can go wrong, requests, and replies as tools give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from storage.records import Message, SampledTurn
from synth.engines.base import ChatAnswer, ChatRequest
from synth.rollouts.episode import Trace, trace
from tests.train.tiny_policies import expert_conversations, retail_tasks
from train import tiny

EXPERTS = expert_conversations(retail_tasks("order_status", "close_by_category", "buy_pick", "special_service", "close_and_buy"))
WINDOW = 256


def build_tokenizer() -> Any:
    return tiny.build_tokenizer(["lamp lamp", *map(tiny.render, EXPERTS)])


def untrained_model(tokenizer: Any) -> Qwen3ForCausalLM:
    """With all that can go wrong: grouped heads, an own head, norms that are not 1, and sharp distributions."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name:
                weights.uniform_(0.5, 1.5)
            else:
                weights.normal_(0.0, 0.3)
    return model


def requests_of(*, temperature: float, copies: int = 1) -> list[ChatRequest]:
    """Conversations whose prompts and answers differ in length; copies share a prompt and have another seed."""
    return [
        ChatRequest(
            tuple(messages[: 2 + 2 * (index % 2)] if len(messages) > 4 else messages[:2]),
            temperature=temperature,
            max_tokens=5 + 4 * index,
            seed=100 * copy + index,
        )
        for copy in range(copies)
        for index, messages in enumerate(EXPERTS)
    ]


class ToolReplies:
    """Replies to each answer with an expert's tool results, for a number of turns per conversation."""

    def __init__(self, *turns: int) -> None:
        self._turns, self.answers = turns, dict[int, list[ChatAnswer]]()

    def __call__(self, index: int, answer: ChatAnswer) -> Sequence[Message] | None:
        given = self.answers.setdefault(index, [])
        given.append(answer)
        if len(given) >= self._turns[index % len(self._turns)]:
            return None
        observations = [message for message in EXPERTS[(index + len(given)) % 2] if message.role == "tool"]
        return observations[: 1 + len(given) % 2]


def trace_of(answers: Sequence[ChatAnswer]) -> Trace:
    """Every prompt repeats what was sampled before it, token by token."""
    known, turns = (), []
    for answer in answers:
        assert answer.prompt_ids[: len(known)] == known
        context = answer.prompt_ids[len(known) :]
        turns.append(SampledTurn(token_ids=answer.token_ids, logprobs=answer.logprobs, policy_version="", context_ids=context))
        known = (*answer.prompt_ids, *answer.token_ids)
    return trace(turns)


def forward_logprobs(model: Qwen3ForCausalLM, trace: Trace, temperature: float) -> list[float]:
    """Of every token after the prompt, by one plain forward pass over the whole trace."""
    ids = torch.tensor([trace.prompt_ids + trace.ids])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0].float() / temperature, dim=-1)
    start = len(trace.prompt_ids)
    return [logprobs[start + place - 1, token].item() for place, token in enumerate(trace.ids)]


def words(engine: Any, count: int) -> tuple[Message, ...]:
    """A prompt of so many tokens of the engine's model."""
    short = len(engine.prompt_ids((Message(role="user", content="lamp"),)))
    messages = (Message(role="user", content=" ".join(["lamp"] * (count - short + 1))),)
    assert len(engine.prompt_ids(messages)) == count
    return messages
