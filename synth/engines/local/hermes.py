"""Hermes text back to a message: what a model wrote between `<tool_call>` marks, as calls."""

from __future__ import annotations

import json
import re

from storage.records import JSON, FunctionCall, Message, ToolCall

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_DEEPEST = 64
"""Arguments that are nested deeper are not well-formed: whoever walks through them would run out of stack."""


def parse_hermes(text: str, *, first_call: int = 0) -> Message:
    """The assistant message in a Hermes text. A call that is not well-formed leaves the whole text as content, without any call.

    first_call: number of the first call id, which are `call_0`, `call_1`, ... within a conversation.
    """
    calls: list[ToolCall] = []
    for position, found in enumerate(_CALL.findall(text)):
        try:
            value = json.loads(found)
            name, arguments = value["name"], json.dumps(value["arguments"], ensure_ascii=False)
            is_sound = isinstance(name, str) and isinstance(value["arguments"], dict) and _depth(value["arguments"]) <= _DEEPEST
            f"{name}{arguments}".encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            is_sound = False
        if not is_sound:
            return Message(role="assistant", content=text)
        function = FunctionCall(name=name, arguments=arguments)
        calls.append(ToolCall(id=f"call_{first_call + position}", function=function))
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
