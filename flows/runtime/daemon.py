"""`headrace up` and `headrace down`: server, work pool, deployments and worker, kept running until told to stop.

One idea: a keeper process in the background holds `.prefect/keeper.lock` and is a client of the project's own server, so that server
lives as long as the keeper does. The keeper's children, the worker and the flow runs that the worker starts, watch that lock and end
with it, `kill -9` included. With PREFECT_API_URL set, pool, deployments and worker are made on that server instead.
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
"""Environment variable that names the lock which a flow run started by our worker must not outlive."""


def up(say: Callable[[str], None]) -> str:
    """Start whatever is not running yet, deploy every flow of `prefect.yaml`; returns the server's API URL. Safe to call again.

    Raises BadInput where there is no prefect.yaml here, or `.prefect` is no folder; HeadraceError where something does not start.
    """
    if not Path("prefect.yaml").exists():
        raise BadInput("no prefect.yaml here: call `headrace up` in the folder of the project, where that file names the deployments")
    folder = home()
    if not is_held(folder / "keeper.lock"):
        _start_keeper(folder)
    say("starting the Prefect server and the worker")
    url = _wait_for(folder)
    say("deploying the flows of prefect.yaml")
    environment = {**os.environ, **client_environment(folder, url), "PWD": str(Path.cwd())}
    _prefect(environment, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _prefect(environment, "--no-prompt", "deploy", "--all")
    return url


def down(say: Callable[[str], None]) -> None:
    """Stop what `up` started, in good order; whatever has not stopped after 20 s is killed. Safe to call again."""
    folder = home()
    keeper = folder / "keeper.lock"
    if not is_held(keeper):
        say("nothing is running")
        return
    told: int | None = None
    end = time.monotonic() + STOP_TIMEOUT_S
    while is_held(keeper) and time.monotonic() < end:
        if told is None:
            with contextlib.suppress(OSError, ValueError, KeyError):  # in its first and last moments a keeper has no file
                told = int(json.loads((folder / "keeper.json").read_text())["pid"])
                os.kill(told, signal.SIGTERM)
        time.sleep(0.1)
    if told is not None and is_held(keeper):
        with contextlib.suppress(ProcessLookupError):
            os.kill(told, signal.SIGKILL)
    wait_until_gone(folder)
    say("stopped the worker and its runs; the server stops with them unless a run of your own still uses it")


def _start_keeper(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "keeper.json").unlink(missing_ok=True)
    with (folder / "keeper.log").open("wb") as out:
        command = [sys.executable, "-P", "-m", "flows.runtime.daemon", "keep"]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


def _wait_for(folder: Path) -> str:
    end = time.monotonic() + READY_TIMEOUT_S
    started = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):
            url = str(json.loads((folder / "keeper.json").read_text())["url"])
            if is_healthy(url):
                return url
        if time.monotonic() > started and not is_held(folder / "keeper.lock"):
            break
        time.sleep(0.2)
    tail = (folder / "keeper.log").read_text(errors="replace").strip().splitlines()[-1:]
    raise HeadraceError(f"the worker's keeper did not come up: {' '.join(tail)} (log: {folder / 'keeper.log'})")


def _prefect(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-12:]
        raise HeadraceError(f"`prefect {' '.join(arguments)}` failed:\n" + "\n".join(last))


# ---- the keeper and the worker -----------------------------------------------------------------------------------------


def keep() -> None:
    """Be the keeper: hold a server, run one worker, until SIGTERM or until the worker ends."""
    folder = home()
    with contextlib.suppress(Busy), lock(folder / "keeper.lock", wait=False), contextlib.ExitStack() as stack:
        _note(folder, pid=os.getpid())
        url = named_server() or stack.enter_context(own_server(folder, port=DEFAULT_PORT))
        # A worker that inherits an ignored SIGINT, as children of a shell's `&` do, would never stop in good order.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.runtime.daemon", "work"],
            env={**os.environ, **client_environment(folder, url), KEEPER_LOCK: str(folder / "keeper.lock")},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        signal.signal(signal.SIGTERM, lambda *_: worker.send_signal(signal.SIGINT))
        _note(folder, pid=os.getpid(), url=url, worker=worker.pid)
        worker.wait()
        (folder / "keeper.json").unlink(missing_ok=True)


def _note(folder: Path, **what: Any) -> None:
    """Leave word for `up` and `down`: `pid` from the first moment, `url` once the server is there."""
    replace_atomically(folder / "keeper.json", lambda draft: draft.write_text(json.dumps(what)))


def work() -> None:
    """Be the worker, for as long as the keeper lives."""
    die_with(Path(os.environ[KEEPER_LOCK]))
    sys.argv = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", f"headrace-{os.getpid()}", "--limit", "2"]
    from prefect.cli import app

    app()


def end_with_keeper() -> None:
    """Called by every flow: a run that our worker started ends with the keeper, even where the worker was killed."""
    if KEEPER_LOCK in os.environ:
        die_with(Path(os.environ[KEEPER_LOCK]))


if __name__ == "__main__":
    {"keep": keep, "work": work}[sys.argv[1]]()
