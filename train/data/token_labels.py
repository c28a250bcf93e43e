"""Tokens and labels of conversations: which of the assistant's turns are learned.

One idea: a conversation stays whole, so that each turn is learned in its original context, which is an engine's, token by token
(`synth/engines/local/chat_format.py`). A rule decides for each assistant turn whether it is learned; a turn with an error remains as
context.
Source: ROME, arXiv 2512.24873, equations 1 and 2 (m_k, the part about errors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from storage.errors import BadInput, HeadraceError
from storage.records import Message, Tool, is_error
from synth.engines.local.call_texts import is_broken_call
from synth.engines.local.chat_format import ChatFormat


class Unlearnable(HeadraceError):
    """A conversation cannot be trained on; the message says which kind it is: "longer than ..", "with .."."""


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
    return any(map(is_error, answers)) or is_broken_call(turn)


LEFT_OUT: Mapping[Literal["nothing", "erred"], TurnRule] = {"nothing": every_turn, "erred": turns_without_errors}
"""Values of `leave_out`, and their rules."""


def learned_tokens(
    chat_format: ChatFormat, messages: Sequence[Message], rule: TurnRule, longest: int, *, tools: Sequence[Tool] = ()
) -> dict[str, list[int]]:
    """`input_ids` of the conversation up to the last answer, and `labels`: the same ids in learned assistant turns (end of turn included),
    IGNORED elsewhere. They are the tokens that an engine has in its context where a policy writes these turns.

    tools: available tools.

    Raises:
        Unlearnable: there are more than `longest` tokens, or the chat template cannot write a turn.
    """
    if (lost := chat_format.unwritable(messages)) is not None:
        raise Unlearnable(f"with {lost}, which the model's chat template cannot write")
    learned = iter(rule(messages))
    ids, labels = list[int](), list[int]()
    try:
        pieces = chat_format.pieces(_up_to_last_answer(messages), tools)
    except BadInput as refused:
        raise Unlearnable(f"that the model's chat template refuses: {refused}") from refused
    for piece in pieces:
        ids += piece.ids
        labels += piece.ids if piece.is_turn and next(learned) else [IGNORED] * len(piece.ids)
    if len(ids) > longest:
        raise Unlearnable(f"longer than {longest:,} tokens (the policy's window, or pack_tokens)")
    return {"input_ids": ids, "labels": labels}


def _up_to_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return messages[: last + 1] or messages
