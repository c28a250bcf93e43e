"""A month's budget counts all machines that share a store; each has a ledger of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from storage.errors import HeadraceError
from storage.object_store.shared_log import SharedLog
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from synth.engines.budget import MonthlyBudget
from synth.engines.cache import Answers
from synth.engines.openai import OpenAIConfig, OpenAIEngine
from synth.engines.spending import metering
from synth.engines.spending.ledger import Ledger, MonthSpent
from tests.conftest import Serve
from tests.storage.object_store.test_shared_log import commit, copy_of
from tests.synth.engines.spending.test_ledger import ENGINE, MODEL, PRICE, Billing, requests_of, short_waits

__all__ = ["short_waits"]
numbers = itertools.count()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two machines' copies of one store."""
    url = f"memory://spent/{next(numbers)}"
    yield copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    fsspec.filesystem("memory").store.clear()


def spend(ledger: Ledger, tokens: int) -> bool:
    """Whether the budget had room for a call of so many prompt tokens, which is then answered."""
    reserved = ledger.reserve(ENGINE, tokens, 0, PRICE)
    if reserved is not None:
        ledger.settle(reserved, tokens, 0)
    return reserved is not None


def spent(store: Store) -> MonthSpent:
    found = Ledger(store.root).spent(ENGINE)
    assert found is not None
    return found


@pytest.mark.parametrize("budget", [MonthlyBudget(tokens=100), MonthlyBudget(usd=100e-6, usd_per_million=PRICE)])
def test_what_others_have_spent_counts(machines: tuple[Store, Store], budget: MonthlyBudget) -> None:
    """Given answered calls of one machine and an open one, then the other has what is left, however often both exchange."""
    here, there = (Ledger(store.root) for store in machines)
    for ledger in (here, there):
        ledger.set_budgets({ENGINE: budget})
    assert spend(here, 40) and here.reserve(ENGINE, 20, 0, PRICE) is not None
    for _ in range(2):
        here.exchange()
        there.exchange()
    assert not spend(there, 41) and spend(there, 30)
    for _ in range(2):
        there.exchange()
        here.exchange()
    assert not spend(here, 11) and spend(here, 10)
    there.exchange()
    found = spent(machines[1])
    assert (found.prompt_tokens, found.open_tokens, found.other_tokens) == (30, 0, 60)
    assert found.usd + found.other_usd == pytest.approx(90e-6)
    assert here.path.exists() and len(UrlFiles(_url(machines[0])).names("spent")) == 2


def test_the_command_shows_what_others_have_spent_also_where_nothing_was_asked(machines: tuple[Store, Store]) -> None:
    here, there = machines
    ledger = Ledger(here.root)
    ledger.set_budgets({ENGINE: MonthlyBudget(tokens=100)})
    assert spend(ledger, 70)
    ledger.exchange()
    (row,) = json.loads(CliRunner().invoke(app, ["ledger", "--store", str(_committed(there).root), "--json"]).output)
    assert (row["engine"], row["calls"], row["other_tokens"], row["other_usd"]) == (ENGINE, 0, 70, pytest.approx(70e-6))
    assert "70 tokens, 0.00 dollars" in CliRunner().invoke(app, ["ledger", "--store", str(there.root)], env={"COLUMNS": "200"}).output


def test_a_store_of_one_machine_tells_nobody(tmp_path: Path) -> None:
    Ledger(tmp_path).exchange()
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("content", [b"{", b"7", b"[[1]]", b'[["2026-11", "openai:m", "x", 0]]'])
def test_a_damaged_object_of_another_machine_is_named_and_stops_no_table(machines: tuple[Store, Store], content: bytes) -> None:
    store = _committed(machines[0])
    UrlFiles(_url(store)).write("spent/x.json", content)
    with pytest.raises(HeadraceError, match=r"spent/x\.json is damaged: delete it"):
        Answers(store)
    shown = CliRunner().invoke(app, ["ledger", "--store", str(store.root)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "other machines count as when last exchanged" in shown.output


def test_machines_tell_each_other_while_they_ask(serve: Serve, machines: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a machine whose run has not ended, then another machine counts its calls, but for the last that were sent."""
    monkeypatch.setattr(metering, "EXCHANGE_S", 0.0)
    here, there = machines
    answers = Answers(here)
    with OpenAIEngine(OpenAIConfig(model=MODEL, base_url=serve(Billing()), in_flight=1), answers=answers) as engine:
        engine.chat(requests_of(5))
        Answers(there).close()
        assert spent(there).other_tokens == 4 * 13
    answers.close()
    Answers(there).close()
    assert spent(there).other_tokens == 5 * 13


def test_out_of_reach_no_run_begins_and_one_that_asks_goes_on(
    serve: Serve, machines: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "EXCHANGE_S", 0.0)
    url, answers = serve(Billing()), Answers(machines[0])

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "pipe_file", fail)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", fail)
    with OpenAIEngine(OpenAIConfig(model=MODEL, base_url=url), answers=answers) as engine:
        assert len(engine.chat(requests_of(3))) == 3
    answers.close()
    assert spent(machines[0]).calls == 3
    with pytest.raises(HeadraceError, match="cannot be reached: no route"):
        Answers(machines[0])


def _url(store: Store) -> str:
    shared = SharedLog.of(store.root)
    assert shared is not None
    return shared.files.url


def _committed(store: Store) -> Store:
    """The store with a commit, so that commands find it."""
    commit(store, 1)
    return store
