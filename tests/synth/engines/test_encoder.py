"""Vectors of texts by the built-in model, by a local sentence-transformers model and by a server, all through one configuration."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from storage.errors import BadInput, HeadraceError
from synth.engines.encoder import DIMENSIONS, EncoderConfig, encode, encoder, identity

TEXTS = ["find me a cheap ramen place nearby", "有没有附近便宜的拉面馆", "cancel order o17", "what will the weather be tomorrow"]


def test_vectors_are_unit_float32_and_the_same_list_gives_the_same_bytes() -> None:
    first, second = encode(TEXTS), encode(TEXTS)

    assert first.shape == (len(TEXTS), DIMENSIONS)
    assert first.dtype == np.float32
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    assert first.tobytes() == second.tobytes() == encoder(EncoderConfig())(TEXTS).tobytes()


def test_a_text_means_the_same_in_another_batch() -> None:
    assert np.allclose(encode(TEXTS)[0], encode([TEXTS[0]])[0], atol=1e-5)


def test_languages_meet_and_unlike_requests_do_not() -> None:
    vectors = encode(TEXTS)
    cosine = vectors @ vectors.T

    assert cosine[0, 1] > max(cosine[0, 2], cosine[0, 3])


def test_no_texts_give_no_vectors_and_progress_reaches_the_end() -> None:
    seen: list[tuple[str, int, int]] = []

    assert encode([]).shape == (0, DIMENSIONS)
    encode(TEXTS, progress=lambda label, done, total: seen.append((label, done, total)))
    assert seen[-1] == ("encode", 4, 4)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"folder": "here", "server": "http://a/v1", "model": "m"}, "not both"),
        ({"server": "http://a/v1"}, "needs both"),
        ({"model": "m"}, "needs both"),
        ({"server": "localhost:8000", "model": "m"}, "server"),
        ({"modle": "m"}, "modle"),
    ],
)
def test_a_configuration_that_names_no_one_model_is_refused(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        EncoderConfig.model_validate(fields)


# ---- a server -------------------------------------------------------------------------------------------------------------------

Script = Callable[[int, list[str]], tuple[int, dict[str, str], object]]
"""Number of the request and its texts -> status, headers, body."""


def scripted_vector(text: str) -> list[float]:
    return [float(len(text)), float(text.count("a") + 1), 1.0]


def scripted(_: int, texts: list[str]) -> tuple[int, dict[str, str], object]:
    """Scripted vectors, in an order of the server's own."""
    data = [{"index": place, "embedding": scripted_vector(text)} for place, text in enumerate(texts)]
    return 200, {}, {"data": data[::-1]}


@contextmanager
def serving(script: Script) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A real HTTP server of scripted answers: its base URL, and what it was sent (body, path, key)."""
    sent: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append({**body, "path": self.path, "key": self.headers.get("Authorization")})
            status, headers, answer = script(len(sent), body["input"])
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(raw))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_server_is_sent_batches_and_its_vectors_come_in_the_order_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given five texts and batches of two, then three requests with the key, and unit vectors that belong to their texts."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    texts = ["a", "bb", "aaa", "dddd", "五"]
    with serving(scripted) as (url, sent):
        found = encoder(EncoderConfig(server=url, model="tiny", batch=2))(texts)

    expected = np.array([scripted_vector(text) for text in texts], np.float32)
    assert np.allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert found.dtype == np.float32
    assert sorted(str(request["input"]) for request in sent) == ["['a', 'bb']", "['aaa', 'dddd']", "['五']"]
    assert {(request["path"], request["model"], request["key"]) for request in sent} == {("/v1/embeddings", "tiny", "Bearer secret")}
    assert encoder(EncoderConfig(server=url, model="tiny"))([]).shape[0] == 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(status: int) -> None:
    def busy_first(number: int, texts: list[str]) -> tuple[int, dict[str, str], object]:
        return (status, {"Retry-After": "0"}, {"error": "busy"}) if number == 1 else scripted(number, texts)

    with serving(busy_first) as (url, sent):
        assert encoder(EncoderConfig(server=url, model="tiny", tries=2))(["a"]).shape == (1, 3)
        assert len(sent) == 2


def test_a_server_that_stays_busy_or_is_away_or_refuses_is_reported() -> None:
    with serving(lambda number, texts: (503, {"Retry-After": "0"}, {"error": "overloaded"})) as (url, sent):
        with pytest.raises(HeadraceError, match=r"after 2 tries.*overloaded"):
            encoder(EncoderConfig(server=url, model="tiny", tries=2))(["a"])
        assert len(sent) == 2
    with pytest.raises(HeadraceError, match=r"no answer \(connection refused\)"):
        encoder(EncoderConfig(server=url, model="tiny", tries=1))(["a"])
    with serving(lambda number, texts: (401, {}, {"error": "no such key"})) as (url, sent):
        with pytest.raises(HeadraceError, match=r"\(status 401: no such key\); (set|correct) OPENAI_API_KEY"):
            encoder(EncoderConfig(server=url, model="tiny"))(["a"])
        assert len(sent) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>hello</html>", r"no model server answers at this URL \(a web page\); correct the encoder's `server`"),
        ({"hello": 1}, "no list of embeddings"),
        ({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}, "1 vectors for 2 texts"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]}, "not one for each"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}, "of one length"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": ["x"]}]}, "no list of embeddings"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [0.0]}]}, "zero"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [float("nan")]}]}, "malformed answer"),
    ],
)
def test_an_answer_that_is_no_embedding_of_the_texts_is_refused(answer: object, said: str) -> None:
    with serving(lambda number, texts: (200, {}, answer)) as (url, _), pytest.raises(HeadraceError, match=said):
        encoder(EncoderConfig(server=url, model="tiny", tries=1))(["a", "b"])


def test_a_server_that_changes_its_dimensions_is_refused() -> None:
    def growing(number: int, texts: list[str]) -> tuple[int, dict[str, str], object]:
        return 200, {}, {"data": [{"index": 0, "embedding": [1.0] * number}]}

    with serving(growing) as (url, _), pytest.raises(HeadraceError, match="dimensions after vectors of"):
        encoder(EncoderConfig(server=url, model="tiny", batch=1))(["a", "b"])


# ---- a local model --------------------------------------------------------------------------------------------------------------


def tiny_model(folder: Path) -> Path:
    """A sentence-transformers model of a few words, built here."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import BoW

    SentenceTransformer(modules=[BoW(vocab=["cheap", "ramen", "weather", "cancel", "order", "tomorrow"])], device="cpu").save(str(folder))
    return folder


@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is None, reason="pip install 'headrace[encoders]'")
def test_a_local_sentence_transformers_model(tmp_path: Path) -> None:
    """Given a model's folder, then its vectors are unit rows, the same each time, and know its words; its identity is its content."""
    config = EncoderConfig(folder=tiny_model(tmp_path / "model"))
    local = encoder(config)
    found = local(["cheap ramen", "ramen so cheap", "cancel order"])

    assert found.dtype == np.float32 and found.shape == (3, 6)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.allclose(found[0], found[1], atol=1e-5) and abs(found[0] @ found[2]) < 1e-5
    assert local([]).shape == (0, 6)
    assert found.tobytes() == encoder(config)(["cheap ramen", "ramen so cheap", "cancel order"]).tobytes()
    before = identity(config)
    (tmp_path / "model" / "README.md").write_text("other", encoding="utf-8")
    assert identity(config) != before


def test_a_folder_without_a_model_or_without_the_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        encoder(EncoderConfig(folder=tmp_path / "missing"))
    with pytest.raises(BadInput, match="sentence-transformers"):
        encoder(EncoderConfig(folder=tmp_path))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(BadInput, match=r"pip install 'headrace\[encoders\]'"):
        encoder(EncoderConfig(folder=tmp_path))
