"""Requests that no person would make: a list of instructions, with every argument spelled out.

A policy that trains on such requests learns to copy, not to understand. Found by form alone, in both languages: a tool is called by its
name, parameters are given as `name=value`, or the steps are numbered. A request that names things in a row ("order o17, two of them, in
blue") is a person's. Whoever wrote a text that is found is told what to write instead; after the last try it is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from synth.text.claims import has_word, normalise

_STEP = re.compile(r"^\s*(?:\d{1,2}\s*[.)、:：]|step\s+\d+\b|第\s*[一二三四五六七八九十\d]+\s*步)", re.MULTILINE | re.IGNORECASE)
_STEPS = 3
_PARAMETERS = 2


def spelled_out(text: str, tools: Collection[str], parameters: Collection[str]) -> list[str]:
    """What makes a text a list of instructions, in words for its author; empty where it is none.

    Args:
        tools: names of the tools on offer; those of one word are ordinary language, and may be said.
        parameters: names of their parameters.
    """
    said = normalise(text)
    named = [tool for tool in sorted(tools) if _is_coined(tool) and has_word(said, tool.lower())]
    problems = [f"do not name the tool {tool}; say what you want" for tool in named]
    given = [name for name in sorted(parameters) if re.search(rf"(?<![a-z0-9_]){re.escape(name.lower())}\s*[=:：]\s*\S", said)]
    if len(given) >= _PARAMETERS:
        problems.append(
            f"do not give arguments as a machine would ({', '.join(given[:4])}); say them in a sentence, and only what you care about"
        )
    if len(_STEP.findall(text)) >= _STEPS:
        problems.append("do not number the steps; say what you want to have in the end")
    return problems


def _is_coined(tool: str) -> bool:
    """Whether a name is no ordinary word: `get_order`, `readDriver`."""
    return "_" in tool or tool[1:] != tool[1:].lower()
