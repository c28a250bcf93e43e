"""What counts as one well-formed call."""

from __future__ import annotations

import pytest

from benchmarks.synthesis_sections.vllm_server import problem
from storage.records import FunctionCall, Message, ToolCall
from tests.synth.tiny_caller import TOOLS


def calling(*calls: tuple[str, str]) -> Message:
    made = tuple(ToolCall(id="c", function=FunctionCall(name=name, arguments=arguments)) for name, arguments in calls)
    return Message(role="assistant", content=None if made else "Hm.", tool_calls=made)


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (calling(("read_file", '{"path": "a"}')), ""),
        (calling(), "0 calls"),
        (calling(("read_file", '{"path": "a"}'), ("read_file", '{"path": "b"}')), "2 calls"),
        (calling(("reed_file", '{"path": "a"}')), "no such tool"),
        (calling(("read_file", '{"path": "a"')), "arguments that are no JSON"),
        (calling(("read_file", '{"path": 7}')), "arguments against the schema"),
        (calling(("read_file", '["path"]')), "arguments against the schema"),
    ],
)
def test_a_call_is_well_formed_when_a_tool_could_take_it(message: Message, wrong: str) -> None:
    assert problem(message, TOOLS) == wrong
