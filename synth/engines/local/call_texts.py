"""From the text of an answer to a message: the calls that a model wrote, in the form of its family.

One idea: a family is one reader. The template of a model shows its family by a probe call (`synth/engines/local/chat_format.py`); no name
of a model is looked at. Any text gives one message that can be stored: where a call is malformed, the whole text is content, without calls.
What a model thinks (`<think>`, harmony's channel `analysis`) is no part of the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from storage.records import JSON, FunctionCall, Message, ToolCall, parse_arguments

_MAX_DEPTH = 64
"""Deepest nesting of well-formed arguments; recursive readers would run out of stack below."""
_MARKS = ("<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<|message|>", "to=functions.")


class Reader(Protocol):
    """Reads an answer, without the token that ends it.

    first_call: number of the first call id; ids are `call_0`, `call_1`, ... within a conversation.
    """

    def __call__(self, text: str, *, first_call: int = 0) -> Message: ...


def is_broken_call(message: Message) -> bool:
    """Whether a message without calls has the marks of one in its text."""
    text = message.content or ""
    return not message.tool_calls and (any(mark in text for mark in _MARKS) or text.startswith('{"name":'))


def without_thought(text: str) -> str:
    """An answer without what the model thinks before it; `</think>` within a call is part of the call."""
    return _THOUGHT.sub("", text)


def all_sound(text: str, calls: Sequence[tuple[str, str]]) -> bool:
    """Whether the calls that another parser has read are all calls of an answer, and each can be stored and sent.

    text: the whole answer. calls: name and arguments (JSON text) of each call.
    """
    if without_thought(text).count(_MARKS[0]) not in (0, len(calls)):
        return False
    for name, written in calls:
        arguments = parse_arguments(written)
        if arguments is None:
            return False
        try:
            f"{name}{json.dumps(arguments, ensure_ascii=False)}".encode()
        except UnicodeEncodeError:
            return False
    return True


def _message(calls: Sequence[tuple[JSON, JSON]], content: str, text: str, first_call: int) -> Message:
    """The message of these names and arguments; `text` as content if one of them is unsound."""
    read: list[ToolCall] = []
    for number, (name, arguments) in enumerate(calls, first_call):
        if not isinstance(name, str) or not isinstance(arguments, dict) or _depth(arguments) > _MAX_DEPTH:
            return Message(role="assistant", content=text)
        written = json.dumps(arguments, ensure_ascii=False)
        try:
            f"{name}{written}".encode()
        except UnicodeEncodeError:
            return Message(role="assistant", content=text)
        read.append(ToolCall(id=f"call_{number}", function=FunctionCall(name=name, arguments=written)))
    return Message(role="assistant", content=content.strip() or None, tool_calls=tuple(read))


def _depth(value: JSON) -> int:
    """How deep arrays and objects are nested."""
    depth, layer = 0, [value]
    while layer := [
        item for outer in layer if isinstance(outer, (dict, list)) for item in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
    return depth


# ---- Hermes: Qwen2.5, Qwen3, Hermes, the tiny policy ------------------------------------------------------------------------------

_HERMES = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_THOUGHT = re.compile(r"\A(?:(?!<tool_call>).)*?</think>", re.DOTALL)
"""Also where a prompt has opened the thought."""


def parse_hermes(text: str, *, first_call: int = 0) -> Message:
    """`<tool_call>{"name": .., "arguments": {..}}</tool_call>`, any number of them, with words around."""
    text = without_thought(text)
    calls = []
    for written in _HERMES.findall(text):
        try:
            value = json.loads(written)
            calls.append((value["name"], value["arguments"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return Message(role="assistant", content=text)
    rest = _HERMES.sub("", text)
    if not calls or "<tool_call>" in rest:
        return Message(role="assistant", content=text.strip())
    return _message(calls, rest, text, first_call)


# ---- Llama 3 ------------------------------------------------------------------------------------------------------------------------

_LLAMA = re.compile(r"\A\s*(?:<\|python_tag\|>\s*)?(\{.*\})\s*\Z", re.DOTALL)


def parse_llama(text: str, *, first_call: int = 0) -> Message:
    """`{"name": .., "parameters": {..}}`, one alone; after `<|python_tag|>` or without it."""
    match = _LLAMA.match(text)
    try:
        value = json.loads(match[1]) if match else None
        if isinstance(value, dict) and value.keys() >= {"name", "parameters"}:
            return _message([(value["name"], value["parameters"])], "", text, first_call)
    except (ValueError, RecursionError):
        pass
    return Message(role="assistant", content=text.strip())


# ---- Mistral ------------------------------------------------------------------------------------------------------------------------

_MISTRAL = "[TOOL_CALLS]"
_NAMED = re.compile(r"\s*([^\s\[\]{}]+)(?:\[CALL_ID\]\w+)?\[ARGS\]\s*")


def parse_mistral(text: str, *, first_call: int = 0) -> Message:
    """`[TOOL_CALLS] [{"name": .., "arguments": {..}}, ..]`, or `[TOOL_CALLS]name[ARGS]{..}` for each call; words may stand before."""
    content, mark, written = text.partition(_MISTRAL)
    if not mark:
        return Message(role="assistant", content=text.strip())
    try:
        named = _NAMED.match(written)
        listed = json.loads(written) if named is None else []
        calls = [(one["name"], one["arguments"]) for one in listed] if named is None else _named_calls(written)
    except (ValueError, KeyError, TypeError, RecursionError):
        calls = []
    return _message(calls, content, text, first_call) if calls else Message(role="assistant", content=text)


def _named_calls(written: str) -> list[tuple[JSON, JSON]]:
    calls = []
    for part in written.split(_MISTRAL):
        named = _NAMED.match(part)
        if named is None:
            raise ValueError("no name")
        calls.append((named[1], json.loads(part[named.end() :])))
    return calls


# ---- harmony: gpt-oss ----------------------------------------------------------------------------------------------------------------

_PART = re.compile(r"\A(?P<header>[^{}]*?)<\|message\|>(?P<body>.*?)(?:<\|end\|>)?\Z", re.DOTALL)
_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")


def parse_harmony(text: str, *, first_call: int = 0) -> Message:
    """Messages to channels: what is sent to `functions.NAME` is a call, what is said in `analysis` is left out, all else is content."""
    parts = [_PART.match(part) for part in text.split("<|start|>assistant")]
    said: list[str] = []
    calls = []
    for part in parts:
        if part is None:
            return Message(role="assistant", content=text.strip())
        if recipient := _RECIPIENT.search(part["header"]):
            try:
                calls.append((recipient[1], json.loads(part["body"])))
            except (ValueError, RecursionError):
                return Message(role="assistant", content=text)
        elif "<|channel|>analysis" not in part["header"]:
            said.append(part["body"].strip())
    if not calls:
        return Message(role="assistant", content="\n".join(said))
    return _message(calls, "\n".join(said), text, first_call)


READERS: Mapping[str, Reader] = {"hermes": parse_hermes, "llama": parse_llama, "mistral": parse_mistral, "harmony": parse_harmony}
"""A family's name -> its reader."""
