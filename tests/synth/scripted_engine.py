"""The engine `scripted`: answers for tasks that it knows the plan of. A stand-in for a model, in tests and for pipelines without one.

It recognises a conversation by its opening, sees how far it is by counting its own messages, and makes the plan's next call or, after
the last, gives the plan's answer. With `skill` below 1 it goes wrong on purpose: at the start of a conversation, from the request's
seed, it decides whether to follow the plan or to spoil it (leave out a call, alter an argument, or answer with nothing).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from storage.records import Call, FunctionCall, Message, Task, ToolCall, canonical_json, content_id
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure


class ScriptedEngine:
    """Follows the expert plans of `tasks`, in a share `skill` of conversations (0..1); greedy requests (temperature 0) always follow.

    `name` is also the policy version of its answers.

    Raises:
        ValueError: two tasks open alike and have different plans.
    """

    def __init__(self, tasks: Sequence[Task], *, skill: float = 1.0, name: str = "scripted") -> None:
        self._by_opening: dict[str, Task] = {}
        for task in tasks:
            known = self._by_opening.setdefault(_opening_key(task.messages), task)
            if known.plan != task.plan:
                raise ValueError(f"tasks {known.id} and {task.id} open with the same words and have different plans")
        self._lengths = sorted({len(task.messages) for task in tasks}, reverse=True)
        self._skill = skill
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer a request.

        Raises:
            EngineFailure: a conversation opens like none of the tasks.
        """
        return [self._answer(request) for request in requests]

    def _answer(self, request: ChatRequest) -> ChatAnswer:
        task = self._task_of(request.messages)
        calls, answer = self._script(task, request)
        made = sum(message.role == "assistant" for message in request.messages[len(task.messages) :])
        if made >= len(calls):
            return ChatAnswer(Message(role="assistant", content=answer), "stop", policy_version=self._name)
        arguments = json.dumps(calls[made].arguments, ensure_ascii=False)
        call = ToolCall(id=f"call_{made}", function=FunctionCall(name=calls[made].tool, arguments=arguments))
        return ChatAnswer(Message(role="assistant", tool_calls=(call,)), "tool_calls", policy_version=self._name)

    def _task_of(self, messages: Sequence[Message]) -> Task:
        for length in self._lengths:
            task = self._by_opening.get(_opening_key(messages[:length])) if length <= len(messages) else None
            if task is not None:
                return task
        raise EngineFailure("the scripted engine knows no task that opens like this conversation")

    def _script(self, task: Task, request: ChatRequest) -> tuple[tuple[Call, ...], str]:
        """The calls and the answer of this conversation: the plan's, or a spoilt plan's."""
        calls, answer = task.plan.calls, task.plan.answer
        rng = random.Random(content_id("scripted", task.id, request.seed))
        if request.temperature == 0 or rng.random() < self._skill:
            return calls, answer
        spoil = rng.choice(("drop", "alter", "silence")) if calls else "silence"
        if spoil == "silence":
            return calls, ""
        at = rng.randrange(len(calls))
        if spoil == "drop":
            return (*calls[:at], *calls[at + 1 :]), answer
        altered = calls[at].model_copy(update={"arguments": {**calls[at].arguments, "no_such_parameter": 1}})
        return (*calls[:at], altered, *calls[at + 1 :]), answer


def _opening_key(messages: Sequence[Message]) -> str:
    return canonical_json([message.to_openai() for message in messages])
