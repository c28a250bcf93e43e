"""Runs that a dead worker has left are settled: what worked is Crashed, what had not begun is queued again, what lives is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import State, StateType

from flows.runtime.deployed import dead_runs
from flows.runtime.locks import lock


class Server:
    """Stands for Prefect's client: flow runs and their states. Every run is in the pool."""

    def __init__(self, states: dict[UUID, StateType]) -> None:
        self.states = {run: State(type=state) for run, state in states.items()}

    def read_flow_run(self, run: UUID) -> Any:
        return SimpleNamespace(id=run, state=self.states[run])

    def read_flow_runs(self, *, work_pool_filter: Any = None, **_: Any) -> list[Any]:
        return [self.read_flow_run(run) for run in self.states] if work_pool_filter else []

    def read_task_runs(self, **_: Any) -> list[Any]:
        return []

    def set_flow_run_state(self, run: UUID, state: State, force: bool) -> None:
        self.states[run] = state


@pytest.mark.parametrize("pool", [None, "headrace"])
def test_runs_of_a_dead_worker_are_settled(pool: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given runs in every state, whose locks are free
    before = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING, StateType.SCHEDULED, StateType.COMPLETED]
    runs = {uuid4(): state for state in before}
    server = Server(runs)
    # and one that runs without a note, as another worker's does
    other = uuid4()
    server.states[other] = State(type=StateType.RUNNING)

    @contextmanager
    def client(**_: Any) -> Iterator[Server]:
        yield server

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    for run in runs:
        with lock(dead_runs.runs_folder(tmp_path) / f"{run}.lock"):
            pass
    # and one whose process still lives
    living = uuid4()
    server.states[living] = State(type=StateType.RUNNING)
    monkeypatch.setattr(dead_runs, "END_WITHIN_S", 0.1)
    # when the keeper looks at them
    with lock(dead_runs.runs_folder(tmp_path) / f"{living}.lock"):
        dead_runs.settle_runs(tmp_path, pool)
    # then they are settled once, and the other one is dead only where no other worker can be
    after = [StateType.CRASHED, StateType.SCHEDULED, StateType.CANCELLED, StateType.SCHEDULED, StateType.COMPLETED]
    assert [server.states[run].type for run in runs] == after
    assert server.states[other].type == (StateType.CRASHED if pool else StateType.RUNNING)
    assert server.states[living].type == StateType.RUNNING
    assert [note.stem for note in dead_runs.runs_folder(tmp_path).iterdir()] == [str(living)]
