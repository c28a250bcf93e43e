"""The interface of engines: `chat` takes a batch of requests and returns one answer each, in order.

An engine samples from a model; it knows nothing of worlds, tasks or rewards. Malformed output of a model is an answer like any other. An
engine that could not answer raises `EngineFailure`, so that its failure is never counted against a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, runtime_checkable

from storage.errors import BadInput, HeadraceError, OutOfReach
from storage.execution import Progress
from storage.records import JSON, Cost, Message, Tool

FinishReason = Literal["stop", "tool_calls", "length"]
_CHARACTERS_PER_TOKEN = 3.0
"""Rough average of prose, JSON and YAML in two languages."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class EngineFailure(OutOfReach):
    """The engine could not answer (out of memory, server gone, time-out): outcome `infra_failure`."""


class EngineUnusable(HeadraceError):
    """Every request to the engine would fail (quota used up; wrong URL, model or key), so the work stops; all answers are kept."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for the next assistant message of a conversation.

    temperature: sampling temperature; 0 is greedy.
    max_tokens: of the answer alone, at least 1.
    seed: equal requests with equal seeds get equal answers from `scripted` and `hf:`; other engines may differ.
    tool_choice: auto, required, none, or the name of a tool that must be called.
    schema: JSON schema of the answer's content. A server may enforce it; the caller must check it anyway.
    alternatives: number of likeliest tokens per step to return for `entropies`, 0 to 20; 0 asks for no log-probabilities.
    is_traced: whether to return the tokens of prompt and answer with log-probabilities. `hf:` always does, vLLM on request.
    `scripted` and `hf:` ignore the last four.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    temperature: float = 0.0
    max_tokens: int = 512
    seed: int = 0
    tool_choice: str = "auto"
    schema: Mapping[str, JSON] | None = None
    alternatives: int = 0
    is_traced: bool = False


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The next assistant message, with its tokens and cost.

    token_ids, logprobs: the sampled tokens and their log-probabilities (natural log, at the request's temperature; at 1 if greedy), same
        length; empty if the engine does not return them.
    prompt_tokens, completion_tokens: counts; 0 without a tokenizer.
    policy_version: the weights that answered, e.g. a policy id.
    entropies: nats per step, from the returned alternatives, with the rest as one token; empty without alternatives.
    latency_s, usd: time including retries, and price, of the first time this request was answered; 0 if unknown.
    prompt_ids: the tokens before the answer; empty if the engine does not return them.
    """

    message: Message
    finish_reason: FinishReason
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    policy_version: str = ""
    entropies: tuple[float, ...] = ()
    latency_s: float = 0.0
    usd: float = 0.0
    prompt_ids: tuple[int, ...] = ()

    @property
    def cost(self) -> Cost:
        return Cost(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens, usd=self.usd)


@runtime_checkable
class Engine(Protocol):
    """A model that answers chat requests."""

    @property
    def name(self) -> str:
        """As in configurations and in column `teacher`: `scripted`, `hf:PATH`, `openai:MODEL`."""

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer per request, in order.

        Raises:
            EngineFailure: a request was not answered; the whole batch may be tried again.
            EngineUnusable: no request will be answered.
        """


def estimated_tokens(text: str) -> int:
    """Rough number of tokens of a text, without a tokenizer."""
    return round(len(text) / _CHARACTERS_PER_TOKEN)


def check_window(engine: Engine, opening: Sequence[Message], max_tokens: int) -> None:
    """Checks that the shortest request and its answer fit the engine's context window, if it is known. Tokens are estimated.

    Raises:
        BadInput: they do not fit.
    """
    window = getattr(engine, "context_tokens", None)
    needed = sum(estimated_tokens(message.content or "") for message in opening) + max_tokens
    if window is not None and window < needed:
        raise BadInput(
            f"{engine.name} has a window of {window:,} tokens, but a request and its answer need about {needed:,}; "
            "take another model, or serve it with a longer window"
        )


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int, label: str, progress: Progress) -> list[Result]:
    """One result per item, in order, computed in threads; for work that mostly waits for a server.

    After the first exception no further item is started; it is raised when the items in progress have ended.
    """
    threads, errors = ThreadPoolExecutor(at_once), list[BaseException]()

    def work_unless_failed(item: Item) -> Result:
        if errors:
            raise errors[0]
        try:
            return work(item)
        except BaseException as error:
            errors.append(error)
            raise

    try:
        running = [threads.submit(work_unless_failed, item) for item in items]
        for done, future in enumerate(as_completed(running), start=1):
            future.result()
            progress(label, done, len(items))
        return [future.result() for future in running]
    finally:
        threads.shutdown(cancel_futures=True)


def has_failed(unanswered: int, total: int) -> bool:
    """Whether an engine counts as gone: half of the requests, and at least one, got no answer."""
    return unanswered >= max(1, total / 2)
