"""Text of an answer to a message, in four families: any text gives one message that can be stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import Message
from synth.engines.local.call_texts import READERS, Reader, is_broken_call, parse_harmony, parse_hermes, parse_llama, parse_mistral

PIECES = [
    *("<tool_call>", "</tool_call>", '{"name": "a", "arguments": {', "}}", '"\\ud800"', "[", ":", "1", '{"name": "a", "parameters": {'),
    *("[TOOL_CALLS]", "[ARGS]", "a", "<|start|>assistant", "<|message|>", " to=functions.a", "<|channel|>final", "<|python_tag|>"),
]


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
@given(st.sampled_from(sorted(READERS)), st.lists(st.sampled_from(PIECES) | st.text(), max_size=12))
def test_nothing_written_raises(family: str, pieces: list[str]) -> None:
    message = READERS[family]("".join(pieces))
    assert message.role == "assistant"
    message.model_dump_json().encode()


def hermes(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


JSON_OBJECTS = st.dictionaries(
    st.text("abcü中 _", min_size=1, max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text('ab{}"\\ \n中', max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(st.tuples(st.sampled_from(["buy", "get_order"]), JSON_OBJECTS), min_size=1, max_size=3), first=st.integers(0, 5))
def test_well_formed_calls_come_back_with_their_arguments_and_numbers(calls, first):
    message = parse_hermes("\n".join(hermes(*call) for call in calls), first_call=first)
    assert [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == calls
    assert [call.id for call in message.tool_calls] == [f"call_{first + place}" for place in range(len(calls))]
    assert message.content is None


def test_text_around_a_call_is_kept_beside_it():
    message = parse_hermes(f"Let me look.\n{hermes('get_order', {'order': 'o17'})}")
    assert message.content == "Let me look."
    assert [call.function.name for call in message.tool_calls] == ["get_order"]


def test_an_answer_without_a_call_is_its_text():
    assert parse_hermes(" o17 is cancelled.\n") == Message(role="assistant", content="o17 is cancelled.")


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n{not json}\n</tool_call>",
        '<tool_call>\n{"name": "buy"}\n</tool_call>',
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        hermes("buy", "o17"),
        hermes("buy", ["o17"]),
        hermes("buy", None),
        '<tool_call>\n{"name": 7, "arguments": {}}\n</tool_call>',
        '<tool_call>\n[{"name": "buy", "arguments": {}}]\n</tool_call>',
        '<tool_call>\n{"name": "buy", "arguments": {}}',
        f"{hermes('buy', {})}\n<tool_call>\n{{",
        f"{hermes('buy', {})}\n{hermes('buy', 3)}",
        f"{hermes('buy', 3)}\n{hermes('buy', {})}",
    ],
)
def test_one_malformed_call_leaves_the_whole_text_and_no_call(text):
    assert parse_hermes(text) == Message(role="assistant", content=text)


# ---- other families ------------------------------------------------------------------------------------------------------

CALLED = [("get_order", {"order": "o17", "where": {"x": [1]}})]
ARGUMENTS = json.dumps(CALLED[0][1])


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (parse_llama, f'{{"name": "get_order", "parameters": {ARGUMENTS}}}'),
        (parse_llama, f'\n<|python_tag|>{{"name": "get_order", "parameters": {ARGUMENTS}}}'),
        (parse_llama, f'{{"type": "function", "name": "get_order", "parameters": {ARGUMENTS}}}'),
        (parse_mistral, f'[TOOL_CALLS] [{{"name": "get_order", "arguments": {ARGUMENTS}, "id": "000000000"}}]'),
        (parse_mistral, f"[TOOL_CALLS]get_order[ARGS]{ARGUMENTS}"),
        (parse_mistral, f"[TOOL_CALLS]get_order[CALL_ID]a1B2c3D4e[ARGS]{ARGUMENTS}"),
        (parse_harmony, f" to=functions.get_order<|channel|>commentary json<|message|>{ARGUMENTS}"),
        (parse_harmony, f"<|channel|>commentary to=functions.get_order <|constrain|>json<|message|>{ARGUMENTS}"),
        (
            parse_harmony,
            "<|channel|>analysis<|message|>A {hard} one.<|end|><|start|>assistant<|channel|>commentary to=functions.get_order "
            f"<|constrain|>json<|message|>{ARGUMENTS}",
        ),
    ],
)
def test_a_call_is_read_in_each_form_of_its_family(reader: Reader, text: str) -> None:
    message = reader(text, first_call=4)
    assert [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [("call_4", *CALLED[0])]
    assert message.content is None and not is_broken_call(message)


@pytest.mark.parametrize(
    ("reader", "text", "content"),
    [
        (parse_llama, " o17 is sent.\n", "o17 is sent."),
        (parse_llama, '{"state": "sent"}', '{"state": "sent"}'),
        (parse_mistral, " o17 is sent.", "o17 is sent."),
        (parse_harmony, "<|channel|>final<|message|>o17 is sent.", "o17 is sent."),
        (
            parse_harmony,
            "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>o17 is {sent}.",
            "o17 is {sent}.",
        ),
        (parse_hermes, "<think>\nLet me see.\n</think>\n\no17 is sent.", "o17 is sent."),
        (parse_hermes, "Let me see.\n</think>\n\no17 is sent.", "o17 is sent."),
    ],
)
def test_an_answer_is_its_words_without_what_was_thought(reader: Reader, text: str, content: str) -> None:
    message = reader(text)
    assert message == Message(role="assistant", content=content)
    assert not is_broken_call(message)


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (parse_llama, '{"name": "get_order", "parameters": {"order": }}'),
        (parse_llama, '<|python_tag|>{"name": "get_order"}'),
        (parse_llama, '{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}'),
        (parse_llama, '{"name": "get_order", "parameters": "o17"}'),
        (parse_mistral, '[TOOL_CALLS] [{"name": "get_order"}]'),
        (parse_mistral, "[TOOL_CALLS] []"),
        (parse_mistral, "[TOOL_CALLS]get_order[ARGS]{"),
        (parse_mistral, '[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b", "arguments": 3}]'),
        (parse_harmony, " to=functions.get_order<|channel|>commentary json<|message|>{"),
        (parse_harmony, " to=functions.get_order<|channel|>commentary json<|message|>[1]"),
        (parse_harmony, " to=functions.get_order<|channel|>commentary json{}"),
    ],
)
def test_a_malformed_call_is_text_with_the_marks_of_a_call(reader: Reader, text: str) -> None:
    message = reader(text)
    assert not message.tool_calls and is_broken_call(message)
    assert message.content == text or message.content == text.strip()


def test_mistral_writes_several_calls_in_both_forms() -> None:
    for text in (
        '[TOOL_CALLS] [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 1}}]',
        '[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{"x": 1}',
    ):
        calls = parse_mistral(text).tool_calls
        assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
            ("call_0", "a", "{}"),
            ("call_1", "b", '{"x": 1}'),
        ]
