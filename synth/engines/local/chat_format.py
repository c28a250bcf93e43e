"""Text and tokens of a model's conversations, for engines and for training alike.

One idea: a conversation is built as a policy meets it, piece by piece: the prompt up to the first answer, then in turns an answer as the
policy samples it (end token included) and what comes between it and the next answer. No piece changes what stands before it, whatever the
model's template does to history: tools stay where the first prompt has them, an empty thought stays, and so does the token that ended an
answer. So what training learns is what an engine has in its context, token by token.
A probe call, written by the template and read back, shows the family of the model and how it wants arguments.
What it does not do: read calls in texts (`synth/engines/local/call_texts.py`), or decide what is learned (`train/data/token_labels.py`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

from storage.errors import BadInput
from storage.records import JSON, FunctionCall, Message, Tool, ToolCall
from synth.engines.local.call_texts import READERS, Reader

_SENTINEL = "headrace"
_USER = Message(role="user", content="hello")
_TEXT = Message(role="assistant", content=_SENTINEL)
_DATE = datetime(2024, 7, 26)
"""The date in prompts that have one, so that equal conversations have equal tokens on all days; Llama's templates fall back to it."""
_NOW = re.compile(r"""strftime_now\((["'])(.*?)\1\)""")
_ALSO_END = "<|eom_id|>"
"""Llama's end of a call that it expects to be executed; its templates do not write it."""
_CACHED = 20_000
"""Most entries of a cache."""
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Piece:
    """ids: consecutive tokens of a conversation. is_turn: whether they are an answer."""

    ids: list[int]
    is_turn: bool


class ChatFormat:
    """The chat format of a tokenizer.

    ends: the tokens that end an answer.
    family: of the model, a key of `READERS`; None if the template writes no calls in a form that is known.

    Args:
        more_ends: further tokens that end an answer, as a model's generation configuration names them.

    Raises:
        BadInput: there is no template, or it cannot write a conversation of three messages.
    """

    def __init__(self, tokenizer: Any, more_ends: Iterable[int] = ()) -> None:
        self.tokenizer, self._template = tokenizer, _template_of(tokenizer)
        special = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
        self._special = sorted(special, key=lambda token: (-len(token), token))
        self._heads: dict[tuple[tuple[Message, ...], tuple[str, ...]], list[int]] = {}
        self._turns: dict[Message, list[int]] = {}
        self._texts: dict[Message, str] = {}
        self._suffixes: dict[tuple[object, ...], list[int]] = {}
        self._answers: dict[tuple[int, ...], Message] = {}
        self._takes_strings = False
        self._asking = self._render([_USER], asks=True)
        self.family = self._probe()
        self._read: Reader = READERS[self.family or "hermes"]
        self._end_of_text = self._end_of(_TEXT)
        self._end_of_call = self._end_of(_probe_call()) if self.family else self._end_of_text
        self._end_in_history = self._first_special(self._after_sentinel([_USER, _TEXT, _USER]))
        self._repeats_calls = self.family is not None and self._compare_suffixes()
        texts = {tokenizer.eos_token, self._end_of_text, self._end_of_call, _ALSO_END} & {tokenizer.eos_token, *self._special}
        self._end_texts: dict[int, str] = {tokenizer.convert_tokens_to_ids(text): text for text in texts if text is not None}
        self._end_texts |= {end: tokenizer.convert_ids_to_tokens(end) for end in more_ends}
        self.ends = frozenset(self._end_texts)

    def _probe(self) -> str | None:
        """Finds the family, and whether the template takes arguments as objects or as strings, by a call that reads back as it was."""
        call = _probe_call()
        for self._takes_strings in (False, True):
            with contextlib.suppress(BadInput):
                tail = self._tail(call)
                text = tail[: tail.rindex(self._last_special(tail))] if self._last_special(tail) in tail else tail
                for family, read in READERS.items():
                    if _meaning(read(text)) == _meaning(call):
                        return family
        return None

    def _compare_suffixes(self) -> bool:
        """Whether what the template writes after a call repeats its name or its id, as gpt-oss and Mistral do."""
        self._repeats_calls = True
        calls = [_probe_call(number, name) for number, name in enumerate("ab")]
        results = [Message(role="tool", tool_call_id=call.tool_calls[0].id, content="done") for call in calls]
        first, second = (self._suffix_text(call, [result]) for call, result in zip(calls, results, strict=True))
        return first != second

    # ---- pieces of a conversation ------------------------------------------------------------------------------------------

    def pieces(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[Piece]:
        """A conversation as pieces; what follows on the last answer asks for another one.

        Raises:
            BadInput: the template cannot write one of its messages.
        """
        places = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if not places:
            return [Piece(self._head_ids(tuple(messages), tools), False)]
        numbered = _number_calls(messages)
        pieces = [Piece(self._head_ids(tuple(numbered[: places[0]]), tools), False)]
        for place, after in zip(places, [*places[1:], len(messages)], strict=True):
            pieces.append(Piece(self.turn_ids(numbered[place]), True))
            if between := numbered[place + 1 : after]:
                pieces.append(Piece(self.suffix_ids(numbered[place], between), False))
        return pieces

    def prompt_ids(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """The tokens of a conversation up to the next assistant message."""
        return [token for piece in self.pieces(messages, tools) for token in piece.ids]

    def _head_ids(self, messages: tuple[Message, ...], tools: Sequence[Tool]) -> list[int]:
        key = (messages, tuple(tool.id for tool in tools))
        return _cached(self._heads, key, lambda: self._encode(self._render(messages, tools, asks=True)))

    def turn_ids(self, message: Message) -> list[int]:
        """The tokens of an answer, from after the prompt to the token that ends it.

        Raises:
            BadInput: the template cannot write it.
        """
        return _cached(self._turns, message, lambda: self._encode(self._turn_text(message)))

    def suffix_ids(self, answer: Message, messages: Sequence[Message]) -> list[int]:
        """The tokens between the end of an answer and the next one, if `messages` come between.

        Raises:
            BadInput: the template cannot write them.
        """
        calls = tuple((call.id, call.function.name) for call in answer.tool_calls) if self._repeats_calls else bool(answer.tool_calls)
        after = ((message.role, message.content, message.tool_call_id if self._repeats_calls else None) for message in messages)
        return _cached(self._suffixes, (calls, *after), lambda: self._encode(self._suffix_text(answer, messages)))

    def read(self, ids: Sequence[int], first_call: int = 0) -> Message:
        """The message in the tokens of an answer; its calls are numbered from `first_call` on."""
        return _cached(self._answers, (first_call, *ids), lambda: self._read(self._decode(ids), first_call=first_call))

    def unwritable(self, messages: Sequence[Message]) -> str | None:
        """What the template cannot write of a conversation, so that the answer reads back as it was; None if it writes all."""
        if any(one.role == other.role == "assistant" for one, other in pairwise(messages)):
            return "two answers in a row"
        for message in messages:
            if message.role != "assistant":
                continue
            try:
                text = self._without_end(self._turn_text(message))
            except BadInput as refused:
                return "several calls in one message" if len(message.tool_calls) > 1 else f"a message that it refuses: {refused}"
            if any(end in text for end in self._end_texts.values()):
                return "the end of an answer in its words"
            if _meaning(self._read(text)) != _meaning(message):
                many, both = len(message.tool_calls) > 1, bool(message.tool_calls and message.content)
                return "several calls in one message" if many else "words beside a call" if both else "a message that reads back as another"
        return None

    # ---- texts ---------------------------------------------------------------------------------------------------------------

    def _turn_text(self, message: Message) -> str:
        """An answer with its end."""

        def write() -> str:
            tail, end = self._tail(message), self._end_of_call if message.tool_calls else self._end_of_text
            if end not in tail:
                raise BadInput("the chat template ends answers with no special token of the tokenizer")
            return tail[: tail.rindex(end) + len(end)]

        return _cached(self._texts, message, write)

    def _without_end(self, text: str) -> str:
        for end in (self._end_of_call, self._end_of_text):
            if text.endswith(end):
                return text.removesuffix(end)
        return text

    def _tail(self, message: Message) -> str:
        """What the template writes for an answer, after the prompt that asks for one."""
        prompt, whole = self._asking, self._render([_USER, message])
        if not whole.startswith(prompt):
            raise BadInput("the chat template does not begin an answer as it asks for one")
        return whole[len(prompt) :]

    def _suffix_text(self, answer: Message, messages: Sequence[Message]) -> str:
        is_call = bool(answer.tool_calls) and self.family is not None
        after = self._after_sentinel([_USER, self._stand_in(answer) if is_call else _TEXT, *messages], asks=True)
        end = self._end_of_call if is_call else self._end_in_history
        if end not in after:
            raise BadInput("the chat template ends answers with no special token of the tokenizer")
        return after[after.index(end) + len(end) :]

    def _stand_in(self, answer: Message) -> Message:
        """An answer with the same calls, as far as a template may repeat them, whose last argument is the sentinel."""
        if not self._repeats_calls:
            return _probe_call()
        *calls, last = answer.tool_calls
        empty = [call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments="{}")}) for call in calls]
        return Message(role="assistant", tool_calls=(*empty, _with_sentinel(last.id, last.function.name)))

    def _after_sentinel(self, messages: Sequence[Message], *, asks: bool = False) -> str:
        return self._render(messages, asks=asks).partition(_SENTINEL)[2]

    def _end_of(self, answer: Message) -> str:
        """The token that ends an answer; the tokenizer's, if the template cannot write the answer."""
        with contextlib.suppress(BadInput):
            return self._last_special(self._tail(answer))
        return str(self.tokenizer.eos_token)

    def _last_special(self, text: str) -> str:
        """The special token that ends an answer; the tokenizer's end token if none does."""
        ends = [(text.rindex(token) + len(token), token) for token in self._special if token in text]
        return max(ends, default=(0, str(self.tokenizer.eos_token)))[1]

    def _first_special(self, text: str) -> str:
        starts = [(text.index(token), token) for token in self._special if token in text]
        return min(starts, default=(0, str(self.tokenizer.eos_token)))[1]

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, asks: bool = False) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                [self._to_template(message) for message in messages],
                tools=[tool.to_openai() for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=asks,
                chat_template=self._template,
            )
        except Exception as error:  # whatever a template raises
            raise BadInput(f"the chat template fails ({' '.join(str(error).split())[:200]})") from error
        return text

    def _to_template(self, message: Message) -> dict[str, JSON]:
        """In OpenAI form; ids have nine digits, as Mistral's templates insist, and a message without calls has no key for them."""
        out: dict[str, JSON] = {"role": message.role, "content": message.content or ""}
        if message.tool_calls:
            out["tool_calls"] = [
                {
                    "id": _nine_digits(call.id),
                    "type": call.type,
                    "function": {"name": call.function.name, "arguments": self._arguments(call.function.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id is not None:
            out["tool_call_id"] = _nine_digits(message.tool_call_id)
        return out

    def _arguments(self, text: str) -> JSON:
        """The object that the text is, unless the template takes strings, or it is none."""
        if self._takes_strings:
            return text
        value = _json_or_text(text)
        return value if isinstance(value, dict) else text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text.removesuffix(self._end_texts.get(ids[-1], "")) if ids else text


def _template_of(tokenizer: Any) -> str:
    """The tokenizer's template for conversations with tools, at a fixed date.

    Raises:
        BadInput: it has none.
    """
    try:
        template: str = tokenizer.get_chat_template(tools=[{}])
    except ValueError as error:
        raise BadInput("the tokenizer has no chat template (chat_template.jinja): take a chat model") from error
    return _NOW.sub(lambda match: json.dumps(_DATE.strftime(match[2])), template)


def _probe_call(number: int = 0, name: str = "probe") -> Message:
    return Message(role="assistant", tool_calls=(_with_sentinel(f"call_{number}", name),))


def _with_sentinel(call_id: str, name: str) -> ToolCall:
    return ToolCall(id=call_id, function=FunctionCall(name=name, arguments=json.dumps({"key": _SENTINEL})))


def _nine_digits(call_id: str) -> str:
    return call_id.removeprefix("call_").zfill(9)


def _number_calls(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls numbered `call_0`, `call_1`, ... in their order, as an engine numbers what it reads."""
    numbers: dict[str | None, str] = {}
    numbered, count = [], 0
    for message in messages:
        update: dict[str, object] = {}
        if message.tool_calls:
            names = [f"call_{number}" for number in range(count, count + len(message.tool_calls))]
            numbers |= {call.id: name for call, name in zip(message.tool_calls, names, strict=True)}
            update["tool_calls"] = tuple(call.model_copy(update={"id": name}) for call, name in zip(message.tool_calls, names, strict=True))
            count += len(names)
        elif message.tool_call_id in numbers:
            update["tool_call_id"] = numbers[message.tool_call_id]
        numbered.append(message.model_copy(update=update) if update else message)
    return numbered


def _meaning(message: Message) -> tuple[str, list[tuple[str, JSON]]]:
    """Words and calls of a message, for comparison."""
    calls = [(call.function.name, _json_or_text(call.function.arguments)) for call in message.tool_calls]
    return (message.content or "").strip(), calls


def _json_or_text(text: str) -> JSON:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _cached(cache: dict[_Key, _Value], key: _Key, make: Callable[[], _Value]) -> _Value:
    """The value of a key; makes it if it is not there."""
    value = cache.get(key)
    if value is None:
        if len(cache) > _CACHED:
            cache.clear()
        value = cache[key] = make()
    return value
