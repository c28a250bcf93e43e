"""A run of a deployment says while it works that a budget is near its end, and a ledger that cannot be used stops no flow."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from flows.config import Config
from flows.runtime import events
from flows.runtime.deployed import budget_watch
from synth.engines.budget import MonthlyBudget
from synth.engines.spending.ledger import Ledger


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Of a store with a budget of 100 tokens that is spent, in a run of a deployment."""
    monkeypatch.setattr(events, "is_root_of_a_deployment", lambda: True)
    ledger = Ledger(tmp_path / "store")
    ledger.set_budgets({"openai:m": MonthlyBudget(tokens=100)})
    assert ledger.reserve("openai:m", 100, 0, (0.0, 0.0)) is not None
    ledger.close()
    return Config(store=tmp_path / "store")


def test_the_event_comes_while_the_flow_works_and_once(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[dict[str, Any]] = []
    came = threading.Event()

    def emit(event: str, _: Config, **payload: Any) -> None:
        emitted.append({"event": event, **payload})
        came.set()

    monkeypatch.setattr(events, "emit", emit)
    monkeypatch.setattr(budget_watch, "EVERY_S", 0.01)
    for _ in range(2):
        with budget_watch.watch_budgets(config):
            assert came.wait(30)
    (only,) = emitted
    assert only.pop("month") and only == {"event": events.BUDGET_NEAR_END, "engine": "openai:m", "limit": 100.0, "unit": "tokens"}


def test_a_run_that_is_not_of_a_deployment_leaves_it_to_one_that_is(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "is_root_of_a_deployment", lambda: False)
    with budget_watch.watch_budgets(config):
        pass
    assert len(Ledger(config.store).limits_near_end()) == 1


def test_a_ledger_that_cannot_be_used_is_one_warning(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    looks, look = threading.Semaphore(0), budget_watch.look

    def counted(config: Config) -> None:
        looks.release()
        look(config)

    monkeypatch.setattr(budget_watch, "look", counted)
    monkeypatch.setattr(budget_watch, "EVERY_S", 0.01)
    monkeypatch.setattr(budget_watch, "warn", warned.append)
    (config.store / "lake" / "_ledger" / "ledger.sqlite").unlink()
    (config.store / "lake" / "_ledger" / "ledger.sqlite").mkdir()
    with budget_watch.watch_budgets(config):
        assert all(looks.acquire(timeout=60) for _ in range(3))
    assert len(warned) == 1 and "cannot look at the budgets" in warned[0]
