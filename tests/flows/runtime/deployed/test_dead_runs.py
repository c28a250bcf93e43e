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
from prefect.exceptions import ObjectNotFound

from flows.runtime.deployed import dead_runs
from flows.runtime.locks import Busy, is_held, lock

GUARDED = {"command": f"python -m {dead_runs.GUARD}"}
SUBMITTING = State(type=StateType.PENDING, name="Submitting")


class Server:
    """Stands for Prefect's client: flow runs, all in the pool, in pages of two; the tasks of each flow run; deleted deployments."""

    def __init__(self) -> None:
        self.runs: dict[UUID, Any] = {}
        self.tasks: dict[UUID, Any] = {}
        self.deleted: set[UUID] = set()

    def add(self, state: State, worker: str, job_variables: dict[str, str]) -> UUID:
        """worker: "" for a run that no worker has labelled."""
        run, deployment = uuid4(), uuid4()
        labels = {"prefect.worker.name": worker} if worker else {}
        self.runs[run] = SimpleNamespace(id=run, state=state, labels=labels, deployment_id=deployment, job_variables=job_variables)
        return run

    def type_of(self, run: UUID) -> StateType:
        found: StateType = self.runs[run].state.type
        return found

    def read_flow_run(self, run: UUID) -> Any:
        return self.runs[run]

    def read_flow_runs(self, *, work_pool_filter: Any = None, offset: int = 0, **_: Any) -> list[Any]:
        return list(self.runs.values())[offset : offset + 2] if work_pool_filter else []

    def read_deployment(self, deployment: UUID) -> Any:
        if deployment in self.deleted:
            raise ObjectNotFound(Exception())
        return SimpleNamespace(job_variables={})

    def read_task_runs(self, *, offset: int = 0, **_: Any) -> list[Any]:
        return list(self.tasks.values())[offset : offset + 2]

    def set_task_run_state(self, task: UUID, state: State, force: bool) -> None:
        self.tasks[task].state = state

    def set_flow_run_state(self, run: UUID, state: State, force: bool) -> None:
        self.runs[run].state = state


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()

    @contextmanager
    def client(**_: Any) -> Iterator[Server]:
        yield server

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    monkeypatch.setattr(dead_runs, "END_WITHIN_S", 0.1)
    monkeypatch.setattr(dead_runs, "FREE_S", 0.01)
    return server


@pytest.mark.parametrize("is_alone", [False, True])
def test_runs_of_a_dead_worker_are_settled(is_alone: bool, server: Server, tmp_path: Path) -> None:
    # given runs in every state of a worker whose lock is free
    states = [State(type=type_) for type_ in (StateType.RUNNING, StateType.CANCELLING, StateType.SCHEDULED, StateType.COMPLETED)]
    runs = [server.add(state, "dead", GUARDED) for state in (*states, SUBMITTING)]
    with dead_runs.hold_worker_lock(tmp_path, "dead"):
        pass
    # and some of which it cannot be known: claimed a moment ago, without the guard that ends a run with its worker, of an older version
    unknown = [
        server.add(State(type=StateType.PENDING), "dead", GUARDED),
        server.add(State(type=StateType.PENDING), "", GUARDED),
        server.add(State(type=StateType.RUNNING), "dead", {}),
        server.add(State(type=StateType.RUNNING), "headrace-4711", GUARDED),
    ]
    # and those of workers that live: this folder's, another folder's, a user's own
    living = [server.add(State(type=StateType.RUNNING), worker, GUARDED) for worker in ("living", "headrace-host-0a1b2c3d", "somebody's")]
    # when a keeper looks at them
    with dead_runs.hold_worker_lock(tmp_path, "living") as own:
        dead_runs.settle_runs(tmp_path, "headrace", is_alone=is_alone)
        assert is_held(own)
    # then those of the dead one are settled, the unknown ones only on the project's own server, and the living ones are not
    after = [StateType.CRASHED, StateType.CANCELLED, StateType.SCHEDULED, StateType.COMPLETED, StateType.SCHEDULED]
    assert [server.type_of(run) for run in runs] == after
    settled, before = [StateType.SCHEDULED] * 2 + [StateType.CRASHED] * 2, [StateType.PENDING] * 2 + [StateType.RUNNING] * 2
    assert [server.type_of(run) for run in unknown] == (settled if is_alone else before)
    assert [server.type_of(run) for run in living] == [StateType.RUNNING] * 3
    assert [path.stem for path in tmp_path.glob("workers/*.lock")] == ["living"]


def test_a_worker_is_settled_once_and_without_a_dead_one_no_server_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run of a dead worker that was queued again
    run = server.add(SUBMITTING, "dead", GUARDED)
    with dead_runs.hold_worker_lock(tmp_path, "dead"):
        pass
    dead_runs.settle_runs(tmp_path, "headrace")
    # when another worker has claimed it, whose label is not there yet
    server.runs[run].state = State(type=StateType.RUNNING)
    monkeypatch.setattr(server, "read_flow_runs", None)
    dead_runs.settle_runs(tmp_path, "headrace")
    # then it is left alone
    assert server.type_of(run) == StateType.RUNNING


def test_a_worker_whose_processes_are_still_ending_is_not_dead_yet(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes the lock before it ends, so it is free between two of them."""
    run = server.add(State(type=StateType.RUNNING), "ending", GUARDED)
    with dead_runs.hold_worker_lock(tmp_path, "ending") as own:
        pass
    with monkeypatch.context() as ending:
        looks = iter([False, False, True])
        ending.setattr(dead_runs, "is_held", lambda _: next(looks))
        dead_runs.settle_runs(tmp_path, "headrace")
    assert server.type_of(run) == StateType.RUNNING and own.exists()
    dead_runs.settle_runs(tmp_path, "headrace")
    assert server.type_of(run) == StateType.CRASHED and not own.exists()


def test_nobody_waits_for_another_keeper_that_settles(server: Server, tmp_path: Path) -> None:
    run = server.add(State(type=StateType.RUNNING), "dead", GUARDED)
    with dead_runs.hold_worker_lock(tmp_path, "dead"):
        pass
    with lock(tmp_path / "workers" / "settling"):
        with pytest.raises(Busy):
            dead_runs.settle_runs(tmp_path, "headrace")
        # nor does a worker that starts; its lock is held from its first moment on
        with dead_runs.hold_worker_lock(tmp_path, "living") as own:
            assert is_held(own)
    assert server.type_of(run) == StateType.RUNNING


def test_all_tasks_of_a_dead_run_end_with_it(server: Server, tmp_path: Path) -> None:
    server.add(State(type=StateType.RUNNING), "dead", GUARDED)
    server.tasks = {task: SimpleNamespace(id=task, state=State(type=StateType.RUNNING)) for task in (uuid4() for _ in range(5))}
    with dead_runs.hold_worker_lock(tmp_path, "dead"):
        pass
    dead_runs.settle_runs(tmp_path, "headrace")
    assert {task.state.type for task in server.tasks.values()} == {StateType.CRASHED}


@pytest.mark.parametrize(("own_command", "after"), [({}, StateType.CRASHED), ({"command": "python -m prefect.engine"}, StateType.RUNNING)])
def test_a_run_whose_deployment_was_deleted_counts_as_guarded_unless_its_own_command_is_not(
    own_command: dict[str, str], after: StateType, server: Server, tmp_path: Path
) -> None:
    run = server.add(State(type=StateType.RUNNING), "dead", own_command)
    server.deleted.add(server.runs[run].deployment_id)
    with dead_runs.hold_worker_lock(tmp_path, "dead"):
        pass
    dead_runs.settle_runs(tmp_path, "headrace")
    assert server.type_of(run) == after
