"""The ledger: months and their budgets, with real servers, processes and kills."""

from __future__ import annotations

import asyncio
import datetime
import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from storage.errors import BadInput
from storage.records import Message
from storage.store import Store
from synth.engines import http
from synth.engines.base import ChatRequest, EngineFailure
from synth.engines.budget import Budget, BudgetSpent, MonthlyBudget
from synth.engines.cache import Answers
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.engines.spending import metering
from synth.engines.spending.ledger import Ledger, Limit, MonthSpent
from synth.engines.spending.metering import EngineMeter, MostTokens
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


def test_a_limit_is_near_its_end_when_a_fifth_is_left_and_is_told_once(tmp_path: Path) -> None:
    # given a month's limit of 100 tokens and one of dollars, of which four fifths are spent
    november = at("2026-11-30T23:00:00+00:00")
    ledger = Ledger(tmp_path, november)
    assert ledger.limits_near_end() == [] and not ledger.path.exists()
    ledger.set_budgets({ENGINE: MonthlyBudget(tokens=100, usd=1.0, usd_per_million=PRICE), "openai:idle": MonthlyBudget(tokens=1)})
    spend(ledger, 79)
    assert ledger.limits_near_end() == []
    spend(ledger, 1)
    limit = Limit("2026-11", ENGINE, "tokens", 100)
    # then it is near its end until it was told, for all processes
    assert ledger.limits_near_end() == [limit]
    ledger.note_told(limit)
    assert ledger.limits_near_end() == [] == Ledger(tmp_path, november).limits_near_end()
    # and a higher limit is told anew, and so is the next month's
    ledger.set_budgets({ENGINE: MonthlyBudget(tokens=101)})
    spend(ledger, 1)
    assert ledger.limits_near_end() == [Limit("2026-11", ENGINE, "tokens", 101)]
    december = Ledger(tmp_path, at("2026-12-01T00:00:00+00:00"))
    assert december.limits_near_end() == []
    spend(december, 90)
    assert december.limits_near_end() == [Limit("2026-12", ENGINE, "tokens", 101)]


def spend(ledger: Ledger, tokens: int) -> None:
    reserved = ledger.reserve(ENGINE, tokens, 0, PRICE)
    assert reserved is not None
    ledger.settle(reserved, tokens, 0)


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
    full = MonthlyBudget(tokens=after.prompt_tokens + after.completion_tokens + after.open_tokens)
    with pytest.raises(BudgetSpent, match=r"^the budget of openai:mock"):  # at once: nothing waits for the calls of the dead
        ask(url, root, 2_000, full)


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


def _flipped(data: bytes) -> bytes:
    return data[:100] + bytes(byte ^ 0xFF for byte in data[100:140]) + data[140:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flipped,
    "another version": lambda data: data[:18] + b"\x07\x07" + data[20:],
    "zeroed": lambda data: bytes(len(data)),
    "cut": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "another file": lambda data: b"not SQLite" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_is_begun_anew_from_the_answers(
    serve: Serve, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Given answers in the table and in the journal, then a damaged ledger counts at least these, and stands beside the new one."""
    url, budget = serve(Mock()), MonthlyBudget(usd=1.0, usd_per_million=PRICE)
    ask(url, tmp_path, 3, budget)
    answers = Answers(Store(tmp_path))
    answers.commit()
    answers.close()
    ask(url, tmp_path, 5)
    ledger = Ledger(tmp_path)
    assert ledger.spent(ENGINE) is not None
    data = ledger.path.read_bytes()
    ledger.close()
    ledger.path.write_bytes(DAMAGES[damage](data))
    ledger.set_budgets({ENGINE: budget})
    spent = ask(url, tmp_path, 6)
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.open_calls) == (6, 18, 60, 0)
    assert spent.usd == pytest.approx(6 * 23e-6) and spent.budget == budget
    (warning,) = [record.getMessage() for record in caplog.records if "ledger" in record.getMessage()]
    assert "was damaged" in warning and "less than the bill" in warning
    (aside,) = ledger.path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == DAMAGES[damage](data)
    ledger.close()


def test_answers_of_other_months_are_not_counted_again(serve: Serve, tmp_path: Path) -> None:
    ask(serve(Mock()), tmp_path, 2)
    answers = Answers(Store(tmp_path))
    answers.commit()
    answers.close()
    later = Ledger(tmp_path, at("2999-01-01T00:00:00+00:00"))
    later.path.write_bytes(b"")
    assert later.spent(ENGINE) is None
    later.close()


def test_a_reservation_is_on_the_disk_before_its_call_is_sent(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.reserve(ENGINE, 1, 1, PRICE)
    assert ledger._connection is not None
    assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: also after a power cut"
    ledger.close()


class Liar(Mock):
    """Says that each answer took a thousand million tokens."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        usage = {"prompt_tokens": 10**9, "completion_tokens": 10**9}
        return web.json_response({"choices": [{"message": {"content": "ok"}}], "usage": usage})


def test_a_lie_about_tokens_spends_no_budget(serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spent = ask(serve(Liar()), tmp_path, 5, MonthlyBudget(tokens=10_000))
    assert spent.calls == 5 and spent.completion_tokens == 5 * 16 and spent.prompt_tokens < 5 * 200
    assert [record.levelname for record in caplog.records if "1000000000 prompt" in record.getMessage()] == ["WARNING"]
    budget = Budget(tokens=10_000)
    with OpenAIEngine(OpenAIConfig(model=MODEL, base_url=serve(Liar())), budget=budget) as engine:
        engine.chat(requests_of(5))
    assert budget.spent_tokens < 5 * 216


@pytest.mark.parametrize("is_shared", [False, True], ids=["two processes", "two roles"])
def test_a_budget_is_not_spent_while_calls_of_others_are_open(serve: Serve, tmp_path: Path, is_shared: bool) -> None:
    """Given a month with room for one reservation at a time, then those who ask at once wait for each other, and all are answered."""
    url = serve(mock := Billing(0.1))
    Ledger(tmp_path).set_budgets({ENGINE: MonthlyBudget(tokens=400)})
    first = Answers(Store(tmp_path))
    second = first if is_shared else Answers(Store(tmp_path))
    request = [ChatRequest((Message(role="user", content=f"word {number}"),), max_tokens=200) for number in range(4)]
    config = OpenAIConfig(model=MODEL, base_url=url)
    with OpenAIEngine(config, answers=first) as one, OpenAIEngine(config, answers=second) as other, ThreadPoolExecutor(2) as threads:
        told = [threads.submit(one.chat, request[:2]), threads.submit(other.chat, request[2:])]
        assert sum(len(each.result()) for each in told) == 4
    spent = first.ledger.spent(ENGINE)
    assert spent is not None and (spent.calls, spent.open_calls, mock.most_in_flight) == (4, 0, 1)
    first.close()
    second.close()


def test_calls_of_others_are_waited_for_no_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metering, "WAIT_S", 0.01)
    ledger = Ledger(tmp_path)
    ledger.set_budgets({ENGINE: MonthlyBudget(tokens=100)})
    mine, theirs = (EngineMeter(one, ENGINE, PRICE) for one in (ledger, Ledger(tmp_path)))
    assert theirs.try_to_reserve(60, 0) is not None
    with pytest.raises(BudgetSpent, match=r"open for 0\.01 s.* 60 of 100 tokens, and the next call may take 70"):
        asyncio.run(mine.call(MostTokens(60, 10)).reserve())
    assert "waits for them" in caplog.text
    theirs.end()
    with pytest.raises(BudgetSpent, match=r"^the budget of openai:mock for"):
        asyncio.run(mine.call(MostTokens(60, 10)).reserve())


def test_a_limit_by_either_name_bounds_the_bytes_and_the_cost(serve: Serve, tmp_path: Path) -> None:
    class Long(Mock):
        async def chat(self, request: web.Request) -> web.StreamResponse:
            return web.json_response({"choices": [{"message": {"content": "x" * 1_200_000}}]})

    for more in ({"max_completion_tokens": 2_000}, {"max_tokens": None, "max_completion_tokens": 2_000}):
        spent = ask(serve(Long()), tmp_path / str(len(more)), 1, extra=more)
        assert (spent.calls, spent.completion_tokens) == (1, 2_000)


def test_a_request_without_a_limit_is_refused_where_a_month_has_one(serve: Serve, tmp_path: Path) -> None:
    mock = Mock()
    url, unlimited = serve(mock), {"max_tokens": None}
    with pytest.raises(BadInput, match=r"^openai:mock has a monthly budget, but a request without a limit .* give max_tokens or .*$"):
        ask(url, tmp_path, 1, MonthlyBudget(tokens=10_000), extra=unlimited)
    assert not mock.tries
    assert ask(url, tmp_path / "free", 1, extra=unlimited).completion_tokens == 10


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
