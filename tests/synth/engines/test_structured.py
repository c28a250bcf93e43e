"""Answers with a schema: parsed from surrounding text, validated, and asked for again with their problems."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage.records import Message
from synth.engines import structured
from synth.engines.base import ChatAnswer, ChatRequest

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"], "additionalProperties": False}


class Saying:
    """Scripted: says these texts in turn, by the number of messages it is shown."""

    name = "scripted"

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = texts, list[tuple[Message, ...]]()

    def chat(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer]:
        self.asked += [request.messages for request in requests]
        return [ChatAnswer(Message(role="assistant", content=self.texts[len(one.messages) // 2]), "stop") for one in requests]


def request() -> ChatRequest:
    return ChatRequest((Message(role="user", content="a number"),), schema=SCHEMA)


@pytest.mark.parametrize("text", ['{"n": 3}', 'Sure!\n```json\n{"n": 3}\n```', 'Well [sic] {"n": 3} it is', '{"n": 3} {"n": 4}'])
def test_a_value_is_read_out_of_what_stands_around_it(text: str) -> None:
    assert structured.parse_and_check(text.replace("[sic] ", ""), SCHEMA) == ({"n": 3}, ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no", "no JSON object"),
        ('{"n": ', "no JSON: "),
        ('{"n": 0}', r"\$\.n: 0 is less than the minimum of 1"),
        ("{}", "'n' is a required property"),
        ('{"n": 1, "m": 2}', "Additional properties"),
        ('{"n": NaN, "m": {"n": 1}}', "NaN and infinities"),
        ('{"n": -Infinity}', "NaN and infinities"),
        ('{"n": 1e999}', "NaN and infinities"),
        ('{"n": 1, "m": "\\ud83d"}', "half of a surrogate pair"),
        ('{"\\ude00": {"n": 1}}', "half of a surrogate pair"),
        ('{"n": ' + "9" * 5000 + "}", "no JSON: "),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    value, problems = structured.parse_and_check(text, SCHEMA)
    assert value is None
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(problems[0])


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert structured.read('{"n": "\\ud83d\\ude00"}') == {"n": "😀"}


def test_who_was_wrong_is_told_and_asked_again() -> None:
    engine = Saying("what?", '{"n": 0}', '{"n": 2}')
    (found,) = structured.ask(engine, [request()])
    assert (found.value, found.problems, len(found.answers)) == ({"n": 2}, (), 3)
    assert [len(messages) for messages in engine.asked] == [1, 3, 5]
    assert "less than the minimum" in str(engine.asked[2][-1].content)


def test_after_so_many_repairs_it_is_given_up_and_the_others_are_not_asked_again() -> None:
    engine = Saying('{"n": 0}', '{"n": 0}', '{"n": 1}')
    lost, right = structured.ask(engine, [request(), ChatRequest(request().messages, schema={"type": "object"})], repairs=1)
    assert lost.value is None and "minimum" in lost.problems[0] and len(lost.answers) == 2
    assert right.value == {"n": 0} and len(right.answers) == 1
    assert len(engine.asked) == 3
    with pytest.raises(ValueError, match="without a schema"):
        structured.ask(engine, [ChatRequest(request().messages)])
