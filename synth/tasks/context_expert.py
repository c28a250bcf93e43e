"""The expert of a task with a context: it makes the plan's calls, and reads on where a shortened result hides what the plan needs.

One idea: the rule that shortens results is blind to the plan, so the expert must call for what is hidden, as a policy has to. How far it
reads follows from the verifier alone: of each shortened result the fewest pages, from the first hidden one on, with which the conversation
passes. A result whose shown part suffices is not read on.
With notes, it notes the values of its next call whenever a shortened result stands before that call; the mark is the cue.

It works for any assistant that knows its plan: the plan of a task here, the scripted assistant in `synth/conversations/`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from storage.context.context_tools import READ_MORE, WRITE_NOTE
from storage.records import CODE_TOOL, JSON, Call, FunctionCall, Message, Task, Tool, ToolCall, leaves, parse_arguments, plain_json
from synth.context.marks import OpenMark, open_marks
from synth.context.view import MAX_NOTE_CHARS, open_world
from synth.tasks.verify import Verdict, judge
from synth.worlds.base import World

MAX_MESSAGES = 8
"""Messages of the assistant for one user turn: what a rollout may have."""
Act = Callable[[Sequence[Message], Sequence[Tool]], Message]
Pages = Mapping[str, int] | None
"""Id of a shortened result -> pages to read of it, none if it is not there; None: all of everything."""
Judged = TypeVar("Judged")


class Reader:
    """An assistant that reads on in shortened results before it goes on with its plan.

    act: the assistant that knows the plan; it does not see what is read, nor notes.
    read: id of a shortened result -> pages read of it.
    """

    def __init__(self, act: Act, pages: Pages, *, writes_notes: bool = False) -> None:
        self._act, self._pages, self._writes_notes = act, pages, writes_notes
        self.read: Counter[str] = Counter()
        self._open: list[OpenMark] = []
        self._own_calls: set[str | None] = set()
        self._is_cut = False
        self._planned: Message | None = None

    def act(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
        """The next message: a page, a note, or what the plan says."""
        if self._planned is not None:
            planned, self._planned = self._planned, None
            return planned
        self._open = [*(mark for content in _last_results(messages) for mark in open_marks(content)), *self._open]
        self._is_cut |= bool(self._open)
        while self._open:
            mark = self._open.pop(0)
            if self._pages is None or self.read[mark.id] < self._pages.get(mark.id, 0):
                self.read[mark.id] += 1
                return self._call(READ_MORE, {"id": mark.id, "from": mark.start})
        planned = self._act([message for message in messages if not self._is_own(message)], tools)
        is_noted = self._writes_notes and self._is_cut and (note := _note(planned))
        self._is_cut = False
        if not is_noted:
            return planned
        self._planned = planned
        return self._call(WRITE_NOTE, {"text": note})

    def _call(self, tool: str, arguments: Mapping[str, JSON]) -> Message:
        call = ToolCall(id=f"context_{len(self._own_calls)}", function=FunctionCall(name=tool, arguments=plain_json(arguments)))
        self._own_calls.add(call.id)
        return Message(role="assistant", tool_calls=(call,))

    def _is_own(self, message: Message) -> bool:
        return message.tool_call_id in self._own_calls or any(call.id in self._own_calls for call in message.tool_calls)


def _last_results(messages: Sequence[Message]) -> list[str]:
    """The results since the assistant's last message."""
    results: list[str] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        results.insert(0, message.content or "")
    return results


def _note(planned: Message) -> str:
    """The values of the calls of a message, each with its name; nothing of a program."""
    arguments = [parse_arguments(call.function.arguments) or {} for call in planned.tool_calls if call.function.name != CODE_TOOL]
    values = [f"{path} {value}" for each in arguments for path, value in leaves(each)]
    return ", ".join(values)[:MAX_NOTE_CHARS]


@dataclass(frozen=True, slots=True)
class Played(Generic[Judged]):
    """A conversation of an expert. read: pages of each shortened result. verdict: what its judge said, and `passed`, whether it holds."""

    messages: tuple[Message, ...]
    read: Mapping[str, int]
    passed: bool
    verdict: Judged


def read_least(play: Callable[[Pages], Played[Judged]]) -> Played[Judged]:
    """The conversation that passes with the fewest pages; the one that reads everything if even that does not pass.

    play: the conversation with so many pages.
    """
    played = play({})
    if played.passed:
        return played
    played = play(None)
    pages = dict(played.read)
    for cut in pages if played.passed else ():
        fewer = (play({**pages, cut: count}) for count in range(pages[cut]))
        best = next((one for one in fewer if one.passed), None)
        if best is not None:
            played, pages = best, {**pages, cut: best.read.get(cut, 0)}
    return played


def play_calls(kind: type[World], task: Task, calls: Sequence[Call], answer: str, pages: Pages) -> Played[Verdict]:
    """Calls, one in each message, and an answer, in a fresh world of the task, with pages read in between.

    kind: the task's world.
    """
    world, messages = open_world(kind, task), list(task.messages)
    reader = Reader(_steps(calls, answer), pages, writes_notes=task.context is not None and task.context.notes)
    while True:
        said = reader.act(messages, ())
        messages.append(said)
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            content = world.call(call.function.name, call.function.arguments).content
            messages.append(Message(role="tool", content=content, tool_call_id=call.id))
    verdict = judge(kind, task, messages, world.changes())
    world.close()
    return Played(tuple(messages), dict(reader.read), verdict.success, verdict)


def play_plan(kind: type[World], task: Task) -> Played[Verdict]:
    """The task's plan, with as few pages as it needs."""
    return read_least(lambda pages: play_calls(kind, task, task.plan.calls, task.plan.answer, pages))


def _steps(calls: Sequence[Call], answer: str) -> Act:
    remaining = iter(enumerate(calls))

    def act(_: Sequence[Message], __: Sequence[Tool]) -> Message:
        at, call = next(remaining, (-1, None))
        if call is None:
            return Message(role="assistant", content=answer)
        function = FunctionCall(name=call.tool, arguments=json.dumps(call.arguments, ensure_ascii=False))
        return Message(role="assistant", tool_calls=(ToolCall(id=f"call_{at}", function=function),))

    return act
