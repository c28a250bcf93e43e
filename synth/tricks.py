"""Policies that know nothing of a task, and what they are worth on it: nothing, or the task can be had by a trick.

| trick | what it does |
|---|---|
| no_op | says that it is done, and does nothing |
| copy_the_prompt | says what the user said |
| repeat_last_call | makes the last call that the conversation shows again and again, and reads out its result |
| answer_everything | looks up all that the words of the request let it look up, and says everything that it has seen |
| always_refuse | refuses, for one and the same reason |

`always_refuse` is right on refusal tasks of its reason, and on no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from storage.records import JSON, Call, Message, Task, Tool, leaves, parse_arguments
from synth.reading import normalise
from synth.refusals import REFUSALS
from synth.worlds import WORLDS

ALWAYS_REFUSE = "always_refuse"
REPEATS = 4
MOST_CALLS = 12
_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W\u3400-\u9fff](?:[^\W\u3400-\u9fff]|[.:@-](?=[^\W\u3400-\u9fff]))*")
"""Unspaced scripts run on: `查一下o17的状态。` says three words, of which `o17` is one."""
_DONE = {"en": "Done.", "zh": "好了。"}


def tricks(task: Task, look: Callable[[Sequence[Call]], Sequence[Message]]) -> Iterator[tuple[str, Sequence[Call], str]]:
    """(name, calls, answer) of every trick that may be worth something; `always_refuse` once a reason. Without a call nothing is shown or
    changed, and who looks things up changes nothing, so some of them have no chance.

    look: what calls are answered, in the task's start state, which they leave as it is.
    """
    asked = next((message.content or "" for message in reversed(task.messages) if message.role == "user"), "")
    made = [call.function for message in task.messages for call in message.tool_calls]
    if not task.success.changes and (made or not task.success.evidence):
        yield "no_op", (), _DONE[task.language]
        yield "copy_the_prompt", (), asked
        for reason in REFUSALS:
            yield ALWAYS_REFUSE, (), REFUSALS[reason][task.language]
    if made:
        again = [Call(tool=made[-1].name, arguments=parse_arguments(made[-1].arguments) or {})] * REPEATS
        yield "repeat_last_call", again, _said(look(again)[-1:])
    if not task.success.changes:
        every = _lookups(task, asked)
        yield "answer_everything", every, f"{asked} {_said(look(every))}"


# ---- what can be done without knowing anything -----------------------------------------------------------------------------------


def _offered(task: Task) -> list[Tool]:
    known = {tool.name: tool for tool in WORLDS[task.world].tools}
    return [known[name] for name in task.tools]


def _lookups(task: Task, asked: str) -> list[Call]:
    """Calls of the tools that change nothing, with every choice of values for their required arguments that the request gives."""
    readers = [tool for tool in _offered(task) if not tool.changes_state]
    each = max(1, MOST_CALLS // max(1, len(readers)))
    found: list[Call] = []
    for tool in readers:
        found += [Call(tool=tool.name, arguments=arguments) for arguments, _ in zip(_fillings(tool, asked), range(each), strict=False)]
    return found[:MOST_CALLS]


def _fillings(tool: Tool, asked: str) -> Iterator[dict[str, JSON]]:
    """Arguments for a tool: each required one takes a value of its type from the words of the request, all in turn for the first."""
    properties: Mapping[str, Any] = tool.parameters["properties"]
    required = list(tool.parameters.get("required", ()))
    choices = {name: _choices(properties[name], asked) for name in required}
    if not required:
        yield {}
    elif all(choices.values()):
        for value in choices[required[0]]:
            yield {name: value if name == required[0] else choices[name][0] for name in required}


def _choices(schema: Mapping[str, Any], asked: str) -> list[JSON]:
    """Values that an argument could take by its schema, those first that the request says."""
    words = list(dict.fromkeys(_WORD.findall(normalise(asked))))
    if "enum" in schema:
        return sorted(schema["enum"], key=lambda value: str(value).lower().replace("_", " ") not in asked.lower())
    if schema.get("type") in ("integer", "number"):
        return [int(word) for word in words if word.isdecimal() and not (len(word) > 1 and word[0] == "0")] or [1]
    if schema.get("type") == "string":
        pattern = schema.get("pattern")
        return [word for word in words if (re.search(pattern, word) if pattern else any(letter.isdigit() for letter in word))] or list(
            words
        )
    return [[]] if schema.get("type") == "array" else [{}] if schema.get("type") == "object" else [True]


def _said(answered: Sequence[Message]) -> str:
    """All values that calls are answered, in words."""
    seen = (message.content or "" for message in answered if message.role == "tool")
    values = (value for text in seen for _, value in leaves(parse_arguments(text) or {}))
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
