"""Servers that answer what no server should: nothing is unexpected, nothing hangs, memory is bounded, and what they say is safe to show."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from rich.text import Text

from benchmarks.synthesis_sections.mock_openai import MODEL, Mock
from flows.cli.terminal import SafeConsole
from storage.errors import HeadraceError
from storage.outside.safe_text import safe
from storage.records import Message
from storage.store import Store
from synth.engines import http
from synth.engines.base import ChatRequest, EngineFailure, EngineUnusable
from synth.engines.cache import Answers
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.engines.structured import parse_and_check
from tests.conftest import Serve
from tests.synth.engines.hostile_answers import ESCAPES, KEY, KINDS, Hostile, endless, gzip_bomb, says

HI = ChatRequest((Message(role="user", content="hi"),), max_tokens=64, alternatives=2)
MOST_S, MOST_MB, TIMEOUT_S = 8.0, 300, 1.5


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http, "wait_s", lambda attempt, retry_after_s: 0.01)


@pytest.fixture
def extra_mb() -> Iterator[object]:
    """The most memory of this process above that at the start of the test, in MB."""

    def status(field: str) -> float:
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) / 1000

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    yield lambda: status("VmHWM") - before


def engine_of(url: str, answers: Answers | None = None, **more: int) -> OpenAIEngine:
    return OpenAIEngine(OpenAIConfig(model=MODEL, base_url=url, timeout_s=TIMEOUT_S, **({"tries": 2} | more)), answers=answers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_answer_is_an_answer_or_one_line(kind: str, serve: Serve, tmp_path: Path, extra_mb: object) -> None:
    store = Store(tmp_path / "store")
    answers = Answers(store)
    url, started = serve(Hostile(KINDS[kind]())), time.monotonic()
    try:
        with engine_of(url, answers) as engine:
            (answer,) = engine.chat([HI])
    except HeadraceError as error:
        text = str(error)
        assert text.isprintable() and len(text) < 700 and "openai:mock at http" in text
        assert KEY not in text
    else:
        assert all(call.function.name == safe(call.function.name) for call in answer.message.tool_calls)
        answers.commit()
        assert store.query("SELECT count(*) FROM answers").item() == 1
    answers.close()
    assert time.monotonic() - started < MOST_S
    assert extra_mb() < MOST_MB  # type: ignore[operator]


@pytest.mark.parametrize("answer", [endless(), says(gzip_bomb(), Content_Encoding="gzip")], ids=["endless", "gzip"])
def test_an_answer_is_read_no_further_than_its_bound(serve: Serve, answer: object) -> None:
    """The error names server and bound; a request with more tokens has a higher one; the next is not cut off."""
    with engine_of(serve(Hostile(answer)), tries=3) as engine:  # type: ignore[arg-type]
        with pytest.raises(EngineFailure, match=r"openai:mock at http.*the answer is too long.*more than 1,09\d,\d+ bytes"):
            engine.chat([HI])
        assert engine.counts == {"sent": 1}, "it is not asked for again"


def test_many_bombs_at_once_stay_in_memory(serve: Serve, extra_mb: object) -> None:
    server = Hostile(says(gzip_bomb(), Content_Encoding="gzip"))
    requests = [ChatRequest((Message(role="user", content=f"hi {number}"),), max_tokens=16_000) for number in range(32)]
    with engine_of(serve(server), tries=1) as engine, pytest.raises(HeadraceError):
        engine.chat(requests)
    assert extra_mb() < MOST_MB  # type: ignore[operator]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_sends_nothing_elsewhere(serve: Serve, status: int) -> None:
    """Given a server that points into the client's own network, then nothing is asked there, and the URL is to blame."""
    inside = Mock()
    server = Hostile(says("", status, Location=f"{serve(inside)}/chat/completions"))
    with engine_of(serve(server)) as engine, pytest.raises(EngineUnusable, match=rf"no model server answers at this URL \(status {status}"):
        engine.chat([HI])
    assert not inside.tries and not inside.counts


@pytest.mark.parametrize(
    "models",
    [[1], {"data": None}, {"data": ["x"]}, {"data": [{"id": [1]}]}, {"data": [{"id": ESCAPES * 99}]}, {"data": [{"id": 7}, {"id": "a"}]}],
)
def test_a_hostile_list_of_models_is_one_line(serve: Serve, models: object) -> None:
    class Listing(Mock):
        async def models(self, request: web.Request) -> web.Response:
            return web.json_response(models)

    with engine_of(serve(Listing())) as engine, pytest.raises(HeadraceError) as raised:
        engine.check()
    assert str(raised.value).isprintable() and len(str(raised.value)) < 1000


def test_a_window_that_is_no_number_is_none(serve: Serve) -> None:
    class Windowed(Mock):
        async def models(self, request: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": MODEL, "max_model_len": "many"}]})

    with engine_of(serve(Windowed())) as engine:
        engine.check()
        assert engine.context_tokens is None


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 200_000, "[1," * 900 + "1," * 500_000, "{" * 1_000_000, '["' * 500_000])
def test_an_answer_of_brackets_is_told_soon(text: str) -> None:
    started = time.monotonic()
    value, problems = parse_and_check(text, {"type": "object"})
    assert value is None and problems and time.monotonic() - started < MOST_S


def test_a_console_and_a_log_show_neither_escapes_nor_keys(caplog: pytest.LogCaptureFixture) -> None:
    console = SafeConsole(width=200, force_terminal=True)
    with console.capture() as captured:
        console.print(f"model> {ESCAPES} {KEY}", markup=False)
        console.print(Text(f"{ESCAPES} {KEY}", style="bold"))
    assert (
        captured.get().count("secret") == 2
        and "4711" not in captured.get()
        and not re.search("[\x07\x9b\u202e\u2066]|\x1b[^\\[]|\x1b\\[2J", captured.get())
    )
    try:
        raise ValueError(f"echo {KEY}")
    except ValueError as error:
        logging.getLogger("hostile").exception("server said %s: %s", f"{ESCAPES}{KEY}", error)
    assert KEY not in caplog.text and "\x9b" not in caplog.text and "\u202e" not in caplog.text
    assert caplog.text.count("(secret)") >= 3
