"""`headrace up` and `headrace down`: start and stop the server, work pool, deployments and worker.

One idea: a background process, the keeper, holds `.prefect/keeper.lock`. It is a client of the project's own server, so the server lives
as long as the keeper. The worker and the flow runs that it starts watch the lock and end when the keeper ends, even by `kill -9`.
With PREFECT_API_URL set, `up` creates pool, deployments and worker on that server instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.runtime.locks import Busy, die_with, is_held, lock
from flows.runtime.server import STOP_TIMEOUT_S, client_environment, home, is_healthy, named_server, own_server, wait_until_gone
from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically

POOL = "headrace"
DEFAULT_PORT = 4200
READY_TIMEOUT_S = 300.0
KEEPER_LOCK = "HEADRACE_KEEPER_LOCK"
"""Environment variable with the path of the keeper's lock. A flow run of our worker ends when this lock is released."""


def up(say: Callable[[str], None]) -> str:
    """Start the server and the worker if they do not run yet, and deploy every flow of `prefect.yaml`. Safe to call again.

    Returns the server's API URL.
    Raises BadInput if this folder has no prefect.yaml or `.prefect` is not a folder; HeadraceError if a process does not start.
    """
    if not Path("prefect.yaml").exists():
        raise BadInput(
            "no prefect.yaml in this folder: run `headrace up` in the folder of the project; prefect.yaml defines the deployments"
        )
    folder = home()
    if not is_held(folder / "keeper.lock"):
        _start_keeper(folder)
    say("starting the Prefect server and the worker")
    url, notes = _wait_until_ready(folder)
    for note in notes:
        say(f"warning: {note}")
    say("deploying the flows of prefect.yaml")
    environment = {**os.environ, **client_environment(folder, url), "PWD": str(Path.cwd())}
    _run_prefect(environment, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _run_prefect(environment, "--no-prompt", "deploy", "--all")
    return url


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


def _start_keeper(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "keeper.json").unlink(missing_ok=True)
    with (folder / "keeper.log").open("wb") as out:
        command = [sys.executable, "-P", "-m", "flows.runtime.daemon", "keep"]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


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


def _run_prefect(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        last = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()][-12:]
        raise HeadraceError(f"`prefect {' '.join(arguments)}` failed:\n" + "\n".join(last))


# ---- the keeper and the worker -----------------------------------------------------------------------------------------


def run_keeper() -> None:
    """Run as the keeper: hold a server and run one worker, until SIGTERM or until the worker ends."""
    folder = home()
    with contextlib.suppress(Busy), lock(folder / "keeper.lock", wait=False), contextlib.ExitStack() as stack:
        _write_state(folder, pid=os.getpid())
        notes: list[str] = []
        url = named_server() or stack.enter_context(own_server(folder, port=DEFAULT_PORT, say=notes.append))
        # Children of a shell's `&` inherit an ignored SIGINT. A worker with SIGINT ignored could not be stopped cleanly.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.runtime.daemon", "work"],
            env={**os.environ, **client_environment(folder, url), KEEPER_LOCK: str(folder / "keeper.lock")},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        signal.signal(signal.SIGTERM, lambda *_: worker.send_signal(signal.SIGINT))
        _write_state(folder, pid=os.getpid(), url=url, worker=worker.pid, notes=notes)
        worker.wait()
        (folder / "keeper.json").unlink(missing_ok=True)


def _write_state(folder: Path, **state: Any) -> None:
    """Write the keeper's state for `up` and `down`: `pid` at once, `url`, `worker` and `notes` once the server answers."""
    replace_atomically(folder / "keeper.json", lambda draft: draft.write_text(json.dumps(state)))


def run_worker() -> None:
    """Run as the worker until the keeper ends."""
    die_with(Path(os.environ[KEEPER_LOCK]))
    sys.argv = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", f"headrace-{os.getpid()}", "--limit", "2"]
    from prefect.cli import app

    app()


def end_with_keeper() -> None:
    """End this process when the keeper ends, if our worker started it. Every flow calls this, so no run survives a killed worker."""
    if KEEPER_LOCK in os.environ:
        die_with(Path(os.environ[KEEPER_LOCK]))


if __name__ == "__main__":
    {"keep": run_keeper, "work": run_worker}[sys.argv[1]]()
