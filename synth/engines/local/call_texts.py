"""From the text of an answer to a message: the calls that a model wrote, in the form of its family.

Any text gives one message that can be stored. What it does not do: tokens and templates (`synth/engines/local/chat_format.py`).
"""

from __future__ import annotations

import json
import re

from storage.records import JSON, FunctionCall, Message, ToolCall

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
