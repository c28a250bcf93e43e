"""Every automation of `automations.yaml` fires on a real server, by the events that a flow emits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import yaml
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.events.filters import EventFilter, EventNameFilter
from prefect.flow_engine import run_flow

from flows.config import Config, keep_budgets
from flows.runtime import events
from flows.runtime.deployed.automations import create_automations
from flows.runtime.run_flow import flush_to_server
from flows.runtime.store_lock import work_on_store
from synth.engines.budget import MonthlyBudget
from synth.engines.spending.ledger import Ledger
from tests.waiting import eventually

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

pytestmark = [pytest.mark.server, pytest.mark.slow]
AUTOMATIONS = Path(__file__).parents[4] / "automations.yaml"
ENGINE, WINDOW_S = "openai:mock", 15


@flow
def alarming(store: str) -> None:
    """Spends most of a budget, and ends as a synthesis in which all went wrong."""
    config = Config(store=Path(store), budgets={ENGINE: MonthlyBudget(tokens=100)})
    with work_on_store("alarming", config):
        keep_budgets(config)
        ledger = Ledger(config.store)
        if (reserved := ledger.reserve(ENGINE, 45, 45, (0.0, 0.0))) is not None:
            ledger.settle(reserved, 45, 45)
        ledger.close()
        alarms = {"is_spent": True, "notes": [], "rejected": {"misfit": 9}, "proposals": 10, "alarms": ["round 3: retail"]}
        events.emit_alarms(config, alarms)


@pytest.fixture
def client(prefect_server: str) -> Iterator[SyncPrefectClient]:
    with get_client(sync_client=True) as client:
        yield client
        for each in client.read_automations():
            if each.name.startswith("headrace-"):
                client.delete_automation(each.id)


@pytest.fixture
def deployment(client: SyncPrefectClient) -> UUID:
    return client.create_deployment(client.create_flow(alarming), "alarming")


def test_every_automation_fires_and_a_spent_budget_pauses_its_deployment(
    client: SyncPrefectClient, deployment: UUID, tmp_path: Path
) -> None:
    # given the automations as they are shipped, but that a day has 15 seconds
    shipped = yaml.safe_load(AUTOMATIONS.read_text())
    for each in shipped:
        if each["trigger"]["posture"] == "Proactive":
            assert each["trigger"]["within"] == 86400
            each["trigger"]["within"] = WINDOW_S
    (tmp_path / "automations.yaml").write_text(yaml.safe_dump(shipped))
    assert create_automations(tmp_path / "automations.yaml", client) == len(shipped)
    names = {f"prefect.automation.{each.id}": each.name for each in client.read_automations() if each.name.startswith("headrace-")}
    assert set(names.values()) == {each["name"] for each in shipped}

    def fired() -> Counter[str]:
        page = client.read_events(EventFilter(event=EventNameFilter(name=["prefect.automation.triggered"])), limit=50)
        return Counter(names[each.resource.id] for each in page.events if each.resource.id in names)

    assert not set(fired()) - {"headrace-nothing-committed"}
    # when two runs of a deployment give cause to all that act on events
    for _ in range(2):
        run_flow(alarming, client.create_flow_run_from_deployment(deployment), {"store": str(tmp_path / "store")})
    flush_to_server()
    # then each fires, and so does the one that misses commits
    assert eventually(lambda: set(fired()) == set(names.values())), set(names.values()) - set(fired())
    # and the deployment is paused
    assert eventually(lambda: client.read_deployment(deployment).paused)
    # and a limit that is near its end is told once: the server has worked off all events of both runs, as one that came after them shows
    assert eventually(lambda: fired()["headrace-budget-spent"] == fired()["headrace-failures-high"] == 2), fired()
    emit_event(events.FAILURES_HIGH, {"prefect.resource.id": events.RESOURCE})
    flush_to_server()
    assert eventually(lambda: fired()["headrace-failures-high"] == 3), fired()
    assert fired()["headrace-budget-near-its-end"] == 1
