"""Marks what a dead worker has left behind on Prefect's server: it would stand as Running for ever, and hold the slot of its deployment.

One idea: a worker of ours holds the lock `.prefect/workers/NAME.lock` while it lives, and Prefect labels every run that it starts with its
name. So a free lock names a dead worker, and the label its runs. The folder may be shared by the workers of one machine, so that each
settles what another one left; all other workers' runs are left alone.
A run that the worker had claimed and not yet begun goes back to the queue, so none is lost.

A run carries the label from its state Submitting on, a few requests after its claim; and only a run under the guard (`run_process.py`) ends
with its worker. Other runs that may be ours are settled only on the project's own server, before its worker starts.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from flows.runtime.locks import is_held, lock

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

Row = TypeVar("Row")
WORKER_DIED = "the worker was killed, and this run with it; its deployment's next run continues its work"
WORKER_LABEL, GUARD = "prefect.worker.name", "flows.runtime.deployed.run_process"
OLDER_NAME = re.compile(r"headrace-\d+")
"""Name of a worker of a version without locks of workers: its process id."""
END_WITHIN_S, FREE_S = 10.0, 1.0


def home_of(worker_lock: Path) -> Path:
    """The folder of the project's own server and of the keeper, of which `worker_lock` is the lock of a worker."""
    return worker_lock.parents[1]


@contextlib.contextmanager
def hold_worker_lock(home: Path, name: str) -> Iterator[Path]:
    """Hold the lock of the worker `name`; yields its path."""
    own = home / "workers" / f"{name}.lock"
    draft = own.with_suffix(".draft")
    with lock(draft):
        draft.rename(own)  # so the lock never stands free, as that of a dead worker
        yield own


def settle_runs(home: Path, pool: str, *, is_alone: bool = False) -> None:
    """Settle the runs of dead workers: those that worked are marked Crashed, those that had not begun go back to the queue.

    Asks the server only if a worker is dead.

    pool: the work pool of the workers.
    is_alone: the server is the project's own, and its worker does not run. So dead are also runs that this worker had claimed a moment
        ago, runs without the guard, and those of older versions. Waits at most 10 s until the processes of dead workers have ended.
    Raises Busy: another process settles at this moment. A run that two put back into the queue could begin twice.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with lock(home / "workers" / "settling", wait=False):
        locks = sorted((home / "workers").glob("*.lock"))
        dead = _free_ones(locks, END_WITHIN_S if is_alone else 0.0)
        names = {each.stem for each in dead}
        if dead or is_alone:
            with get_client(sync_client=True) as client:
                for run in _claimed_runs(client, pool):
                    with contextlib.suppress(ObjectNotFound):
                        if _may_be_of(run, names) if is_alone else _died_with(client, run, names):
                            _settle(client, run)
        for each in dead:
            each.unlink(missing_ok=True)


def _free_ones(locks: list[Path], within_s: float) -> list[Path]:
    """The locks that are free in two looks, FREE_S apart. within_s: longest wait for the first look, until all are free.

    The processes of a killed worker end within milliseconds, and a busy machine may take longer. Each takes the lock before it ends.
    """
    end = time.monotonic() + within_s
    while any(map(is_held, locks)) and time.monotonic() < end:
        time.sleep(0.05)
    free = [each for each in locks if not is_held(each)]
    if free:
        time.sleep(FREE_S)
    return [each for each in free if not is_held(each)]


def _claimed_runs(client: SyncPrefectClient, pool: str) -> list[FlowRun]:
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.objects import StateType

    claimed = FlowRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
    return _read_all(
        client.read_flow_runs,
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=claimed)),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )


def _read_all(read: Callable[..., list[Row]], **filters: Any) -> list[Row]:
    """All rows that match; the server answers with at most 200 at a time."""
    rows: list[Row] = []
    while page := read(**filters, offset=len(rows)):
        rows += page
    return rows


def _may_be_of(run: FlowRun, workers: set[str]) -> bool:
    """Whether one of these workers, one of an older version or one that is not known yet had claimed the run."""
    worker = str(run.labels.get(WORKER_LABEL, ""))
    return not worker or worker in workers or OLDER_NAME.fullmatch(worker) is not None


def _died_with(client: SyncPrefectClient, run: FlowRun, workers: set[str]) -> bool:
    """Whether one of these dead workers had claimed the run, and its guard has ended it.

    If its deployment was deleted, it counts as under the guard, unless its own command is another one: nothing else would end it.
    """
    from prefect.exceptions import ObjectNotFound

    if run.state is None or run.state.name == "Pending" or run.labels.get(WORKER_LABEL) not in workers or run.deployment_id is None:
        return False  # a run that is Pending may have the label of an earlier claim
    variables = {"command": GUARD}
    with contextlib.suppress(ObjectNotFound):
        variables = client.read_deployment(run.deployment_id).job_variables
    return GUARD in str((variables | (run.job_variables or {})).get("command"))


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
        tasks = _read_all(client.read_task_runs, task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[run.id])))
        for child in tasks:
            if child.state is None or not child.state.is_final():
                client.set_task_run_state(child.id, state, force=True)
        children = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]))
        open_runs += _read_all(client.read_flow_runs, flow_run_filter=children)
        if run.state is None or not run.state.is_final():
            client.set_flow_run_state(run.id, state, force=True)
