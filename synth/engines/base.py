"""What answers a chat request, behind one call: `chat` takes a batch of requests and gives one answer each, in order.

An engine samples; it knows nothing of worlds, tasks or rewards. It never raises for what a model wrote (malformed calls are an
answer like any other); it raises `EngineFailure` when it could not answer at all, so that our fault is never held against a policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from storage.errors import BadInput, HeadraceError
from storage.records import JSON, Cost, Message, Tool

FinishReason = Literal["stop", "tool_calls", "length"]
_CHARACTERS_PER_TOKEN = 3.0
"""Of prose, JSON and YAML in two languages, roughly, for an estimate."""


class EngineFailure(HeadraceError):
    """The engine itself failed (out of memory, server gone, no answer in time): an `infra_failure`, never a policy's."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One conversation that wants its next assistant message.

    temperature: 0 means greedy, otherwise samples are drawn at this temperature.
    max_tokens: of the answer alone, at least 1.
    seed: same request and seed give the same answer where the engine can promise it (`scripted`, `hf:`); others try.
    tool_choice: auto, required, none, or the name of a tool that must be called.
    schema: JSON schema that the answer's content shall meet. A server may enforce it; whoever asks checks it all the same.
    alternatives: likeliest tokens of each step to be told of, for `entropies`, 0 to 20; 0 asks for no log-probabilities.
    is_traced: whether the tokens themselves are wanted, of the prompt and of the answer, with their log-probabilities. `hf:` always tells
        them, a server where it can (vLLM).
    `scripted` and `hf:` know none of the last four.
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
    """The next assistant message, and what it took.

    token_ids, logprobs: of the sampled tokens (natural log, at the request's temperature; at 1 when it is greedy), same length;
        empty where the engine does not tell. prompt_tokens and completion_tokens are counts, 0 where there is no tokenizer.
    policy_version: which weights answered, e.g. a policy id.
    prompt_ids: the tokens that stood before the answer; empty where the engine does not tell.
    entropies: nats a step, from the alternatives that the engine told of, the rest counted as one; empty where it told none.
    latency_s: from asking to the whole answer, tries included; usd: what it cost; both as when it was first answered, 0 where nobody says.
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
    """Whatever can hold up its end of a conversation."""

    @property
    def name(self) -> str:
        """As it is named in configurations and stored as a teacher: `scripted`, `hf:PATH`, `openai:MODEL`."""

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer a request, in the requests' order.

        Raises:
            EngineFailure: nothing was answered; the whole batch may be tried again.
        """


def guessed_tokens(text: str) -> int:
    """About how many tokens a text is, for estimates, where no tokenizer is at hand."""
    return round(len(text) / _CHARACTERS_PER_TOKEN)


def check_window(engine: Engine, opening: Sequence[Message], max_tokens: int) -> None:
    """Looks whether the shortest request and its answer fit the engine's window, where it tells of one. Tokens are guessed from characters.

    Raises:
        BadInput: they do not.
    """
    window = getattr(engine, "context_tokens", None)
    wanted = sum(guessed_tokens(message.content or "") for message in opening) + max_tokens
    if window is not None and window < wanted:
        raise BadInput(
            f"{engine.name} has a window of {window:,} tokens, and what it is to be asked takes about {wanted:,}, prompt and answer; "
            "take another model, or serve it with a longer window"
        )
