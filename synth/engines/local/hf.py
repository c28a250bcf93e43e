"""The engine `hf:PATH`: a Hugging Face causal language model in this process, for many conversations at once.

One idea: a multi-turn conversation uses one key-value cache. In each round every open conversation reads its new tokens (the prompt, a tool
result, or the token that it sampled last) and samples one token. Nothing is computed twice; sampled tokens are kept with their
log-probabilities and never re-tokenised.
Plain Qwen3 models on a CPU use `Qwen3Decoder`, all others `_TransformersDecoder`; a test compares the two.
Noise comes from a counter-based generator keyed by the request's seed and indexed by position: with one thread, equal batches of requests
give equal tokens, and a conversation that is continued later gives the same tokens as in one go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from storage.errors import BadInput
from storage.health.weights import check_stage_weights
from storage.records import Message, Tool
from synth.engines.base import ChatAnswer, ChatRequest, FinishReason
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.model_folder import check_folder
from synth.engines.local.qwen3 import Qwen3Decoder, cache_bytes

Reply = Callable[[int, ChatAnswer], Sequence[Message] | None]
"""(index of the request, answer) -> the next messages (tool results), or None if the conversation is over."""


CACHES_BYTES = 8 * 2**30
"""Most memory of the caches of a batch."""
_USUAL_TOKENS = 4096
"""Length that conversations are taken to have, if the window is longer."""


def _load(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a folder; code in the folder is not run. Raises BadInput if a file is damaged."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
        return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except MemoryError:
        raise
    except Exception as error:  # each library has its own errors
        if "out of memory" in str(error):
            raise
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{folder} cannot be loaded ({problem}): copy the whole model folder again") from error


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


def ends_in(generation_config: Any) -> list[int]:
    """The tokens that end an answer by a model's generation configuration."""
    ends = generation_config.eos_token_id
    return ends if isinstance(ends, list) else [] if ends is None else [ends]


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """A model in training with gradient checkpointing has no caches: without this, it would see no more than the newest tokens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class HFEngine:
    """Chats with a model from a folder, or with a loaded model (the one in training).

    Args:
        model: a folder, or a loaded model with its tokenizer.
        policy_version: stored with every answer; default: the folder's name.
        batch_rows: most conversations in one batch; of a large model, as many as CACHES_BYTES hold. Results depend on it in the last
            bits, as matrix products do.
        is_fused: False forces the Transformers path; tests compare with it.
    """

    def __init__(
        self, model: Path | str | Any, tokenizer: Any = None, *, policy_version: str = "", batch_rows: int = 256, is_fused: bool = True
    ) -> None:
        from transformers.utils.logging import disable_progress_bar

        self._path = ""
        if isinstance(model, (str, Path)):
            self._path = str(model)
            check_folder(Path(model))
            check_stage_weights(Path(model))
            disable_progress_bar()
            model, tokenizer = _load(Path(model))
        self.model, self.tokenizer = model, tokenizer
        self.policy_version = policy_version or Path(self._path).name
        self.max_length: int = model.config.get_text_config().max_position_embeddings
        self._decoder: _Decoder = Qwen3Decoder(model) if is_fused and Qwen3Decoder.fits(model) else _TransformersDecoder(model)
        text_config = model.config.get_text_config()
        a_row = cache_bytes(text_config, min(self.max_length, _USUAL_TOKENS))
        self._batch_rows = max(1, min(batch_rows, CACHES_BYTES // a_row))
        self.chat_format = ChatFormat(tokenizer, ends_in(model.generation_config))
        self._one_at_a_time = threading.Lock()

    @property
    def name(self) -> str:
        return f"hf:{self._path or self.policy_version}"

    def prompt_ids(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> list[int]:
        """The tokens of a conversation up to the next assistant message."""
        return self.chat_format.prompt_ids(messages, tools)

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
            with torch.inference_mode(), _evaluating(self.model):
                self._run(batch, start, reply)

    def _row(self, request: ChatRequest) -> _Row:
        prompt = self.prompt_ids(request.messages, request.tools)
        calls = sum(len(message.tool_calls) for message in request.messages)
        row = _Row(request, list(prompt), _noise(request.seed, self.max_length), len(prompt), calls)
        row.is_over = len(prompt) >= self.max_length
        return row

    def _run(self, requests: Sequence[ChatRequest], offset: int, reply: Reply) -> None:
        if isinstance(self._decoder, Qwen3Decoder) and not Qwen3Decoder.fits(self.model):
            self._decoder = _TransformersDecoder(self.model)  # a trainer has moved the model since, or adapted it
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
        ended = row.known[-1] in self.chat_format.ends
        if not ended and length < row.request.max_tokens and len(row.known) < self.max_length:
            return
        ids = row.known[row.turn :]
        message = self.chat_format.read(ids, row.calls)
        reason: FinishReason = "length" if not ended else "tool_calls" if message.tool_calls else "stop"
        prompt = tuple(row.known[: row.turn])
        answer = ChatAnswer(message, reason, tuple(ids), tuple(row.logprobs), row.turn, length, self.policy_version, prompt_ids=prompt)
        more = reply(index, answer)
        suffix = self.chat_format.suffix_ids(message, more) if more else []
        if not more or len(row.known) + len(suffix) >= self.max_length:
            row.is_over = True
            return
        row.calls += len(message.tool_calls)
        row.known += suffix
        row.logprobs = []
        row.turn = len(row.known)
