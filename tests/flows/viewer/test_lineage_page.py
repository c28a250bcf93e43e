"""The page of a lineage: a drawing with links, lists, what a withdrawal would take; and what the viewer shows once it has taken it."""

from __future__ import annotations

import html
import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient

from flows.viewer.drawings.lineage_drawing import draw_lineage
from flows.viewer.indexes.store_index import StoreIndex
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.store import Store
from storage.withdrawals.withdraw_source import withdraw_source
from storage.withdrawals.withdrawal_plan import find_source
from tests.storage.conftest import Sample, build_sample, write

ATTACK = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    made = build_sample(tmp_path_factory.mktemp("shop") / "store")
    row = {"query_id": "q-hostile", "run": "run-2", "source": f"{ATTACK}.txt", "row": 0, "text": ATTACK}
    made.store.commit(
        [write(made.store, "queries", row, n=2), write(made.store, "verdicts", {"query_id": "q-hostile", "run": "run-2"}, n=2)]
    )
    return made


@pytest.fixture
def sample(built: Sample, tmp_path: Path) -> Sample:
    return replace(built, store=Store(shutil.copytree(built.store.root, tmp_path / "store")))


@pytest.fixture
def viewed(sample: Sample) -> ViewedStore:
    return ViewedStore(sample.store.root)


@pytest.fixture
def app(viewed: ViewedStore) -> TestClient:
    return TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def withdraw(store: Store) -> None:
    withdraw_source(store, find_source(store, "log.txt"), reason="the customer asked", author="Ada", at="2026-11-29T10:00:00")


def boxes(page: str) -> dict[str, str]:
    """Label of a box -> where it leads."""
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    return {label.strip(): html.unescape(url) for url, label in re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"', drawing)}


def test_a_policy_is_drawn_from_the_tools_on_with_a_link_in_every_box(app: TestClient) -> None:
    found = boxes(app.get("/lineage/policy-2").text)

    assert {"query q-0", "task task-1", "trajectory trajectory-task-1", "stage stage-2", "policy policy-1"} <= set(found)
    assert found["query q-0"] == "/lineage/q-0"
    assert found["policy policy-2"] == "/item/policy-2", "the item itself leads to its own page"
    for url in found.values():
        assert app.get(url).status_code == 200, url


def test_a_query_leads_to_the_policies_that_learned_from_it(app: TestClient) -> None:
    page = app.get("/lineage/q-0").text

    assert {"policy policy-1", "policy policy-2"} <= set(boxes(page))
    assert page.index("Went into") < page.index("2 policies")
    assert page.count('class="arrow"') >= 6


def test_many_items_of_a_kind_are_one_box(app: TestClient) -> None:
    found = boxes(app.get("/lineage/task-3").text)

    assert found["8 rollouts"] == "#into-rollout"
    assert "8 rollouts" in app.get("/lineage/task-3").text


def test_the_places_of_boxes_follow_the_arrows_and_a_circle_does_no_harm() -> None:
    """Given boxes of several rollouts that a policy drew and that it was trained on, then every box has one place, left of what it made."""
    nodes = pl.DataFrame({"kind": ["task", *["rollout"] * 9, "split", "stage", "policy"], "id": list("abcdefghijklm")})
    edges = [("rollout", one, "task", "a") for one in "bcdefghij"] + [("split", "k", "rollout", one) for one in "bcd"]
    edges += [("stage", "l", "split", "k"), ("policy", "m", "stage", "l"), ("rollout", "b", "policy", "m")]
    frame = pl.DataFrame(edges, schema=["child_kind", "child", "parent_kind", "parent"], orient="row")

    drawing = draw_lineage(("query", "q"), nodes, frame, lambda kind, id: id)
    places = {(box.kind, box.id): box.x for box in drawing.boxes}

    assert len(places) == len(drawing.boxes) == 6
    assert places["task", "a"] < places["rollout", ""] < places["split", "k"] < places["stage", "l"] < places["policy", "m"]
    assert dict(drawing.arrows).keys() == {path for path, _ in drawing.arrows}
    assert sorted(n for _, n in drawing.arrows) == [1, 1, 1, 3, 9]
    assert all(0 <= box.x <= drawing.width - box.width and 0 <= box.y <= drawing.height - box.height for box in drawing.boxes)


def test_what_would_go_is_counted_with_the_command(app: TestClient, sample: Sample) -> None:
    listed = app.get("/lineage/policy-2").text
    url = html.unescape(re.findall(r'href="(/lineage/policy-2\?kind=file[^"]*)"', listed)[0])

    page = app.get(url).text

    assert re.search(r"<td>rollouts<td class=\"n\">8</tr>", page)
    assert f"headrace withdraw log.txt --kind file --reason &#39;why&#39; --store {sample.store.root}" in page
    assert 'href="/item/policy-1">policy-1</a>' in page


def test_a_source_with_a_hostile_name_is_no_part_of_the_page(app: TestClient) -> None:
    page = app.get("/lineage/q-hostile", params={"kind": "file", "source": f"{ATTACK}.txt"})

    assert page.status_code == 200
    assert "<img" not in page.text
    assert "headrace withdraw &#39;&lt;img src=x onerror=alert(1)&gt;.txt&#39; --kind" in page.text, "the name is quoted for the shell"


@pytest.mark.parametrize(("address", "words"), [("/lineage/task-77", "nearest ids"), ("/lineage/run-1", "has no lineage")])
def test_what_has_no_lineage_is_said(app: TestClient, address: str, words: str) -> None:
    page = app.get(address)
    assert page.status_code == 404
    assert words in page.text


@pytest.mark.parametrize(
    "address", ["/requests/q-0", "/requests/q-0/repeats", "/tasks/task-1", "/trajectories/trajectory-task-1", "/trajectories/rollout-3"]
)
def test_a_withdrawn_row_has_a_page_that_says_so_and_no_text(app: TestClient, sample: Sample, address: str) -> None:
    assert "lamp" in app.get(address).text
    withdraw(sample.store)

    page = app.get(address)

    assert page.status_code == 200
    assert "query file log.txt, withdrawn on 2026-11-29 by Ada: the customer asked" in page.text
    assert "lamp" not in page.text


def test_lists_and_searches_show_withdrawn_rows_no_more_not_even_for_a_moment(
    app: TestClient, viewed: ViewedStore, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an index of all rows, when a source is withdrawn, then the next answer has none of them, though no other index is there yet."""
    assert viewed.index.refresh(20)
    assert "lamp" in app.get("/requests", params={"text": "lamp", "part": "true"}).text
    assert 'href="/tasks/task-1"' in app.get("/tasks?part=true").text
    withdraw(sample.store)
    monkeypatch.setattr(StoreIndex, "_build", lambda *_: None)

    for address in ("/requests", "/requests?text=lamp&part=true", "/tasks?part=true", "/trajectories?part=true", "/"):
        assert "Buy me lamp number 1" not in app.get(address).text
        assert "buy me a" not in app.get(address).text
    assert 'href="/tasks/task-1"' not in app.get("/tasks?part=true").text
    assert list((Path(viewed.index._folder)).glob("*.duckdb")) == []


def test_an_index_that_was_begun_before_a_withdrawal_is_thrown_away(viewed: ViewedStore, sample: Sample) -> None:
    index = viewed.index
    assert index.refresh(20)
    begun_with = list(index._tombstones or [])
    withdraw(sample.store)
    index._wanted()

    index._build(index._name, begun_with)

    assert index._open is None
    assert index.refresh(20)


def test_policies_that_learned_from_it_are_marked(app: TestClient, sample: Sample) -> None:
    assert "learned from a source that was withdrawn" not in app.get("/lineage/policy-2").text
    withdraw(sample.store)

    assert "learned from a source that was withdrawn: query file log.txt" in app.get("/lineage/policy-2").text
    assert "learned from" in app.get("/item/policy-2").text
    assert "replaced by" in app.get(f"/item/{sample.first_release}").text
