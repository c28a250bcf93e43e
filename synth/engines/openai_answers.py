"""What is read from an answer of OpenAI's chat completions API, and kept; a server may say anything.

One idea: what does not fit is a malformed answer, told here, before anything is kept or counted. The text of a message stays as it is, as
it may be trained on; names, ids and reasons are cut and cleaned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from storage.outside.safe_text import one_line
from storage.records import JSON, FunctionCall, Message, ToolCall
from synth.engines.base import ChatAnswer, FinishReason

_FINISH_REASONS: Mapping[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls"}
_NAME_LENGTH, _ID_LENGTH = 200, 200
_MOST_TOKENS = 10**9
"""Of one answer; more is no count."""


def read_answer(response: Any) -> dict[str, JSON]:
    """The part of a response that is cached. Raises KeyError, TypeError, ValueError or the like if it is malformed."""
    choice, usage = response["choices"][0], response.get("usage") or {}
    message, reason = choice["message"], choice.get("finish_reason")
    calls = [
        {
            "id": one_line(_text(call["id"]), _ID_LENGTH),
            "name": one_line(_text(call["function"]["name"]), _NAME_LENGTH),
            "arguments": _text(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]
    data: dict[str, JSON] = {
        "message": {"content": message.get("content"), "tool_calls": calls},
        "finish_reason": None if reason is None else one_line(_text(reason), _NAME_LENGTH),
        "prompt_tokens": _count(usage.get("prompt_tokens")),
        "completion_tokens": _count(usage.get("completion_tokens")),
    }
    steps = (choice.get("logprobs") or {}).get("content")
    if steps:
        data["logprobs"] = [round(_logprob(step["logprob"]), 6) for step in steps]
        data["entropies"] = [round(_entropy(step), 6) for step in steps]
    if choice.get("token_ids"):
        data["token_ids"] = [_count(one) for one in choice["token_ids"]]
    if response.get("prompt_token_ids"):
        data["prompt_ids"] = [_count(one) for one in response["prompt_token_ids"]]
    answer_of(data, "", 0.0)
    return data


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: Any) -> int:
    """A number of tokens, or the id of one."""
    count = int(value or 0)
    if not 0 <= count <= _MOST_TOKENS:
        raise ValueError(f"{count} is no number of tokens")
    return count


def _logprob(value: Any) -> float:
    """A log-probability; servers round, so one may lie a little above 0."""
    logprob = float(value)
    if not logprob < 1e-3:
        raise ValueError(f"{logprob} is no log-probability")
    return logprob


def _entropy(step: Mapping[str, Any]) -> float:
    """Lower bound of a step's entropy in nats: the likeliest tokens, and the rest as one token."""
    shares = [math.exp(_logprob(one["logprob"])) for one in step.get("top_logprobs") or ()]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def answer_of(data: Mapping[str, Any], name: str, usd: float) -> ChatAnswer:
    message = data["message"]
    calls = tuple(
        ToolCall(id=call["id"], function=FunctionCall(name=call["name"], arguments=call["arguments"]))
        for call in message.get("tool_calls") or ()
    )
    finish = _FINISH_REASONS.get(data["finish_reason"], "tool_calls" if calls else "stop")
    return ChatAnswer(
        Message(role="assistant", content=message["content"] or (None if calls else ""), tool_calls=calls),
        finish,
        token_ids=tuple(data.get("token_ids", ())),
        logprobs=tuple(data.get("logprobs", ())),
        prompt_tokens=data["prompt_tokens"],
        completion_tokens=data["completion_tokens"],
        policy_version=name,
        entropies=tuple(data.get("entropies", ())),
        latency_s=data.get("latency_s", 0.0),
        usd=usd,
        prompt_ids=tuple(data.get("prompt_ids", ())),
    )
