"""A scripted stand-in for vLLM's endpoints of tokens and weights, which writes down what it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import Mock

WINDOW = 1000


class ScriptedVLLM(Mock):
    """Answers by a script.

    Args:
        answer: sampled tokens after a prompt; by default none is known.
        statuses: path -> status of its answers, where it is not 200.

    Attributes:
        generated: bodies of the requests for tokens, in the order of their arrival.
        controlled: the other posts, with their queries, in order; for a call of workers its method.
        choice: changes a response's choice before it is sent.
    """

    def __init__(self, answer: Callable[[list[int]], list[int]], statuses: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self._answer, self._statuses = answer, statuses or {}
        self.generated: list[dict[str, Any]] = []
        self.controlled: list[str] = []
        self.choice: Callable[[dict[str, Any]], dict[str, Any]] = lambda choice: choice
        self.is_cache_reset = True

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/inference/v1/generate", self.generate)
        for path in ("sleep", "wake_up", "collective_rpc", "reset_prefix_cache"):
            app.router.add_post(f"/{path}", self.control)
        return app

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "policy", "max_model_len": WINDOW}]})

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.generated.append(body)
        if status := self._statuses.get(request.path):
            return web.json_response({"error": {"message": "the engine is gone"}}, status=status)
        ids = self._answer(body["token_ids"])[: body["sampling_params"]["max_tokens"]]
        steps = [{"logprob": -0.5 * place} for place in range(len(ids))]
        choice = {"token_ids": ids, "logprobs": {"content": steps}, "finish_reason": "stop"}
        scores = [None, *({str(token): {"logprob": -float(token)}} for token in body["token_ids"][1:])]
        return web.json_response({"choices": [self.choice(choice)], "prompt_logprobs": scores})

    async def control(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.controlled.append(str(body.get("method") or request.path_qs))
        if status := self._statuses.get(self.controlled[-1]):
            return web.json_response({"error": {"message": "Worker failed"}}, status=status)
        return web.json_response({"success": self.is_cache_reset}) if "cache" in request.path else web.Response()
