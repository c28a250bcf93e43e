"""A run of a deployment tries again what failed outside, a run by hand does not, and only tasks of deployments have a time-out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import fsspec
import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow

from flows import train
from flows.config import Config
from flows.curate import filter_queries
from flows.runtime.deployed import retries
from flows.runtime.store_lock import work_on_store
from storage.errors import BadInput, HeadraceError, OutOfReach
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from synth.engines.base import EngineFailure
from train.backends.ray_jobs import NoAnswer

tries: list[str] = []


@task
def reach() -> str:
    tries.append("task")
    if len(tries) < 3:
        raise OutOfReach("no route")
    return "done"


@flow
def reaching() -> str:
    return retries.retried(reach)()


@pytest.fixture
def in_a_deployment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the run waited."""
    waited: list[float] = []
    monkeypatch.setattr(retries, "is_in_a_deployment", lambda: True)
    monkeypatch.setattr(retries.time, "sleep", waited.append)
    return waited


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Config]:
    """A configuration whose store this machine shares already."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    config = Config(store=tmp_path / "store", object_store="memory://team")
    Store(config.store).share("memory://team")
    yield config
    memory.store.clear()


def out_of_reach(*_: Any, **__: Any) -> NoReturn:
    raise OSError("no route")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfReach("no route"), True),
        (EngineFailure("no answer"), True),
        (NoAnswer("no answer"), True),
        (ConnectionRefusedError(), True),
        (BadInput("no such file"), False),
        (HeadraceError("the disk is full"), False),
        (ValueError(), False),
    ],
)
def test_what_may_answer_later_is_outside(error: Exception, expected: bool) -> None:
    assert retries.is_outside(error) is expected


def test_an_object_store_that_does_not_answer_is_out_of_reach(shared: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", out_of_reach)
    with pytest.raises(OutOfReach, match="memory://team/log cannot be reached: no route"):
        UrlFiles("memory://team").read("log")


def test_only_tasks_of_deployments_are_tried_again_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = retries.retried(filter_queries)
    assert (by_hand.retries, by_hand.timeout_seconds) == (0, None)
    monkeypatch.setattr(retries, "is_in_a_deployment", lambda: True)
    deployed = retries.retried(filter_queries)
    assert (deployed.retries, deployed.timeout_seconds, deployed.name) == (3, 48 * 3600, filter_queries.name)


def test_a_stage_may_take_longer(in_a_deployment: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[int, float | None]] = []
    monkeypatch.setattr(type(train.train_stage), "__call__", lambda self, *_: called.append((self.retries, self.timeout_seconds)))
    train.run_as_task(None, type("Spec", (), {"name": "sft1"}), Path())  # type: ignore[arg-type]
    assert called == [(3, None)]


def test_the_lease_of_a_shared_store_is_waited_for(shared: Config, in_a_deployment: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an object store that answers again after two tries, then the flow of a deployment works on the store."""
    memory = type(fsspec.filesystem("memory"))
    find, left = memory.find, [1, 2]

    def find_later(*args: Any, **more: Any) -> Any:
        return find(*args, **more) if not left or left.pop() is None else out_of_reach()

    monkeypatch.setattr(memory, "find", find_later)
    with work_on_store("curate", shared):
        assert in_a_deployment[:2] == [30, 60] and not left


def test_a_command_is_refused_at_once(shared: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", out_of_reach)
    monkeypatch.setattr(retries.time, "sleep", out_of_reach)
    with pytest.raises(OutOfReach, match="cannot be reached: no route"), work_on_store("curate", shared):
        pass


@pytest.mark.server
@pytest.mark.slow
def test_a_deployment_tries_again(prefect_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "DELAYS_S", (0.1, 0.1, 0.1))
    tries.clear()
    with pytest.raises(OutOfReach, match="no route"):
        reaching()
    assert len(tries) == 1
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(reaching), "reaching")
        assert run_flow(reaching, client.create_flow_run_from_deployment(deployment)) == "done"
    assert len(tries) == 3
