"""The viewer: what its pages show of a store, what they refuse, and that no text of a store becomes a part of a page."""

from __future__ import annotations

import contextlib
import html
import json
import shutil
from pathlib import Path

import duckdb
import pytest
from fastapi.testclient import TestClient

from flows.viewer.view_server import open_listener
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.errors import BadInput
from storage.store import Store
from tests.storage.conftest import conversation, funnel_parts, write

ATTACK = '<script>alert("1")</script>\u202e\x07{{ 7 * 7 }}'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The funnel of six rows, a frame, and two trajectories, one of them with hostile texts."""
    made = Store(tmp_path / "shop" / "store")
    messages = json.dumps([message.to_openai() for message in conversation("a red lamp, please")])
    hostile = json.dumps([{"role": "user", "content": ATTACK}, {"role": "assistant", "content": ATTACK}])
    common = {"world": "retail", "language": "en", "teacher": "scripted", "outcome": "success", "tools_used": []}
    frame = {"run": "run-1", "query_id": "q-0", "world": "retail", "intent": "buy_cheapest", "leaf": "commerce", "quality": 0.9}
    made.commit(
        [
            *funnel_parts(made),
            write(made, "frames", frame | {"frame_id": "frame-1", "status": "kept"}),
            write(
                made,
                "trajectories",
                common | {"trajectory_id": "trajectory-0000000000000001", "messages": messages, "accepted": True, "mode_coarse": "C>F"},
                common | {"trajectory_id": "trajectory-0000000000000002", "messages": hostile, "accepted": False, "domain": ATTACK},
            ),
        ]
    )
    return made


def client(root: Path, token: str | None = None, address: str = "http://127.0.0.1:8790") -> TestClient:
    viewed = ViewedStore(root)
    if (root / "catalog.read.duckdb").exists():
        with contextlib.suppress(BadInput):
            viewed.index.wait(20)
    return TestClient(create_app(viewed, token=token), base_url=address, raise_server_exceptions=False)


def test_the_overview_has_the_funnel_and_says_what_has_not_run(store: Store) -> None:
    page = client(store.root).get("/")

    assert page.status_code == 200
    assert "1 in 3 kept" in page.text
    assert 'href="/requests?step=rules&amp;reason=junk"' in page.text
    assert "headrace train" in page.text


def test_requests_are_found_by_a_part_of_their_text_and_narrowed(store: Store) -> None:
    app = client(store.root)

    def found(**query: str) -> str:
        return app.get("/requests", params=query | {"part": "true"}).text

    assert "1 to 4 of 4" in found(text="LAMP")
    assert "<mark>lamp</mark>" in found(text="LAMP")
    assert "1 to 1 of 1" in found(text="lamp", step="near")
    assert "repeats this row" in found(step="near")
    assert "1 to 2 of 2" in found(verdict="kept")
    assert "1 to 1 of 1" in found(confidence="0.5", world="retail")
    assert "nothing fits" in found(text="%lamp_")
    assert "near (1)" in found(text="lamp", step="exact"), "a facet's counts do not depend on its own choice"


def test_a_commit_is_searched_once_it_is_indexed(store: Store) -> None:
    viewed = ViewedStore(store.root)
    app = TestClient(create_app(viewed), base_url="http://127.0.0.1")
    assert viewed.index.wait(20)
    row = {"query_id": "q-9", "run": "run-2", "source": "late.txt", "row": 0, "text": "a late lamp"}
    store.commit([write(store, "queries", row, n=2), write(store, "verdicts", {"query_id": "q-9", "run": "run-2", "kept": True}, n=2)])

    while viewed.index.is_building():
        viewed.index.wait(1)

    assert "a <mark>late</mark> lamp" in app.get("/requests", params={"text": "late"}).text


def test_trajectories_are_found_by_their_text_and_open_as_a_chat(store: Store) -> None:
    app = client(store.root)

    listed = app.get("/trajectories", params={"text": "red lamp", "accepted": "yes"}).text
    opened = app.get("/item/trajectory-0000000000000001").text

    assert "1 to 1 of 1" in listed
    assert "/item/trajectory-0000000000000001" in listed
    assert 'class="bubble user"' in opened
    assert "search_products" in opened
    assert "p7 costs 25." in opened


def test_no_text_of_a_store_becomes_a_part_of_a_page(store: Store) -> None:
    app = client(store.root)
    asked = {"text": ATTACK}
    for path, query in (("/trajectories", {}), ("/item/trajectory-0000000000000002", {}), ("/requests", asked), ("/item", {"id": ATTACK})):
        page = app.get(path, params=query)
        assert "<script>alert" not in page.text
        assert "alert(" in html.unescape(page.text)
        assert "49" not in page.text, "texts are no templates"
        assert "script-src 'self';" in page.headers["content-security-policy"]


def test_an_id_that_is_not_there_is_said_in_words(store: Store) -> None:
    page = client(store.root).get("/item/trajectory-ffff")

    assert page.status_code == 404
    assert "nothing in" in page.text
    assert "the nearest ids are" in page.text


def test_another_name_of_the_machine_is_refused(store: Store) -> None:
    app = client(store.root)

    assert app.get("/", headers={"host": "attacker.example:8790"}).status_code == 403
    assert app.get("/", headers={"host": "localhost:8790"}).status_code == 200


def test_beyond_loopback_a_token_is_needed_once(store: Store) -> None:
    app = client(store.root, token="a-secret", address="http://example.org")

    assert app.get("/").status_code == 401
    assert app.get("/?token=a-secret2").status_code == 401
    assert app.get("/?token=a-secret").status_code == 200
    assert app.get("/requests").status_code == 200


def test_a_store_that_vanishes_comes_back_or_is_newer_is_said(store: Store, tmp_path: Path) -> None:
    app = client(store.root)
    aside = tmp_path / "aside"

    shutil.move(store.root, aside)
    assert "there is no store in" in app.get("/requests").text
    shutil.move(aside, store.root)
    assert app.get("/").status_code == 200

    newer = tmp_path / "newer" / "store"
    shutil.copytree(store.root, newer)
    with duckdb.connect(str(newer / "catalog.read.duckdb")) as connection:
        connection.execute("UPDATE schema_version SET version = 'of tomorrow'")
    page = client(newer).get("/")
    assert (page.status_code, "has schema version of tomorrow" in page.text) == (404, True)


def test_a_port_that_is_taken_is_refused() -> None:
    with open_listener("127.0.0.1", 0) as taken, pytest.raises(BadInput, match="is taken: name another with --port"):
        open_listener("127.0.0.1", taken.getsockname()[1])
