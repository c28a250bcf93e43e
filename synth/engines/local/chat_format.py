"""Text and tokens of a model's conversations, for engines and for training alike.

One idea: a conversation is built as a policy meets it, piece by piece: the prompt up to the first answer, then in turns an answer as the
policy samples it (end token included) and what comes between it and the next answer. No piece changes what stands before it, whatever the
model's template does to history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage.records import Message, Tool
from synth.engines.base import EngineFailure
from synth.engines.local.call_texts import parse_hermes

_PLACEHOLDER = "x"
_CACHED = 20_000
"""Most entries of a cache."""


class ChatFormat:
    """The chat format of a tokenizer.

    ends: the tokens that end an answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ends: frozenset[int] = frozenset([tokenizer.eos_token_id])
        self._end_text: str = tokenizer.eos_token
        self._prompts: dict[tuple[tuple[Message, ...], tuple[str, ...]], list[int]] = {}
        self._suffixes: dict[tuple[str, ...], list[int]] = {}
        self._answers: dict[tuple[int, ...], Message] = {}

    def prompt_ids(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> list[int]:
        """The tokens of a conversation up to the next assistant message."""
        key = (messages, tuple(tool.id for tool in tools))
        ids = self._prompts.get(key)
        if ids is None:
            if len(self._prompts) > _CACHED:
                self._prompts.clear()
            text = self._render([message.to_openai() for message in messages], [tool.to_openai() for tool in tools], generation=True)
            ids = self._prompts[key] = self._encode(text)
        return ids

    def suffix_ids(self, answer: Message, messages: Sequence[Message]) -> list[int]:
        """The tokens between the end of an answer and the next one, if `messages` come between."""
        key = tuple(f"{message.role}:{message.content}" for message in messages)
        ids = self._suffixes.get(key)
        if ids is None:
            if len(self._suffixes) > _CACHED:
                self._suffixes.clear()
            before = [{"role": "user", "content": _PLACEHOLDER}, {"role": "assistant", "content": _PLACEHOLDER}]
            head = self._render(before, [], generation=False)
            head = head[: head.rindex(self._end_text) + len(self._end_text)]
            whole = self._render([*before, *(message.to_openai() for message in messages)], [], generation=True)
            if not whole.startswith(head):
                raise EngineFailure("the chat template rewrites earlier messages when new ones are appended; use another template")
            ids = self._suffixes[key] = self._encode(whole[len(head) :])
        return ids

    def read(self, ids: Sequence[int], first_call: int = 0) -> Message:
        """The message in the tokens of an answer; its calls are numbered from `first_call` on."""
        key = (first_call, *ids)
        message = self._answers.get(key)
        if message is None:
            if len(self._answers) > _CACHED:
                self._answers.clear()
            text = self.tokenizer.decode(ids, skip_special_tokens=False).removesuffix(self._end_text)
            message = self._answers[key] = parse_hermes(text, first_call=first_call)
        return message

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, generation: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=generation)
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
