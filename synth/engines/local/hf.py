"""The engine `hf:PATH`: a Hugging Face causal language model in this process, for many conversations at once.

One idea: a multi-turn conversation uses one key-value cache. In each round every open conversation reads its new tokens (the prompt, a tool
result, or the token that it sampled last) and samples one token. Nothing is computed twice; sampled tokens are kept with their
log-probabilities and never re-tokenised.
Plain Qwen3 models on a CPU use `Qwen3Decoder`, all others `_TransformersDecoder`; a test compares the two.
Noise comes from a counter-based generator keyed by the request's seed and indexed by position: with one thread, equal batches of requests
give equal tokens, and a conversation that is continued later gives the same tokens as in one go.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from storage.records import JSON, FunctionCall, Message, Tool, ToolCall
from synth.engines.base import ChatAnswer, ChatRequest, EngineFailure, FinishReason
from synth.engines.local.model_folder import check_folder
from synth.engines.local.qwen3 import Qwen3Decoder

Reply = Callable[[int, ChatAnswer], Sequence[Message] | None]
"""(index of the request, answer) -> the next messages (tool results), or None if the conversation is over."""

_PLACEHOLDER = "x"


class _Decoder(Protocol):
    """The caches of one batch of conversations, each in a slot: see `Qwen3Decoder`."""

    def start(self, prompts: Sequence[Sequence[int]], length: int) -> torch.Tensor: ...

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class _TransformersDecoder:
    """Any causal language model, by its `forward` and a `DynamicCache`. All rows are fed in each step, padded to the longest chunk; the
    attention mask hides the padding."""

    def __init__(self, model: Any) -> None:
        self._model, self._base, self._head = model, model.get_decoder(), model.get_output_embeddings()

    def start(self, prompts: Sequence[Sequence[int]], length: int) -> torch.Tensor:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._model.config)
        self._mask = torch.zeros(len(prompts), 0, dtype=torch.long)
        return self.feed(range(len(prompts)), prompts)

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        rows, width = len(self._mask), max(len(chunk) for chunk in chunks)
        tokens, fresh = torch.zeros(rows, width, dtype=torch.long), torch.zeros(rows, width, dtype=torch.long)
        for slot, chunk in zip(slots, chunks, strict=True):
            tokens[slot, : len(chunk)] = torch.tensor(chunk)
            fresh[slot, : len(chunk)] = 1
        positions = (self._mask.sum(dim=1, keepdim=True) + fresh.cumsum(dim=1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, fresh], dim=1)
        device = self._model.device
        hidden: torch.Tensor = self._base(
            input_ids=tokens.to(device),
            position_ids=positions.to(device),
            attention_mask=self._mask.to(device),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        return hidden[torch.tensor(slots), torch.tensor([len(chunk) - 1 for chunk in chunks])]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self._head(hidden)
        return out.float().cpu()


@dataclass(slots=True)
class _Row:
    """An open conversation.

    known: all its tokens so far.
    turn: position of the first token of the current answer.
    calls: number of tool calls so far.
    logprobs: of the current answer's tokens.
    """

    request: ChatRequest
    known: list[int]
    noise: np.ndarray
    turn: int
    calls: int
    logprobs: list[float] = field(default_factory=list)
    is_over: bool = False


def _noise(seed: int, length: int) -> np.ndarray:
    """Uniform numbers by position, independent of the rest of the batch."""
    return np.random.Generator(np.random.Philox(key=seed % 2**128)).random(length)


class HFEngine:
    """Chats with a model from a folder, or with a loaded model (the one in training).

    Args:
        model: a folder, or a loaded model with its tokenizer.
        policy_version: stored with every answer; default: the folder's name.
        batch_rows: conversations in one batch. Results depend on it in the last bits, as matrix products do.
        is_fused: False forces the Transformers path; tests compare with it.
    """

    def __init__(
        self, model: Path | str | Any, tokenizer: Any = None, *, policy_version: str = "", batch_rows: int = 256, is_fused: bool = True
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        self._path = ""
        if isinstance(model, (str, Path)):
            self._path = str(model)
            check_folder(Path(model))
            disable_progress_bar()
            tokenizer = AutoTokenizer.from_pretrained(model)
            model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model, self.tokenizer = model, tokenizer
        self.policy_version = policy_version or Path(self._path).name
        self.max_length: int = model.config.max_position_embeddings
        self._decoder: _Decoder = Qwen3Decoder(model) if is_fused and Qwen3Decoder.fits(model) else _TransformersDecoder(model)
        self._batch_rows = batch_rows
        self._end: int = tokenizer.eos_token_id
        self._end_text: str = tokenizer.eos_token
        self._prompts: dict[tuple[tuple[Message, ...], tuple[str, ...]], list[int]] = {}
        self._suffixes: dict[tuple[str, ...], list[int]] = {}
        self._messages: dict[tuple[int, ...], Message] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return f"hf:{self._path or self.policy_version}"

    # ---- text and tokens -----------------------------------------------------------------------------------------------

    def prompt_ids(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> list[int]:
        """The tokens of a conversation up to the next assistant message."""
        key = (messages, tuple(tool.id for tool in tools))
        ids = self._prompts.get(key)
        if ids is None:
            if len(self._prompts) > 20_000:
                self._prompts.clear()
            text = self._render([message.to_openai() for message in messages], [tool.to_openai() for tool in tools], generation=True)
            ids = self._prompts[key] = self._encode(text)
        return ids

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, generation: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=generation)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _suffix_ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens between the end of an assistant message and the next one, if `messages` come between."""
        key = tuple(f"{message.role}:{message.content}" for message in messages)
        ids = self._suffixes.get(key)
        if ids is None:
            if len(self._suffixes) > 20_000:
                self._suffixes.clear()
            before = [{"role": "user", "content": _PLACEHOLDER}, {"role": "assistant", "content": _PLACEHOLDER}]
            head = self._render(before, [], generation=False)
            head = head[: head.rindex(self._end_text) + len(self._end_text)]
            whole = self._render([*before, *(message.to_openai() for message in messages)], [], generation=True)
            if not whole.startswith(head):
                raise EngineFailure(
                    f"{self.name}: the chat template rewrites earlier messages when new ones are appended; use another template"
                )
            ids = self._suffixes[key] = self._encode(whole[len(head) :])
        return ids

    def _message(self, ids: list[int], first_call: int) -> Message:
        key = (first_call, *ids)
        message = self._messages.get(key)
        if message is None:
            if len(self._messages) > 20_000:
                self._messages.clear()
            text = self.tokenizer.decode(ids, skip_special_tokens=False).removesuffix(self._end_text)
            message = self._messages[key] = parse_hermes(text, first_call=first_call)
        return message

    # ---- chatting ------------------------------------------------------------------------------------------------------

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer per request; threads take turns. A prompt that fills the context window gets an empty answer with finish reason
        `length`, as in `openai.py`."""
        answers: dict[int, ChatAnswer] = {}
        with self._one_at_a_time:
            self.converse(requests, answers.__setitem__)
        too_long = ChatAnswer(Message(role="assistant", content=""), "length", policy_version=self.policy_version)
        return [answers.get(index, too_long) for index in range(len(requests))]

    def converse(self, requests: Sequence[ChatRequest], reply: Reply) -> None:
        """Whole conversations: after each answer, `reply` gives the next messages. The prompt of each answer begins with the prompt and
        the sampled tokens of the one before.

        `max_tokens` limits each answer. A conversation that outgrows the context window ends without another answer; the others go on.
        """
        for start in range(0, len(requests), self._batch_rows):
            batch = requests[start : start + self._batch_rows]
            with torch.inference_mode():
                self._run(batch, start, reply)

    def _row(self, request: ChatRequest) -> _Row:
        prompt = self.prompt_ids(request.messages, request.tools)
        calls = sum(len(message.tool_calls) for message in request.messages)
        row = _Row(request, list(prompt), _noise(request.seed, self.max_length), len(prompt), calls)
        row.is_over = len(prompt) >= self.max_length
        return row

    def _run(self, requests: Sequence[ChatRequest], offset: int, reply: Reply) -> None:
        all_rows = [self._row(request) for request in requests]
        places = [place for place, row in enumerate(all_rows) if not row.is_over]
        rows = [all_rows[place] for place in places]
        active = list(range(len(rows)))
        hidden = self._decoder.start([row.known for row in rows], self.max_length) if rows else torch.empty(0)
        while active:
            fed = [len(rows[index].known) for index in active]
            self._sample([rows[index] for index in active], hidden)
            for index in active:
                self._advance(rows[index], offset + places[index], reply)
            open_rows = [(index, start) for index, start in zip(active, fed, strict=True) if not rows[index].is_over]
            active = [index for index, _ in open_rows]
            if active:
                hidden = self._decoder.feed(active, [rows[index].known[start:] for index, start in open_rows])

    def _sample(self, rows: list[_Row], hidden: torch.Tensor) -> None:
        """Draws the next token of every row, by the inverse of the cumulative distribution at the row's noise."""
        temperatures = np.array([row.request.temperature for row in rows], dtype=np.float32)
        scaled = self._decoder.logits(hidden) / torch.from_numpy(np.where(temperatures > 0, temperatures, 1))[:, None]
        logprobs = torch.log_softmax(scaled, dim=-1)
        noise = torch.from_numpy(np.array([row.noise[len(row.known)] for row in rows], dtype=np.float32))
        cumulative = logprobs.exp().cumsum(dim=-1)
        sampled = torch.searchsorted(cumulative, (noise * cumulative[:, -1])[:, None], right=True)[:, 0].clamp(max=scaled.shape[1] - 1)
        next_tokens = torch.where(torch.from_numpy(temperatures > 0), sampled, scaled.argmax(dim=-1))
        values = logprobs.gather(1, next_tokens[:, None])[:, 0].tolist()
        for row, token, value in zip(rows, next_tokens.tolist(), values, strict=True):
            row.known.append(token)
            row.logprobs.append(value)

    def _advance(self, row: _Row, index: int, reply: Reply) -> None:
        """If the last token ends the answer, asks `reply` for the next messages."""
        length = len(row.known) - row.turn
        ended = row.known[-1] == self._end
        if not ended and length < row.request.max_tokens and len(row.known) < self.max_length:
            return
        ids = row.known[row.turn :]
        message = self._message(ids, row.calls)
        reason: FinishReason = "length" if not ended else "tool_calls" if message.tool_calls else "stop"
        prompt = tuple(row.known[: row.turn])
        answer = ChatAnswer(message, reason, tuple(ids), tuple(row.logprobs), row.turn, length, self.policy_version, prompt_ids=prompt)
        more = reply(index, answer)
        suffix = self._suffix_ids(more) if more else []
        if not more or len(row.known) + len(suffix) >= self.max_length:
            row.is_over = True
            return
        row.calls += len(message.tool_calls)
        row.known += suffix
        row.logprobs = []
        row.turn = len(row.known)


# ---- tool calls in text ------------------------------------------------------------------------------------------------

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_MAX_DEPTH = 64
"""Deepest nesting of well-formed arguments; recursive readers would run out of stack below."""


def parse_hermes(text: str, *, first_call: int = 0) -> Message:
    """The assistant message in a text with Hermes tool calls. If a call is malformed, the whole text is content, without any call.

    first_call: number of the first call id; ids are `call_0`, `call_1`, ... within a conversation.
    """
    calls: list[ToolCall] = []
    for position, call_text in enumerate(_CALL.findall(text)):
        try:
            value = json.loads(call_text)
            name, arguments = value["name"], json.dumps(value["arguments"], ensure_ascii=False)
            is_sound = isinstance(name, str) and isinstance(value["arguments"], dict) and _depth(value["arguments"]) <= _MAX_DEPTH
            f"{name}{arguments}".encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            is_sound = False
        if not is_sound:
            return Message(role="assistant", content=text)
        calls.append(ToolCall(id=f"call_{first_call + position}", function=FunctionCall(name=name, arguments=arguments)))
    rest = _CALL.sub("", text).strip()
    if not calls or "<tool_call>" in rest:
        return Message(role="assistant", content=text.strip())
    return Message(role="assistant", content=rest or None, tool_calls=tuple(calls))


def _depth(value: JSON) -> int:
    """How deep arrays and objects are nested."""
    depth, layer = 0, [value]
    while layer := [
        item for outer in layer if isinstance(outer, (dict, list)) for item in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
    return depth
