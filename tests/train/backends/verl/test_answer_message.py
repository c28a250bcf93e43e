"""What the environment is told of an answer that verl's parser has read."""

from __future__ import annotations

import pytest

from synth.engines.local.call_texts import parse_hermes
from train.backends.verl.answer_message import answer_message

CALL = '<tool_call>\n{"name": "list_orders", "arguments": {"user_id": "U-1"}}\n</tool_call>'
READ = ("list_orders", '{"user_id": "U-1"}')
BROKEN = '<tool_call>\n{"name": "list_orders", "arguments": {"user_id": }}\n</tool_call>'


def test_calls_are_numbered_through_the_conversation_and_the_words_around_them_are_kept():
    message = answer_message(f"Let me look.\n{CALL}\n{CALL}", [READ, READ], first_call=2)
    assert message["content"] == "Let me look."
    assert [call["id"] for call in message["tool_calls"]] == ["call_2", "call_3"]
    assert message["tool_calls"][0]["function"] == {"name": "list_orders", "arguments": '{"user_id": "U-1"}'}


def test_an_answer_of_which_one_call_is_malformed_stays_text_as_in_our_own_rollouts():
    """verl's parser skips the malformed call and returns the other one alone."""
    text = f"{CALL}\n{BROKEN}"
    assert answer_message(text, [READ]) == {"role": "assistant", "content": text}
    assert parse_hermes(text).content == text


def test_arguments_that_are_no_object_make_an_answer_text():
    assert "tool_calls" not in answer_message("<tool_call>...</tool_call>", [("list_orders", '["U-1"]')])


@pytest.mark.parametrize("written", ['{"user_id": "\ud800"}', r'{"user_id": "\ud800"}'])
def test_arguments_that_are_no_unicode_make_an_answer_text(written):
    """Half of a surrogate pair can be neither stored nor sent."""
    assert "tool_calls" not in answer_message(CALL, [("list_orders", written)])


def test_the_end_of_a_thought_within_a_call_is_part_of_the_call():
    call = CALL.replace("U-1", "</think>")
    assert len(answer_message(f"{call}\n{CALL}", [("list_orders", '{"user_id": "</think>"}'), READ])["tool_calls"]) == 2


def test_thoughts_are_no_part_of_the_message():
    assert answer_message("<think>Which order?</think>\n\nIt is on its way. ", [])["content"] == "It is on its way."
    assert answer_message(f"Which order?</think>\n{CALL}", [READ])["content"] is None
