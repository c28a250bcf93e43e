"""`headrace up` and `headrace down`: start and stop the server, work pool, deployments and worker.

One idea: a background process, the keeper, holds `.prefect/keeper.lock`. It is a client of the project's own server, so the server lives
as long as the keeper. The worker watches this lock, and the flow runs that it starts watch a lock of the worker: all end when the keeper
ends, even by `kill -9`. The keeper starts a killed worker again, after it has settled the runs that died with it.
With PREFECT_API_URL set, `up` creates pool, deployments and worker on that server instead. A container calls `up --foreground`, and its
keeper ends with that call, even by a kill. Keepers of several containers that share the folder `.prefect/workers` settle each other's runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from flows.runtime.deployed.automations import create_automations
from flows.runtime.deployed.dead_runs import hold_worker_lock, settle_runs
from flows.runtime.deployed.run_process import WORKER_LOCK
from flows.runtime.deployed.spare_engine import start_spare
from flows.runtime.locks import Busy, die_with, is_held, lock
from flows.runtime.server import STOP_TIMEOUT_S, client_environment, home, is_healthy, named_server, own_server, wait_until_gone
from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically

POOL = "headrace"
DEFAULT_PORT = 4200
FOREGROUND = "--with-healthcheck"
"""Argument of the keeper and the worker of `up --foreground`. The worker hands it to Prefect."""
READY_TIMEOUT_S = 300.0
KEEPER_LOCK = "HEADRACE_KEEPER_LOCK"
"""Environment variable with the path of the keeper's lock. The worker ends when this lock is released."""
QUERY_EVERY_S = "2"
"""How often the worker asks for runs. Prefect's 10 s would be most of the time between an event and the run that it starts."""
HEALTH_HOST = "127.0.0.1"
"""Where the worker of `up --foreground` says whether it is healthy; Prefect's 0.0.0.0 would open the port to others."""
LOOK_EVERY_S = 2.0
"""How often the keeper looks for dead workers of other keepers."""
SHORT_LIFE_S, LONGEST_PAUSE_S = 30.0, 60.0
"""A worker that ended sooner is started again after a pause, each time twice as long."""


def up(say: Callable[[str], None], *, foreground: bool = False) -> str:
    """Start the server and the worker if they do not run yet, and deploy every flow of `prefect.yaml`. Safe to call again.

    foreground: they write to this process' output and end with this process, and the worker says at port 8080 of 127.0.0.1
        (PREFECT_WORKER_WEBSERVER_PORT, PREFECT_WORKER_WEBSERVER_HOST) whether it is healthy.

    Returns the server's API URL.
    Raises BadInput if this folder has no prefect.yaml or `.prefect` is not a folder; HeadraceError if a process does not start.
    """
    if not Path("prefect.yaml").exists():
        raise BadInput(
            "no prefect.yaml in this folder: run `headrace up` in the folder of the project; prefect.yaml defines the deployments"
        )
    folder = home()
    if not is_held(folder / "keeper.lock"):
        _start_keeper(folder, foreground)
    say("starting the Prefect server and the worker")
    url, notes = _wait_until_ready(folder)
    for note in notes:
        say(f"warning: {note}")
    say("deploying the flows of prefect.yaml")
    with lock(folder / "workers" / "deploying"):  # two containers that start together would each create what is missing
        _deploy(folder, url, say)
    return url


def stay(say: Callable[[str], None]) -> None:
    """Wait for SIGTERM or Ctrl-C, and stop what `up` started. Raises HeadraceError: the keeper has ended by itself."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.wait(1.0):
        if not is_held(home() / "keeper.lock"):
            raise HeadraceError("the keeper of the worker has ended")
    down(say)


def down(say: Callable[[str], None]) -> None:
    """Stop the processes that `up` started. Kills the keeper if it does not stop within 20 s. Safe to call again."""
    folder = home()
    keeper = folder / "keeper.lock"
    if not is_held(keeper):
        say("nothing is running")
        return
    keeper_pid: int | None = None
    end = time.monotonic() + STOP_TIMEOUT_S
    while is_held(keeper) and time.monotonic() < end:
        if keeper_pid is None:
            with contextlib.suppress(OSError, ValueError, KeyError):  # a starting or ending keeper has no state file
                keeper_pid = int(json.loads((folder / "keeper.json").read_text())["pid"])
                os.kill(keeper_pid, signal.SIGTERM)
        time.sleep(0.1)
    if keeper_pid is not None and is_held(keeper):
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper_pid, signal.SIGKILL)
    wait_until_gone(folder)
    say("stopped the worker and its runs; the server stops too, unless another run still uses it")


def _start_keeper(folder: Path, foreground: bool) -> None:
    """Start the keeper. foreground: it reads a pipe that the kernel closes when this process ends, even by a kill, and ends then."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "keeper.json").unlink(missing_ok=True)
    with (folder / "keeper.log").open("wb") as log:
        command = [sys.executable, "-P", "-m", "flows.runtime.daemon", "keep", *([FOREGROUND] if foreground else [])]
        if not foreground:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            return
        read_end, _ = os.pipe()
        subprocess.Popen(command, stdin=read_end, start_new_session=True)
        os.close(read_end)


def _wait_until_ready(folder: Path) -> tuple[str, list[str]]:
    """Wait for the keeper's server; returns its API URL, and notes for the user. Raises HeadraceError if the keeper ends or 300 s pass."""
    end = time.monotonic() + READY_TIMEOUT_S
    lock_deadline = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = json.loads((folder / "keeper.json").read_text())
            if is_healthy(state["url"]):
                return state["url"], state["notes"]
        if time.monotonic() > lock_deadline and not is_held(folder / "keeper.lock"):
            break
        time.sleep(0.2)
    tail = (folder / "keeper.log").read_text(errors="replace").strip().splitlines()[-1:]
    raise HeadraceError(f"the keeper of the worker did not start: {' '.join(tail)} (log: {folder / 'keeper.log'})")


def _deploy(folder: Path, url: str, say: Callable[[str], None]) -> None:
    """Create or update the pool, the deployments of `prefect.yaml` and the automations of `automations.yaml`. Raises HeadraceError."""
    environment = {**os.environ, **client_environment(folder, url), "PWD": str(Path.cwd())}
    _run_prefect(environment, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _run_prefect(environment, "--no-prompt", "deploy", "--all")
    if Path("automations.yaml").exists():
        from prefect.client.orchestration import SyncPrefectClient, get_client

        with get_client(sync_client=True) if named_server() else SyncPrefectClient(url) as client:
            say(f"automations.yaml: {create_automations(Path('automations.yaml'), client)} automations")


def _run_prefect(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        last = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()][-12:]
        raise HeadraceError(f"`prefect {' '.join(arguments)}` failed:\n" + "\n".join(last))


# ---- the keeper and the worker -----------------------------------------------------------------------------------------


def run_keeper() -> None:
    """Run as the keeper: hold a server and keep one worker running, until SIGTERM."""
    folder = home()
    with contextlib.suppress(Busy), lock(folder / "keeper.lock", wait=False), contextlib.ExitStack() as stack:
        _write_state(folder, pid=os.getpid())
        _remove_locks_of_older_versions(folder)
        if FOREGROUND in sys.argv:
            threading.Thread(target=_stop_with_input, name="watch the foreground", daemon=True).start()
        notes: list[str] = []

        def say(note: str) -> None:
            notes.append(note)
            print(note, flush=True)

        named = named_server()
        url = named or stack.enter_context(own_server(folder, port=DEFAULT_PORT, say=say))
        os.environ.update(client_environment(folder, url))
        # Children of a shell's `&` inherit an ignored SIGINT. A worker with SIGINT ignored could not be stopped cleanly.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _keep_worker(folder, named is None, lambda worker: _write_state(folder, pid=os.getpid(), url=url, worker=worker, notes=notes))
        (folder / "keeper.json").unlink(missing_ok=True)


def _remove_locks_of_older_versions(folder: Path) -> None:
    """Older versions had locks elsewhere. Nothing looks at them any more: their workers' runs are known by the worker's name."""
    for each in (*folder.glob("worker-*.lock"), *folder.glob("runs/*.lock")):
        if not is_held(each):
            each.unlink(missing_ok=True)


def _stop_with_input() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _keep_worker(folder: Path, is_alone: bool, note_start: Callable[[int], None]) -> None:
    """Run a worker, and another one whenever it ends, until SIGTERM. is_alone: no other keeper has workers in the pool."""
    running: list[subprocess.Popen[bytes]] = []
    stopped: list[int] = []

    def stop(number: int, _frame: Any) -> None:
        stopped.append(number)
        for worker in running:
            worker.send_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, stop)
    pause_s = 1.0
    while not stopped:
        begin = time.monotonic()
        while not stopped and not _settle(folder, is_alone=is_alone):  # without a server, a worker could do nothing either
            time.sleep(LOOK_EVERY_S)
        running[:] = [_start_worker(folder)]
        note_start(running[0].pid)
        if stopped:
            running[0].send_signal(signal.SIGINT)
        print(f"the worker ended with exit code {_wait_for(running[0], folder)}", flush=True)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if time.monotonic() - begin < SHORT_LIFE_S else 1.0
        pause_end = time.monotonic() + pause_s
        while not stopped and time.monotonic() < pause_end:
            time.sleep(0.1)


def _wait_for(worker: subprocess.Popen[bytes], folder: Path) -> int:
    """The worker's exit code, once it has ended. Meanwhile the runs of other keepers' dead workers are settled."""
    last = ""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return worker.wait(LOOK_EVERY_S)
        try:
            _settle(folder)
        except Exception as error:  # an error that ends the keeper would kill a healthy worker
            if last != repr(error):
                print(f"cannot settle the runs of a dead worker: {error!r}", flush=True)
            last = repr(error)


def _start_worker(folder: Path) -> subprocess.Popen[bytes]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    defaults = {"PREFECT_WORKER_QUERY_SECONDS": QUERY_EVERY_S, "PREFECT_WORKER_WEBSERVER_HOST": HEALTH_HOST}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "flows.runtime.daemon", "work", *sys.argv[2:]],
        env={**defaults, **os.environ, KEEPER_LOCK: str(folder / "keeper.lock"), "PATH": programs},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _settle(folder: Path, *, is_alone: bool = False) -> bool:
    """Settle the runs of dead workers; whether a worker may start: the server answered, or another keeper settles now.

    is_alone: see `settle_runs`.
    """
    from httpx import HTTPError

    try:
        settle_runs(folder, POOL, is_alone=is_alone)
    except Busy:
        return not is_alone  # what it leaves is found by the next look; where no other keeper is, all must be settled first
    except HTTPError as error:
        print(f"cannot settle the runs of a dead worker: {error!r}", flush=True)
        return False
    return True


def _write_state(folder: Path, **state: Any) -> None:
    """Write the keeper's state for `up` and `down`: `pid` at once, `url`, `worker` and `notes` once the server answers."""
    replace_atomically(folder / "keeper.json", lambda draft: draft.write_text(json.dumps(state)))


def run_worker() -> None:
    """Run as the worker until the keeper ends. Its name is its own: by it dead runs are known (`dead_runs.py`)."""
    keeper, name = Path(os.environ[KEEPER_LOCK]), f"headrace-{os.uname().nodename}-{uuid4().hex[:8]}"
    die_with(keeper)
    sys.argv = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", name, "--limit", "2", *sys.argv[2:]]
    with hold_worker_lock(keeper.parent, name) as own:
        os.environ[WORKER_LOCK] = str(own)
        start_spare(own)
        from prefect.cli import app

        app()


def end_with_worker() -> None:
    """End this process when our worker ends, if it started it. Every flow calls this, so no run survives a killed worker."""
    if WORKER_LOCK in os.environ:
        die_with(Path(os.environ[WORKER_LOCK]))


if __name__ == "__main__":
    {"keep": run_keeper, "work": run_worker}[sys.argv[1]]()
