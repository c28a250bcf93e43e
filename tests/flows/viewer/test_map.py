"""The map: similar texts lie together, counts are exact, sets are compared, and withdrawn rows are gone at once."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from scipy.spatial import cKDTree

from flows.viewer.by_hand.write_access import allow_writes
from flows.viewer.map.density import density_difference
from flows.viewer.map.map_index import Area, MapIndex, is_inside
from flows.viewer.map.map_layout import Placer, lay_out
from flows.viewer.map.text_vectors import fit_text_vectors
from flows.viewer.viewed_store import ViewedStore
from flows.viewer.web_app import create_app
from storage.by_hand.hand_rows import read_annotations
from storage.store import Store
from storage.withdrawals.withdraw_source import withdraw_source
from storage.withdrawals.withdrawal_plan import find_source
from tests.storage.conftest import write

SUBJECTS = {"order": "cancel the order of my %s lamp number %d please", "train": "which train leaves %s platform at %d in the morning"}
COLOURS = ("red", "blue", "green", "white", "black")
N = 200


def texts(subject: str) -> list[str]:
    return [SUBJECTS[subject] % (COLOURS[at % len(COLOURS)], at) for at in range(N)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two files, each of one subject; the first is kept, the second dropped."""
    made = Store(tmp_path_factory.mktemp("map") / "store")
    rows, verdicts = [], []
    for file, subject in (("aaaaaaaa", "order"), ("bbbbbbbb", "train")):
        for at, text in enumerate(texts(subject)):
            id = f"q-{file}-{at:08d}"
            rows.append({"query_id": id, "run": "run-1", "source": f"{subject}.txt", "row": at, "text": text, "language": "en"})
            reason = None if subject == "order" else "not_needed"
            verdicts.append({"query_id": id, "run": "run-1", "step": "admission", "kept": reason is None, "reason": reason})
    counts = {"run": "run-1", "position": 0, "step": "admission", "rows_in": 2 * N, "kept": N, "dropped": N}
    counts |= {"reasons": json.dumps({"not_needed": N}), "seconds": 0.0}
    made.commit([write(made, "queries", *rows), write(made, "verdicts", *verdicts), write(made, "funnel", counts)])
    return made


@pytest.fixture(scope="module")
def index(store: Store, tmp_path_factory: pytest.TempPathFactory) -> MapIndex:
    made = MapIndex(store, "requests", tmp_path_factory.mktemp("cache"))
    assert made.refresh(120), made.failure
    return made


def test_texts_with_the_same_words_are_near_and_numbers_do_not_count() -> None:
    said = pa.array([*texts("order"), *texts("train")])
    vectors = fit_text_vectors(said).of(said)

    alike = vectors @ vectors.T
    assert alike[0, COLOURS.index("red") + 5] > 0.99, "only the number differs"
    assert alike[:N, :N].mean() > alike[:N, N:].mean() + 0.3
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)


def test_places_keep_groups_apart_and_a_text_without_a_known_word_lies_in_the_corner() -> None:
    said = pa.array([*texts("order"), *texts("train")])
    fitted = fit_text_vectors(said)
    layout = lay_out(fitted.of(said))
    places, regions = Placer(layout).place(np.concatenate([fitted.of(said), np.zeros((1, layout.vectors.shape[1]), dtype=np.float32)]))

    _, near = cKDTree(places[: 2 * N]).query(places[: 2 * N], k=11)
    is_order = np.repeat([True, False], N)
    assert np.mean(is_order[near[:, 1:]] == is_order[:, None]) > 0.8, "share of a text's ten nearest that are of its subject; 0.5 by chance"
    assert regions[-1] == len(layout.regions)
    assert np.abs(places[:-1]).max() < 1.25


def test_a_difference_of_densities_ignores_sizes_and_has_the_sign_of_the_denser_set() -> None:
    one, other = np.zeros((16, 16), dtype=np.int64), np.zeros((16, 16), dtype=np.int64)
    one[3, 3], other[12, 12] = 1000, 10

    found = density_difference(one, other)

    assert found[3, 3] > 0.9 and found[12, 12] < -0.9
    assert np.allclose(density_difference(one, one * 7), 0)


def test_a_lasso_holds_what_is_inside_by_the_even_odd_rule() -> None:
    corners = np.array([[0, 0], [4, 0], [4, 4], [2, 1], [0, 4]], dtype=float)  # a notch from above
    x, y = np.array([1.0, 2.0, 3.5, 5.0]), np.array([1.0, 3.0, 3.0, 1.0])
    assert is_inside(x, y, corners).tolist() == [True, False, True, False]


def test_every_row_is_on_the_map_once_and_regions_add_up(index: MapIndex) -> None:
    assert index.size() == (2 * N, 2 * N)
    assert sum(region["n"] for region in index.regions()) == 2 * N
    everywhere = Area(lasso=np.array([[-2, -2], [2, -2], [2, 2], [-2, 2]], dtype=float))
    count, frequent = index.count_inside(everywhere)
    assert count == 2 * N
    assert dict(frequent["verdict"]) == {"kept": N, "dropped": N}
    ids = "".join(index.ids_inside(everywhere)).split()
    assert len(set(ids)) == 2 * N


def test_kept_and_dropped_lie_in_other_regions(index: MapIndex) -> None:
    compared = index.compare("verdict:kept", "verdict:dropped")

    assert compared.counts == (N, N)
    apart = sum(abs(one - other) for one, other in compared.shares.values()) / 2
    assert apart > 0.6, "total variation between the sets, over regions; 0.2 or less is expected of random halves"
    values, codes = index.colours("verdict")
    assert {value for value, _ in values} == {"kept", "dropped"}
    assert len(codes) == 2 * N and set(codes.tolist()) == {1, 2}


@pytest.fixture
def app(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    viewed = ViewedStore(Path(store.root))
    assert viewed.maps["requests"].refresh(120), viewed.maps["requests"].failure
    return TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)


def test_pages_of_the_map_and_what_they_refuse(app: TestClient) -> None:
    page = app.get("/map?first=verdict:kept&second=verdict:dropped").text
    assert "All 400 requests are drawn." in page and "more of the first" in page

    packed = app.get("/map/points?of=requests").content
    length = int.from_bytes(packed[:4], "little")
    header = json.loads(packed[4 : 4 + length])
    assert header["count"] == 400 and len(packed) == 4 + length + 400 * 2 * 4

    inside = app.get("/map/inside?of=requests&lasso=-2,-2,2,-2,2,2,-2,2").text
    assert "Inside the lasso: 400 requests" in inside
    for address, words in (
        ("/map?of=weather", "no map of weather"),
        ("/map/inside?of=requests&lasso=1,2", "3 to 200 corners"),
        ("/map/inside?of=requests", "names no part of the map"),
        ("/map/colours?of=requests&by=password", "has no column password"),
        ("/map/difference?of=requests&first=verdict:kept&second=verdict:none", "no row on the map"),
        ("/map/point?of=requests&number=4000", "no point 4000"),
    ):
        answer = app.get(address)
        assert answer.status_code == 404, address
        assert words in answer.text


def test_a_withdrawn_file_is_off_the_map_at_once(app: TestClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a map with a file's rows, when the file is withdrawn, then no page shows them, though there is no other map yet."""
    copy = Store(shutil.copytree(store.root, tmp_path / "store"))
    viewed = ViewedStore(Path(copy.root))
    assert viewed.maps["requests"].refresh(120)
    client = TestClient(create_app(viewed), base_url="http://127.0.0.1:8790", raise_server_exceptions=False)
    assert (
        "platform"
        in client.get("/map/inside?of=requests&lasso=-2,-2,2,-2,2,2,-2,2&first=0").text
        + client.get("/map/inside?of=requests&lasso=-2,-2,2,-2,2,2,-2,2&first=200").text
    )
    withdraw_source(copy, find_source(copy, "train.txt"), reason="asked", author="Ada", at="2026-11-29T10:00:00")
    monkeypatch.setattr(MapIndex, "_build", lambda *_: None)

    for address in ("/map/points?of=requests", "/map/inside?of=requests&lasso=-2,-2,2,-2,2,2,-2,2", "/map"):
        assert "platform" not in client.get(address).text


def test_a_verdict_is_given_on_all_that_a_lasso_holds(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    viewed = ViewedStore(Path(shutil.copytree(store.root, tmp_path / "store")))
    assert viewed.maps["requests"].refresh(120)
    client = TestClient(create_app(viewed, write_access=allow_writes("Ada")), base_url="http://127.0.0.1:8790")
    address = "/map/inside?of=requests&lasso=-2,-2,2,-2,2,2,-2,2"
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', client.get(address).text))
    headers = {"origin": "http://127.0.0.1:8790"}

    sent = client.post("/by-hand", data=fields | {"inside": html.unescape(fields["inside"]), "verdict": "drop"}, headers=headers)

    assert sent.status_code == 200 and sent.url.path == "/map/inside"
    said = read_annotations(viewed.store)
    assert said.height == said["item_id"].n_unique() == 2 * N
    assert set(said["verdict"]) == {"drop"} and set(said["author"]) == {"Ada"}
    assert client.post("/by-hand", data=fields | {"inside": "of=weather", "verdict": "drop"}, headers=headers).status_code == 400
    reader = TestClient(create_app(viewed), base_url="http://127.0.0.1:8790")
    assert "<form method" not in reader.get(address).text
