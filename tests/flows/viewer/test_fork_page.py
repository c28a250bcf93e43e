"""Fork here: a stored conversation is replayed in the real world, and goes on by what the address says."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from fastapi.testclient import TestClient

from flows.viewer.pages.worlds.fork_page import fork_url
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.records import CODE_TOOL, FunctionCall, Message, Task, ToolCall
from storage.store import Store
from synth.conversations.conversation_play import blueprint_of
from synth.tasks.solver import execute
from synth.worlds import make_world
from tests.storage.conftest import task_row, write
from tests.synth.conversations.conversations import play, tasks
from tests.synth.retail_tasks import task_of

CLOSE = task_of("close_order", 0)
TALK = next(one for one in tasks("retail") if len(blueprint_of(one).turns) > 1)
GONE = CLOSE.model_copy(update={"id": "task-gone", "world": "gone@1a2b3c4d"})


def expert(task: Task) -> Sequence[Message]:
    return execute(make_world(task.world, task.world_seed), task.messages, task.plan.calls, task.plan.answer).messages


def rollout(number: int, task: Task, messages: Sequence[Message]) -> dict[str, Any]:
    said = json.dumps([message.to_openai() for message in messages])
    return {"rollout_id": rollout_id(number), "task_id": task.id, "outcome": "success", "checks": "{}", "messages": said, "turns": "[]"}


def rollout_id(number: int) -> str:
    return f"rollout-{number:016x}"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Rollouts: 1 closes an order, 2 is that with other results, 3 has several turns, 4 is of no task, 5 of no world, 6 ran a program,
    7 did nothing."""
    store = Store(tmp_path_factory.mktemp("fork") / "store")
    spoilt = [
        message.model_copy(update={"content": '{"order": "nowhere"}'}) if message.role == "tool" else message for message in expert(CLOSE)
    ]
    lost = CLOSE.model_copy(update={"id": "task-lost"})
    talked, _ = play(TALK)
    program = ToolCall(id="c1", function=FunctionCall(name=CODE_TOOL, arguments='{"code": "print(1)"}'))
    programmed = [*CLOSE.messages, Message(role="assistant", tool_calls=(program,)), Message(role="tool", tool_call_id="c1", content="1")]
    store.commit(
        [
            write(store, "tasks", task_row(CLOSE), task_row(TALK), task_row(GONE)),
            write(
                store,
                "rollouts",
                rollout(1, CLOSE, expert(CLOSE)),
                rollout(2, CLOSE, spoilt),
                rollout(3, TALK, talked),
                rollout(4, lost, expert(CLOSE)),
                rollout(5, GONE, expert(CLOSE)),
                rollout(6, CLOSE, programmed) | {"outcome": "policy_failure", "checks": '{"end_state": false}'},
                rollout(7, CLOSE, CLOSE.messages) | {"outcome": "policy_failure", "checks": '{"end_state": false}'},
            ),
        ]
    )
    viewed = ViewedStore(Path(store.root))
    return TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def shown(app: TestClient, number: int, turn: int, *lines: str) -> str:
    page = app.get(f"{fork_url(rollout_id(number), turn)}&{urlencode([('call', line) for line in lines])}")
    return html.unescape(re.sub(r"<[^>]+>", "", page.text))


def lines_of(task: Task) -> list[str]:
    return [f"{call.tool} {json.dumps(call.arguments)}" for call in task.plan.calls]


def test_a_replay_says_that_the_world_answers_as_recorded(app: TestClient) -> None:
    page = shown(app, 1, 99)

    assert re.search(r"The results? of (the 1 call|all \d+ calls) equals? the recorded one", page)
    assert "The conversation is over." in page
    assert "fails:" not in page and "open:" not in page


def test_the_first_other_result_stands_beside_the_recorded_one(app: TestClient) -> None:
    page = shown(app, 2, 99)

    assert "the first result that differs is that of call 1" in page
    assert "nowhere" in page
    assert "another result than recorded" in page


def test_calls_by_hand_reach_the_goal(app: TestClient) -> None:
    lines = lines_of(CLOSE)
    before, after = shown(app, 1, 0), shown(app, 1, 0, *lines)

    assert "There was no call to replay." in before
    assert re.search(r"fails:\s*end state", before)
    assert re.search(r"holds:\s*end state", after) and re.search(r"open:\s*facts", after)
    path, value = next(iter(CLOSE.success.changes.items()))
    assert re.search(rf"{re.escape(path.replace('/', ' / '))}\s*\S+\s*{re.escape(json.dumps(value))}", after), "the change of the last call"

    done = shown(app, 1, 0, *lines, json.dumps(CLOSE.plan.answer))
    assert "The conversation is over." in done
    assert "fails:" not in done and "open:" not in done


def test_after_an_answer_by_hand_the_user_of_a_plan_goes_on(app: TestClient) -> None:
    first = blueprint_of(TALK).turns[0]
    nodes = [blueprint_of(TALK).nodes[n] for step in first.steps for n in step]
    lines = [f"{node.tool} {json.dumps(node.values())}" for node in nodes]

    page = shown(app, 3, 0, *lines, json.dumps(first.reply))

    assert blueprint_of(TALK).turns[1].text in page.rpartition("By hand")[2]
    assert "Next call" in page


def test_the_recorded_next_step_can_be_done_by_a_link(app: TestClient) -> None:
    page = app.get(fork_url(rollout_id(1), 0)).text
    (found,) = re.findall(r'<a href="([^"]+)">Do the same</a>', page)
    link = html.unescape(found)

    same = app.get(link).text
    assert [value for name, value in parse_qsl(urlsplit(link).query) if name == "call"] == lines_of(CLOSE)[:1]
    assert "By hand" in same and "refused or failed" not in same


def test_forms_add_to_the_address_and_keep_the_turn(app: TestClient) -> None:
    address = fork_url(rollout_id(1), 0)
    for fields, line in (
        ({"add": "get_order", "arg.order": "o07"}, 'get_order {"order": "o07"}'),
        ({"line": "get_order order=o07"}, 'get_order {"order": "o07"}'),
        ({"say": "Done."}, '"Done."'),
    ):
        answer = app.get(f"{address}&{urlencode(fields)}", follow_redirects=False)
        assert answer.status_code == 303
        assert parse_qsl(urlsplit(answer.headers["location"]).query) == [("turn", "0"), ("call", line)]


def test_the_rows_of_the_state_are_those_after_the_last_call(app: TestClient) -> None:
    query = urlencode([("turn", 0), ("rows", "order"), *(("call", line) for line in lines_of(CLOSE))])
    page = app.get(f"/fork/{rollout_id(1)}?{query}").text
    _, order, field = next(path for path in CLOSE.success.changes if path.startswith("order/")).split("/")
    place = list(make_world("retail", CLOSE.world_seed).state()["order"]).index(order)
    if place >= 50:
        page = app.get(f"/fork/{rollout_id(1)}?{query}&first=50").text

    row = page[page.index(f"<tr><td><code>{order}</code>") :].split("</tr>")[0]
    assert f"<td>{CLOSE.success.changes[f'order/{order}/{field}']}" in row


@pytest.mark.parametrize(
    ("number", "query", "words"),
    [
        (4, "turn=1", "neither its task nor the blueprint"),
        (5, "turn=1", "the store does not hold its spec"),
        (1, "turn=0&call=%22Done.%22&call=get_order+order%3Do07", "the conversation is over after the answer"),
        (1, "turn=-1", "has a value that does not fit: turn"),
        (9, "turn=0", "nothing in"),
    ],
)
def test_what_cannot_be_taken_up_again_is_said_in_words(app: TestClient, number: int, query: str, words: str) -> None:
    page = app.get(f"/fork/{rollout_id(number)}?{query}")

    assert page.status_code in (400, 404)
    assert words in html.unescape(page.text)


def test_evidence_of_a_failed_check_comes_from_a_replay_that_runs_no_program(app: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = html.unescape(app.get(f"/trajectories/{rollout_id(7)}/checks").text)
    path = next(iter(CLOSE.success.changes))
    assert path in evidence and "is not changed" in evidence

    monkeypatch.setattr("synth.conversations.failed_checks.failed_checks", lambda *_: 1 / 0)
    page = app.get(f"/trajectories/{rollout_id(6)}/checks")
    assert page.status_code == 200
    assert "It ran programs" in page.text and "end state" in page.text
