"""The view of a world: reminders, notes, wrong calls of the context's tools, and that the world's state is its own."""

from __future__ import annotations

import json

from storage.context.settings import PolicyContext
from synth.context.marks import without_reminder
from synth.context.view import MAX_NOTES, PolicyView, ViewedWorld
from synth.worlds import WORLDS

PROMPT = "You work for a shop. A delivered order is returned. Support opens at 09:00. An umbrella is never exchanged."


def view(**settings: object) -> PolicyView:
    made = PolicyView(PolicyContext.model_validate(settings), PROMPT)
    made.hear("Return order o17 please")
    return made


def test_every_nth_result_of_a_turn_repeats_the_request_and_the_rules_that_it_shares_words_with() -> None:
    seen = view(reminder_every=2)
    results = [seen.show("get_user", "{}") for _ in range(4)]
    assert [without_reminder(result) != result for result in results] == [False, True, False, True]
    assert "The user asked: Return order o17 please" in results[1]
    assert "A delivered order is returned." in results[1] and "09:00" not in results[1] and "umbrella" not in results[1]


def test_what_the_user_says_next_is_the_open_request_and_the_count_begins_anew() -> None:
    seen = view(reminder_every=2)
    seen.show("get_user", "{}")
    seen.hear("And the umbrella?")
    first, second = seen.show("get_user", "{}"), seen.show("get_user", "{}")
    assert first == "{}" and "And the umbrella?" in second and "o17" not in second and "never exchanged" in second


def test_notes_are_kept_in_order_and_have_limits() -> None:
    seen = view(notes=True)
    for text in ("o17 is pending", "price 25"):
        seen.answer("write_note", json.dumps({"text": text}))
    assert json.loads(seen.answer("read_notes", "{}")) == {"notes": ["o17 is pending", "price 25"]}
    assert all("error" in json.loads(seen.answer("write_note", {"text": text})) for text in ("", "x" * 501))
    for _ in range(MAX_NOTES):
        last = seen.answer("write_note", {"text": "again"})
    assert "error" in json.loads(last) and len(json.loads(seen.answer("read_notes", "{}"))["notes"]) == MAX_NOTES


def test_a_wrong_call_of_a_context_tool_says_what_is_wrong() -> None:
    seen = view(observation_chars=100, notes=True)
    wrong = {
        "read_more": ["{", '{"id": "r1"}', '{"id": 1, "from": 0}', '{"id": "r1", "from": "0"}', '{"id": "r1", "from": true}'],
        "write_note": ["{}", '{"text": 1}', '{"text": "a", "x": 1}'],
        "read_notes": ['{"x": 1}', "[]"],
    }
    assert all("error" in json.loads(seen.answer(tool, text)) for tool, texts in wrong.items() for text in texts)


def test_only_the_tools_of_settings_that_are_on_are_answered_by_the_view() -> None:
    assert view(notes=True).answers("write_note") and not view(notes=True).answers("read_more")
    assert not view(reminder_every=1).answers("read_notes")


def test_the_views_own_tools_change_nothing_in_the_world() -> None:
    world = WORLDS["retail"](4)
    viewed, before = ViewedWorld(world, view(observation_chars=80, notes=True)), world.state()
    user = next(iter(sorted({f"u{number:02d}" for number in range(1, 30)})))
    listed = next(
        shown
        for number in range(40)
        if "hidden]" in (shown := viewed.call("list_orders", {"user": f"u{number:02d}"}).content) or number == 39
    )
    assert "hidden]" in listed, user
    assert not viewed.call("read_more", {"id": "r1", "from": 1}).is_error
    assert not viewed.call("write_note", {"text": "x"}).is_error and viewed.call("read_more", {"id": "r7", "from": 1}).is_error
    assert viewed.changes() == {} and world.state() == before
