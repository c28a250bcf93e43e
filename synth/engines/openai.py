"""The engine `openai:MODEL`: any server that speaks OpenAI's chat completions, asked for many conversations at once.

One idea: an event loop of the engine's own holds the requests that are in flight (`synth/engines/http.py`); whoever calls `chat`, from
however many threads, waits for its answers alone. Equal requests are sent once, an answer is in the journal before anyone sees it
(`cache.py`), and the budget is asked before anything is sent (`budget.py`).

A context that does not fit is the policy's own doing: its answer is empty, with finish reason `length`. All else that keeps the server from
answering is an `EngineFailure`.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.records import JSON, FunctionCall, Message, Tool, ToolCall
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure, FinishReason
from synth.engines.budget import Budget
from synth.engines.cache import Answered, Answers
from synth.engines.http import Background, JsonServer, Refused, Unanswered
from synth.gc_paused import no_collection

BASE_URL = "https://api.openai.com/v1"
_TRIES_AT_THE_DOOR = 3
"""Of the check: whoever waits for it is a person."""
_OVERFLOW = re.compile(
    r"context length|maximum context|max_model_len|too long|too many tokens|input tokens|output limit was reached", re.IGNORECASE
)
"""What servers say of a prompt that does not fit, and OpenAI's reasoning models of a thought that did not."""
_NEWER_LIMIT = "max_completion_tokens"
_TRACED: Mapping[str, JSON] = {"return_token_ids": True, "logprobs": True}
_PING = ChatRequest((Message(role="user", content="ping"),), max_tokens=1)
_NEVER_STRICT = frozenset({"allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"})
_FINISHED: Mapping[str, FinishReason] = {"length": "length", "tool_calls": "tool_calls"}


class OpenAIConfig(BaseModel):
    """Which server and model, and how it is asked. The key is read from OPENAI_API_KEY and stands in no configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, description="Name of the model, as the server calls it.")
    base_url: str | None = Field(None, description="Where the server's paths begin, e.g. http://localhost:8000/v1. None: OPENAI_BASE_URL.")
    in_flight: int = Field(64, ge=1, le=4096, description="Requests that are with the server at once.")
    timeout_s: float = Field(120.0, gt=0, description="How long one try may take.")
    tries: int = Field(12, ge=1, le=50, description="How often a request is tried that the server could not take.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Fields that go into every request as they are, e.g. top_p.")

    @property
    def url(self) -> str:
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL


class OpenAIEngine:
    """Chats with one model of one server.

    Args:
        answers: where answers are kept and looked up; None keeps none. budget: None spends what it takes.
        name: as stored with every answer, part of what an answer is kept under.
        ended: why the server is gone for good, empty while it is not; before every try it is asked, and none is made then.
    """

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        answers: Answers | None = None,
        budget: Budget | None = None,
        name: str = "",
        ended: Callable[[], str] | None = None,
    ) -> None:
        self.config, self.budget = config, budget or Budget()
        self._name, self._answers, self._ended = name or f"openai:{config.model}", answers, ended
        self._background = Background(self._name)
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._counted: set[str] = set()
        self._arrived: list[tuple[Answered, asyncio.Future[None]]] = []
        self.context_tokens: int | None = None
        """The model's window, prompt and answer together, where `check` was told of one."""
        self.limit_field = "max_tokens"
        """How the server calls the limit of an answer; `check` learns of the other name, which newer models of OpenAI want."""
        self.tells_tokens = False
        """Whether the server tells the tokens of prompts and answers, as vLLM does; `check` finds out."""
        self._server = self._background.run(self._connected())

    @property
    def name(self) -> str:
        return self._name

    @property
    def counts(self) -> Mapping[str, int]:
        """`sent`, and `again: WHY` for each further try."""
        return dict(self._server.counts)

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer a request, in the requests' order. What was answered is kept, also where another request of the batch was not.

        Raises:
            EngineFailure: a request was not answered. BudgetSpent: nothing more may be sent.
        """
        with no_collection():
            return self._background.run(self._all(requests))

    def check(self, *, tools: bool = False, traced: bool = False) -> None:
        """Asks the server, at the cost of a token, whether it will serve.

        Args:
            tools: also whether it takes tools. traced: also whether it tells tokens; one that does not is none the worse.

        Raises:
            BadInput: no server there, a key that it refuses, a model that it does not serve, tools that it does not take.
            EngineFailure: the server has ended.
        """
        self._background.run(self._checked(tools, traced))

    def close(self) -> None:
        self._background.run(self._server.close())
        self._background.close()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- in the loop --------------------------------------------------------------------------------------------------------

    async def _connected(self) -> JsonServer:
        config = self.config
        key = os.environ.get("OPENAI_API_KEY")
        return JsonServer(config.url, key, in_flight=config.in_flight, timeout_s=config.timeout_s, tries=config.tries)

    async def _all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        found = await asyncio.gather(*(self._one(request) for request in requests), return_exceptions=True)
        answers = []
        for one in found:
            if isinstance(one, BaseException):
                raise one
            answers.append(one)
        return answers

    async def _one(self, request: ChatRequest) -> ChatAnswer:
        body = orjson.dumps(self.body(request))
        key = Answers.key(self._name, body)
        told = self._answers.find(key) if self._answers is not None else None
        if told is None:
            told = await self._asked_once(key, body)
        elif self._answers is not None and not self._answers.run:
            self._count(key, told)
        usd = self.budget.cost_usd(told["prompt_tokens"], told["completion_tokens"])
        return _answer(told, request, self._name, usd)

    async def _asked_once(self, key: str, body: bytes) -> Mapping[str, Any]:
        """The answer to a request that is not kept yet; who asks the same in the meantime waits for it."""
        if key in self._pending:
            return await asyncio.shield(self._pending[key])
        waiting = self._pending[key] = self._background.loop.create_future()
        try:
            told = await self._asked(body)
            self._count(key, told)
            if self._answers is not None:
                await self._kept(key, body, told)
        except BaseException as error:
            waiting.set_exception(error)
            waiting.exception()  # nobody may wait for it
            raise
        else:
            waiting.set_result(told)
            return told
        finally:
            del self._pending[key]

    def _count(self, key: str, told: Mapping[str, Any]) -> None:
        """Counts an answer to the budget; who asks the same again pays nothing. A run with a name begins with what it had spent, and what
        others have spent is not its own: it counts what is answered to it."""
        if key not in self._counted:
            self._counted.add(key)
            self.budget.add(told["prompt_tokens"], told["completion_tokens"])

    async def _kept(self, key: str, body: bytes, told: Mapping[str, Any]) -> None:
        """Until the answer is on the disk, with all others that have come in by the end of this turn of the loop."""
        if not self._arrived:
            self._background.loop.call_soon(self._keep_arrived)
        written = self._background.loop.create_future()
        self._arrived.append(((key, body, told), written))
        await written

    def _keep_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        assert self._answers is not None
        try:
            self._answers.keep(self._name, [answered for answered, _ in arrived])
        except BaseException as error:
            for _, written in arrived:
                if not written.done():
                    written.set_exception(error)
        else:
            for _, written in arrived:
                if not written.done():
                    written.set_result(None)

    async def _asked(self, body: bytes) -> Mapping[str, Any]:
        started = time.perf_counter()
        try:
            told = await self._server.post("chat/completions", body, _read, self._check)
        except Refused as refused:
            if refused.status in (400, 413, 422) and _OVERFLOW.search(refused.reason):
                return {"message": {"content": None}, "finish_reason": "length", "prompt_tokens": 0, "completion_tokens": 0}
            raise EngineFailure(str(refused)) from refused
        except Unanswered as error:
            raise EngineFailure(self._gone() or str(error)) from error
        return told | {"latency_s": round(time.perf_counter() - started, 6)}

    def _check(self) -> None:
        """Before a try: whether it is worth making, and may be."""
        if why := self._gone():
            raise EngineFailure(why)
        self.budget.check()

    def _gone(self) -> str:
        return self._ended() if self._ended is not None else ""

    async def _checked(self, tools: bool, traced: bool) -> None:
        url, model = self._server.url, self.config.model
        try:
            served = await self._server.get("models")
            names = [one["id"] for one in served["data"]]
            if model not in names:
                raise BadInput(f"{url} serves no model {model!r}; it serves {', '.join(sorted(names)[:8]) or 'none'}")
            self.context_tokens = next(one.get("max_model_len") for one in served["data"] if one["id"] == model)
            await self._pinged(tools)
            if traced:
                self.tells_tokens = await self._tells_tokens()
        except Refused as refused:
            if refused.status in (401, 403):
                raise BadInput(f"{url} refuses the key in OPENAI_API_KEY (status {refused.status}: {refused.reason})") from refused
            if tools and refused.status in (400, 422) and await self._takes_no_tools():
                hint = "start it with a tool parser, as vLLM's --enable-auto-tool-choice --tool-call-parser hermes"
                raise BadInput(f"{url} takes no tools ({refused.reason}); {hint}") from refused
            raise BadInput(f"{url} is no OpenAI-compatible server for chats (status {refused.status}: {refused.reason})") from refused
        except (Unanswered, KeyError, TypeError) as error:
            if why := self._gone():
                raise EngineFailure(why) from error
            raise BadInput(f"no OpenAI-compatible server answers at {url} ({error}); look at the URL, or at OPENAI_BASE_URL") from error

    async def _pinged(self, tools: bool) -> None:
        """Raises Refused, Unanswered: as the server."""
        ping = Tool(name="ping", description="Says pong.", parameters={"type": "object", "properties": {}}, server="", domain="")
        request = replace(_PING, tools=(ping,) if tools else ())
        try:
            await self._server.post("chat/completions", orjson.dumps(self.body(request)), _read, tries=_TRIES_AT_THE_DOOR)
        except Refused as refused:
            if refused.status == 400 and _NEWER_LIMIT in refused.reason and self.limit_field != _NEWER_LIMIT:
                self.limit_field = _NEWER_LIMIT
                await self._pinged(tools)
            elif refused.status != 400 or not _OVERFLOW.search(refused.reason):
                raise

    async def _tells_tokens(self) -> bool:
        """Whether it answers with tokens where it is asked to; one that knows nothing of it may refuse, or take no notice."""
        try:
            body = orjson.dumps({**self.body(_PING), **_TRACED})
            return "prompt_ids" in await self._server.post("chat/completions", body, _read, tries=_TRIES_AT_THE_DOOR)
        except Refused:
            return False

    async def _takes_no_tools(self) -> bool:
        """Whether it was the tools that the server refused: it takes the same without them."""
        try:
            await self._pinged(tools=False)
        except (Refused, Unanswered):
            return False
        return True

    # ---- the wire -----------------------------------------------------------------------------------------------------------

    def body(self, request: ChatRequest) -> dict[str, JSON]:
        """The whole request, as the server gets it."""
        body: dict[str, JSON] = {
            "model": self.config.model,
            "messages": [message.to_openai() for message in request.messages],
            "temperature": request.temperature,
            self.limit_field: request.max_tokens,
            "seed": request.seed % 2**63,
        }
        if request.tools:
            named: JSON = {"type": "function", "function": {"name": request.tool_choice}}
            body["tools"] = [tool.to_openai() for tool in request.tools]
            body["tool_choice"] = request.tool_choice if request.tool_choice in ("auto", "required", "none") else named
        if request.schema is not None:
            form = {"name": "answer", "schema": dict(request.schema), "strict": is_closed(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.alternatives:
            body |= {"logprobs": True, "top_logprobs": request.alternatives}
        if request.is_traced and self.tells_tokens:
            body |= _TRACED
        return body | self.config.extra


def is_closed(schema: JSON) -> bool:
    """Whether a schema, one that is valid, leaves nothing open: what OpenAI's strict mode demands, which refuses all others. Every value
    has a type, every object requires all its properties and allows no others, every array says of what."""
    if not isinstance(schema, Mapping) or not _NEVER_STRICT.isdisjoint(schema):
        return False
    kind, named = schema.get("type", ()), schema.get("properties", {})
    kinds = {kind} if isinstance(kind, str) else set(kind)
    if not kinds and "anyOf" not in schema and "$ref" not in schema:
        return False
    if "object" in kinds and (schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(named)):
        return False
    if "array" in kinds and "items" not in schema:
        return False
    defined = [*schema.get("$defs", {}).values(), *schema.get("definitions", {}).values()]
    items = [schema["items"]] if "items" in schema else []
    return all(is_closed(one) for one in (*named.values(), *items, *schema.get("anyOf", ()), *defined))


def _read(said: Any) -> dict[str, JSON]:
    """What is kept of an answer. Raises KeyError, TypeError or ValueError where it is none."""
    choice, usage = said["choices"][0], said.get("usage") or {}
    message = choice["message"]
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": _text(call["function"]["arguments"])}
        for call in message.get("tool_calls") or ()
    ]
    told: dict[str, JSON] = {
        "message": {"content": message.get("content"), "tool_calls": calls},
        "finish_reason": choice.get("finish_reason"),
        "prompt_tokens": int(usage.get("prompt_tokens") or 0),
        "completion_tokens": int(usage.get("completion_tokens") or 0),
    }
    steps = (choice.get("logprobs") or {}).get("content")
    if steps:
        told["logprobs"] = [round(float(step["logprob"]), 6) for step in steps]
        told["entropies"] = [round(_entropy(step), 6) for step in steps]
    if choice.get("token_ids"):
        told["token_ids"] = choice["token_ids"]
    if said.get("prompt_token_ids"):
        told["prompt_ids"] = said["prompt_token_ids"]
    return told


def _text(arguments: Any) -> str:
    if not isinstance(arguments, str):
        raise TypeError("arguments that are no text")
    return arguments


def _entropy(step: Mapping[str, Any]) -> float:
    """Nats, of the likeliest tokens and the rest as one: at most what it is."""
    shares = [math.exp(one["logprob"]) for one in step.get("top_logprobs") or ()]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def _answer(told: Mapping[str, Any], request: ChatRequest, name: str, usd: float) -> ChatAnswer:
    said = told["message"]
    calls = tuple(
        ToolCall(id=call["id"], function=FunctionCall(name=call["name"], arguments=call["arguments"]))
        for call in said.get("tool_calls") or ()
    )
    finish = _FINISHED.get(told["finish_reason"], "tool_calls" if calls else "stop")
    return ChatAnswer(
        Message(role="assistant", content=said["content"] or (None if calls else ""), tool_calls=calls),
        finish,
        token_ids=tuple(told.get("token_ids", ())),
        logprobs=tuple(told.get("logprobs", ())),
        prompt_tokens=told["prompt_tokens"],
        completion_tokens=told["completion_tokens"],
        policy_version=name,
        entropies=tuple(told.get("entropies", ())),
        latency_s=told.get("latency_s", 0.0),
        usd=usd,
        prompt_ids=tuple(told.get("prompt_ids", ())),
    )
