"""Annotating in the viewer: what is written, what is refused and leaves the store as it was, and what the pages show."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from flows.cli.main import app as command
from flows.runtime.store_lock import hold_store
from flows.viewer.by_hand.write_access import WriteAccess, allow_writes
from flows.viewer.pages import by_hand
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.by_hand.hand_rows import DECISIONS, read_annotations
from storage.errors import BadInput
from storage.files import file_lock
from storage.store import Store
from tests.storage.conftest import funnel_parts, write

ATTACK = '<script>alert("1")</script>\u202e{{ 7 * 7 }}'
QUERY, TRAJECTORY, FRAME = "q-12345678-00000000", "trajectory-0000000000000001", "frame-0000000000000001"
ORIGIN = {"origin": "http://127.0.0.1:8790"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "shop" / "store")
    common = {"world": "retail", "language": "en", "teacher": "scripted", "outcome": "success", "tools_used": [], "checks": "{}"}
    frame = {"run": "run-1", "query_id": QUERY, "frame_id": FRAME, "world": "retail", "intent": "order_status", "slots": '{"order":"o7"}'}
    text = {"query_id": QUERY, "run": "run-1", "source": "log.txt", "row": 0, "text": "where is o7", "language": "en"}
    made.commit(
        [
            *funnel_parts(made, run="run-0"),
            write(made, "queries", text, n=7),
            write(made, "verdicts", {"query_id": QUERY, "run": "run-1", "step": "admission", "kept": False, "reason": "not_needed"}, n=7),
            write(made, "frames", frame | {"status": "not_needed"}),
            write(made, "trajectories", common | {"trajectory_id": TRAJECTORY, "messages": "[]", "accepted": True}),
        ]
    )
    return made


def client(root: Path, access: WriteAccess | None, token: str | None = None) -> TestClient:
    return TestClient(
        create_app(ViewedStore(root), token=token, write_access=access),
        base_url="http://127.0.0.1:8790",
        raise_server_exceptions=False,
        follow_redirects=False,
    )


@pytest.fixture
def app(store: Store) -> TestClient:
    return client(store.root, WriteAccess("Ada L."))


def form_of(app: TestClient, path: str) -> dict[str, str]:
    """The hidden fields of the form of a page."""
    page = app.get(path)
    assert page.status_code == 200, page.text
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))


def send(app: TestClient, path: str, headers: dict[str, str] = ORIGIN, **fields: Any) -> httpx.Response:
    return app.post("/by-hand", data=form_of(app, path) | fields, headers=headers)


# ---- what is written ---------------------------------------------------------------------------------------------------------------


def test_a_verdict_is_written_shown_and_named_after_its_author(app: TestClient, store: Store) -> None:
    sent = send(app, f"/trajectories/{TRAJECTORY}", verdict="drop", comment=f"rude\r\n{ATTACK}")

    assert (sent.status_code, sent.headers["location"]) == (303, f"/trajectories/{TRAJECTORY}#by-hand")
    row = read_annotations(store).row(0, named=True)
    assert (row["item_id"], row["verdict"], row["author"], row["comment"]) == (TRAJECTORY, "drop", "Ada L.", f"rude\n{ATTACK}")
    for path in (f"/trajectories/{TRAJECTORY}", "/by-hand"):
        page = app.get(path).text
        assert "<b>drop</b>" in page and "Ada L." in page
        assert "&lt;script&gt;alert" in page and "<script>alert" not in page and "7*7" not in page


def test_a_request_its_frame_and_a_new_label(app: TestClient, store: Store) -> None:
    path = f"/requests/{QUERY}"
    send(app, path, item=QUERY, verdict="relabel", label="retail/order_price", slots='{"order": "o9"}')
    send(app, path, item=FRAME, verdict="drop")

    rows = read_annotations(store)
    assert rows["item_id"].to_list() == [FRAME, QUERY]
    assert rows.select("world", "intent", "slots").row(1) == ("retail", "order_price", '{"order":"o9"}')
    page = app.get(path).text
    assert "retail/order price" in page and "of its frame" in page
    assert app.get(f"/item/{FRAME}").text.count("<b>drop</b>") == 1


def test_many_items_at_once_are_one_annotation(app: TestClient, store: Store) -> None:
    fields = form_of(app, f"/requests/{QUERY}") | {"verdict": "drop", "item": [QUERY, TRAJECTORY], "page": ""}

    sent = app.post("/by-hand", data=fields, headers=ORIGIN)

    assert sent.headers["location"] == "/by-hand"
    assert read_annotations(store)["annotation_id"].n_unique() == 1
    assert store.query(f"SELECT count(*) FROM {DECISIONS}").item() == 2


def test_a_form_sent_twice_is_written_once(app: TestClient, store: Store) -> None:
    fields = form_of(app, f"/requests/{QUERY}") | {"verdict": "keep", "item": QUERY}
    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(lambda _: app.post("/by-hand", data=fields, headers=ORIGIN).status_code, range(4)))

    assert sent == [303] * 4
    assert read_annotations(store).height == 1


# ---- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://attacker.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8790"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        ORIGIN | {"sec-fetch-site": "cross-site"},
        {"origin": "http://attacker.example", "sec-fetch-site": "same-origin"},
    ],
)
def test_no_other_page_can_write(app: TestClient, store: Store, headers: dict[str, str]) -> None:
    """Also with the right token: another website cannot read it, but may guess or be told."""
    sent = send(app, f"/requests/{QUERY}", headers=headers, verdict="drop", item=QUERY)

    assert (sent.status_code, "not sent from a page of this viewer" in sent.text) == (403, True)
    assert read_annotations(store).is_empty()


@pytest.mark.parametrize("headers", [ORIGIN, {"sec-fetch-site": "same-origin"}, ORIGIN | {"sec-fetch-site": "same-origin"}])
def test_negative_control_its_own_pages_can(app: TestClient, headers: dict[str, str]) -> None:
    assert send(app, f"/requests/{QUERY}", headers=headers, verdict="drop", item=QUERY).status_code == 303


@pytest.mark.parametrize("token", ["", "another", "\udcff"])
def test_a_form_of_another_start_is_refused(app: TestClient, store: Store, token: str) -> None:
    sent = send(app, f"/requests/{QUERY}", verdict="drop", item=QUERY, token=token.encode("utf-8", "surrogatepass"))

    assert sent.status_code in (400, 403)
    assert read_annotations(store).is_empty()


def test_without_the_flag_nothing_can_be_written_and_the_page_says_how(store: Store) -> None:
    app = client(store.root, None)

    sent = app.post("/by-hand", data={"verdict": "drop", "item": QUERY, "token": ""}, headers=ORIGIN)

    assert (sent.status_code, "headrace view --write" in sent.text) == (403, True)
    for path in (f"/requests/{QUERY}", f"/trajectories/{TRAJECTORY}", "/by-hand"):
        page = app.get(path)
        assert "headrace view --write" in page.text and 'method="post"' not in page.text
    assert read_annotations(store).is_empty()


def test_reading_an_address_never_writes(app: TestClient, store: Store) -> None:
    fields = form_of(app, f"/requests/{QUERY}") | {"verdict": "drop"}

    assert app.get("/by-hand", params=fields).status_code == 200
    assert app.put("/by-hand", data=fields, headers=ORIGIN).status_code == 405
    assert read_annotations(store).is_empty()


def test_beyond_loopback_the_token_of_the_address_is_needed_too(store: Store) -> None:
    access = WriteAccess("Ada L.")
    app = client(store.root, access, token="a-secret")
    fields = {"verdict": "drop", "item": QUERY, "token": access.token, "nonce": "1"}

    assert app.post("/by-hand", data=fields, headers=ORIGIN).status_code == 401
    app.get("/?token=a-secret")
    assert app.post("/by-hand", data=fields, headers=ORIGIN).status_code == 303


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verdict": "explode"}, "is no verdict by hand"),
        ({"item": "q-12345678-00000001"}, "is not in"),
        ({"item": [QUERY, "trajectory-ffff"]}, "is not in"),
        ({"verdict": ["keep", "drop"]}, "more than once"),
        ({"verdict": "comment", "comment": " \r\n "}, "the comment is empty"),
        ({"comment": "x" * 10_001}, "at most 10,000"),
        ({"comment": "a\0b"}, "is text"),
        ({"verdict": "relabel", "label": "retail/fly"}, "has no intent"),
        ({"verdict": "relabel", "label": "nowhere"}, "there is no world"),
        ({"verdict": "relabel", "label": "retail/order_status", "slots": "{"}, "no JSON"),
        ({"verdict": "relabel", "label": "retail/order_status", "slots": "[1]"}, "a JSON object"),
        ({"verdict": "relabel", "label": "retail/order_status", "slots": '{"order": NaN}'}, "a text or a number"),
        ({"comment": "x" * 1_000_001}, "longer than"),
    ],
)
def test_bad_input_is_refused_whole(app: TestClient, store: Store, fields: dict[str, Any], message: str) -> None:
    before = store.content_hash()

    sent = send(app, f"/requests/{QUERY}", **({"verdict": "drop", "item": QUERY} | fields))

    assert (sent.status_code, message in sent.text) == (400, True), sent.text[-400:]
    assert store.content_hash() == before


def test_a_body_that_is_no_form_is_refused(app: TestClient) -> None:
    assert app.post("/by-hand", json={"verdict": "drop"}, headers=ORIGIN).status_code == 400
    form = ORIGIN | {"content-type": "application/x-www-form-urlencoded"}
    assert app.post("/by-hand", content=b"\xff\xfe=1", headers=form).status_code == 400
    assert app.post("/by-hand", content="&".join("a=1" for _ in range(30_000)), headers=form).status_code == 400


# ---- beside a run ------------------------------------------------------------------------------------------------------------------


def test_beside_a_flow_it_is_written_and_the_page_names_the_flow(app: TestClient, store: Store) -> None:
    with hold_store("curate", store.root):
        assert "curate (process" in app.get(f"/requests/{QUERY}").text
        assert send(app, f"/requests/{QUERY}", verdict="drop", item=QUERY).status_code == 303
    assert read_annotations(store).height == 1
    assert "curate (process" not in app.get("/by-hand").text


def test_while_a_commit_lasts_too_long_it_says_who_and_writes_nothing(
    app: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "LOCK_WAIT_S", 0.1)
    with file_lock(store.root / "catalog.lock", wait_s=1):
        sent = send(app, f"/requests/{QUERY}", verdict="drop", item=QUERY)
    assert (sent.status_code, "is being written by process" in sent.text) == (503, True)
    assert read_annotations(store).is_empty()


# ---- the list ----------------------------------------------------------------------------------------------------------------------


def test_the_list_is_searched_narrowed_and_downloaded(app: TestClient) -> None:
    send(app, f"/requests/{QUERY}", verdict="drop", item=QUERY, comment="not a real request")
    send(app, f"/trajectories/{TRAJECTORY}", verdict="keep")

    def found(**query: str) -> str:
        return app.get("/by-hand", params=query | {"part": "true"}).text

    assert "1 to 2 of 2" in found()
    assert "1 to 1 of 1" in found(text="REAL") and "<mark>real</mark>" in found(text="real")
    assert "1 to 1 of 1" in found(kind="trajectory") and "1 to 1 of 1" in found(verdict="drop")
    assert "nothing fits" in found(author="nobody")
    assert "where is o7" in found(kind="request"), "the text of a request stands beside its verdict"
    page = app.get("/by-hand").text
    assert "People against all checks and the judge" in page or "people against all checks and the judge" in page
    assert "no kappa" in page.lower()
    assert app.get("/by-hand/download.jsonl").text.count("\n") == 2
    assert app.get("/by-hand/download.csv").headers["content-disposition"].endswith('"by_hand.csv"')
    assert app.get("/by-hand/download.exe").status_code == 404


# ---- the command -------------------------------------------------------------------------------------------------------------------


def test_the_author_is_the_systems_user_or_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "grace")
    assert allow_writes(None).author == "grace"
    assert allow_writes(" Ada L. ").author == "Ada L."
    assert allow_writes("a").token != allow_writes("a").token
    with pytest.raises(BadInput, match="--author NAME"):
        allow_writes("\n")


def test_an_author_without_the_flag_is_refused(store: Store) -> None:
    done = CliRunner().invoke(command, ["view", str(store.root), "--author", "Ada"])
    assert done.exit_code != 0 and "give --write too" in done.output


def test_annotations_are_exported(app: TestClient, store: Store, tmp_path: Path) -> None:
    def export(*options: str) -> Any:
        return CliRunner().invoke(command, ["export", "--by-hand", "--store", str(store.root), "--out", str(tmp_path / "out"), *options])

    assert "there are no annotations" in export().output
    send(app, f"/requests/{QUERY}", verdict="drop", item=QUERY)
    assert export().exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "SHA256SUMS",
        "by_hand.csv",
        "by_hand.jsonl",
        "manifest.json",
    ]
    assert "leave out --queries" in export("--queries").output
    assert "no messages" in export("--format", "atif").output
