"""The engine `hf:PATH`: a Hugging Face causal language model, in process, for many conversations at once.

One idea: lock-step. All rows of a batch stand at the same position; a row is fed the next token that is already known (a prompt, an
observation) or else the one just sampled. So a whole multi-turn episode runs over one key-value cache: nothing is padded, no prefix is
computed twice, and what was sampled is kept token by token, with log-probabilities, never re-tokenised.
Qwen3 models with dense attention take `_Qwen3Decoder`, which runs the model's own weights without the module tree (several times faster
for tiny models); every other architecture takes `_TransformersDecoder`. A test holds the two together.
Noise comes from a counter-based generator keyed by the request's seed and indexed by position: with one thread, the same batch of
requests gives the same tokens, and a conversation continued later gives what it would have given at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn import functional as F

from storage.errors import BadInput
from storage.records import FunctionCall, Message, Tool, ToolCall

from .base import ChatAnswer, ChatRequest, EngineFailure, FinishReason

Reply = Callable[[int, ChatAnswer], Sequence[Message] | None]
"""(index of the request, the answer) -> the messages that go on the conversation (tool results), or None where it is over."""

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_STAND_IN = "x"


class _Decoder(Protocol):
    def start(self, tokens: torch.Tensor) -> None:
        """Empties the cache and feeds the first tokens, [rows, n], of all rows."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Feeds one token a row, [rows]; returns the last hidden states, [rows, width]."""

    def keep(self, rows: torch.Tensor) -> None:
        """Keeps these rows (indices, may repeat) of the cache, in this order."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [n, width] -> logits [n, vocabulary], float32."""


class _TransformersDecoder:
    """Any causal language model, through its own `forward` and a `DynamicCache`."""

    def __init__(self, model: Any) -> None:
        self._model, self._base, self._head = model, model.get_decoder(), model.get_output_embeddings()

    def start(self, tokens: torch.Tensor) -> None:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._model.config)
        self._base(input_ids=tokens, past_key_values=self._cache, use_cache=True)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._base(input_ids=tokens[:, None], past_key_values=self._cache, use_cache=True).last_hidden_state
        return hidden[:, -1]

    def keep(self, rows: torch.Tensor) -> None:
        self._cache.batch_select_indices(rows)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self._head(hidden)
        return out.float()


def _rms(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, epsilon)


class _Qwen3Decoder:
    """Qwen3's forward pass over its own weights, with a preallocated cache; fp32, any number of key-value heads.

    Projections that read the same input are fused; the weights are copied at `start`, so a trainer may go on changing them.
    """

    def __init__(self, model: Any) -> None:
        self._model, config = model, model.config
        self._heads, self._kv_heads, self._head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self._epsilon = config.rms_norm_eps
        base = config.rope_parameters["rope_theta"]
        angles = torch.arange(config.max_position_embeddings)[:, None] * base ** (-torch.arange(0, self._head_dim, 2) / self._head_dim)
        self._cos, self._sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        self._sin[:, : self._head_dim // 2] *= -1

    @staticmethod
    def fits(model: Any) -> bool:
        config = model.config
        plain = config.model_type == "qwen3" and config.rope_parameters.get("rope_type", "default") == "default" and not config.attention_bias
        return plain and not config.use_sliding_window and model.dtype == torch.float32 and model.device.type == "cpu"

    def _load(self) -> None:
        with torch.no_grad():
            self._layers = [
                (
                    layer.input_layernorm.weight,
                    torch.cat([layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight]),
                    layer.self_attn.q_norm.weight,
                    layer.self_attn.k_norm.weight,
                    layer.self_attn.o_proj.weight,
                    layer.post_attention_layernorm.weight,
                    torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]),
                    layer.mlp.down_proj.weight,
                )
                for layer in self._model.model.layers
            ]

    def _grow(self, rows: int, length: int) -> None:
        """Room for `length` positions, in chunks, so that short conversations stay cheap to copy."""
        shape = (len(self._layers), 2, rows, self._kv_heads, length, self._head_dim)
        room = torch.empty(shape)
        if self._length:
            room[..., : self._length, :] = self._cache[..., : self._length, :]
        self._cache = room

    def _forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows, new = tokens.shape
        start, end = self._length, self._length + new
        if end > self._cache.shape[4]:
            self._grow(rows, end + 64)
        cos, sin = self._cos[start:end], self._sin[start:end]
        heads, kv_heads, size = self._heads, self._kv_heads, self._head_dim
        half = size // 2
        x = F.embedding(tokens, self._model.model.embed_tokens.weight)
        for index, (norm_in, qkv, q_norm, k_norm, out, norm_mid, gate_up, down) in enumerate(self._layers):
            mixed = F.linear(_rms(x, norm_in, self._epsilon), qkv).view(rows, new, heads + 2 * kv_heads, size).transpose(1, 2)
            q, k, v = mixed[:, :heads], mixed[:, heads : heads + kv_heads], mixed[:, heads + kv_heads :]
            q, k = _rms(q, q_norm, self._epsilon), _rms(k, k_norm, self._epsilon)
            q = q * cos + torch.cat([q[..., half:], q[..., :half]], dim=-1) * sin
            k = k * cos + torch.cat([k[..., half:], k[..., :half]], dim=-1) * sin
            keys, values = self._cache[index]
            keys[:, :, start:end], values[:, :, start:end] = k, v
            seen = F.scaled_dot_product_attention(
                q, keys[:, :, :end], values[:, :, :end], is_causal=new > 1, enable_gqa=kv_heads != heads
            )
            x = x + F.linear(seen.transpose(1, 2).reshape(rows, new, heads * size), out)
            gate, up = F.linear(_rms(x, norm_mid, self._epsilon), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        self._length = end
        return _rms(x[:, -1], self._model.model.norm.weight, self._epsilon)

    def start(self, tokens: torch.Tensor) -> None:
        self._load()
        self._length, self._cache = 0, torch.empty(0, 0, 0, 0, 0, 0)
        self._forward(tokens)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._forward(tokens[:, None])

    def keep(self, rows: torch.Tensor) -> None:
        self._cache = self._cache.index_select(2, rows)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self._model.lm_head.weight)


@dataclass(frozen=True, slots=True)
class Trace:
    """A conversation token by token. ids = what follows the prompt, observations included; mask is 1 and logprobs set where the model
    wrote the token."""

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    logprobs: list[float]


@dataclass(slots=True)
class _Row:
    """One conversation on its way: `known` are all its tokens so far; `turn` starts at the first token of the current answer."""

    request: ChatRequest
    known: list[int]
    noise: np.ndarray
    prompt_length: int
    turn: int
    calls: int
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_over: bool = False


def parse_hermes(text: str, *, first_call: int = 0) -> Message:
    """The assistant message in a Hermes text. A call that is not well-formed leaves the whole text as content, without any call.

    first_call: number of the first call id, which are `call_0`, `call_1`, ... within a conversation.
    """
    calls: list[ToolCall] = []
    for position, found in enumerate(_CALL.findall(text)):
        try:
            value = json.loads(found)
            name, arguments = value["name"], value["arguments"]
        except (ValueError, KeyError, TypeError):
            return Message(role="assistant", content=text)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return Message(role="assistant", content=text)
        function = FunctionCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))
        calls.append(ToolCall(id=f"call_{first_call + position}", function=function))
    rest = _CALL.sub("", text).strip()
    if not calls or "<tool_call>" in rest:
        return Message(role="assistant", content=text.strip())
    return Message(role="assistant", content=rest or None, tool_calls=tuple(calls))


def _token(known: list[int], position: int, otherwise: int) -> int:
    return known[position] if position < len(known) else otherwise


def _noise(seed: int, length: int) -> np.ndarray:
    """Uniform numbers by position, equal whatever else is in the batch."""
    return np.random.Generator(np.random.Philox(key=seed % 2**128)).random(length)


def request_seed(*parts: object) -> int:
    """A seed that any change of any part changes: for (run seed, task, draw)."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


class HFEngine:
    """Chats with a model folder, or with a model that is in memory already (the one in training).

    Args:
        model: a folder, or a loaded model; tokenizer: needed with the latter.
        policy_version: stored with every answer; default: the folder's name.
        batch_rows: conversations that run side by side. Part of what makes results equal: the last bits of a matrix product depend on
            the number of rows.
        is_fused: False forces the plain Transformers path (what the tests compare with).
    """

    def __init__(
        self, model: Path | str | Any, tokenizer: Any = None, *, policy_version: str = "", batch_rows: int = 256, is_fused: bool = True
    ) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._path = ""
        if isinstance(model, (str, Path)):
            self._path = str(model)
            if not (Path(model) / "config.json").is_file():
                raise BadInput(f"{model} is no Hugging Face model folder (no config.json): give the folder that a training stage wrote")
            tokenizer = AutoTokenizer.from_pretrained(model)
            model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model, self.tokenizer = model, tokenizer
        self.policy_version = policy_version or Path(self._path).name
        self.max_length: int = model.config.max_position_embeddings
        self._decoder: _Decoder = _Qwen3Decoder(model) if is_fused and _Qwen3Decoder.fits(model) else _TransformersDecoder(model)
        self._batch_rows = batch_rows
        self._end: int = tokenizer.eos_token_id
        self._end_text: str = tokenizer.eos_token
        self._prompts: dict[tuple[tuple[Message, ...], tuple[Tool, ...]], list[int]] = {}
        self._suffixes: dict[tuple[str, ...], list[int]] = {}
        self._messages: dict[tuple[int, ...], Message] = {}

    @property
    def name(self) -> str:
        return f"hf:{self._path or self.policy_version}"

    # ---- text and tokens -----------------------------------------------------------------------------------------------

    def prompt_ids(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> list[int]:
        """The tokens of a conversation up to the point where the assistant speaks next."""
        found = self._prompts.get((messages, tools))
        if found is None:
            if len(self._prompts) > 20_000:
                self._prompts.clear()
            text = self._render([message.to_openai() for message in messages], [tool.to_openai() for tool in tools], generation=True)
            found = self._prompts[messages, tools] = self._encode(text)
        return found

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, generation: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=generation)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _suffix_ids(self, messages: Sequence[Message]) -> list[int]:
        """What follows the end of an assistant message when `messages` are appended and the assistant is to speak again."""
        key = tuple(f"{message.role}:{message.content}" for message in messages)
        found = self._suffixes.get(key)
        if found is None:
            if len(self._suffixes) > 20_000:
                self._suffixes.clear()
            before = [{"role": "user", "content": _STAND_IN}, {"role": "assistant", "content": _STAND_IN}]
            head = self._render(before, [], generation=False)
            head = head[: head.rindex(self._end_text) + len(self._end_text)]
            whole = self._render([*before, *(message.to_openai() for message in messages)], [], generation=True)
            if not whole.startswith(head):
                raise EngineFailure(f"{self.name}: the chat template rewrites earlier messages when new ones are appended; use another template")
            found = self._suffixes[key] = self._encode(whole[len(head) :])
        return found

    def _message(self, ids: list[int], first_call: int) -> Message:
        key = (first_call, *ids)
        found = self._messages.get(key)
        if found is None:
            if len(self._messages) > 20_000:
                self._messages.clear()
            text = self.tokenizer.decode(ids, skip_special_tokens=False).removesuffix(self._end_text)
            found = self._messages[key] = parse_hermes(text, first_call=first_call)
        return found

    # ---- chatting ------------------------------------------------------------------------------------------------------

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        """One answer a request. Raises EngineFailure where a prompt leaves no room for an answer."""
        answers: dict[int, ChatAnswer] = {}

        def reply(index: int, answer: ChatAnswer) -> None:
            answers[index] = answer

        self.converse(requests, reply)
        return [answers[index] for index in range(len(requests))]

    def converse(self, requests: Sequence[ChatRequest], reply: Reply) -> list[Trace]:
        """Whole conversations: after every answer, `reply` says how each goes on. One trace a request, in their order.

        `max_tokens` bounds each answer; a conversation that outgrows the model's window ends without another answer.
        """
        traces: list[Trace] = []
        for start in range(0, len(requests), self._batch_rows):
            batch = requests[start : start + self._batch_rows]
            with torch.inference_mode():
                traces += self._run(batch, start, reply)
        return traces

    def _row(self, request: ChatRequest) -> _Row:
        prompt = self.prompt_ids(request.messages, request.tools)
        if len(prompt) >= self.max_length:
            raise EngineFailure(f"{self.name}: a prompt of {len(prompt)} tokens does not fit the model's window of {self.max_length}")
        calls = sum(len(message.tool_calls) for message in request.messages)
        return _Row(request, list(prompt), _noise(request.seed, self.max_length), len(prompt), len(prompt), calls)

    def _run(self, requests: Sequence[ChatRequest], offset: int, reply: Reply) -> list[Trace]:
        rows = [self._row(request) for request in requests]
        active = list(range(len(rows)))
        position = min(len(row.known) for row in rows) - 1
        self._prefill(rows, position)
        while active:
            tokens = torch.tensor([_token(rows[index].known, position, self._end) for index in active])
            hidden = self._decoder.step(tokens)
            position += 1
            here = [(slot, index) for slot, index in enumerate(active) if len(rows[index].known) == position and not rows[index].is_over]
            if here:
                self._sample(rows, here, hidden, position)
                for _, index in here:
                    self._advance(rows[index], offset + index, reply)
            finished = sum(rows[index].is_over for index in active)
            if finished and (finished == len(active) or finished * 8 >= len(active)):
                slots = [slot for slot, index in enumerate(active) if not rows[index].is_over]
                active = [active[slot] for slot in slots]
                if active:
                    self._decoder.keep(torch.tensor(slots))
        return [Trace(row.known[: row.prompt_length], row.known[row.prompt_length :], row.mask, row.logprobs) for row in rows]

    def _prefill(self, rows: list[_Row], length: int) -> None:
        """Feeds what all rows know (their first `length` tokens), equal beginnings once."""
        heads: dict[tuple[int, ...], int] = {}
        slots = [heads.setdefault(tuple(row.known[:length]), len(heads)) for row in rows]
        self._decoder.start(torch.tensor(list(heads)).view(len(heads), length))
        self._decoder.keep(torch.tensor(slots))

    def _sample(self, rows: list[_Row], here: list[tuple[int, int]], hidden: torch.Tensor, position: int) -> None:
        """Draws the token at `position` for every row that has none there, by the inverse distribution function of its own noise."""
        temperatures = np.array([rows[index].request.temperature for _, index in here], dtype=np.float32)
        picked = hidden if len(here) == len(hidden) else hidden[torch.tensor([slot for slot, _ in here])]
        scaled = self._decoder.logits(picked) / torch.from_numpy(np.where(temperatures > 0, temperatures, 1))[:, None]
        logprobs = torch.log_softmax(scaled, dim=-1)
        noise = torch.from_numpy(np.array([rows[index].noise[position] for _, index in here], dtype=np.float32))
        cumulative = logprobs.exp().cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, (noise * cumulative[:, -1])[:, None], right=True)[:, 0].clamp(max=scaled.shape[1] - 1)
        chosen = torch.where(torch.from_numpy(temperatures > 0), drawn, scaled.argmax(dim=-1))
        values = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        for (_, index), token, value in zip(here, chosen.tolist(), values, strict=True):
            row = rows[index]
            row.known.append(token)
            row.mask.append(1)
            row.logprobs.append(value)

    def _advance(self, row: _Row, index: int, reply: Reply) -> None:
        """Ends the row's answer where its last token ends it, and asks how the conversation goes on."""
        length = len(row.known) - row.turn
        ended = row.known[-1] == self._end
        if not ended and length < row.request.max_tokens and len(row.known) < self.max_length:
            return
        ids, logprobs = row.known[row.turn :], row.logprobs[-length:]
        message = self._message(ids, row.calls)
        reason: FinishReason = "length" if not ended else "tool_calls" if message.tool_calls else "stop"
        answer = ChatAnswer(message, reason, tuple(ids), tuple(logprobs), row.turn, length, self.policy_version)
        more = reply(index, answer)
        suffix = self._suffix_ids(more) if more else []
        if not more or len(row.known) + len(suffix) >= self.max_length:
            row.is_over = True
            return
        row.calls += len(message.tool_calls)
        row.known += suffix
        row.mask += [0] * len(suffix)
        row.logprobs += [0.0] * len(suffix)
        row.turn = len(row.known)
