"""The pages of tasks: what is found, and what one task's page says of its draws, its certainty, its siblings and its split."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flows.viewer.task_history import draws, measurements
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.records import Message, Outcome, Rollout
from storage.store import Store
from tests.storage.conftest import Sample, build_sample, conversation, rollout_row, task, task_row, write

ATTACK = "<script>alert(1)</script>\u202e{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The sample store, a task with a hostile text, and draws that failed through no fault of the policy."""
    made = build_sample(tmp_path_factory.mktemp("shop") / "store")
    hostile = task(5, query_id="q-4", frame_id="frame-cheap", messages=(Message(role="user", content=ATTACK),), difficulty=-1)
    faults = [
        Rollout(
            id=f"rollout-{outcome}",
            task_id="task-3",
            messages=conversation("cheap lamp"),
            outcome=outcome,
            policy_id="policy-2",
            draw=draw,
            failure="the engine did not answer",
        )
        for draw, outcome in enumerate((Outcome.INFRA_FAILURE, Outcome.TOOL_FAILURE))
    ]
    rows = [rollout_row(record, "probe") | {"failure": record.failure} for record in faults]
    made.store.commit([write(made.store, "tasks", task_row(hostile), n=2), write(made.store, "rollouts", *rows, n=2)])
    return made


@pytest.fixture
def sample(built: Sample, tmp_path: Path) -> Sample:
    """A copy, to write to."""
    return replace(built, store=Store(shutil.copytree(built.store.root, tmp_path / "store")))


@pytest.fixture
def app(sample: Sample) -> TestClient:
    return TestClient(create_app(ViewedStore(sample.store.root)), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def test_tasks_are_found_by_their_text_and_narrowed(app: TestClient) -> None:
    def found(**query: str) -> str:
        return app.get("/tasks", params=query | {"part": "true"}).text

    assert "1 to 5 of 5" in found()
    assert "1 to 1 of 1" in found(text="LAMP NUMBER 3")
    assert "<mark>lamp number</mark>" in found(text="lamp number")
    assert "1 to 1 of 1" in found(certainty="certain")
    assert 'href="/tasks/task-3"' in found(certainty="certain")
    assert "1 to 1 of 1" in found(kind="refusal")
    assert "1 to 1 of 1" in found(use="evaluation, known needs")
    assert "1 to 1 of 1" in found(origin="single goal", world="retail")
    assert "nothing fits" in found(division="held_out")
    assert "seed (4)" in found(division="probe"), "a facet's counts do not depend on its own choice"


def test_a_new_task_is_found_at_once(app: TestClient, sample: Sample) -> None:
    assert "nothing fits" in app.get("/tasks", params={"text": "number 9", "part": "true"}).text

    sample.store.commit([write(sample.store, "tasks", task_row(task(9)), n=3)])

    assert "1 to 1 of 1" in app.get("/tasks", params={"text": "number 9", "part": "true"}).text


def test_a_task_shows_every_draw_and_whose_fault_it_was(app: TestClient) -> None:
    page = app.get("/tasks/task-3").text

    assert len(re.findall(r'href="[^"]*/rollout-\w+"', page)) >= 10
    assert "6 of 8" in page
    assert "the infrastructure&#39;s" in page
    assert "a tool&#39;s" in page
    assert "the engine did not answer" in page
    assert "policies are probed on the task" in page
    assert "A hash of a frame&#39;s id decides its division" in page


def test_only_failures_of_the_policy_count(sample: Sample) -> None:
    """Given a policy whose draws all failed through faults of others, then it has no measured success, and no point in the chart."""
    drawn = draws(sample.store, "task-3")
    measured = measurements(sample.store, "task-3", drawn)

    assert len(drawn) == 10
    assert [(row["policy"], row["successes"], row["n"]) for row in measured] == [("sft1", 6, 8)]
    assert measured[0]["low"] < 0.75 < measured[0]["high"]


def test_success_in_training_stands_behind_the_probe(sample: Sample) -> None:
    tag = {"task_id": "task-3", "policy_id": "policy-2", "purpose": "rl", "k": 16, "successes": 4, "region": "uncertain"}
    sample.store.commit([write(sample.store, "tags", tag, n=2)])

    measured = measurements(sample.store, "task-3", draws(sample.store, "task-3"))

    assert [(row["policy"], row["n"], row["rate"]) for row in measured] == [("sft1", 8, 0.75), ("sft2", 16, 0.25)]


def test_the_chart_has_a_point_for_each_policy(app: TestClient) -> None:
    page = app.get("/tasks/task-3").text
    (chart,) = json.loads(re.findall(r'class="charts">(.*?)</script>', page)[0])

    assert chart["layout"]["xaxis"]["ticktext"] == ["sft1"]
    assert chart["data"][0]["y"] == [0.75]


def test_siblings_and_splits_are_listed(app: TestClient) -> None:
    page = app.get("/tasks/task-1").text

    assert 'href="/tasks/task-4"' in page
    assert 'href="/tasks/task-2"' not in page
    assert "the same frame" in page
    assert ">second</a><td>sft2<td>" in page
    assert ">expert</a>" in page


@pytest.mark.parametrize("address", ["/tasks", "/tasks?text=script", "/tasks/task-5"])
def test_no_text_of_a_task_becomes_a_part_of_a_page(app: TestClient, address: str) -> None:
    page = app.get(address).text

    assert "<script>alert" not in page
    assert "alert(1)" in page
    assert "49" not in page


def test_an_id_that_is_no_task_leads_to_its_page(app: TestClient) -> None:
    assert app.get("/tasks/policy-1", follow_redirects=False).headers["location"] == "/item/policy-1"
    assert app.get("/tasks/task-77").status_code == 404
