"""Conversations in forms that are no trainer's: ATIF, Harbor's interchange format, and ShareGPT with tool calls (LLaMA-Factory).

One idea: both tell one conversation an object. In ATIF a step of the agent holds its calls and their results; in ShareGPT calls and results
alternate, so calls that were parallel follow one another.

What they do not carry: ShareGPT has no place for the text of a message that also calls; neither has tasks without a conversation.
Source: Harbor's RFC 0001, ATIF 1.7 (docs/rfcs/0001-trajectory-format.md); LLaMA-Factory, data/README.md, "ShareGPT format".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from storage.records import JSON, Message, Rollout, parse_arguments
from storage.releases.export_rows import about, split_calls
from storage.releases.release import ReleasedItem

ATIF = "ATIF-v1.7"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


def atif_row(item: ReleasedItem, tools: list[dict[str, JSON]]) -> dict[str, Any]:
    """A conversation as an ATIF trajectory. tools: on offer, in OpenAI form."""
    conversation = item.conversation
    assert conversation is not None
    model = conversation.policy_id if isinstance(conversation, Rollout) else conversation.teacher
    steps = _steps(conversation.messages)
    metrics: dict[str, JSON] = {"total_steps": len(steps)}
    cost = conversation.cost
    if cost.prompt_tokens or cost.completion_tokens:
        metrics |= {"total_prompt_tokens": cost.prompt_tokens, "total_completion_tokens": cost.completion_tokens}
        metrics |= {"total_cost_usd": cost.usd}
    return {
        "schema_version": ATIF,
        "session_id": item.item.item_id,
        "trajectory_id": item.item.item_id,
        "agent": {"name": "headrace", "version": "1", "model_name": model or "unknown", "tool_definitions": tools},
        "steps": steps,
        "final_metrics": metrics,
        "extra": {"kind": item.item.kind, "reward": conversation.reward, **about(item)},
    }


def _steps(messages: Sequence[Message]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            results = steps[-1].setdefault("observation", {"results": []})["results"]
            results.append({"source_call_id": message.tool_call_id, "content": message.content or ""})
            continue
        step: dict[str, Any] = {"step_id": len(steps) + 1, "source": _SOURCES[message.role], "message": message.content or ""}
        if message.tool_calls:
            step["tool_calls"] = [
                {"tool_call_id": call.id, "function_name": call.function.name, "arguments": parse_arguments(call.function.arguments)}
                for call in message.tool_calls
            ]
        steps.append(step)
    return steps


def sharegpt_row(item: ReleasedItem, tools: list[dict[str, JSON]]) -> dict[str, Any]:
    """A conversation in ShareGPT form: `conversations`, `system`, `tools` (JSON text), and the columns of every export."""
    conversation = item.conversation
    assert conversation is not None
    messages = list(split_calls(conversation.messages))
    system = [message.content or "" for message in messages if message.role == "system"]
    return {
        "conversations": [_said(message) for message in messages if message.role != "system"],
        "system": "\n\n".join(system),
        "tools": json.dumps([tool["function"] for tool in tools], ensure_ascii=False) if tools else "",
        "id": item.item.item_id,
        "kind": item.item.kind,
        "teacher": conversation.teacher,
        "reward": conversation.reward,
        **about(item),
    }


def _said(message: Message) -> dict[str, str]:
    if not message.tool_calls:
        return {"from": _SPEAKERS[message.role], "value": message.content or ""}
    function = message.tool_calls[0].function
    call = {"name": function.name, "arguments": parse_arguments(function.arguments)}
    return {"from": "function_call", "value": json.dumps(call, ensure_ascii=False)}


ROWS = {"atif": atif_row, "sharegpt": sharegpt_row}
"""Format -> the row of a conversation."""
