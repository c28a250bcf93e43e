"""Rounds, steps, probes and evaluations are tasks of the flow run, with names that tell; outside a flow they are done at once."""

from __future__ import annotations

import time

import pytest
from prefect import flow

from flows.runtime.deployed.subtasks import run_as_task
from storage.execution import subtask, subtasks_run_by

pytestmark = pytest.mark.server


def test_outside_a_block_a_subtask_is_done_at_once():
    assert subtask("a round", lambda: 7) == 7


def test_subtasks_are_tasks_of_the_run(prefect_server):
    """Given a flow with two subtasks, one of them failing, then both are its tasks, and values and errors pass through."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterFlowRunId
    from prefect.context import FlowRunContext

    from flows.runtime.run_flow import flush_to_server

    seen = []

    def fail() -> None:
        raise ValueError("no figure could be measured")

    @flow
    def two_subtasks() -> int:
        context = FlowRunContext.get()
        assert context is not None and context.flow_run is not None
        seen.append(context.flow_run.id)
        with subtasks_run_by(run_as_task):
            with pytest.raises(ValueError, match="no figure"):
                subtask("probe of sft1", fail)
            return subtask("round {3} of conversations", lambda: 7)

    assert two_subtasks() == 7
    flush_to_server()
    found, end = dict[str, str | None](), time.monotonic() + 60
    with get_client(sync_client=True) as client:
        while set(found.values()) != {"Failed", "Completed"} and time.monotonic() < end:  # the server records tasks in batches
            tasks = client.read_task_runs(task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=seen)))
            found = {task.name: task.state_name for task in tasks}
            time.sleep(0.2)
    assert found == {"probe of sft1": "Failed", "round (3) of conversations": "Completed"}
