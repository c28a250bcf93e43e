"""The overview: parts that are fetched one by one, and what works on the store now."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flows.runtime.notes.run_records import notes_folder
from flows.runtime.notes.work_notes import note_work
from flows.runtime.progress import report
from flows.runtime.store_lock import hold_store
from flows.viewer.pages.overview import PARTS
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.store import Store
from tests.storage.conftest import build_sample, write


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return build_sample(tmp_path_factory.mktemp("overview") / "store").store


@pytest.fixture(scope="module")
def app(store: Store) -> TestClient:
    viewed = ViewedStore(Path(store.root))
    return TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_a_page_with_its_charts(app: TestClient, part: str) -> None:
    page = app.get(f"/overview/{part}")

    assert page.status_code == 200
    assert f"<h2>{PARTS[part][0]}</h2>" in page.text
    (charts_json,) = re.findall(r'class="charts">(.*?)</script>', page.text)
    charts = json.loads(charts_json)
    assert {int(number) for number in re.findall(r'data-chart="(\d+)"', page.text)} == set(range(len(charts)))
    assert f'data-load="/overview/{part}"' in app.get("/").text


def test_a_part_that_is_not_there_is_said(app: TestClient) -> None:
    page = app.get("/overview/weather")
    assert page.status_code == 404
    assert "has no part weather" in page.text


def test_tokens_and_cost_are_summed_by_engine(store: Store, app: TestClient) -> None:
    asked = {"engine": "openai:m", "request": "{}", "answer": "{}", "prompt_tokens": 1000, "completion_tokens": 234, "latency_s": 1.0}
    store.commit([write(store, "answers", asked | {"answer_id": "answer-1"}, asked | {"answer_id": "answer-2"}, n=9)])

    row = re.search(r"<tr><td>openai:m(.*?)</tr>", app.get("/overview/spending").text)
    assert row is not None
    assert re.findall(r'class="n">([\d,]+)', row[1]) == ["2", "2,000", "468"]


def test_work_in_progress_grows_on_the_page(store: Store, app: TestClient) -> None:
    """Given a flow at work with a stage that has begun, when the page asks again, then it has the step, the curve, and the run."""
    folder = notes_folder(store.root)
    assert "At work" not in app.get("/overview/work").text
    stage = store.root / "models" / "stage-00000000000000ff"
    stage.mkdir(parents=True)

    stopped = store.root / "models" / "stage-0000000000000001" / "metrics.jsonl"
    stopped.parent.mkdir()
    stopped.write_text('{"step": 1, "loss": 1.0}\n')
    os.utime(stopped, (0, 0))

    with hold_store("train", store.root), note_work("train", folder):
        report("sft1", 3, 3)
        (stage / "metrics.jsonl").write_text("".join(json.dumps({"step": n, "loss": 2.0 / n}) + "\n" for n in (1, 2)))
        first = app.get("/overview/work").text
        with (stage / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 3, "loss": 0.5}) + "\n")
        second = app.get("/overview/work").text

    assert "At work: train" in first and "3 of 3" in first and "at work<" in first.replace("\n", "")
    assert "stage-0000000000000001" not in first, "it was stopped long ago"
    assert "2 steps so far" in first and "3 steps so far" in second
    assert "completed" in app.get("/overview/work").text
