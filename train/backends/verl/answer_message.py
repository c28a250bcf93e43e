"""The message of an answer whose calls an engine's own tool parser has read.

One idea: a parser such as verl's skips a malformed call and returns the rest, so a policy would pay nothing for it. Here, as in rollouts of
our own, an answer with a malformed call stays text with its marks, and the environment ends it as a failure of the policy.
What a model thinks (`<think>`) is no part of the message. What it does not do: parse calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from storage.records import JSON
from synth.engines.local.call_texts import all_sound, without_thought

_CALL = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)


def answer_message(text: str, calls: Sequence[tuple[str, str]], first_call: int = 0) -> dict[str, JSON]:
    """The assistant's message in OpenAI form.

    text: the whole answer, without special tokens.
    calls: name and arguments (JSON text) of each call that the parser read.
    first_call: number of the first call's id; ids are `call_0`, `call_1`, ... within a conversation.
    """
    said = without_thought(text).strip()
    if not calls or not all_sound(text, calls):
        return {"role": "assistant", "content": said}
    return {
        "role": "assistant",
        "content": _CALL.sub("", said).strip() or None,
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": written}}
            for number, (name, written) in enumerate(calls, first_call)
        ],
    }
