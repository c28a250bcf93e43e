"""The ledger: months and their budgets, with real servers, processes and kills."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.synthesis_sections.mock_openai import MODEL, Mock
from flows.cli.main import app
from flows.config import Config, keep_budgets
from storage.errors import HeadraceError
from storage.records import Message
from storage.store import Store
from synth.engines import http
from synth.engines.base import ChatRequest, EngineFailure
from synth.engines.budget import BudgetSpent, MonthlyBudget
from synth.engines.cache import Answers
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.engines.spending.ledger import Ledger, MonthSpent
from tests.conftest import Serve

ENGINE, PRICE = "openai:mock", (1.0, 2.0)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "wait_s", lambda attempt, retry_after_s: 0.01)


def at(text: str) -> Callable[[], datetime.datetime]:
    return lambda: datetime.datetime.fromisoformat(text)


def requests_of(count: int) -> list[ChatRequest]:
    return [ChatRequest((Message(role="user", content=f"word {number}"),), max_tokens=16) for number in range(count)]


def ask(url: str, root: Path, count: int, budget: MonthlyBudget | None = None, now: Any = None, **more: Any) -> MonthSpent:
    """Asks so many requests, as far as the budget goes. The month that the ledger then has."""
    ledger = Ledger(root, now) if now is not None else Ledger(root)
    if budget is not None:
        ledger.set_budgets({ENGINE: budget})
    answers = Answers(Store(root), ledger)
    try:
        with OpenAIEngine(OpenAIConfig(model=MODEL, base_url=url, **more), answers=answers) as engine:
            engine.chat(requests_of(count))
    finally:
        found = ledger.spent(ENGINE)
        answers.close()
    assert found is not None
    return found


class Billing(Mock):
    """Keeps a bill of what it answered, whatever became of the answer."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.billed = 0

    def _note(self, digest: str, what: str) -> None:
        super()._note(digest, what)
        self.billed += 13 if what in ("answered", "cut", "malformed") else 0


def test_calls_tokens_and_dollars_are_counted_once(serve: Serve, tmp_path: Path) -> None:
    url, budget = serve(Billing()), MonthlyBudget(usd=1.0, usd_per_million=PRICE)
    for _ in range(2):
        spent = ask(url, tmp_path / "store", 5, budget)
        assert (spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.open_calls) == (5, 15, 50, 0)
        assert spent.usd == pytest.approx(115e-6) and spent.usd_left == pytest.approx(1 - 115e-6)


def test_a_month_ends_in_utc_and_the_next_has_its_own_budget(serve: Serve, tmp_path: Path) -> None:
    url, root, budget = serve(Billing()), tmp_path / "store", MonthlyBudget(tokens=300)
    late, next_month = at("2026-12-01T07:59:00+08:00"), at("2026-12-01T00:00:00+00:00")
    with pytest.raises(BudgetSpent, match=r"the budget of openai:mock for 2026-11 is spent: \d+ of 300 tokens, .*raise `budgets`"):
        ask(url, root, 40, budget, late)
    with pytest.raises(BudgetSpent):
        ask(url, root, 40, now=late)
    with pytest.raises(BudgetSpent, match="2026-12"):
        ask(url, root, 40, now=next_month)
    ledger = Ledger(root, next_month)
    assert [one.month for one in ledger.months()] == ["2026-12", "2026-11"]
    assert all(one.prompt_tokens + one.completion_tokens <= 300 for one in ledger.months())


@pytest.mark.parametrize("faults", [{}, {"rate_limited": 0.1, "error": 0.1, "cut": 0.05, "malformed": 0.05}])
def test_no_budget_is_overrun_however_many_ask_at_once(serve: Serve, tmp_path: Path, faults: dict[str, float]) -> None:
    """Given many requests in flight, then the bill stays within the budget, and little of it stays unused where nothing is in doubt."""
    mock = Billing(0.005, faults)
    with pytest.raises(BudgetSpent):
        ask(serve(mock), tmp_path / "store", 300, MonthlyBudget(tokens=2_000), in_flight=50, tries=30)
    assert mock.billed <= 2_000
    assert faults or mock.billed > 1_700
    spent = Ledger(tmp_path / "store").spent(ENGINE)
    assert spent is not None and spent.prompt_tokens + spent.completion_tokens <= mock.billed
    assert mock.billed <= spent.prompt_tokens + spent.completion_tokens + spent.open_tokens <= 2_000


def test_a_refused_call_costs_nothing_and_one_without_an_answer_the_most(serve: Serve, tmp_path: Path) -> None:
    for fault, is_open in (("error", False), ("rate_limited", False), ("cut", True), ("malformed", True), ("hang", True)):
        root = tmp_path / fault
        with pytest.raises(EngineFailure):
            ask(serve(Mock(faults={fault: 1.0})), root, 1, tries=2, timeout_s=0.2)
        spent = Ledger(root).spent(ENGINE)
        assert spent is not None and (spent.calls, spent.open_calls) == (0, 2 * is_open), fault
        assert (spent.open_tokens > 32) == is_open
    with pytest.raises(EngineFailure):
        ask("http://127.0.0.1:9/v1", tmp_path / "none", 1, tries=2)
    spent = Ledger(tmp_path / "none").spent(ENGINE)
    assert spent is not None and spent.open_calls == 0


def test_a_server_that_counts_no_tokens_is_counted_with_the_most(serve: Serve, tmp_path: Path) -> None:
    class Silent(Mock):
        async def chat(self, request: web.Request) -> web.StreamResponse:
            return web.json_response({"choices": [{"message": {"content": "ok"}}]})

    spent = ask(serve(Silent()), tmp_path / "store", 1)
    assert spent.calls == 1 and spent.completion_tokens == 16 and spent.prompt_tokens > 50


def _ask_without_end(url: str, root: Path) -> None:
    ask(url, root, 2_000, in_flight=20)


def test_a_killed_process_leaves_what_it_may_have_spent(serve: Serve, tmp_path: Path) -> None:
    mock, root = Billing(0.02), tmp_path / "store"
    url = serve(mock)
    process = multiprocessing.get_context("spawn").Process(target=_ask_without_end, args=(url, root))
    process.start()
    end = time.monotonic() + 60
    while mock.billed < 13 * 60 and time.monotonic() < end:
        time.sleep(0.01)
    assert process.pid is not None
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    spent = Ledger(root).spent(ENGINE)
    assert spent is not None and spent.open_calls > 0
    counted = spent.prompt_tokens + spent.completion_tokens
    assert counted <= mock.billed <= counted + spent.open_tokens
    kept = len(Answers(Store(root))._known)
    after = ask(url, root, 70)
    assert after.calls == spent.calls + 70 - min(kept, 70) and after.open_calls == spent.open_calls


@given(st.lists(st.tuples(st.sampled_from(["settle", "release", "leave"]), st.integers(0, 60), st.integers(1, 60)), max_size=30))
@settings(max_examples=25, deadline=None)
def test_the_sum_is_that_of_the_calls(tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, int, int]]) -> None:
    """Whatever happens to calls: what is counted is what they cost, and never above the budget."""
    ledger, counted, open_tokens = Ledger(tmp_path_factory.mktemp("ledger")), 0, 0
    ledger.set_budgets({ENGINE: MonthlyBudget(tokens=500)})
    for outcome, prompt, completion in calls:
        reserved = ledger.reserve(ENGINE, 60, completion, PRICE)
        if reserved is None:
            assert counted + open_tokens + 60 + completion > 500
        elif outcome == "settle":
            ledger.settle(reserved, prompt, completion)
            counted += prompt + completion
        elif outcome == "release":
            ledger.release(reserved)
        else:
            open_tokens += 60 + completion
    spent = ledger.spent(ENGINE)
    assert spent is not None and (spent.prompt_tokens + spent.completion_tokens, spent.open_tokens) == (counted, open_tokens)
    assert counted + open_tokens <= 500 and spent.tokens_left == 500 - counted - open_tokens
    ledger.close()


def test_a_file_that_is_no_ledger_is_one_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.path.parent.mkdir(parents=True)
    ledger.path.write_text("not SQLite" * 100)
    with pytest.raises(HeadraceError, match=r"the ledger .*ledger\.sqlite cannot be used: file is not a database"):
        ledger.reserve(ENGINE, 1, 1, PRICE)


def test_a_configuration_gives_its_budgets_to_the_store_and_the_command_shows_them(serve: Serve, tmp_path: Path) -> None:
    root = tmp_path / "store"
    keep_budgets(Config(store=root, budgets={ENGINE: MonthlyBudget(tokens=1_000, usd=0.5, usd_per_million=PRICE)}))
    keep_budgets(Config(store=root))
    ask(serve(Mock()), root, 3)
    answers = Answers(Store(root))
    answers.commit()
    answers.close()
    shown = CliRunner().invoke(app, ["ledger", "--store", str(root)])
    assert shown.exit_code == 0 and "961 tokens" in " ".join(shown.output.split()), shown.output
    (row,) = json.loads(CliRunner().invoke(app, ["ledger", "--store", str(root), "--json"]).output)
    assert (row["engine"], row["calls"], row["prompt_tokens"], row["completion_tokens"], row["tokens_left"]) == (ENGINE, 3, 9, 30, 961)
    assert row["usd_left"] == pytest.approx(0.5 - 69e-6) and row["budget"]["usd_per_million"] == [1.0, 2.0]
    assert CliRunner().invoke(app, ["ledger", "--store", str(root), "--month", "1999-01", "--json"]).output.strip() == "[]"
    keep_budgets(Config(store=root, budgets={}))
    assert all(one.budget is None for one in Ledger(root).months())


@pytest.mark.parametrize("budgets", [{"hf:x": {"tokens": 1}}, {"mock": {"tokens": 1}}, {ENGINE: {"usd": 1.0}}, {ENGINE: {"tokens": 0}}])
def test_a_budget_that_says_nothing_is_refused(budgets: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="budgets"):
        Config.model_validate({"budgets": budgets})
