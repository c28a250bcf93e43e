"""Tokens and labels of conversations: which of the assistant's turns are learned.

One idea: a conversation stays whole, so that each turn is learned in its original context. A rule decides for each assistant turn whether
it is learned; a turn with an error remains as context.
Source: ROME, arXiv 2512.24873, equations 1 and 2 (m_k, the part about errors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from storage.errors import BadInput
from storage.records import JSON, Message, is_error

IGNORED = -100
"""Label of a token that is not learned."""
TurnRule = Callable[[Sequence[Message]], list[bool]]
"""A conversation -> for each assistant message, whether it is learned."""


def every_turn(messages: Sequence[Message]) -> list[bool]:
    return [True for message in messages if message.role == "assistant"]


def turns_without_errors(messages: Sequence[Message]) -> list[bool]:
    """A turn erred if a call of it returned an error, or if its call is malformed."""
    return [not _has_erred(messages, place) for place, message in enumerate(messages) if message.role == "assistant"]


def _has_erred(messages: Sequence[Message], place: int) -> bool:
    answers = []
    for message in messages[place + 1 :]:
        if message.role != "tool":
            break
        answers.append(message.content or "")
    turn = messages[place]
    return any(map(is_error, answers)) or (not turn.tool_calls and "<tool_call>" in (turn.content or ""))


LEFT_OUT: Mapping[Literal["nothing", "erred"], TurnRule] = {"nothing": every_turn, "erred": turns_without_errors}
"""Values of `leave_out`, and their rules."""


def marking_template(tokenizer: Any) -> str | None:
    """TRL's version of the tokenizer's chat template, which marks the assistant's text; None if the tokenizer's template marks it.

    Raises:
        BadInput: TRL has no version of it.
    """
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    if has_generation_markers(tokenizer.chat_template):
        return None
    try:
        template: str | None = get_training_chat_template(tokenizer)
    except ValueError:
        raise BadInput(
            "the policy's chat template does not mark what the assistant writes: enclose that in {% generation %} and {% endgeneration %}"
        ) from None
    return template


def learned_tokens(
    tokenizer: Any,
    messages: Sequence[Message],
    rule: TurnRule,
    longest: int,
    *,
    tools: Sequence[Mapping[str, JSON]] = (),
    template: str | None = None,
) -> dict[str, list[int]]:
    """`input_ids` of the conversation, and `labels`: the same ids in learned assistant turns (end of turn included), IGNORED elsewhere.

    tools: available tools in OpenAI form. template: replaces the tokenizer's (`marking_template`).
    Arguments of calls stay JSON strings; as nested values, the template would format them differently from the policy.

    Raises:
        BadInput: there are more than `longest` tokens, or the chat template does not mark the assistant's turns.
    """
    rendered = tokenizer.apply_chat_template(
        [_plain(message) for message in messages],
        tools=list(tools) or None,
        chat_template=template,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ids, mask = rendered["input_ids"], rendered["assistant_masks"]
    if len(ids) > longest:
        raise BadInput(f"it has {len(ids)} tokens, the policy's window {longest}: leave it out, or take a larger model")
    runs = [(bool(is_assistant), len(list(run))) for is_assistant, run in groupby(mask)]
    is_learned = rule(messages)
    marked = sum(is_assistant for is_assistant, _ in runs)
    if marked != len(is_learned):
        raise BadInput(
            f"the chat template marks {marked} turns of an assistant that has {len(is_learned)}; it must enclose each of them, and nothing "
            "else, in {% generation %}"
        )
    learned, labels = iter(is_learned), list[int]()
    for is_assistant, length in runs:
        part = ids[len(labels) : len(labels) + length]
        labels += part if is_assistant and next(learned) else [IGNORED] * length
    return {"input_ids": list(ids), "labels": labels}


def _plain(message: Message) -> dict[str, Any]:
    calls = [
        {"type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}} for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content or "", "tool_calls": calls}
