"""Scripted stand-ins for language models that read or label, and a server that gives a scripted answer over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from aiohttp import web

from benchmarks.synthesis_sections import mock_openai
from benchmarks.synthesis_sections.mock_openai import Mock
from filters.taxonomy.agreement import Known
from filters.taxonomy.tree import Tree
from storage.records import Frame, Message
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure

Answer = str | EngineFailure
OVERFLOW = "(no room)"


class Scripted:
    """Scripted: answers each text from a table, try after try, the last answer for ever; raises where the table holds a failure, and has no
    room for an answer where it holds `OVERFLOW`."""

    name = "scripted"
    context_tokens: int | None = None

    def __init__(self, table: Mapping[str, Answer | Sequence[Answer]]) -> None:
        self.table = {text: [said] if isinstance(said, str | EngineFailure) else list(said) for text, said in table.items()}
        self.asked: list[ChatRequest] = []

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += requests
        return [self._answer(self._said(one)) for one in requests]

    def _answer(self, said: str) -> ChatAnswer:
        if said == OVERFLOW:
            return ChatAnswer(Message(role="assistant", content=""), "length")
        return ChatAnswer(Message(role="assistant", content=said), "stop")

    def _said(self, request: ChatRequest) -> str:
        answers = self.table[text_of(str(request.messages[1].content))]
        said = answers[min(len(request.messages) // 2 - 1, len(answers) - 1)]
        if isinstance(said, EngineFailure):
            raise said
        return said


class Labeller:
    """Scripted: labels texts by a function, several in a request, and names a group after its first text's first word."""

    name = "scripted"

    def __init__(self, label: Callable[[str], str]) -> None:
        self.label, self.asked = label, list[ChatRequest]()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += requests
        return [ChatAnswer(Message(role="assistant", content=self._said(str(one.messages[1].content))), "stop") for one in requests]

    def _said(self, user: str) -> str:
        numbered = re.findall(r"^\d+\. (.+)$", user, re.MULTILINE)
        if not numbered:
            first = json.loads(user.splitlines()[0][2:]).split()[0]
            return json.dumps({"name": f"{first} matters", "description": f"Requests about {first}.", "cues": [first]})
        labels = [self.label(json.loads(text)) for text in numbered]
        rows = [
            {"n": number, "label": label, "sure": 0.95, "about": "something new" if label.endswith("other") else None}
            for number, label in enumerate(labels, 1)
        ]
        return json.dumps({"rows": rows})


def text_of(user: str) -> str:
    """The request that a reader is shown."""
    return str(json.loads(user.splitlines()[-1]))


def reading(intent: str, why: str = "", /, **slots: str | float) -> str:
    """A reader's answer."""
    return json.dumps({"intent": intent, "why": why, "slots": [{"slot": name, "value": value} for name, value in slots.items()]})


def of_frame(frame: Frame | None) -> str:
    """The answer that reads this frame."""
    if frame is None:
        return reading("none", "not_actionable")
    return reading(f"{frame.world}/{frame.intent}", **frame.slots)  # type: ignore[arg-type]


def leaf_by_text(asked: Sequence[Known], tree: Tree) -> dict[str, str]:
    return {one.norm: tree.leaf_of_intent[f"{one.frame.world}/{one.frame.intent}"] for one in asked if one.frame}


@contextlib.contextmanager
def served(say: Callable[[str], str], *, window: int | None = None) -> Iterator[tuple[Mock, str]]:
    """A mock server, which may tell of its model's window, that answers with what `say` makes of the first user message; and its URL."""

    def answer(body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        said = say(messages[1]["content"]) if len(messages) > 1 else "pong"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 10}}

    class Served(Mock):
        async def models(self, _: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": mock_openai.MODEL, "max_model_len": window}]})

    own, loop = Served(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(own.app(), access_log=None, shutdown_timeout=0.1)

    async def begin() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    with mock.patch.object(mock_openai, "answer", answer):
        try:
            yield own, asyncio.run_coroutine_threadsafe(begin(), loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
