"""Marks what a dead process has left behind on Prefect's server: it would stand as Running for ever, and hold the slot of its deployment.

One idea: a run of our worker holds the lock `.prefect/runs/RUN.lock`. If the file is there and the lock is free, the run is dead; one
whose lock is held is left alone.
A run that the worker had claimed and not yet begun goes back to the queue, so none is lost.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from flows.runtime.locks import is_held

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

WORKER_DIED = "the worker was killed, and this run with it; its deployment's next run continues its work"
END_WITHIN_S = 10.0


def runs_folder(home: Path) -> Path:
    """The folder of the locks of runs, below the folder of the project's own server."""
    return home / "runs"


def settle_runs(home: Path, pool: str | None) -> None:
    """Settle the runs of a worker that is gone: those that worked are marked Crashed, those that had not begun go back to the queue.

    pool: of which no worker runs, so that every run that was claimed there is dead; None: others may have workers in the pool.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.exceptions import ObjectNotFound

    notes = sorted(runs_folder(home).glob("*.lock"))
    _wait_for_the_end(notes)
    with get_client(sync_client=True) as client:
        alive = {note.stem for note in notes if is_held(note)}
        for note in notes:
            if note.stem not in alive:
                with contextlib.suppress(ObjectNotFound, ValueError):
                    _settle(client, client.read_flow_run(UUID(note.stem)))
                note.unlink(missing_ok=True)
        if pool is not None:
            claimed = FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
            for run in client.read_flow_runs(
                flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=claimed)),
                work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
            ):
                if str(run.id) not in alive:
                    with contextlib.suppress(ObjectNotFound):
                        _settle(client, run)


def _wait_for_the_end(notes: list[Path]) -> None:
    """The processes of a killed worker end within milliseconds; a busy machine may take longer."""
    end = time.monotonic() + END_WITHIN_S
    while any(map(is_held, notes)) and time.monotonic() < end:
        time.sleep(0.05)


def _settle(client: SyncPrefectClient, run: FlowRun) -> None:
    from prefect.states import Cancelled, Crashed, Scheduled

    if run.state is None or run.state.is_final() or run.state.is_scheduled():
        return
    if run.state.is_pending():
        client.set_flow_run_state(run.id, Scheduled(), force=True)
    else:
        end_run(client, run.id, Cancelled() if run.state.is_cancelling() else Crashed(message=WORKER_DIED))


def end_run(client: SyncPrefectClient, run_id: UUID, state: State) -> None:
    """Set the state of a flow run, its tasks and its child runs, if they have not ended."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId, TaskRunFilter, TaskRunFilterFlowRunId

    open_runs = [client.read_flow_run(run_id)]
    while open_runs:
        run = open_runs.pop()
        for child in client.read_task_runs(task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[run.id]))):
            if child.state is None or not child.state.is_final():
                client.set_task_run_state(child.id, state, force=True)
        open_runs += client.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id])))
        if run.state is None or not run.state.is_final():
            client.set_flow_run_state(run.id, state, force=True)
