"""Calls in an address: a form is made from a schema, and what it sends becomes a line that can be shared and copied."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from flows.viewer.call_form import LONGEST_STEP, MOST_STEPS, Step, added_step, address, form_fields, read_step, read_steps
from storage.errors import BadInput
from storage.records import Tool

TOOL = Tool(
    name="book",
    description="Books a room.",
    server="inn",
    domain="inn",
    parameters={
        "properties": {
            "room": {"type": "string", "pattern": "^r\\d+$", "description": "room id"},
            "nights": {"type": "integer", "minimum": 1, "maximum": 1000},
            "view": {"type": "boolean"},
            "rate": {"type": "string", "enum": ["saver", "flexible"]},
            "extras": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["room"],
    },
)


def sent(**fields: str) -> Request:
    query = urlencode(list(fields.items()))
    return Request({"type": "http", "path": "/worlds/inn/call", "query_string": query.encode(), "headers": []})


def test_a_form_has_a_field_for_each_argument_of_the_schema() -> None:
    by_name = {field.name: field for field in form_fields(TOOL)}

    assert by_name["room"].is_required and not by_name["nights"].is_required
    assert by_name["room"].hint == "text, of the form ^r\\d+$"
    assert by_name["nights"].hint == "integer, at least 1, at most 1,000"
    assert by_name["view"].choices == ("true", "false")
    assert by_name["rate"].choices == ("saver", "flexible")
    assert (by_name["extras"].kind, by_name["extras"].hint) == ("json", "a JSON list of text")


def test_what_a_form_sends_has_the_types_of_the_schema() -> None:
    fields = {"add": "book", "arg.room": "12", "arg.nights": "2", "arg.view": "false", "arg.rate": "", "arg.extras": '["spa"]'}
    step = added_step(sent(**fields), [TOOL])

    assert step is not None
    assert (step.tool, json.loads(step.text)) == ("book", {"room": "12", "nights": 2, "view": False, "extras": ["spa"]})


def test_what_does_not_fit_is_sent_as_text_so_that_the_world_can_say_so() -> None:
    step = added_step(sent(**{"add": "book", "arg.nights": "two", "arg.extras": "[spa"}), [TOOL])

    assert step is not None
    assert json.loads(step.text) == {"nights": "two", "extras": "[spa"}


def test_a_typed_line_may_have_either_form_and_an_answer_is_no_call() -> None:
    assert added_step(sent(line="book room=r1 nights=2"), [TOOL]) == Step("book", '{"room": "r1", "nights": 2}')
    assert added_step(sent(line='book {"room": "r1"}'), [TOOL]) == Step("book", '{"room": "r1"}')
    assert added_step(sent(line="book not json"), [TOOL]) == Step("book", "not json")
    assert added_step(sent(say="It is done."), [TOOL]) == Step("", "It is done.")
    assert added_step(sent(seed="3"), [TOOL]) is None


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"])).map(str.strip)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), texts), texts.filter(bool))
def test_a_step_is_read_back_from_its_line(arguments: dict[str, str], said: str) -> None:
    for step in (Step("book", json.dumps(arguments)), Step("", said)):
        assert read_step(step.line) == step


def test_an_address_keeps_the_seed_and_holds_the_steps_alone() -> None:
    request = sent(seed="3", add="book", **{"arg.room": "r1"})

    assert address(request, [Step("book", "{}")], tool="book") == "/worlds/inn/call?seed=3&tool=book&call=book+%7B%7D"
    assert address(request, [], seed=None) == "/worlds/inn/call"


def test_too_many_or_too_long_steps_are_refused() -> None:
    assert len(read_steps(["book {}"] * MOST_STEPS)) == MOST_STEPS
    with pytest.raises(BadInput, match="40 steps"):
        read_steps(["book {}"] * (MOST_STEPS + 1))
    with pytest.raises(BadInput, match="4,000 characters"):
        read_steps(["x" * (LONGEST_STEP + 1)])
