"""A scripted policy that makes given calls, for controls: the reference of every case, or the same damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.records import Call, FunctionCall, Message, ToolCall, plain_json
from synth.engines.base import ChatAnswer, ChatRequest
from train.measure.suites.base import Reference, SuiteCase


class ReplayEngine:
    """Makes the calls of a reference, a turn's together, and says its answer at the end of each turn. Cases are told by the user's first
    message; a turn beyond the reference's gets its last answer.

    alter: case -> its reference, damaged; as it is by default.
    """

    name = "scripted:reference"

    def __init__(self, cases: Sequence[SuiteCase], alter: Callable[[SuiteCase], Reference] = lambda case: case.reference) -> None:
        self._references = {case.said[0]: alter(case) for case in cases}

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer(request.messages) for request in requests]

    def _answer(self, messages: Sequence[Message]) -> ChatAnswer:
        places = [place for place, message in enumerate(messages) if message.role == "user"]
        reference = self._references[messages[places[0]].content or ""]
        turn, has_called = len(places) - 1, messages[-1].role == "tool"
        calls: Sequence[Call] = reference.calls[turn] if turn < len(reference.calls) else ()
        if calls and not has_called:
            functions = [FunctionCall(name=call.tool, arguments=plain_json(call.arguments)) for call in calls]
            made = tuple(ToolCall(id=f"call_{len(messages)}_{place}", function=function) for place, function in enumerate(functions))
            return ChatAnswer(Message(role="assistant", tool_calls=made), "tool_calls")
        return ChatAnswer(Message(role="assistant", content=reference.answers[min(turn, len(reference.answers) - 1)]), "stop")
