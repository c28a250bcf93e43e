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
import time
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
from synth.engines.base import ChatAnswer, ChatRequest, FinishReason, side_by_side
from synth.engines.local.chat_format import ChatFormat
from synth.engines.local.model_folder import check_folder
from synth.engines.local.qwen3 import Qwen3Decoder, cache_bytes

Reply = Callable[[int, ChatAnswer], Sequence[Message] | None]
"""(index of the request, answer) -> the next messages (tool results), or None if the conversation is over."""


CACHES_BYTES = 8 * 2**30
"""Most memory of the caches of a batch."""
_SLOW_REPLY_S = 0.005
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

    def allocate(self, slots: int, length: int) -> None: ...

    def read(self, slots: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor: ...

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor: ...

    def free(self, slot: int) -> None: ...

    def load_weights(self) -> None: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class _TransformersDecoder:
    """Any causal language model, by its `forward` and a `DynamicCache`. All rows are fed in each step, padded to the longest chunk; the
    attention mask hides the padding."""

    def __init__(self, model: Any) -> None:
        self._model, self._base, self._head = model, model.get_decoder(), model.get_output_embeddings()

    def start(self, prompts: Sequence[Sequence[int]], length: int) -> torch.Tensor:
        self.allocate(len(prompts), length)
        return self.read(range(len(prompts)), prompts)

    def allocate(self, slots: int, length: int) -> None:
        self._read: list[list[int]] = [[] for _ in range(slots)]

    def free(self, slot: int) -> None:
        """Empties a slot, so that it is not read again with the others."""
        self._read[slot] = []

    def load_weights(self) -> None:
        """The model reads its weights at every pass."""

    def read(self, slots: Sequence[int], contexts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Replaces the content of these slots. A cache of padded rows cannot replace one of them, so the others are read again too."""
        from transformers import DynamicCache

        for slot, context in zip(slots, contexts, strict=True):
            self._read[slot] = list(context)
        self._cache = DynamicCache(config=self._model.config)
        self._mask = torch.zeros(len(self._read), 0, dtype=torch.long)
        filled = [slot for slot, tokens in enumerate(self._read) if tokens]
        tokens, self._read = self._read, [[] for _ in self._read]
        hidden = self.feed(filled, [tokens[slot] for slot in filled])
        return hidden[torch.tensor([filled.index(slot) for slot in slots])]

    def feed(self, slots: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        rows, width = len(self._mask), max(len(chunk) for chunk in chunks)
        tokens, fresh = torch.zeros(rows, width, dtype=torch.long), torch.zeros(rows, width, dtype=torch.long)
        for slot, chunk in zip(slots, chunks, strict=True):
            self._read[slot] += chunk
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
class OpenConversation:
    """A conversation that is being sampled.

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
def evaluating(model: Any) -> Iterator[None]:
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
        self.decoder: _Decoder = Qwen3Decoder(model) if is_fused and Qwen3Decoder.fits(model) else _TransformersDecoder(model)
        text_config = model.config.get_text_config()
        a_row = cache_bytes(text_config, min(self.max_length, _USUAL_TOKENS))
        self.batch_rows = max(1, min(batch_rows, CACHES_BYTES // a_row))
        self.chat_format = ChatFormat(tokenizer, ends_in(model.generation_config))
        self._one_at_a_time = threading.Lock()
        self._slow_replies = False

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
        for start in range(0, len(requests), self.batch_rows):
            batch = requests[start : start + self.batch_rows]
            with torch.inference_mode(), evaluating(self.model):
                self._run(batch, start, reply)

    def open(self, request: ChatRequest) -> OpenConversation:
        """The conversation before its first token; it is over if its prompt fills the window."""
        prompt = self.prompt_ids(request.messages, request.tools)
        calls = sum(len(message.tool_calls) for message in request.messages)
        row = OpenConversation(request, list(prompt), _noise(request.seed, self.max_length), len(prompt), calls)
        row.is_over = len(prompt) >= self.max_length
        return row

    def _run(self, requests: Sequence[ChatRequest], offset: int, reply: Reply) -> None:
        if isinstance(self.decoder, Qwen3Decoder) and not Qwen3Decoder.fits(self.model):
            self.decoder = _TransformersDecoder(self.model)  # a trainer has moved the model since, or adapted it
        all_rows = [self.open(request) for request in requests]
        places = [place for place, row in enumerate(all_rows) if not row.is_over]
        rows = [all_rows[place] for place in places]
        active = list(range(len(rows)))
        hidden = self.decoder.start([row.known for row in rows], self.max_length) if rows else torch.empty(0)
        while active:
            fed = [len(rows[index].known) for index in active]
            self.sample([rows[index] for index in active], hidden)
            ended = [(index, answer) for index in active if (answer := self.answer_of(rows[index])) is not None]
            messages = self._replies([(offset + places[index], answer) for index, answer in ended], reply)
            for (index, answer), more in zip(ended, messages, strict=True):
                self.go_on(rows[index], answer.message, more)
            open_rows = [(index, start) for index, start in zip(active, fed, strict=True) if not rows[index].is_over]
            active = [index for index, _ in open_rows]
            if active:
                hidden = self.decoder.feed(active, [rows[index].known[start:] for index, start in open_rows])

    def sample(self, rows: list[OpenConversation], hidden: torch.Tensor) -> None:
        """Draws the next token of every row, by the inverse of the cumulative distribution at the row's noise."""
        temperatures = np.array([row.request.temperature for row in rows], dtype=np.float32)
        scaled = self.decoder.logits(hidden) / torch.from_numpy(np.where(temperatures > 0, temperatures, 1))[:, None]
        logprobs = torch.log_softmax(scaled, dim=-1)
        noise = torch.from_numpy(np.array([row.noise[len(row.known)] for row in rows], dtype=np.float32))
        cumulative = logprobs.exp().cumsum(dim=-1)
        sampled = torch.searchsorted(cumulative, (noise * cumulative[:, -1])[:, None], right=True)[:, 0].clamp(max=scaled.shape[1] - 1)
        next_tokens = torch.where(torch.from_numpy(temperatures > 0), sampled, scaled.argmax(dim=-1))
        values = logprobs.gather(1, next_tokens[:, None])[:, 0].tolist()
        for row, token, value in zip(rows, next_tokens.tolist(), values, strict=True):
            row.known.append(token)
            row.logprobs.append(value)

    def answer_of(self, row: OpenConversation) -> ChatAnswer | None:
        """The answer that the last token has ended; None if it goes on."""
        length = len(row.known) - row.turn
        ended = row.known[-1] in self.chat_format.ends
        if not ended and length < row.request.max_tokens and len(row.known) < self.max_length:
            return None
        ids = row.known[row.turn :]
        message = self.chat_format.read(ids, row.calls)
        reason: FinishReason = "length" if not ended else "tool_calls" if message.tool_calls else "stop"
        prompt = tuple(row.known[: row.turn])
        return ChatAnswer(message, reason, tuple(ids), tuple(row.logprobs), row.turn, length, self.policy_version, prompt_ids=prompt)

    def go_on(self, row: OpenConversation, answer: Message, more: Sequence[Message] | None) -> None:
        """Adds the messages after an answer; without any, or if they fill the window, the conversation is over."""
        suffix = self.chat_format.suffix_ids(answer, more) if more else []
        if not more or len(row.known) + len(suffix) >= self.max_length:
            row.is_over = True
            return
        row.calls += len(answer.tool_calls)
        row.known += suffix
        row.logprobs = []
        row.turn = len(row.known)

    def _replies(self, answers: Sequence[tuple[int, ChatAnswer]], reply: Reply) -> list[Sequence[Message] | None]:
        """The messages after each answer; side by side if replies were slow lately, as those of tools that wait for another system are."""
        started = time.monotonic()
        if self._slow_replies and len(answers) > 1:
            replies = side_by_side(lambda one: reply(*one), answers, len(answers), "replies", lambda *_: None)
            each_s = time.monotonic() - started
        else:
            replies = [reply(*one) for one in answers]
            each_s = (time.monotonic() - started) / max(1, len(answers))
        if answers:
            self._slow_replies = each_s > _SLOW_REPLY_S
        return replies
