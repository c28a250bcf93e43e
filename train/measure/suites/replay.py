"""A scripted policy that makes given calls, for controls: the reference of every case, or the same damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.records import Call, FunctionCall, Message, ToolCall, plain_json
from synth.engines.base import ChatAnswer, ChatRequest
from train.measure.suites.play import seed_of
from train.measure.suites.suite import Reference, Suite, SuiteCase


class ReplayEngine:
    """Makes the calls of a reference, and says its answer at the end of each turn; a turn beyond the reference's gets its last answer. A
    request's seed tells the case (`play.seed_of`): several cases may open with the same words.

    alter: case -> its reference, damaged; as it is by default.
    together: whether the calls of a turn are made in one message, instead of one each.
    """

    name = "scripted:reference"

    def __init__(
        self,
        suite: Suite,
        cases: Sequence[SuiteCase],
        alter: Callable[[SuiteCase], Reference] = lambda case: case.reference,
        *,
        together: bool = False,
    ) -> None:
        self._suite = suite.name
        self._references = {case.id: alter(case) for case in cases}
        self._by_seed = dict[int, dict[int, Reference]]()
        self._together = together

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        return [self.answer(self._reference_of(request), request.messages) for request in requests]

    def _reference_of(self, request: ChatRequest) -> Reference:
        length = len(request.messages)
        if length not in self._by_seed:
            self._by_seed[length] = {seed_of(self._suite, id_, length): reference for id_, reference in self._references.items()}
        return self._by_seed[length][request.seed]

    def answer(self, reference: Reference, messages: Sequence[Message]) -> ChatAnswer:
        """The next message of this reference."""
        places = [place for place, message in enumerate(messages) if message.role == "user"]
        turn, made = len(places) - 1, sum(message.role == "tool" for message in messages[places[-1] :])
        calls: Sequence[Call] = reference.calls[turn] if turn < len(reference.calls) else ()
        if left := calls[made : None if self._together else made + 1]:
            functions = [FunctionCall(name=call.tool, arguments=plain_json(call.arguments)) for call in left]
            asked = tuple(ToolCall(id=f"call_{len(messages)}_{place}", function=function) for place, function in enumerate(functions))
            return ChatAnswer(Message(role="assistant", tool_calls=asked), "tool_calls")
        return ChatAnswer(Message(role="assistant", content=reference.answers[min(turn, len(reference.answers) - 1)]), "stop")
