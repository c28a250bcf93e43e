"""Runs of deployments on the worker of `headrace up`: what is left of them when things are killed, and when they are cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

pytestmark = pytest.mark.slow

FLOW = '''
import hashlib, subprocess, sys
from pathlib import Path
from prefect import flow

@flow
def slow(mark: str = "", stuck: bool = False, folder: str = ""):
    """Starts a child process, and works until it is ended; stuck: in C code that looks at no signal."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(folder, f"{mark}.child").write_text(str(child.pid))
    if stuck:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
    child.wait()
'''
DEPLOYMENTS = """
name: slow
pull: [{prefect.deployments.steps.set_working_directory: {directory: "{{ $PWD }}"}}]
deployments:
  - name: now
    entrypoint: slow.py:slow
    concurrency_limit: {limit: 1, collision_strategy: ENQUEUE}
    work_pool:
      name: headrace
      job_variables: {command: python -P -m flows.runtime.deployed.run_process}
"""


@pytest.fixture
def folder(tmp_path: Path, marked: tuple[dict[str, str], Callable[[], list[str]]]) -> Iterator[Path]:
    """A folder where `headrace up` has deployed the flow `slow`."""
    environment, alive = marked
    (tmp_path / "slow.py").write_text(FLOW)
    (tmp_path / "prefect.yaml").write_text(DEPLOYMENTS)
    environment = environment | {"PREFECT_WORKER_QUERY_SECONDS": "1"}
    headrace = [sys.executable, "-P", "-m", "flows.cli.main"]
    up = subprocess.run([*headrace, "up"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        yield tmp_path
    finally:
        subprocess.run([*headrace, "down"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert eventually(lambda: not alive(), 15), alive()


@pytest.fixture
def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    from prefect.client.orchestration import SyncPrefectClient

    with SyncPrefectClient(state(folder, "server")["url"]) as client:
        yield client


def test_a_run_whose_worker_and_server_are_killed_is_crashed_and_the_next_one_works(folder: Path, client: SyncPrefectClient) -> None:
    # given a run that works, and one that waits for its slot
    dead = start(client, folder, "dead")
    dead_child = child_of(folder, "dead")
    following = start(client, folder, "following")
    # when worker and server are killed
    os.kill(state(folder, "keeper")["worker"], signal.SIGKILL)
    os.kill(state(folder, "server")["pid"], signal.SIGKILL)
    # then the run is marked within two minutes, none of its processes lives, and the next one works
    assert eventually(lambda: name_of(client, dead) == "Crashed", 120), name_of(client, dead)
    assert not is_alive(dead_child)
    following_child = child_of(folder, "following")
    # and when that one is cancelled, its processes end, and so do those of a run that computes in C code, which hears no signal
    assert cancel_s(client, following, following_child) < 30
    stuck = start(client, folder, "stuck", stuck=True)
    assert cancel_s(client, stuck, child_of(folder, "stuck")) < 30


def start(client: SyncPrefectClient, folder: Path, mark: str, **parameters: Any) -> FlowRun:
    deployment = client.read_deployment_by_name("slow/now")
    return client.create_flow_run_from_deployment(deployment.id, parameters={"mark": mark, "folder": str(folder), **parameters})


def cancel_s(client: SyncPrefectClient, run: FlowRun, child: int) -> float:
    """Cancel a run as Prefect's UI does; returns the seconds until it is Cancelled and its child process is gone."""
    from prefect.states import Cancelling

    assert is_alive(child)
    begin = time.monotonic()
    client.set_flow_run_state(run.id, Cancelling())
    assert eventually(lambda: name_of(client, run) == "Cancelled" and not is_alive(child), 90), name_of(client, run)
    return time.monotonic() - begin


def child_of(folder: Path, mark: str) -> int:
    """The process id of the child of a run, once the run works."""
    note = folder / f"{mark}.child"
    assert eventually(lambda: note.exists() and note.read_text() != "", 150), (folder / ".prefect" / "keeper.log").read_text()[-3000:]
    return int(note.read_text())


def name_of(client: SyncPrefectClient, run: FlowRun) -> str | None:
    """The name of the run's state; None while the server does not answer."""
    import httpx

    try:
        return client.read_flow_run(run.id).state_name
    except httpx.TransportError:
        return None


def state(folder: Path, process: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ".prefect" / f"{process}.json").read_text())
    return found


def is_alive(process: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def eventually(holds: Callable[[], bool], within_s: float) -> bool:
    end = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True
