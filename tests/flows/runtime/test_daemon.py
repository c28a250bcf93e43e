"""`headrace down` stops a keeper that is starting, running or ending."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from flows.runtime import daemon
from flows.runtime.daemon import down, stay
from flows.runtime.locks import is_held, lock
from storage.errors import HeadraceError
from tests.waiting import eventually

STARTING = """
import time
from pathlib import Path
from flows.runtime.daemon import _write_state
from flows.runtime.locks import lock
import os
folder = Path(".prefect")
with lock(folder / "keeper.lock"):
    print(1, flush=True)
    time.sleep(1)
    _write_state(folder, pid=os.getpid())
    time.sleep(60)
"""
ENDING = """
import time
from pathlib import Path
from flows.runtime.locks import lock
with lock(Path(".prefect/keeper.lock")):
    print(1, flush=True)
    time.sleep(1)
"""
STARTED = """
import time
from pathlib import Path
from flows.runtime.daemon import _start_keeper
_start_keeper(Path(".prefect"), True)
time.sleep(600)
"""


@pytest.mark.parametrize(("keeper", "code"), [(STARTING, -15), (ENDING, 0)])
def test_down_stops_a_starting_keeper_and_waits_for_an_ending_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeper: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    process = subprocess.Popen([sys.executable, "-P", "-c", keeper], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    messages: list[str] = []
    down(messages.append)
    assert not is_held(tmp_path / ".prefect" / "keeper.lock")
    assert process.wait(5) == code
    assert messages[-1].startswith("stopped the worker")
    down(messages.append)
    assert messages[-1] == "nothing is running"


def test_a_call_in_the_foreground_ends_with_an_error_when_its_keeper_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a container is started again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(HeadraceError, match="keeper of the worker has ended"):
        stay(print)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_worker_starts_while_another_keeper_settles_but_not_on_the_projects_own_server(is_alone: bool, tmp_path: Path) -> None:
    with lock(tmp_path / "workers" / "settling"):
        assert daemon._settle(tmp_path, is_alone=is_alone) is not is_alone


def test_an_unexpected_error_of_a_look_for_dead_workers_ends_no_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: list[Path] = []
    worker = subprocess.Popen(["sleep", "600"])

    def settle_runs(folder: Path, _: str, *, is_alone: bool) -> None:
        looks.append(folder)
        if len(looks) == 3:
            worker.terminate()
        raise ValueError("an answer that nobody understands")

    monkeypatch.setattr(daemon, "settle_runs", settle_runs)
    monkeypatch.setattr(daemon, "LOOK_EVERY_S", 0.01)
    try:
        assert daemon._wait_for(worker, tmp_path) == -15
    finally:
        worker.kill()
    assert len(looks) >= 3 and capsys.readouterr().out.count("nobody understands") == 1


def test_calls_that_share_the_locks_of_workers_deploy_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prefect.yaml").touch()
    (tmp_path / "automations.yaml").touch()
    is_alone: list[bool] = []

    def look(*_: object) -> int:
        is_alone.append(is_held(tmp_path / ".prefect" / "workers" / "deploying"))
        return 0

    monkeypatch.setattr(daemon, "_start_keeper", lambda *_: None)
    monkeypatch.setattr(daemon, "_wait_until_ready", lambda _: ("http://127.0.0.1:9/api", []))
    monkeypatch.setattr(daemon, "_run_prefect", look)
    monkeypatch.setattr(daemon, "create_automations", look)
    daemon.up(print)
    assert is_alone == [True] * 3  # the pool, the deployments, the automations


@pytest.mark.parametrize("wanted", [None, "0.0.0.0"])
def test_the_port_for_the_workers_health_is_open_to_this_machine_only_unless_the_user_wants_it(
    wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "PREFECT_WORKER_WEBSERVER_HOST"
    monkeypatch.delenv(name, raising=False)
    if wanted:
        monkeypatch.setenv(name, wanted)
    monkeypatch.setattr(subprocess, "Popen", lambda _, env, **__: env)
    environment = cast("dict[str, str]", daemon._start_worker(tmp_path))
    assert environment[name] == (wanted or "127.0.0.1")


def test_a_keeper_removes_the_locks_that_an_older_version_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(daemon, "client_environment", lambda *_: {})
    monkeypatch.setattr(daemon, "_keep_worker", lambda *_: None)
    home = tmp_path / ".prefect"
    left = [home / "worker-4711.lock", home / "runs" / "0a1b2c3d.lock"]
    kept = [home / "worker-4712.lock", home / "workers" / "headrace-host-0a1b2c3d.lock"]
    for each in (*left, *kept):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    with lock(kept[0]):
        daemon.run_keeper()
    assert not any(each.exists() for each in left) and all(each.exists() for each in kept)


@pytest.mark.slow
def test_a_call_in_the_foreground_that_is_killed_before_it_stays_leaves_no_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: tuple[dict[str, str], Callable[[], list[str]]]
) -> None:
    monkeypatch.chdir(tmp_path)
    # given a keeper that holds its lock; no server answers it
    environment = {**marked[0], "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    process = subprocess.Popen([sys.executable, "-P", "-c", STARTED], env=environment)
    try:
        assert eventually(lambda: is_held(tmp_path / ".prefect" / "keeper.lock"))
        # when the call that started it is killed
        process.kill()
        process.wait()
        # then it ends, and so do all its processes
        assert eventually(lambda: not marked[1]()), marked[1]()
    finally:
        process.kill()
        down(print)
