"""What a user of Prefect's UI sees of our runs: the message of a state, live progress, and automations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows.config import Config
from flows.runtime import events
from flows.runtime.artifacts import completed
from flows.runtime.deployed import progress_artifact
from flows.runtime.deployed.automations import create_automations
from flows.runtime.progress import report
from storage.errors import BadInput

PROGRESS = ArtifactFilter(key=ArtifactFilterKey(any_=["headrace-progress-working"]))
ROOT = Path(__file__).parents[4]
AUTOMATIONS = ROOT / "automations.yaml"


@flow
def working(figure: int) -> dict[str, Any]:
    from prefect.runtime import flow_run

    with progress_artifact.show_progress("working", flow_run.get_id()):
        for done in range(1, 5):
            report("a step", done, 8)
            time.sleep(0.1)
        with get_client(sync_client=True) as client:
            end = time.monotonic() + 60
            while not client.read_artifacts(artifact_filter=PROGRESS) and time.monotonic() < end:
                time.sleep(0.1)
        report("a step", 4, 8, "the last report")
    return completed(f"{figure} rows kept", {"kept": figure})


@pytest.mark.server
@pytest.mark.slow
def test_message_progress_and_automations(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_artifact, "EVERY_S", 0.5)
    # when a flow has run, its caller has the result
    ids: list[Any] = []
    assert working.with_options(on_completion=[lambda _flow, run, _state: ids.append(run.id)])(7) == {"kept": 7}
    with get_client(sync_client=True) as client:
        # and its state says the figure that matters
        assert client.read_flow_run(ids[0]).state.message == "7 rows kept"
        # and its progress was one artifact, with the time that is left
        found = client.read_artifacts(artifact_filter=PROGRESS)
        (artifact,) = [each for each in found if each.flow_run_id == ids[0]]
        assert artifact.data == 50 and artifact.description.startswith("a step: 4 of 8") and " s left" in artifact.description
        assert artifact.description.endswith("the last report")
        # and automations that are created twice are there once, and one that was switched off stays off
        assert create_automations(AUTOMATIONS, client) == 5
        (one,) = client.read_automations_by_name("headrace-nothing-committed")
        client.pause_automation(one.id)
        assert create_automations(AUTOMATIONS, client) == 5
        (again,) = client.read_automations_by_name("headrace-nothing-committed")
        assert again.id == one.id and not again.enabled
        for each in client.read_automations():
            if each.name.startswith("headrace-"):
                client.delete_automation(each.id)


def test_a_file_that_is_no_list_of_automations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "automations.yaml").write_text("- name: nothing")
    with pytest.raises(BadInput, match=r"automations\.yaml: not a list of Prefect automations"):
        create_automations(tmp_path / "automations.yaml", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"is_spent": True}, [events.BUDGET_SPENT]),
        ({"notes": ["the budget is spent: said by somebody"]}, []),
        ({"rejected": {"misfit": 6}}, [events.FAILURES_HIGH]),
        ({"rejected": {"misfit": 5}}, []),
        ({"alarms": ["round 3: retail has 9 times its share"]}, [events.DIVERSITY_COLLAPSED]),
    ],
)
def test_events_for_the_operator(result: Mapping[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[str] = []
    monkeypatch.setattr(events, "emit", lambda event, config, **payload: emitted.append(event))
    events.emit_alarms(Config(), {"notes": [], "rejected": {}, "alarms": [], "proposals": 10, "is_spent": False, **result})
    assert emitted == expected
    assert set(emitted) <= set(AUTOMATIONS.read_text().replace("[", " ").replace("]", " ").split())
