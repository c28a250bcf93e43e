"""Whether a request determines its plan: what is said, what may be looked up, and what stands for itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage.records import JSON, FunctionCall, Message, Task, Tool, ToolCall, canonical_json
from synth.tasks.determined import undetermined
from synth.text.slot_kinds import OpenNames, Vocabulary

STRING, IDENTIFIER = {"type": "string"}, {"type": "string", "pattern": "W[0-9]+"}
ADDRESS = {"type": "object", "properties": {"city": STRING, "zip": STRING}}
WRITE = {"order": IDENTIFIER, "reason": STRING, "speed": {"enum": ["slow", "fast"]}, "address": ADDRESS, "content": STRING}
WRITE |= {
    "copies": {"type": "integer", "default": 1},
    "notify": {"type": "boolean"},
    "number": {"type": "integer"},
    "code": STRING,
    "body": {"type": "object"},
    "tags": {"type": "array", "items": STRING},
}
READ = {"user": STRING, "page": STRING}


def tool(name: str, properties: dict[str, Any], *, changes_state: bool) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return Tool(name=name, description="", parameters=parameters, server="s", domain="d", world="w", changes_state=changes_state)


def world(kind: Vocabulary | None = None) -> Any:
    slots = (SimpleNamespace(name="place", kind="place"),) if kind else ()
    tools = (tool("read", READ, changes_state=False), tool("write", WRITE, changes_state=True))
    return SimpleNamespace(tools=tools, intents={"intent": SimpleNamespace(slots=slots)}, kinds={"place": kind})


def missing(
    request: str,
    *steps: tuple[str, dict[str, JSON], str],
    of: Any = None,
    slots: dict[str, JSON] | None = None,
    forms: tuple[str, ...] = (),
) -> list[str]:
    """What a conversation's request does not determine; steps: tool, arguments, result."""
    opening = [Message(role="user", content=request)]
    messages = list(opening)
    for number, (name, arguments, result) in enumerate(steps):
        call = ToolCall(id=f"c{number}", function=FunctionCall(name=name, arguments=canonical_json(arguments)))
        messages += [Message(role="assistant", tool_calls=[call]), Message(role="tool", content=result, tool_call_id=call.id)]
    task = cast(Task, SimpleNamespace(messages=opening, intent="intent", slots=slots or {}))
    return undetermined(of or world(), task, messages, frozenset(forms))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"order": "W7"}, []),
        ({"order": "W8"}, ["write.order"]),
        ({"order": "W7", "reason": "it is late"}, []),
        ({"order": "W7", "reason": "broken"}, ["write.reason"]),
        ({"order": "W7", "address": {"city": "Oslo", "zip": "0150"}}, ["write.zip"]),
        ({"order": "W7", "tags": ["late", "blue"]}, ["write.tags"]),
        ({"order": "W7", "copies": 1, "speed": "fast", "notify": True}, []),
        ({"order": "W7", "copies": 3}, ["write.copies"]),
        ({"order": "W7", "number": 7}, []),
        ({"order": "W7", "number": 77}, ["write.number"]),
        ({"order": "W7", "content": "what the policy writes itself"}, []),
        ({"order": "W7", "body": {"address": {"city": "Paris"}, "message": "written by itself"}}, ["write.city"]),
        ({"order": "W7", "code": "SAVE20"}, ["write.code"]),
        ({"order": "W7", "code": "print(1) # a program"}, []),
    ],
)
def test_a_value_of_a_writing_call_is_said_a_choice_or_a_default(arguments: dict[str, JSON], expected: list[str]) -> None:
    assert missing("Cancel W7, it is late, and send it to Oslo.", ("write", arguments, "{}")) == expected


def test_an_individual_may_be_looked_up_and_a_value_may_not() -> None:
    shown = ("read", {"user": "ann"}, '{"order": "W9", "reason": "broken"}')
    assert not missing("Cancel the order of ann.", shown, ("write", {"order": "W9"}, "{}"))
    assert missing("Cancel the order of ann.", shown, ("write", {"order": "W9", "reason": "broken"}, "{}")) == ["write.reason"]
    assert missing("Cancel the order of ann.", ("write", {"order": "W9"}, "{}"), shown) == ["write.order"], "shown too late"


def test_a_call_that_only_reads_may_take_what_was_shown() -> None:
    shown = ("read", {"user": "ann"}, '{"next": "p2"}')
    assert not missing("Read all of ann.", shown, ("read", {"user": "ann", "page": "p2"}, "{}"))
    assert missing("Read all of ann.", ("read", {"user": "ann", "page": "p2"}, "{}")) == ["read.page"]


def test_a_form_of_a_slot_counts_as_said() -> None:
    assert missing("Cancel it tomorrow.", ("write", {"order": "W7"}, "{}"), forms=("w7",)) == []


def test_an_open_name_has_to_be_said_as_it_stands() -> None:
    of = world(Vocabulary(OpenNames({"Blue Door": {"en": "Blue Door", "zh": "蓝门"}})))
    assert not missing("Find the blue door.", of=of, slots={"place": "Blue Door"})
    assert not missing("找蓝门。", of=of, slots={"place": "Blue Door"})
    assert missing("Find the red door.", of=of, slots={"place": "Blue Door"}) == ["slot place"]
