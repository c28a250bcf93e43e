"""The engine `openai:` against a mock server over real sockets: requests, retries, cache and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.synthesis_sections.mock_openai import MODEL, Mock
from flows.runtime.doctor import engine_findings
from storage.errors import BadInput
from storage.records import Message, Tool
from storage.store import Journal, Store
from synth.engines import http
from synth.engines.base import ChatRequest, Engine, EngineFailure
from synth.engines.budget import Budget, BudgetSpent
from synth.engines.cache import Answers
from synth.engines.engine_names import EngineUse, engine_named
from synth.engines.openai import OpenAIConfig, OpenAIEngine, is_closed
from tests.conftest import Serve

ECHO = Tool(name="echo", description="Says it.", parameters={"type": "object", "properties": {}}, server="s", domain="d")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short, and no key of the machine's own is used."""
    monkeypatch.setattr(http, "wait_s", lambda attempt, retry_after_s: 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def config(url: str, **more: Any) -> OpenAIConfig:
    return OpenAIConfig(model=MODEL, base_url=url, **more)


def request_of(text: str, **more: Any) -> ChatRequest:
    return ChatRequest((Message(role="user", content=text),), **more)


def test_answers_come_in_the_order_of_the_requests(serve: Serve) -> None:
    with OpenAIEngine(config(serve(Mock(0.01)), in_flight=8)) as engine:
        assert isinstance(engine, Engine) and engine.name == "openai:mock"
        answers = engine.chat([request_of(f"word {number}") for number in range(40)])
    assert [answer.message.content for answer in answers] == [f"word {number}"[::-1] for number in range(40)]
    assert {(answer.finish_reason, answer.prompt_tokens, answer.completion_tokens) for answer in answers} == {("stop", 3, 10)}
    assert all(answer.latency_s >= 0.01 for answer in answers)


def test_no_more_are_in_flight_than_may_be_also_from_many_threads(serve: Serve) -> None:
    mock = Mock(0.02)
    with OpenAIEngine(config(serve(mock), in_flight=5)) as engine, ThreadPoolExecutor(20) as threads:
        told = list(threads.map(lambda number: engine.chat([request_of(f"n {number}")])[0].message.content, range(40)))
    assert told == [f"n {number}"[::-1] for number in range(40)]
    assert mock.most_in_flight == 5


def test_tools_schemas_and_log_probabilities_go_over_the_wire(serve: Serve) -> None:
    with OpenAIEngine(config(serve(Mock()), extra={"top_p": 0.9})) as engine:
        body: Any = engine.body(
            request_of("hi", tools=(ECHO,), tool_choice="echo", schema={"type": "object"}, alternatives=2, seed=2**70 + 3)
        )
        called, told = engine.chat([request_of("hi", tools=(ECHO,)), request_of("hi", alternatives=2)])
    assert body["tools"] == [ECHO.to_openai()] and body["tool_choice"] == {"type": "function", "function": {"name": "echo"}}
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["logprobs"], body["top_logprobs"], body["top_p"], body["seed"]) == (True, 2, 0.9, 3)
    assert called.finish_reason == "tool_calls" and called.message.content is None
    assert [(call.function.name, call.function.arguments) for call in called.message.tool_calls] == [("echo", '{"text": "hi"}')]
    assert told.logprobs == (-0.693147,) and told.entropies == (pytest.approx(0.693147, abs=1e-5),)


@pytest.mark.parametrize("fault", ["rate_limited", "error", "cut", "malformed", "hang"])
def test_what_is_transient_is_tried_again(serve: Serve, fault: str) -> None:
    mock = Mock(faults={fault: 0.5})
    with OpenAIEngine(config(serve(mock), timeout_s=0.2, tries=20)) as engine:
        answers = engine.chat([request_of(f"word {number}") for number in range(20)])
        again = sum(count for why, count in engine.counts.items() if why.startswith("again"))
    assert [answer.message.content for answer in answers] == [f"word {number}"[::-1] for number in range(20)]
    assert mock.counts["answered"] == 20 and again == sum(mock.tries.values()) - 20 > 0


def test_a_server_that_never_answers_is_our_failure_and_the_others_are_kept(serve: Serve, tmp_path: Path) -> None:
    class Broken(Mock):
        def fault(self, digest: str, attempt: int) -> str | None:
            return "error" if self.counts["answered"] == 3 else None

    store = Store(tmp_path / "store")
    with (
        OpenAIEngine(config(serve(Broken()), in_flight=1, tries=2), answers=Answers(store)) as engine,
        pytest.raises(EngineFailure, match="no answer after 2 tries"),
    ):
        engine.chat([request_of(f"word {number}") for number in range(5)])
    assert len(Answers(store)._known) == 3


def test_what_was_answered_is_never_asked_again(serve: Serve, tmp_path: Path) -> None:
    """Given answers in the journal, and then in a part, then whoever asks again gets them, and the server hears nothing."""
    mock, store = Mock(), Store(tmp_path / "store")
    url, requests = serve(mock), [request_of(f"word {number % 4}", seed=number % 4) for number in range(12)]
    with OpenAIEngine(config(url), answers=Answers(store)) as engine:
        first = engine.chat(requests)
        assert engine.budget.spent_tokens == 4 * 13
    assert sum(mock.tries.values()) == 4, "equal requests are sent once"
    for _ in range(2):
        answers = Answers(store)
        with OpenAIEngine(config(url), answers=answers) as engine:
            assert engine.chat(requests) == first
        assert answers.hits == 12
        answers.commit()
    assert sum(mock.tries.values()) == 4
    rows = store.query("SELECT engine, prompt_tokens, completion_tokens FROM answers")
    assert rows.rows() == [("openai:mock", 3, 10)] * 4
    with OpenAIEngine(config(url), answers=Answers(store)) as engine:
        engine.chat([request_of("word 0", seed=9)])
    assert sum(mock.tries.values()) == 5, "another seed is another request"


def test_what_a_run_has_spent_counts_once_after_a_kill_between_commit_and_journal(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given answers in the table that, because their run was killed right then, are still in the journal too."""
    store, url = Store(tmp_path / "store"), serve(Mock())
    answers = Answers(store)
    answers.run = "run-1"
    with OpenAIEngine(config(url), answers=answers) as engine:
        engine.chat([request_of(f"word {number}") for number in range(4)])
    monkeypatch.setattr(Journal, "discard", lambda *_: None)
    answers.commit()
    again = Answers(store)
    again.run = "run-1"
    assert store.query("SELECT count(*) FROM answers").item() == 4
    assert again.spent_tokens() == (4 * 3, 4 * 10)
    again.run = "run-2"
    assert again.spent_tokens() == (0, 0)


def test_a_budget_stops_before_the_next_request_and_again_at_the_same_place(serve: Serve, tmp_path: Path) -> None:
    mock, store = Mock(), Store(tmp_path / "store")
    url, requests = serve(mock), [request_of(f"word {number}") for number in range(20)]
    for _ in range(2):
        budget = Budget(tokens=39, usd_per_million=(1.0, 2.0))
        with (
            OpenAIEngine(config(url, in_flight=1), answers=Answers(store), budget=budget) as engine,
            pytest.raises(BudgetSpent, match="39 of 39 tokens"),
        ):
            engine.chat(requests)
        assert sum(mock.tries.values()) == 3
        assert budget.spent_usd == pytest.approx(3 * (3 * 1.0 + 10 * 2.0) / 1e6)
    with OpenAIEngine(config(url), answers=Answers(store), budget=Budget(usd=1.0, usd_per_million=(1.0, 2.0))) as engine:
        assert len(engine.chat(requests)) == 20
    assert sum(mock.tries.values()) == 20


def test_a_request_that_waits_for_another_try_is_called_off_when_the_budget_is_spent(serve: Serve) -> None:
    budget = Budget(tokens=30)

    class Busy(Mock):
        def fault(self, digest: str, attempt: int) -> str | None:
            budget.add(40, 0)  # what others have spent meanwhile
            return "rate_limited"

    mock = Busy()
    with OpenAIEngine(config(serve(mock), tries=5), budget=budget) as engine, pytest.raises(BudgetSpent, match="40 of 30 tokens"):
        engine.chat([request_of("hi")])
    assert sum(mock.tries.values()) == 1


def test_a_disk_that_is_full_is_told_to_all_who_wait_also_where_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    answers = Answers(Store(tmp_path / "store"))
    monkeypatch.setattr(answers, "keep", full)

    async def waiting(engine: OpenAIEngine) -> list[BaseException | None]:
        left, waits = (asyncio.get_running_loop().create_future() for _ in range(2))
        left.set_result(None)
        engine._arrived += [(("key", b"", {}), left), (("other", b"", {}), waits)]
        engine._keep_arrived()
        return [left.exception(), waits.exception()]

    with OpenAIEngine(config("http://127.0.0.1:9/v1"), answers=answers) as engine:
        gone, told = engine._background.run(waiting(engine))
    assert gone is None and "no space left" in str(told)


def test_a_context_that_does_not_fit_is_an_answer_cut_off(serve: Serve) -> None:
    class Short(Mock):
        async def chat(self, request: web.Request) -> web.StreamResponse:
            message = "This model's maximum context length is 10 tokens, however you requested 20"
            return web.json_response({"error": {"message": message}}, status=400)

    with OpenAIEngine(config(serve(Short()))) as engine:
        (answer,) = engine.chat([request_of("too much")])
    assert (answer.finish_reason, answer.message.content) == ("length", "")


class Fussy(Mock):
    """Wants a key; accepts no tools."""

    async def models(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer right":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        return await super().models(request)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body: Mapping[str, Any] = await request.json()
        if body.get("tools"):
            return web.json_response({"error": {"message": '"auto" tool choice requires a tool parser'}}, status=400)
        return await super().chat(request)


def test_a_server_is_looked_at_before_anything_is_spent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        OpenAIEngine(config("http://127.0.0.1:9/v1")) as engine,
        pytest.raises(BadInput, match=r"openai:mock at http://127\.0\.0\.1:9/v1/models: no answer \(connection refused\)"),
    ):
        engine.check()
    url = serve(Fussy())
    with OpenAIEngine(config(url)) as engine, pytest.raises(BadInput, match=r"a key is required .*set OPENAI_API_KEY"):
        engine.check()
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with OpenAIEngine(OpenAIConfig(model="other")) as engine, pytest.raises(BadInput, match="serves no model 'other'; it serves mock"):
        engine.check()
    with OpenAIEngine(OpenAIConfig(model=MODEL)) as engine:
        engine.check()
        with pytest.raises(BadInput, match="accepts no tools"):
            engine.check(tools=True)
        with pytest.raises(EngineFailure, match="tool parser"):
            engine.chat([request_of("hi", tools=(ECHO,))])


class Newer(Mock):
    """Scripted as newer models of OpenAI: calls the limit by another name, and cannot finish a thought within a token or two."""

    def __init__(self, *, takes_tools: bool = True, takes_chats: bool = True) -> None:
        super().__init__()
        self._takes_tools, self._takes_chats = takes_tools, takes_chats

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body: Mapping[str, Any] = await request.json()
        if "max_tokens" in body:
            return self._refuses(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
            )
        if body.get("tools") and not self._takes_tools:
            return self._refuses("no tools here")
        if not self._takes_chats:
            return self._refuses("this is no chat model")
        if body["max_completion_tokens"] < 3:
            return self._refuses("Could not finish the message because max_tokens or model output limit was reached.")
        return await super().chat(request)

    def _refuses(self, message: str) -> web.Response:
        return web.json_response({"error": {"message": message}}, status=400)


def test_a_limit_that_newer_models_call_otherwise_is_learnt_once(serve: Serve) -> None:
    with OpenAIEngine(config(serve(Newer()))) as engine:
        with pytest.raises(EngineFailure, match="max_completion_tokens"):
            engine.chat([request_of("hi")])
        engine.check(tools=True)
        body = engine.body(request_of("hi", max_tokens=7))
        sent = engine.counts["sent"]
        answer, short = engine.chat([request_of("hi"), request_of("hi", max_tokens=2)])
        assert engine.counts["sent"] == sent + 2
    assert body["max_completion_tokens"] == 7 and "max_tokens" not in body
    assert answer.message.content == "ih"
    assert (short.finish_reason, short.message.content) == ("length", "")


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (Newer(takes_tools=False), r"accepts no tools \(no tools here\)"),
        (Newer(takes_chats=False), r"the request is refused \(status 400: this is no chat model\)"),
    ],
)
def test_tools_are_blamed_where_the_same_without_them_is_taken(serve: Serve, server: Newer, told: str) -> None:
    with OpenAIEngine(config(serve(server))) as engine, pytest.raises(BadInput, match=told):
        engine.check(tools=True)


class Strict(Mock):
    """Scripted as a server that refuses what it does not know."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if "return_token_ids" in await request.json():
            return web.json_response({"error": {"message": "Unrecognized request argument: return_token_ids"}}, status=400)
        return await super().chat(request)


@pytest.mark.parametrize("server", [Mock(), Strict()], ids=["takes no notice", "refuses"])
def test_a_server_that_tells_no_tokens_is_not_asked_for_them(serve: Serve, server: Mock) -> None:
    with OpenAIEngine(config(serve(server))) as engine:
        engine.check(traced=True)
        assert not engine.returns_tokens
        (answer,) = engine.chat([request_of("hi", is_traced=True)])
        assert (answer.message.content, answer.prompt_ids, answer.token_ids) == ("ih", (), ())


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


WORD = {"type": "string"}
OPEN: dict[str, dict[str, Any]] = {
    "any object": {"type": "object"},
    "an object that allows more": closed(a=WORD) | {"additionalProperties": True},
    "an object of any names": {"type": "object", "additionalProperties": WORD},
    "a property that may be left out": closed(a=WORD, b=WORD) | {"required": ["a"]},
    "an open one inside": closed(a={"type": "array", "items": closed(b={"type": "object"})}),
    "an open one among several": closed(a={"anyOf": [WORD, {"type": ["object", "null"]}]}),
    "an open one by reference": closed(a={"$ref": "#/$defs/a"}) | {"$defs": {"a": {"type": "object"}}},
    "a value of any type": closed(a={}),
    "words without a type": closed(a={"enum": ["b", "c"]}),
    "an array of anything": closed(a={"type": "array"}),
    "a condition": closed(a=WORD) | {"not": {"required": ["b"]}},
}


@pytest.mark.parametrize("kind", OPEN)
def test_a_schema_that_strict_mode_refuses_is_not_sent_as_strict(serve: Serve, kind: str) -> None:
    with OpenAIEngine(config(serve(Mock()))) as engine:
        body: Any = engine.body(request_of("hi", schema=OPEN[kind]))
    assert body["response_format"]["json_schema"]["strict"] is False
    assert body["response_format"]["json_schema"]["schema"] == OPEN[kind]


@pytest.mark.parametrize(
    "schema",
    [
        closed(),
        closed(type=WORD, properties=closed(required={"type": ["integer", "null"]})),
        closed(a={"type": "array", "items": closed(b={"type": "string", "enum": ["c"]})}),
        closed(a={"anyOf": [WORD, closed(b=WORD)]}, c={"$ref": "#/$defs/c"}) | {"$defs": {"c": closed(d=WORD)}},
    ],
)
def test_a_closed_schema_is_strict(schema: dict[str, Any]) -> None:
    assert is_closed(schema)


def test_engines_have_names_and_the_doctor_looks_at_them(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mock", "openai:", "gpt:x"):
        with pytest.raises(BadInput, match="openai:MODEL, vllm:MODEL, hf:MODEL"), engine_named(name, EngineUse(tmp_path / "log")):
            pass
    monkeypatch.setenv("OPENAI_BASE_URL", serve(Mock()))
    assert [finding.state for finding in engine_findings("openai:mock")] == ["ok"]
    (wrong,) = engine_findings("openai:other")
    assert wrong.state == "broken" and "serves no model 'other'; it serves mock" in wrong.detail
    (none,) = engine_findings(f"hf:{tmp_path}")
    assert none.state == "broken" and "no config.json" in none.detail
