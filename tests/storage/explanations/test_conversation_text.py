"""A conversation as rows, and its plan beside what happened."""

from __future__ import annotations

from storage.explanations.conversation_text import PlannedCall, call_text, conversation_rows, plan_rows
from storage.records import FunctionCall, Message, ToolCall


def conversation(*calls: tuple[str, str, str]) -> list[Message]:
    """One user turn with calls (tool, arguments, result) one after another, and an answer."""
    messages = [Message(role="user", content="go")]
    for number, (tool, arguments, result) in enumerate(calls):
        call = ToolCall(id=f"c{number}", function=FunctionCall(name=tool, arguments=arguments))
        messages += [Message(role="assistant", tool_calls=(call,)), Message(role="tool", tool_call_id=call.id, content=result)]
    return [*messages, Message(role="assistant", content="done")]


def test_a_call_that_is_planned_twice_must_be_made_twice() -> None:
    planned = [PlannedCall("get", {"order": "o1"}), PlannedCall("get", {"order": "o1"})]
    once = conversation(("get", '{"order": "o1"}', "{}"))
    assert [what for what, _ in plan_rows(planned, once)] == ["done", "not done"]


def test_a_retry_counts_as_the_planned_call_and_its_failed_try_does_not() -> None:
    tried = conversation(("get", '{"order": "o1"}', '{"error": "busy"}'), ("get", '{"order":"o1"}', '{"price": 3}'))
    assert plan_rows([PlannedCall("get", {"order": "o1"})], tried) == [
        ("done", "get(order=o1)"),
        ("not in the plan", "get(order=o1) -> error"),
    ]


def test_a_call_in_another_turn_than_planned_says_in_which() -> None:
    messages = [*conversation(("get", "{}", "3")), *conversation(("buy", "{}", "{}"))]
    rows = plan_rows([PlannedCall("get", {}, turn=1), PlannedCall("buy", {}, turn=1, note="by plan")], messages)
    assert rows == [("done", "turn 1: get()"), ("done in turn 2", "turn 1: buy() (by plan)")]


def test_two_calls_of_one_id_have_a_result_each() -> None:
    calls = tuple(ToolCall(id="c", function=FunctionCall(name="get", arguments=f'{{"n": {n}}}')) for n in (1, 2))
    results = [Message(role="tool", tool_call_id="c", content=f"result {n}") for n in (1, 2)]
    rows = conversation_rows([Message(role="user", content="go"), Message(role="assistant", tool_calls=calls), *results])
    assert [text for _, text in rows[1:]] == ["get(n=1)", "result 1", "get(n=2)", "result 2"]


def test_a_call_with_broken_arguments_is_shown_as_that_beside_the_plan() -> None:
    rows = plan_rows([], conversation(("get", "{", "error")))
    assert rows[0][1].startswith("get(...), whose arguments are not JSON")


def test_turns_of_the_user_are_numbered_and_results_follow_their_calls() -> None:
    rows = conversation_rows([*conversation(("get", '{"n": 1}', "")), Message(role="user", content="more")])
    assert rows == [("user 1", "go"), ("  call", "get(n=1)"), ("  result", "empty"), ("assistant", "done"), ("user 2", "more")]


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    assert call_text("get", '{"order": o1') == 'get({"order": o1), which is not JSON'
