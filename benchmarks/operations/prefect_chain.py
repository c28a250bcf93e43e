"""How soon a run begins after the event that starts it, and how soon a cancelled run is gone.

chain_s    seconds from an event to the start of the run that it starts, 95th percentile
cancel_s   seconds from Cancelling, as Prefect's UI sets it, until the run is Cancelled and the child process that it started is gone
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.operations.light_deployments import Installation, installed, wait_for

EVENTS, PAUSE_S = 12, 15.0
PATIENCE_S = 300.0


def measure(events: int = EVENTS) -> dict[str, float]:
    """The two figures, over so many events, one after another, and one cancelled run. Takes up to a minute an event.

    An event comes 15 s after the run before, which lasts no time: as after a run that lasted so long, and emits the event at its end.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-chain-") as folder, installed(Path(folder)) as installation:
        seconds = [chain_s(installation, number + 1) for number in range(events)]
        print("event to start, seconds:", *(f"{each:.1f}" for each in seconds))
        return {"chain_s": float(np.percentile(seconds, 95)), "cancel_s": cancel_s(installation)}


def chain_s(installation: Installation, number: int) -> float:
    """Seconds from the `number`-th event to the start of its run; returns once that run has ended."""
    from prefect.events import Event, Resource

    time.sleep(PAUSE_S)
    event = Event(event="headrace.tasks.tagged", resource=Resource({"prefect.resource.id": "headrace.store"}))
    installation.client.request("POST", "/events", json=[event.model_dump(mode="json")]).raise_for_status()

    def ended() -> int:
        return sum(run.state is not None and run.state.is_completed() for run in installation.runs("light/on-event"))

    wait_for(lambda: ended() == number, PATIENCE_S)
    start = max(run.start_time for run in installation.runs("light/on-event") if run.start_time is not None)
    return float((start - event.occurred).total_seconds())


def _lives(process: Path) -> bool:
    """Whether a process lives, by its folder in /proc; one that nobody has reaped does not."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cancel_s(installation: Installation) -> float:
    """Seconds from cancelling a run that waits for its child process until both are gone."""
    from prefect.states import Cancelling

    client, note = installation.client, installation.folder / "child.txt"
    run = client.create_flow_run_from_deployment(client.read_deployment_by_name("parent/by-hand").id)
    wait_for(lambda: note.exists() and note.read_text() != "", PATIENCE_S)
    child = Path("/proc") / note.read_text()
    begin = time.monotonic()
    client.set_flow_run_state(run.id, Cancelling())
    wait_for(lambda: client.read_flow_run(run.id).state_name == "Cancelled" and not _lives(child), PATIENCE_S)
    return time.monotonic() - begin
