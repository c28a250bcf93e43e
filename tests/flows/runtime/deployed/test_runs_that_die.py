"""Runs of deployments on the worker of `headrace up`: what is left of them when things are killed, and when they are cancelled."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from synth.sandbox import Bubblewrap
from tests.waiting import eventually

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

pytestmark = pytest.mark.slow

FLOW = '''
import hashlib, subprocess, sys, threading
from contextlib import ExitStack
from pathlib import Path
from prefect import flow

@flow
def slow(mark: str = "", stuck: bool = False, folder: str = "", far: str = ""):
    """Starts a child process, and works until it is ended; stuck: in C code that looks at no signal.

    far: a word in the command lines of a model server and a sandboxed program that it starts too, each in a session of its own.
    """
    with ExitStack() as started:
        if far:
            start_far(started, Path(folder), far)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(folder, f"{mark}.child").write_text(str(child.pid))
        if stuck:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
        child.wait()

def start_far(started: ExitStack, folder: Path, far: str) -> None:
    from synth.engines.vllm import VLLMConfig, serving
    from synth.sandbox import Bubblewrap, Limits, Sandbox

    started.enter_context(serving(VLLMConfig(model=far, environment=folder / "environment"), folder / "vllm.log"))
    if not Bubblewrap().missing():
        sandbox = started.enter_context(Sandbox(Bubblewrap(), Limits(wall_s=600)))
        threading.Thread(target=sandbox.run, args=(["sh", "-c", f"sleep 600; : {far}"],), daemon=True).start()
'''
MODEL_SERVER = """#!{python}
import http.server, sys

class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Healthy).serve_forever()
"""
"""Stands in for the Python of vLLM's environment: a server that is healthy at once."""
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

ONE_AT_A_TIME = "concurrency_limit: {limit: 1, collision_strategy: ENQUEUE}"


@pytest.fixture
def folder(tmp_path: Path, marked: tuple[dict[str, str], Callable[[], list[str]]]) -> Iterator[Path]:
    """A folder where `headrace up` has deployed the flow `slow`."""
    environment, alive = marked
    with installed(tmp_path, environment):
        yield tmp_path
    assert eventually(lambda: not alive()), alive()


HEADRACE = [sys.executable, "-P", "-m", "flows.cli.main"]


@contextmanager
def installed(folder: Path, environment: Mapping[str, str], limit: str = ONE_AT_A_TIME) -> Iterator[None]:
    """Call `headrace up` in a folder with the flow `slow`, and `headrace down` at the end. limit: on the runs of its deployment."""
    (folder / "slow.py").write_text(FLOW)
    (folder / "prefect.yaml").write_text(DEPLOYMENTS.replace(ONE_AT_A_TIME, limit))
    environment = {**environment, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    try:
        up = subprocess.run([*HEADRACE, "up"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert up.returncode == 0, up.stdout + up.stderr
        yield
    finally:
        subprocess.run([*HEADRACE, "down"], cwd=folder, env=environment, capture_output=True, check=False)


@contextmanager
def in_foreground(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Call `headrace up --foreground` in a folder with the flow `slow`, as a container does, until SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "slow.py").write_text(FLOW)
    (folder / "prefect.yaml").write_text(DEPLOYMENTS.replace(ONE_AT_A_TIME, ""))
    log = folder / "log.txt"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [*HEADRACE, "up", "--foreground"],
            cwd=folder,
            env={**environment, "PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_WEBSERVER_PORT": str(port)},
            stdout=out,
            stderr=out,
        ) as process,
    ):
        try:
            assert eventually(lambda: "stop it" in log.read_text(), 150), log.read_text()
            assert eventually(lambda: is_healthy(port)), log.read_text()
            yield
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            subprocess.run([*HEADRACE, "down"], cwd=folder, env=environment, capture_output=True, check=False)


def is_healthy(port: int) -> bool:
    """Whether the worker with this port says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


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
    assert eventually(lambda: not is_alive(dead_child))
    following_child = child_of(folder, "following")
    # and when that one is cancelled, its processes end
    assert cancel_s(client, following, following_child) < 30
    # and so do those of a run that hears the signal, and of one that does not, with a model server and a sandboxed program of theirs
    far = write_model_server(folder)
    programs = 2 if Bubblewrap().missing() else 3  # what watches the model server, the server, the sandboxed program
    for mark, is_stuck in (("far", False), ("stuck", True)):
        run = start(client, folder, mark, stuck=is_stuck, far=far)
        child = child_of(folder, mark)
        assert eventually(lambda: len(naming(far)) >= programs), naming(far)
        begun = time.monotonic()
        assert cancel_s(client, run, child) < 30
        assert eventually(lambda: not naming(far), 30) and time.monotonic() - begun < 30, naming(far)


@pytest.mark.server
def test_a_workers_runs_are_settled_by_another_one_that_shares_its_locks(
    tmp_path: Path, prefect_server: str, marked: tuple[dict[str, str], Callable[[], list[str]]]
) -> None:
    """As `docker compose up --scale worker=2` has them, each with a folder of its own; the server is one that others use too."""
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State, StateType

    environment = marked[0] | {"PREFECT_API_URL": prefect_server}
    one, other, shared = (tmp_path / name for name in ("one", "other", "workers"))
    for folder in (one, other):
        (folder / ".prefect").mkdir(parents=True)
        shared.mkdir(exist_ok=True)
        (folder / ".prefect" / "workers").symlink_to(shared)

    def claimed(worker: str) -> FlowRun:
        """A run that a worker has claimed and not begun."""
        submitting = State(type=StateType.PENDING, name="Submitting")
        parameters, labels = {"mark": worker, "folder": str(other)}, {"prefect.worker.name": worker}
        deployment = client.read_deployment_by_name("slow/now").id
        return client.create_flow_run_from_deployment(deployment, parameters=parameters, state=submitting, labels=labels)

    with SyncPrefectClient(prefect_server) as client, installed(one, environment, limit=""):
        # given a worker with as many runs as it takes, and one run that it has claimed and not begun
        assert eventually(lambda: len(list(shared.glob("*.lock"))) == 1)
        (name,) = (path.stem for path in shared.glob("*.lock"))
        dead = [start(client, one, mark) for mark in ("first", "second")]
        children = [child_of(one, mark) for mark in ("first", "second")]
        not_begun = claimed(name)
        with in_foreground(other, environment):
            # and a run of another worker, and one that somebody else's worker has claimed
            living = start(client, other, "living")
            child = child_of(other, "living")
            of_others = claimed("somebody's")
            # when all processes of the first worker's container are killed
            os.kill(state(one, "keeper")["pid"], signal.SIGKILL)
            # then the other one marks its runs, and begins what had not begun
            assert eventually(lambda: {name_of(client, run) for run in dead} == {"Crashed"}, 60), [name_of(client, run) for run in dead]
            assert eventually(lambda: not any(map(is_alive, children)))
            assert is_alive(child_of(other, name)) and name_of(client, not_begun) == "Running"
            # and leaves alone what lives, and what is not ours
            assert is_alive(child) and name_of(client, living) == "Running"
            assert name_of(client, of_others) == "Submitting"
        client.delete_flow_run(of_others.id)
    assert eventually(lambda: not marked[1]()), marked[1]()


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


def write_model_server(folder: Path) -> str:
    """Write the environment of a model server into the folder; returns a word for command lines."""
    python = folder / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(MODEL_SERVER.format(python=sys.executable))
    python.chmod(0o755)
    return f"far-{uuid.uuid4().hex}"


def naming(word: str) -> list[str]:
    """Command lines that have the word, of processes that live."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if word in line]


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
