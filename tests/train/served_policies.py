"""A model server that plays a policy: real requests, answered by the plans of tasks, as often rightly as its skill has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import Mock
from storage.records import Message, Task
from synth.engines.base import ChatRequest
from tests.synth.scripted_engine import ScriptedEngine


class Served(Mock):
    """answered: whole requests, those that only look at the server left out, with how often each was answered."""

    def __init__(
        self, tasks: Sequence[Task], *, skill: float = 0.6, latency_s: float = 0.0, faults: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(latency_s, faults)
        self.played = ScriptedEngine(tasks, skill=skill)
        self.answered: Counter[bytes] = Counter()

    async def _answered(self, request: web.Request, body: bytes, digest: str, fault: str | None) -> web.StreamResponse:
        asked = orjson.loads(body)
        if fault is not None or asked["messages"][-1]["content"] == "ping":
            return await super()._answered(request, body, digest, fault)
        self.answered[body] += 1
        return web.json_response(self._told(asked))

    def _told(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        messages = tuple(Message.model_validate(message) for message in asked["messages"])
        (answer,) = self.played.chat([ChatRequest(messages, temperature=asked["temperature"], seed=asked["seed"])])
        choice = {"index": 0, "message": answer.message.to_openai(), "finish_reason": answer.finish_reason}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return {"id": "x", "object": "chat.completion", "model": asked["model"], "choices": [choice], "usage": usage}
