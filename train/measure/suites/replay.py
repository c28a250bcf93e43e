"""A scripted policy that makes given calls, for controls: the reference of every case, or the same damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.records import Call, FunctionCall, Message, ToolCall, plain_json
from synth.engines.base import ChatAnswer, ChatRequest
from train.measure.suites.suite import Reference, SuiteCase


class ReplayEngine:
    """Makes the calls of a reference, and says its answer at the end of each turn; a turn beyond the reference's gets its last answer. The
    user's first message tells the case.

    alter: case -> its reference, damaged; as it is by default.
    together: whether the calls of a turn are made in one message, instead of one each.
    """

    name = "scripted:reference"

    def __init__(
        self, cases: Sequence[SuiteCase], alter: Callable[[SuiteCase], Reference] = lambda case: case.reference, *, together: bool = False
    ) -> None:
        self.references = {case.said[0]: alter(case) for case in cases}
        self._together = together

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self._answer(request.messages) for request in requests]

    def _answer(self, messages: Sequence[Message]) -> ChatAnswer:
        places = [place for place, message in enumerate(messages) if message.role == "user"]
        reference = self.references[messages[places[0]].content or ""]
        turn, made = len(places) - 1, sum(message.role == "tool" for message in messages[places[-1] :])
        calls: Sequence[Call] = reference.calls[turn] if turn < len(reference.calls) else ()
        if left := calls[made : None if self._together else made + 1]:
            functions = [FunctionCall(name=call.tool, arguments=plain_json(call.arguments)) for call in left]
            asked = tuple(ToolCall(id=f"call_{len(messages)}_{place}", function=function) for place, function in enumerate(functions))
            return ChatAnswer(Message(role="assistant", tool_calls=asked), "tool_calls")
        return ChatAnswer(Message(role="assistant", content=reference.answers[min(turn, len(reference.answers) - 1)]), "stop")
