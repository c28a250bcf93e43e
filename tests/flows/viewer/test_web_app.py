"""The viewer: what its pages show of a store, what they refuse, and that no text of a store becomes a part of a page."""

from __future__ import annotations

import contextlib
import html
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from fastapi.testclient import TestClient

from flows.viewer.indexes.request_index import RequestIndex
from flows.viewer.rendering import link_ids
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
    with contextlib.suppress(BadInput):
        viewed.index.refresh(20)
        viewed.conversations.refresh(20)
    return TestClient(create_app(viewed, token=token), base_url=address, raise_server_exceptions=False)


def test_the_overview_has_the_funnel_and_says_what_has_not_run(store: Store) -> None:
    app = client(store.root)
    page = app.get("/overview/funnel")

    assert page.status_code == app.get("/").status_code == 200
    assert "1 in 3 kept" in page.text
    assert 'href="/requests?run=run-1&amp;step=rules&amp;reason=junk"' in page.text
    assert "headrace train" in app.get("/overview/ladder").text


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
    app, row = client(store.root), {"query_id": "q-9", "run": "run-2", "source": "late.txt", "row": 0, "text": "a late lamp"}
    store.commit([write(store, "queries", row, n=2), write(store, "verdicts", {"query_id": "q-9", "run": "run-2", "kept": True}, n=2)])

    begun = time.monotonic()
    while "a <mark>late</mark> lamp" not in (page := app.get("/requests", params={"text": "late"}).text):
        assert "not shown yet" in page
        assert time.monotonic() - begun < 20
        time.sleep(0.05)


def test_rows_are_shown_while_every_look_finds_another_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a store that is committed to more often than its index is built, then a built index is searched all the same."""
    monkeypatch.setattr(RequestIndex, "_wanted", lambda index: f"{index._prefix}-{time.monotonic_ns():016x}.duckdb")
    app = client(store.root)

    assert "1 to 4 of 4" in app.get("/requests", params={"text": "lamp"}).text


def test_an_index_that_cannot_be_made_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    app = client(store.root)

    for _ in range(2):
        page = app.get("/requests").text
        assert "could not be made" in page
        assert "http-equiv" not in page


def test_a_row_without_a_verdict_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.commit([write(store, "queries", {"query_id": "q-0", "run": "r", "source": "f", "row": 0, "text": "wait"})])
    app = client(store.root)

    assert "no verdict yet" in app.get("/requests").text
    assert "nothing fits" in app.get("/requests?verdict=kept").text
    assert "1 to 1 of 1" in app.get("/requests?verdict=none").text


def test_threads_share_one_index(store: Store) -> None:
    viewed = ViewedStore(store.root)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: id(viewed.index), range(64)))
    assert len(found) == 1


def test_every_id_on_a_page_leads_to_its_page() -> None:
    text = "repeats q-1a9b30ea-00786432, split release-222d2997eff065f0/sft1 of funnel-6ce6000011112222, no-id-1"

    shown = link_ids(text)

    assert re.findall(r'href="([^"]+)"', shown) == [
        "/requests/q-1a9b30ea-00786432",
        "/item/release-222d2997eff065f0/sft1",
        "/item/funnel-6ce6000011112222",
    ]
    assert re.sub("<[^>]+>", "", shown) == text


def test_trajectories_are_found_by_their_text_and_open_as_a_chat(store: Store) -> None:
    app = client(store.root)

    listed = app.get("/trajectories", params={"text": "red lamp", "accepted": "yes"}).text
    opened = app.get("/item/trajectory-0000000000000001").text

    assert "1 to 1 of 1" in listed
    assert "/trajectories/trajectory-0000000000000001" in listed
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


@pytest.mark.parametrize("query", ["first=abc", "first=-1", "first=99999999999999999999999"])
def test_an_address_that_does_not_fit_is_said_in_words(store: Store, query: str) -> None:
    page = client(store.root).get(f"/requests?{query}")

    assert page.status_code == 400
    assert "has a value that does not fit: first" in page.text


def test_a_page_that_fails_is_guarded_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    app = client(store.root)
    monkeypatch.setattr(RequestIndex, "find", lambda *_, **__: 1 / 0)

    page = app.get("/requests")

    assert page.status_code == 500
    assert "division by zero" in page.text
    assert "default-src" in page.headers["content-security-policy"]


def test_what_is_said_is_searched_and_not_how_it_is_kept(store: Store) -> None:
    app = client(store.root)

    assert "nothing fits" in app.get("/trajectories", params={"text": "role"}).text
    assert "1 to 1 of 1" in app.get("/trajectories", params={"text": 'alert("1")'}).text


def test_another_name_of_the_machine_is_refused(store: Store) -> None:
    app = client(store.root)

    assert app.get("/", headers={"host": "attacker.example:8790"}).status_code == 403
    for name in ("localhost:8790", "localhost", "[::1]", "[::1]:8790"):
        assert app.get("/", headers={"host": name}).status_code == 200


def test_beyond_loopback_a_token_is_needed_once(store: Store) -> None:
    app = client(store.root, token="a-secret", address="http://example.org")

    assert app.get("/").status_code == 401
    assert app.get("/?token=a-secret2").status_code == 401
    entered = app.get("/requests?text=lamp&token=a-secret", follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "/requests?text=lamp")
    assert app.get("/").status_code == 200
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


def test_a_request_is_shown_word_by_word_beside_what_it_repeats(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    text, slots = "for user u03: buy the cheapest red lamp", {"category": "lamp", "colour": "red", "pick": "cheapest", "user": "u03"}
    query = {"run": "r", "source": "f", "text": text, "language": "en"}
    frame = {"run": "r", "query_id": "q-1", "frame_id": "frame-1", "world": "retail", "intent": "buy_pick", "slots": json.dumps(slots)}
    store.commit(
        [
            write(store, "queries", query | {"query_id": "q-1", "row": 0}, query | {"query_id": "q-2", "row": 1, "text": f"{text} please"}),
            write(
                store,
                "verdicts",
                {"query_id": "q-1", "run": "r", "step": "pool", "kept": False, "reason": "not_pooled"},
                {"query_id": "q-2", "run": "r", "step": "near", "kept": False, "reason": "near_duplicate", "duplicate_of": "q-1"},
            ),
            write(store, "frames", frame | {"status": "not_pooled"}),
        ]
    )
    app = client(store.root)

    reading = app.get("/requests/q-1/reading").text
    assert re.findall(r">([^<]+)<rt>([^<]+)</rt>", reading) == [
        ("u03", "user"), ("cheapest", "pick"), ("red", "colour"), ("lamp", "category"),
    ]  # fmt: skip
    assert "gives the stored frame" in reading
    assert "<mark> please</mark>" in app.get("/requests/q-1/repeats").text, "the copy, with what differs"
    assert "It was dropped because it repeats another row" in app.get("/requests/q-2/repeats").text
    assert app.get("/requests/q-1").status_code == 200
    assert "no world read it" in app.get("/requests/q-2/reading").text


def test_a_conversation_without_a_policy_says_why_it_has_no_tokens(store: Store) -> None:
    app = client(store.root)

    page = app.get("/trajectories/trajectory-0000000000000001/tokens")

    assert page.status_code == 404
    assert "no SFT stage was trained yet" in page.text
    assert "It was not checked" in app.get("/trajectories/trajectory-0000000000000001").text


def test_a_text_of_a_megabyte_is_not_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    row = {"query_id": "q-0a0a0a0a-00000000", "run": "r"}
    text = {"source": "f", "row": 0, "text": "order " * 200_000}
    store.commit([write(store, "queries", row | text), write(store, "frames", row | {"frame_id": "frame-1", "world": "retail"})])
    app = client(store.root)

    answer = app.get("/requests/q-0a0a0a0a-00000000/reading")

    assert answer.status_code == 404 and "1,200,000 characters" in answer.text
    assert "1,180,000 more characters" in app.get("/requests/q-0a0a0a0a-00000000").text
