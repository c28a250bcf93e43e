"""Hermes text to a message: any text gives one message that can be stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.engines.local.call_texts import parse_hermes


def call_text(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "buy", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    "arguments", ['{"x": %s}' % ("[" * 200_000), "[" * 200_000, '{"x": %s}' % ("[" * 100 + "]" * 100), '{"x": "\\ud800"}', '{"\\udfff": 1}']
)
def test_a_call_that_nobody_could_walk_through_or_store_is_no_call(arguments: str) -> None:
    text = call_text(arguments)
    message = parse_hermes(f"{text}\n{call_text('{}')}")
    assert not message.tool_calls
    assert message.content is not None and text in message.content


def test_arguments_may_be_nested_within_reason() -> None:
    arguments = {"where": [{"or": [{"colour": "蓝"}, {"size": [1, 2]}]}]}
    (call,) = parse_hermes(call_text(json.dumps(arguments))).tool_calls
    assert json.loads(call.function.arguments) == arguments


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "a", "arguments": {', "}}", '"\\ud800"', "[", ":", "1"]) | st.text(),
        max_size=12,
    )
)
def test_nothing_written_raises(pieces: list[str]) -> None:
    message = parse_hermes("".join(pieces))
    assert message.role == "assistant"
    message.model_dump_json().encode()
