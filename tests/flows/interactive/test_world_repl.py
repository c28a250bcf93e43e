"""A world at a prompt, in process: each line says what it should, and nothing that is typed breaks the session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.interactive.chat_session import Chat, ChatSettings
from flows.interactive.world_repl import HELP, WorldSession


def said(*lines: str, seed: int = 4) -> list[str]:
    """What a session of the shop says to the last of the lines."""
    answers: list[str] = []
    session = WorldSession("retail", seed, answers.append)
    for line in lines:
        answers.clear()
        assert session.handle(line)
    return answers


def test_a_call_is_the_same_by_pairs_and_by_json() -> None:
    (order,) = said("get_order order=o17")
    assert order.startswith('{"order":"o17",')
    assert said('get_order {"order": "o17"}') == said('get_order order="o17"') == [order]


def test_values_are_json_where_they_can_be_and_words_where_not() -> None:
    assert said("search_products category=lamp sort=price_asc max_price=50") == said(
        'search_products {"category": "lamp", "sort": "price_asc", "max_price": 50}'
    )


@pytest.mark.parametrize("line", ["get_order o17", "get_order order=o17 now", 'get_order order="o17'])
def test_a_call_that_is_neither_says_how_to_write_one(line: str) -> None:
    assert said(line) == ['write get_order {"key": "value"} or get_order key=value']


def test_a_change_is_shown_undone_and_gone_in_another_seed() -> None:
    """Given an order that was escalated, then the change is listed; restored or in a fresh world, there is none."""
    change = "escalate order=o17 reason=late"
    assert said("snapshot", change, "changes") != ["nothing has changed"]
    assert said("snapshot", change, "restore", "changes") == ["nothing has changed"]
    assert said(change, "seed 9", "changes") == ["nothing has changed"]
    assert said("restore") == ["there is no saved state; use `snapshot` first"]
    assert said("seed x") == ["this is seed 4; write seed N for another seed"]


def test_a_drawn_task_is_solved_by_its_plan() -> None:
    (asked,) = said("task close_order")
    assert asked.startswith("[close_order, difficulty ")
    *calls, answer = said("task close_order", "solve")
    assert calls[0].startswith("> ") and answer.startswith("= ")
    assert said("solve") == ["there is no task; use `task` first"]
    assert said("task fly") == ["no intent 'fly'; `intents` lists them"]


def test_what_is_unknown_is_answered_by_what_there_is() -> None:
    assert said("get_ordr order=o17") == ["no command or tool 'get_ordr'; did you mean get_order?"]
    assert said("zzz") == ["no command or tool 'zzz'; help lists them"]
    assert said("help") == [HELP]
    assert said("help get_order")[0].startswith("get_order: ")
    assert said("state moon")[0].startswith("no moon; there is ")
    assert said("") == []


@pytest.mark.parametrize("line", ["quit", "exit", "/quit", "/exit", " Quit "])
def test_the_same_lines_leave_a_world_and_a_chat(line: str) -> None:
    """Given an engine that cannot answer, then a chat that took the line for a request would fail."""
    engine: Any = SimpleNamespace(name="mute")
    chat = Chat(engine, "retail", 4, ChatSettings(), lambda _: None)
    assert not chat.handle(line) and not WorldSession("retail", 4, lambda _: None).handle(line)
