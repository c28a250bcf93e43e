"""A vLLM server that plays the rollouts of a policy in training, in tokens.

One idea: the server gets token ids and returns token ids (`/inference/v1/generate`). A prompt is the tokens of the conversation so far, as
they were sampled, so nothing is tokenised twice and every trace is exact. Log-probabilities are those of the sampling distribution.
Weights come from a folder, between two batches. A server that sleeps has freed its memory for the trainer; on a CPU vLLM ignores that.

What it does not do: start the server (`vllm.py`), write the weights or verify them (`train/rl/policy_server.py`), cache answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from storage.records import JSON, Message
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure, FinishReason
from synth.engines.http import Background, JsonServer
from synth.engines.local.chat_format import ChatFormat
from synth.engines.server_errors import ServerError
from synth.engines.vllm import Server

Reply = Callable[[int, ChatAnswer], Sequence[Message] | None]
"""(index of the request, answer) -> the next messages (tool results), or None if the conversation is over."""

_TRIES = 4
_TIMEOUT_S = 3600.0
"""Time limit of one answer, with the time that it waits for its turn."""
_MOST_BYTES = 64 << 20
"""Of an answer: the log-probabilities of a long prompt."""
_FINISHED = frozenset({"stop", "length"})


class VLLMTokenEngine:
    """Holds conversations with the model of a running server. A context manager that closes the connections.

    Args:
        server: started with `VLLMConfig.is_trained`, if its weights are to be replaced.
        model: its name, as the server calls it.
        chat_format: of the model.
        in_flight: answers that are generated at once.
        policy_version: stored with every answer.
    """

    def __init__(self, server: Server, model: str, chat_format: ChatFormat, *, in_flight: int, policy_version: str = "") -> None:
        self._model, self._running, self.policy_version = model, server, policy_version
        self.chat_format = chat_format
        self._background = Background(self.name)
        self._server = self._background.run(self._connect(in_flight))
        served = self._get("v1/models")["data"]
        self.max_length = int(next(one["max_model_len"] for one in served if one["id"] == model))

    @property
    def name(self) -> str:
        return f"vllm:{self.policy_version or self._model}"

    # ---- conversations -------------------------------------------------------------------------------------------------

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer per request. A prompt that fills the context window gets an empty answer with finish reason `length`.

        Raises:
            EngineFailure: a request was not answered.
        """
        answers: dict[int, ChatAnswer] = {}
        self.converse(requests, answers.__setitem__)
        too_long = ChatAnswer(Message(role="assistant", content=""), "length", policy_version=self.policy_version)
        return [answers.get(index, too_long) for index in range(len(requests))]

    def converse(self, requests: Sequence[ChatRequest], reply: Reply) -> None:
        """Whole conversations, all at once, as `HFEngine.converse`. `reply` is called from threads, for one conversation after its answers.

        A request's seed decides its tokens on one machine, in 32-bit floats; in 16 bits the conversations beside it change rounding.

        Raises:
            EngineFailure: the server did not answer a request; the other conversations have gone on to their ends.
        """
        self._background.run(self._hold_all(requests, reply))

    async def _hold_all(self, requests: Sequence[ChatRequest], reply: Reply) -> None:
        held = (self._hold(index, request, reply) for index, request in enumerate(requests))
        for ended in await asyncio.gather(*held, return_exceptions=True):
            if ended is not None:
                raise ended

    async def _hold(self, index: int, request: ChatRequest, reply: Reply) -> None:
        known = list(self.chat_format.prompt_ids(request.messages, request.tools))
        calls = sum(len(message.tool_calls) for message in request.messages)
        while len(known) < self.max_length:
            answer = await self._answer(request, known, calls)
            more = await asyncio.to_thread(reply, index, answer)
            if not more:
                return
            calls += len(answer.message.tool_calls)
            known += [*answer.token_ids, *self.chat_format.suffix_ids(answer.message, more)]

    async def _answer(self, request: ChatRequest, known: Sequence[int], calls: int) -> ChatAnswer:
        """The answer after these tokens, `calls` of which are calls. Every turn of a conversation has a seed of its own."""
        sampling: JSON = {
            "temperature": request.temperature,
            "seed": (request.seed + len(known)) % 2**63,
            "max_tokens": min(request.max_tokens, self.max_length - len(known)),
            "stop_token_ids": sorted(self.chat_format.ends),
            "ignore_eos": True,  # ends are ours, not those of the model's generation_config.json
            "detokenize": False,
            "logprobs": 0,
        }
        ids, logprobs = await self._generate(known, sampling, _sampled)
        message = self.chat_format.read(ids, calls)
        reason: FinishReason = "length" if ids[-1] not in self.chat_format.ends else "tool_calls" if message.tool_calls else "stop"
        return ChatAnswer(message, reason, ids, logprobs, len(known), len(ids), self.policy_version, prompt_ids=tuple(known))

    async def _generate(self, ids: Sequence[int], sampling: JSON, read: Callable[[Mapping[str, Any]], Any]) -> Any:
        body = orjson.dumps({"model": self._model, "token_ids": list(ids), "sampling_params": sampling})
        try:
            return await self._server.post("inference/v1/generate", body, read, self._check_running, most_bytes=_MOST_BYTES)
        except ServerError as error:
            raise EngineFailure(self._running.ended() or str(error)) from error

    # ---- weights -------------------------------------------------------------------------------------------------------

    def token_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Log-probability of each token after the first, at temperature 1. Raises EngineFailure."""
        sampling: JSON = {"temperature": 1.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}

        def read(response: Mapping[str, Any]) -> list[float]:
            steps = response["prompt_logprobs"][1:]
            return [float(step[str(token)]["logprob"]) for token, step in zip(ids[1:], steps, strict=True)]

        found: list[float] = self._background.run(self._generate(ids, sampling, read))
        return found

    def load_weights(self, folder: Path) -> None:
        """Wakes the server with the weights of a model folder, and forgets what it has computed with others. The server must sleep.

        Raises:
            EngineFailure: the server did not take them; it is not to be used further.
        """
        self._control("wake_up?tags=weights")
        self._control("collective_rpc", {"method": "update_config", "kwargs": {"overrides": {"load_config": {"load_format": "auto"}}}})
        self._control("collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        self._control("wake_up?tags=kv_cache")
        if not self._control("reset_prefix_cache")["success"]:
            raise EngineFailure(f"{self.name}: the server still computes with earlier weights: its prefix cache is in use")

    def sleep(self) -> None:
        """Frees the server's memory, weights included, until the next `load_weights`. Raises EngineFailure."""
        self._control("sleep?level=2")

    def _control(self, path: str, body: JSON = None) -> Any:
        """The answer of an endpoint of vLLM's developer mode, in one attempt."""
        post = self._server.post(path, orjson.dumps(body or {}), lambda answer: answer, self._check_running, tries=1)
        try:
            return self._background.run(post)
        except ServerError as error:
            raise EngineFailure(self._running.ended() or f"{self.name}: {path.partition('?')[0]} failed: {error}") from error

    # ---- the connection ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._background.run(self._server.close())
        self._background.close()

    def __enter__(self) -> VLLMTokenEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _connect(self, in_flight: int) -> JsonServer:
        url = self._running.url.removesuffix("/v1")
        return JsonServer(url, None, in_flight=in_flight, timeout_s=_TIMEOUT_S, tries=_TRIES, name=self.name)

    def _get(self, path: str) -> Any:
        try:
            return self._background.run(self._server.get(path))
        except ServerError as error:
            raise EngineFailure(self._running.ended() or str(error)) from error

    def _check_running(self) -> None:
        if why := self._running.ended():
            raise EngineFailure(why)


def _sampled(response: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Tokens and log-probabilities of a response. Raises ValueError, KeyError or TypeError if it is incomplete."""
    choice = response["choices"][0]
    ids, steps = tuple(choice["token_ids"]), choice["logprobs"]["content"]
    if not ids or len(ids) != len(steps) or choice["finish_reason"] not in _FINISHED:
        raise ValueError(f"{len(ids)} tokens with {len(steps)} log-probabilities, ended by {choice['finish_reason']!r}")
    return ids, tuple(float(step["logprob"]) for step in steps)
