"""Causes of missing answers are told apart, against real servers: what is retried, how long is waited, and what the one line says."""

from __future__ import annotations

import contextlib
import email.utils
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import MODEL, Mock
from storage.errors import BadInput
from storage.records import Message
from synth.engines import http
from synth.engines.base import ChatRequest, EngineFailure, EngineUnusable
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.engines.server_errors import Cause, problem_of_answer
from tests.conftest import Serve

HI = ChatRequest((Message(role="user", content="hi"),))
TRIES = 3
PAGE = "<!DOCTYPE html><html><body>Welcome</body></html>"


class Scripted(Mock):
    """Gives the answers in turn, then good ones. An answer: status, body (JSON or text), headers."""

    def __init__(self, *answers: tuple[int, Any, Mapping[str, str]]) -> None:
        super().__init__()
        self._answers = list(answers)
        self.sent = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.sent += 1
        if not self._answers:
            return await super().chat(request)
        status, body, headers = self._answers.pop(0)
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=headers, content_type="text/html")
        return web.json_response(body, status=status, headers=headers)


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that were due, without their random part; the real ones are short."""
    due: list[float] = []
    real = http.wait_s

    def short(attempt: int, retry_after_s: float | None) -> float:
        due.append(real(attempt, retry_after_s))
        return 0.01

    monkeypatch.setattr(http, "wait_s", short)
    monkeypatch.setattr(http.random, "random", lambda: 0.0)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    return due


@contextlib.contextmanager
def engine_of(url: str, **more: Any) -> Iterator[OpenAIEngine]:
    with OpenAIEngine(OpenAIConfig(model=MODEL, base_url=url, tries=TRIES, **more)) as engine:
        yield engine


def failure(url: str, **more: Any) -> EngineFailure | EngineUnusable:
    """How a chat fails."""
    with engine_of(url, **more) as engine, pytest.raises((EngineFailure, EngineUnusable)) as raised:
        engine.chat([HI])
    assert isinstance(raised.value, EngineFailure | EngineUnusable)
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)
    return raised.value


OPENAI_QUOTA = "You exceeded your current quota, please check your plan and billing details."
FINAL = {
    "quota, by code": (429, error(OPENAI_QUOTA, code="insufficient_quota"), {"Retry-After": "1"}, "the quota is used up", "add credit"),
    "quota, by words": (429, error(OPENAI_QUOTA), {}, "the quota is used up", "add credit"),
    "quota for hours": (429, error("Daily limit reached"), {"Retry-After": "40000"}, "the limit is reached, for 667 min", "after that"),
    "payment required": (402, error("Insufficient Balance"), {}, "the quota is used up", "add credit"),
    "no credit": (400, error("Your credit balance is too low to access the API"), {}, "the quota is used up", "add credit"),
    "key": (401, error("Incorrect API key provided"), {}, "the key is refused", "correct OPENAI_API_KEY"),
    "rights": (403, error("Project has no access"), {}, "the key is refused", "correct OPENAI_API_KEY"),
    "model, by code": (404, error("The thing does not exist", code="model_not_found"), {}, "the model is not served", "correct its name"),
    "model, by words": (404, error("The model `mock` does not exist."), {}, "the model is not served", "correct its name"),
    "model, forbidden": (403, error("No access to model x", code="model_not_found"), {}, "the model is not served", "correct its name"),
    "model, 400": (400, error("mock is not a valid model ID"), {}, "the model is not served", "correct its name"),
    "path": (404, {"detail": "Not Found"}, {}, "no model server answers at this URL", "correct OPENAI_BASE_URL"),
    "method": (405, {"detail": "Method Not Allowed"}, {}, "no model server answers at this URL", "correct OPENAI_BASE_URL"),
    "page": (200, PAGE, {}, "no model server answers at this URL (a web page)", "correct OPENAI_BASE_URL"),
    "page not found": (404, PAGE, {}, "no model server answers at this URL (status 404: a web page)", "correct OPENAI_BASE_URL"),
}


@pytest.mark.parametrize("case", FINAL)
def test_what_every_request_would_meet_stops_at_once(serve: Serve, waits: list[float], case: str) -> None:
    status, body, headers, what, remedy = FINAL[case]
    server = Scripted((status, body, headers))
    url = serve(server)
    raised = failure(url)
    assert isinstance(raised, EngineUnusable)
    assert str(raised).startswith(f"openai:mock at {url}/chat/completions: {what}") and remedy in str(raised)
    assert (server.sent, waits) == (1, [])


RATE_LIMITS = {
    "plain": (error("slow down"), {"Retry-After": "7"}, 7.0),
    "quota a minute": (error("Quota exceeded for requests per minute"), {}, 1.0),
    "quota with a wait": (error("Quota exceeded. Please retry in 12s."), {}, 1.0),
    "pricing tier": (error("You have exceeded the token rate limit of your tier; see aka.ms/quotaincrease"), {"Retry-After": "20"}, 20.0),
    "five minutes": (error("slow down"), {"Retry-After": "300"}, 300.0),
}


@pytest.mark.parametrize("case", RATE_LIMITS)
def test_a_rate_limit_is_waited_for_as_long_as_the_server_says(serve: Serve, waits: list[float], case: str) -> None:
    body, headers, wait = RATE_LIMITS[case]
    server = Scripted((429, body, headers))
    with engine_of(serve(server)) as engine:
        assert engine.chat([HI])[0].message.content == "ih"
        assert engine.counts == {"sent": 2, "again: status 429": 1}
    assert waits == [wait]


def test_a_rate_limit_that_stays_is_called_that(serve: Serve) -> None:
    raised = failure(serve(Scripted(*[(429, error("slow down"), {})] * TRIES)))
    assert isinstance(raised, EngineFailure)
    assert "too many requests after 3 tries (status 429: slow down); lower the key in_flight" in str(raised)


def test_a_date_in_retry_after_is_a_wait_too() -> None:
    header = {"Retry-After": email.utils.formatdate(time.time() + 30, usegmt=True)}
    problem = problem_of_answer(503, header, b"", has_answered=False)
    assert problem.cause is Cause.OUTAGE and problem.retry_after_s is not None and 27 < problem.retry_after_s <= 30
    assert problem_of_answer(503, {"Retry-After": "soon"}, b"", has_answered=False).retry_after_s is None


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_an_outage_is_tried_again_with_growing_waits(serve: Serve, waits: list[float], status: int) -> None:
    server = Scripted(*[(status, PAGE, {})] * TRIES)
    raised = failure(serve(server))
    assert isinstance(raised, EngineFailure)
    assert f"no answer after 3 tries (status {status}: a web page); run the same again later" in str(raised)
    assert (server.sent, waits) == (TRIES, [1.0, 2.0])


def test_a_page_where_answers_came_before_is_an_outage(serve: Serve) -> None:
    """Given a proxy that shows a page of maintenance for a while, then its URL is not called wrong."""
    server = Scripted()
    with engine_of(serve(server)) as engine:
        engine.chat([HI])
        server._answers = [(200, PAGE, {}), (404, PAGE, {})]
        assert engine.chat([HI])[0].message.content == "ih"
    assert server.sent == 4


def test_a_text_that_is_refused_says_nothing_about_the_others(serve: Serve) -> None:
    for status, message in ((400, "Invalid value for 'seed'"), (403, "Your input was flagged"), (422, "billing.balance: field required")):
        raised = failure(serve(Scripted((status, error(message), {}))))
        assert isinstance(raised, EngineFailure)
        assert str(raised).endswith(f"the request is refused (status {status}: {message})")


# ---- no connection --------------------------------------------------------------------------------------------------------


def test_a_refused_connection_is_an_outage(waits: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    raised = failure(url)
    assert isinstance(raised, EngineFailure) and len(waits) == TRIES - 1
    assert "no answer after 3 tries (connection refused); start the server, or correct OPENAI_BASE_URL" in str(raised)


def test_a_reset_connection_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            for _ in range(TRIES):
                connection, _ = listener.accept()
                connection.recv(1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

        thread = threading.Thread(target=reset)
        thread.start()
        raised = failure(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        thread.join()
    assert isinstance(raised, EngineFailure) and "no answer after 3 tries (connection reset by peer)" in str(raised)


def test_a_server_that_hangs_is_an_outage(serve: Serve) -> None:
    raised = failure(serve(Mock(latency_s=30.0)), timeout_s=0.1)
    assert isinstance(raised, EngineFailure) and "no answer after 3 tries (time-out, 0.1 s)" in str(raised)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://no-such-host.invalid/v1", r"\(host 'no-such-host.invalid' is unknown\)"),
        ("localhost:8000/v1", r"\(not a URL\)"),
    ],
)
def test_a_host_that_does_not_exist_is_a_wrong_url(waits: list[float], url: str, what: str) -> None:
    raised = failure(url)
    assert isinstance(raised, EngineUnusable) and waits == []
    with engine_of(url) as engine, pytest.raises(BadInput, match=f"no model server answers at this URL {what}; correct OPENAI_BASE_URL"):
        engine.check()


def test_tls_where_there_is_none_is_a_wrong_url(serve: Serve) -> None:
    raised = failure(serve(Mock()).replace("http:", "https:"))
    assert isinstance(raised, EngineUnusable) and "no TLS connection" in str(raised)


# ---- the check before a run --------------------------------------------------------------------------------------------------


def test_the_check_tells_bad_input_from_a_server_in_trouble(serve: Serve) -> None:
    """Given a wrong path, then it is the user's input; given a quota or a broken server, then it is not."""
    with engine_of(serve(Mock()) + "/chat") as engine, pytest.raises(BadInput, match="no model server answers at this URL"):
        engine.check()
    with engine_of(serve(Scripted((429, error(OPENAI_QUOTA, code="insufficient_quota"), {})))) as engine:
        with pytest.raises(EngineUnusable, match="the quota is used up"):
            engine.check()
        engine.check()
    for status, words in ((404, "No endpoints found that support tool use"), (500, "tools param requires --jinja flag")):
        server = Scripted(*[(status, error(words), {})] * (1 if status == 404 else TRIES))
        with engine_of(serve(server)) as engine, pytest.raises(BadInput, match=f"accepts no tools .{words}"):
            engine.check(tools=True)
    broken = Scripted(*[(500, error("out of memory"), {})] * TRIES)
    with engine_of(serve(broken)) as engine, pytest.raises(EngineFailure, match=r"status 500: out of memory"):
        engine.check(tools=True)
    assert broken.sent == TRIES


def test_without_a_key_the_default_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with OpenAIEngine(OpenAIConfig(model=MODEL)) as engine, pytest.raises(BadInput, match="set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        engine.check()


def test_a_forbidden_request_that_names_a_rate_is_waited_for(serve: Serve, waits: list[float]) -> None:
    with engine_of(serve(Scripted((403, error("Rate limit exceeded"), {"Retry-After": "3"})))) as engine:
        assert engine.chat([HI])[0].message.content == "ih"
    assert waits == [3.0]
