"""The engine `openai:MODEL`: any server with OpenAI's chat completions API.

One idea: the engine's own event loop holds the requests in flight (`http.py`); many threads may call `chat`, and each waits for its own
answers. Equal requests are sent once, an answer is in the journal before the caller gets it (`cache.py`), and before each attempt the run's
budget is checked (`budget.py`) and the month's reserved (`spending/metering.py`); what comes back is read with care (`openai_answers.py`).

A prompt that does not fit the context window gets an empty answer with finish reason `length`, which counts against the policy. A used-up
quota, and a wrong URL, model or key, is an `EngineUnusable`. Any other missing answer is an `EngineFailure`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import BadInput
from storage.outside.safe_text import one_line
from storage.records import JSON, Message, Tool
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure, EngineUnusable
from synth.engines.budget import Budget
from synth.engines.cache import Answered, Answers
from synth.engines.http import Background, JsonServer
from synth.engines.openai_answers import answer_of, read_answer
from synth.engines.server_errors import Cause, Problem, ServerError
from synth.engines.spending.metering import EngineMeter, MostTokens, most_tokens
from synth.gc_paused import pause_gc

BASE_URL = "https://api.openai.com/v1"
_CHECK_TRIES = 3
"""Attempts of `check`; few, because a person waits for it."""
_OVERFLOW = re.compile(
    r"context length|maximum context|max_model_len|too long|too many tokens|input tokens|output limit was reached", re.IGNORECASE
)
"""Errors for a prompt that does not fit, or for reasoning that reached the limit (OpenAI)."""
_ANSWER_BYTES, _TOKEN_BYTES, _PROMPT_BYTES = 1 << 20, 256, 8 << 20
"""Of an answer without its tokens, of a token (of each alternative too), and of the ids of a prompt's tokens."""
_NEWER_LIMIT = "max_completion_tokens"
_TRACED: Mapping[str, JSON] = {"return_token_ids": True, "logprobs": True}
_SHOWN_NAME = 80
_PING = ChatRequest((Message(role="user", content="ping"),), max_tokens=1)
_log = logging.getLogger(__name__)
_NEVER_STRICT = frozenset({"allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"})


class OpenAIConfig(BaseModel):
    """Configuration of a server and model. The key is read from OPENAI_API_KEY, never from a configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, description="Name of the model, as the server calls it.")
    base_url: str | None = Field(None, description="Base URL, e.g. http://localhost:8000/v1. None: OPENAI_BASE_URL.")
    in_flight: int = Field(64, ge=1, le=4096, description="Concurrent requests.")
    timeout_s: float = Field(120.0, gt=0, description="Time limit of one attempt, in seconds.")
    tries: int = Field(12, ge=1, le=50, description="Attempts per request.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further fields of every request, e.g. top_p.")

    @property
    def url(self) -> str:
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or BASE_URL


class OpenAIEngine:
    """Chats with one model of one server.

    Args:
        answers: cache; None for none.
        budget: None for no limit.
        name: stored with every answer, and part of its cache key.
        ended: returns why the server has ended, empty while it runs; checked before every attempt.

    Attributes:
        context_tokens: the model's context window, if `check` found it.
        limit_field: the request's field of `max_tokens`, which newer models of OpenAI call differently; `check` finds it.
        returns_tokens: whether the server returns tokens, as vLLM does; `check` finds it.
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
        self.name, self._answers, self._ended = name or f"openai:{config.model}", answers, ended
        self._meter = EngineMeter(answers.ledger, self.name, self.budget.usd_per_million) if answers is not None else None
        self._background = Background(self.name)
        self._pending: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._counted: set[str] = set()
        self._arrived: list[tuple[Answered, asyncio.Future[None]]] = []
        self.context_tokens: int | None = None
        self.limit_field = "max_tokens"
        self.returns_tokens = False
        self._has_warned = False
        self._server = self._background.run(self._connect())

    @property
    def counts(self) -> Mapping[str, int]:
        """`sent`, and `again: WHY` for each retry."""
        return dict(self._server.counts)

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer per request, in order. Answers are cached, also if another request of the batch fails.

        Raises:
            EngineFailure: a request was not answered. EngineUnusable: none will be. BudgetSpent: the budget is used up.
        """
        with pause_gc():
            return self._background.run(self._all(requests))

    def check(self, *, tools: bool = False, traced: bool = False) -> None:
        """Checks the server with requests of one token.

        Args:
            tools: whether it must accept tools.
            traced: whether to find out if it returns tokens; it need not.

        Raises:
            BadInput: there is no server, or it refuses the key, does not serve the model, or accepts no tools.
            EngineUnusable: the quota is used up. EngineFailure: the server has ended, is overloaded or broken.
        """
        self._background.run(self._check(tools, traced))

    def close(self) -> None:
        self._background.run(self._server.close())
        self._background.close()

    def __enter__(self) -> OpenAIEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- in the loop --------------------------------------------------------------------------------------------------------

    async def _connect(self) -> JsonServer:
        config = self.config
        key = os.environ.get("OPENAI_API_KEY")
        return JsonServer(config.url, key, in_flight=config.in_flight, timeout_s=config.timeout_s, tries=config.tries, name=self.name)

    async def _all(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        answers = await asyncio.gather(*(self._one(request) for request in requests), return_exceptions=True)
        for one in answers:
            if isinstance(one, BaseException):
                raise one
        return [one for one in answers if isinstance(one, ChatAnswer)]

    async def _one(self, request: ChatRequest) -> ChatAnswer:
        body = orjson.dumps(self.body(request))
        key = Answers.key(self.name, body)
        data = self._answers.find(key) if self._answers is not None else None
        if data is None:
            data = await self._ask_once(key, body)
        elif self._answers is not None and not self._answers.run:
            self._count(key, data)
        return answer_of(data, self.name, self.budget.cost_usd(data["prompt_tokens"], data["completion_tokens"]))

    async def _ask_once(self, key: str, body: bytes) -> Mapping[str, Any]:
        """The answer to a request that is not cached; equal requests wait for the first one."""
        if key in self._pending:
            return await asyncio.shield(self._pending[key])
        waiting = self._pending[key] = self._background.loop.create_future()
        try:
            data = await self._ask(body)
            self._count(key, data)
            if self._answers is not None:
                await self._keep(key, body, data)
        except BaseException as error:
            waiting.set_exception(error)
            waiting.exception()  # marks it as retrieved: there may be no other waiter
            raise
        else:
            waiting.set_result(data)
            return data
        finally:
            del self._pending[key]

    def _count(self, key: str, data: Mapping[str, Any]) -> None:
        """Books an answer to the budget, once. Cached answers are booked only if the run has no name: a named run starts with what it has
        spent before (`Budget.begin`)."""
        if key not in self._counted:
            self._counted.add(key)
            self.budget.add(data["prompt_tokens"], data["completion_tokens"])

    async def _keep(self, key: str, body: bytes, data: Mapping[str, Any]) -> None:
        """Waits until the answer is on the disk; all answers of one turn of the loop are written together."""
        if not self._arrived:
            self._background.loop.call_soon(self._keep_arrived)
        written = self._background.loop.create_future()
        self._arrived.append(((key, body, data), written))
        await written

    def _keep_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        assert self._answers is not None
        error: BaseException | None = None
        try:
            self._answers.keep(self.name, [answered for answered, _ in arrived])
        except BaseException as failed:
            error = failed
        for written in (written for _, written in arrived if not written.done()):
            written.set_result(None) if error is None else written.set_exception(error)

    async def _ask(self, body: bytes) -> Mapping[str, Any]:
        started = time.perf_counter()
        try:
            data = await self._post(body, self._before)
        except ServerError as error:
            if error.problem.status in (400, 413, 422) and _OVERFLOW.search(error.problem.words):
                return {"message": {"content": None}, "finish_reason": "length", "prompt_tokens": 0, "completion_tokens": 0}
            raise self._failure(error) from error
        return data | {"latency_s": round(time.perf_counter() - started, 6)}

    async def _post(self, body: bytes, before: Callable[[], None] | None = None, tries: int | None = None) -> dict[str, JSON]:
        """The answer to a request, counted in the ledger. Raises ServerError, BudgetSpent, and what `before` raises."""
        path, fields = "chat/completions", orjson.loads(body)
        most = most_tokens(fields, len(body))
        bound = _most_bytes(fields, most.completion or 0)
        if self._meter is None:
            return self._believed(await self._server.post(path, body, read_answer, before, tries=tries, most_bytes=bound), most)
        call = self._meter.call(most)
        try:
            data = await self._server.post(path, body, read_answer, before, tries=tries, most_bytes=bound, meter=call)
            data = self._believed(data, most)
            call.settle(data["prompt_tokens"], data["completion_tokens"])
            return data
        finally:
            call.close()

    def _believed(self, data: dict[str, Any], most: MostTokens) -> dict[str, Any]:
        """The answer with at most as many tokens as it can have; warns once."""
        counted = data["prompt_tokens"], data["completion_tokens"]
        prompt, completion = most.believed(*counted)
        if (prompt, completion) != counted and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s counts %d prompt and %d answer tokens, where at most %d and %d are possible; the most is counted, here and from now on",
                self.name,
                *counted,
                prompt,
                completion,
            )
        return data | {"prompt_tokens": prompt, "completion_tokens": completion}

    def _before(self) -> None:
        """Called before each attempt. Raises EngineFailure if the server has ended, BudgetSpent if the budget is used up."""
        if why := self._gone():
            raise EngineFailure(why)
        self.budget.check()

    def _failure(self, error: ServerError) -> EngineFailure | EngineUnusable:
        if why := self._gone():
            return EngineFailure(why)
        return EngineUnusable(str(error)) if error.is_permanent else EngineFailure(str(error))

    def _gone(self) -> str:
        return self._ended() if self._ended is not None else ""

    async def _check(self, tools: bool, traced: bool) -> None:
        url, model = self._server.url, self.config.model
        if url.rstrip("/") == BASE_URL and not os.environ.get("OPENAI_API_KEY"):
            raise BadInput(f"{self.name} at {url}: a key is required; set OPENAI_API_KEY, or OPENAI_BASE_URL for another server")
        try:
            served = {one["id"]: one for one in (await self._server.get("models"))["data"]}
            if model not in served:
                names = [one_line(name, _SHOWN_NAME) for name in sorted(served)[:8]]
                raise BadInput(f"{url} serves no model {model!r}; it serves {', '.join(names) or 'none'}")
            window = served[model].get("max_model_len")
            self.context_tokens = window if isinstance(window, int) and window > 0 else None
            await self._ping(tools)
            if traced:
                self.returns_tokens = await self._returns_tokens()
        except ServerError as error:
            problem = error.problem
            if tools and not self._gone() and _may_lack_tools(problem) and await self._answers_without_tools():
                hint = "start it with a tool parser, as vLLM's --enable-auto-tool-choice --tool-call-parser hermes"
                raise BadInput(f"{url} accepts no tools ({problem.words}); {hint}") from error
            if self._gone() or problem.cause is Cause.QUOTA or (error.is_temporary and problem.status is not None):
                raise self._failure(error) from error
            raise BadInput(str(error)) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{url} is no OpenAI-compatible server: {url}/models lists no models; correct OPENAI_BASE_URL") from error

    async def _ping(self, tools: bool) -> None:
        """One request of one token; finds `limit_field`. Raises ServerError."""
        ping = Tool(name="ping", description="Says pong.", parameters={"type": "object", "properties": {}}, server="", domain="")
        request = replace(_PING, tools=(ping,) if tools else ())
        try:
            await self._post(orjson.dumps(self.body(request)), tries=_CHECK_TRIES)
        except ServerError as error:
            status, words = error.problem.status, error.problem.words
            if status == 400 and _NEWER_LIMIT in words and self.limit_field != _NEWER_LIMIT:
                self.limit_field = _NEWER_LIMIT
                await self._ping(tools)
            elif status != 400 or not _OVERFLOW.search(words):
                raise

    async def _returns_tokens(self) -> bool:
        """Whether it returns tokens on request; other servers refuse or ignore the request."""
        try:
            body = orjson.dumps({**self.body(_PING), **_TRACED})
            return "prompt_ids" in await self._post(body, tries=_CHECK_TRIES)
        except ServerError as error:
            if error.problem.cause is not Cause.REQUEST:
                raise
            return False

    async def _answers_without_tools(self) -> bool:
        try:
            await self._ping(tools=False)
        except ServerError:
            return False
        return True

    # ---- the request -----------------------------------------------------------------------------------------------------------

    def body(self, request: ChatRequest) -> dict[str, JSON]:
        """The body of the request."""
        body: dict[str, JSON] = {
            "model": self.config.model,
            "messages": [message.to_openai() for message in request.messages],
            "temperature": request.temperature,
            self.limit_field: request.max_tokens,
            "seed": request.seed % 2**63,
        }
        if request.tools:
            choice: JSON = {"type": "function", "function": {"name": request.tool_choice}}
            body["tools"] = [tool.to_openai() for tool in request.tools]
            body["tool_choice"] = request.tool_choice if request.tool_choice in ("auto", "required", "none") else choice
        if request.schema is not None:
            form = {"name": "answer", "schema": dict(request.schema), "strict": is_closed(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.alternatives:
            body |= {"logprobs": True, "top_logprobs": request.alternatives}
        if request.is_traced and self.returns_tokens:
            body |= _TRACED
        return body | self.config.extra


def _most_bytes(fields: Mapping[str, Any], tokens: int) -> int:
    """Bound of an answer's bytes: what its tokens can take, with their alternatives."""
    of_prompt = _PROMPT_BYTES if fields.get("return_token_ids") else 0
    return _ANSWER_BYTES + of_prompt + tokens * _TOKEN_BYTES * (1 + int(fields.get("top_logprobs") or 0))


def _may_lack_tools(problem: Problem) -> bool:
    """Whether a server may have refused a request because it has tools; llama.cpp's answers 500 then."""
    return problem.status in (400, 404, 422) or (problem.status == 500 and "tool" in problem.words)


def is_closed(schema: JSON) -> bool:
    """Whether OpenAI's strict mode accepts a valid schema: every value has a type, every object requires all its properties and allows no
    others, every array has `items`."""
    if not isinstance(schema, Mapping) or not _NEVER_STRICT.isdisjoint(schema):
        return False
    kind, property_schemas = schema.get("type", ()), schema.get("properties", {})
    kinds = {kind} if isinstance(kind, str) else set(kind)
    if not kinds and "anyOf" not in schema and "$ref" not in schema:
        return False
    if "object" in kinds and (schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(property_schemas)):
        return False
    if "array" in kinds and "items" not in schema:
        return False
    defined = [*schema.get("$defs", {}).values(), *schema.get("definitions", {}).values()]
    items = [schema["items"]] if "items" in schema else []
    return all(is_closed(one) for one in (*property_schemas.values(), *items, *schema.get("anyOf", ()), *defined))
