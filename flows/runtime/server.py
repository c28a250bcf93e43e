"""The project's own Prefect server, used if PREFECT_API_URL is not set.

One idea: the server is one process. It lives as long as any run holds the shared lock `.prefect/clients.lock`. Every run that uses the
server holds this lock, so the server learns from the kernel when the last run ends, even by a kill. Concurrent runs share one server.
A run that starts while the old server shuts down waits for it and starts a new one.
A server that is killed while it has clients is started again by the first client that notices, on the same port with the same database.
The port is bound again at once, so requests of the runs wait until the new server answers them, and no run needs to know.
The database lies in `.prefect/` of the working folder (`server_database.py`). The server listens on loopback only and sends no data out.

With PREFECT_API_URL set, that server is used instead. Prefect's ephemeral mode is never used: a killed run would leave its server
running. The library below `flows/` needs no server.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flows.runtime.locks import Busy, call_when_released, is_held, lock, lock_soon
from flows.runtime.progress import warn
from flows.runtime.server_database import prepare
from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from synth.gc_paused import collect_again, collect_seldom

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0
LOOK_EVERY_S = 0.1
RESTART_STARTS = 2
"""Times that a restarted server may end before it answers."""
RESTART_PORT_S = 20.0
"""Seconds for which another process may have its port."""
RESTART_TIMEOUT_S = 60.0
"""Seconds until it must answer; on a busy machine it needs half of them."""

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Settings that turn telemetry off. The user's environment overrides them."""

LIBRARIES_LOGGED = {
    "PREFECT_LOGGING_EXTRA_LOGGERS": "accelerate,botocore,fsspec,mcp,peft,ray,s3fs,torch,transformers,trl",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
}
"""Put what these libraries log, warnings and worse, into the log of the flow run, and say nothing of what they log outside of one. `env` in
prefect.yaml has the same, for workers on another server. vLLM and trainers run as processes with logs of their own."""

BATCHED = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "50",
}
"""Write task runs and events to the database in batches: a third of the server's work, and no delay after the last task."""

DEPLOYMENTS = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "10",
}
"""Keep the leases of deployments' slots in files: those in memory, the default, end with a killed server, and the slots stay taken."""

FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""glibc keeps free memory for each of a program's threads, and a server that works for weeks has many of them in turn."""


def home() -> Path:
    """The folder of the project's own server: `.prefect` in the working folder. Raises BadInput if `.prefect` is a file."""
    folder = Path.cwd() / ".prefect"
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, but the project's own Prefect server needs a folder there; move the file away")
    return folder


def named_server() -> str | None:
    """The API URL in PREFECT_API_URL, or None."""
    return os.environ.get("PREFECT_API_URL", "").rstrip("/") or None


def client_environment(folder: Path, url: str) -> dict[str, str]:
    """Environment variables of a process that uses the server at the API URL `url`."""
    settings = {key: os.environ.get(key, value) for key, value in (QUIET | LIBRARIES_LOGGED).items()}
    return {**settings, "PREFECT_HOME": str(folder), "PREFECT_API_URL": url}


def is_healthy(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a Prefect API answers at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def running_url(folder: Path) -> str | None:
    """The API URL of the project's own server, or None if it does not run."""
    return _read_address(folder).get("url") if is_held(folder / "server.lock") else None


def _read_address(folder: Path) -> dict[str, Any]:
    """What the server writes when it is about to answer: `url`, `pid`, and `note`, a sentence for the user who started it."""
    try:
        return dict(json.loads((folder / "server.json").read_text()))
    except (OSError, ValueError):
        return {}


@contextlib.contextmanager
def own_server(folder: Path, *, port: int = 0, say: Callable[[str], None] = warn) -> Iterator[str]:
    """Use the project's own server, start it if needed, and start it again if it is killed; yields its API URL.

    If it cannot be started again, this process says so in one line and ends with exit code 1: what it has not committed is made again by
    the next call.

    port: port of a newly started server if it is free; 0 takes any free port.
    say: told if the server's database was damaged.
    Raises HeadraceError, with the last line of the server's log, if the server does not start within 240 s.
    """
    try:
        with lock(folder / "clients.lock", shared=True):
            url = _ensure_started(folder, (port, 0), say)
            with _keep_running(folder, url, say):
                yield url
    finally:
        wait_until_gone(folder)


@contextlib.contextmanager
def _keep_running(folder: Path, url: str, say: Callable[[str], None]) -> Iterator[None]:
    """Watch the server in a thread, and start it again on its port when its process is gone."""
    done = threading.Event()
    port = int(url.rsplit(":", 1)[1].removesuffix("/api"))

    def watch() -> None:
        while not done.wait(LOOK_EVERY_S):
            if not is_held(folder / "server.lock"):
                try:
                    _ensure_started(folder, (port,), say, again=True)
                except (HeadraceError, OSError) as error:
                    if not done.is_set():
                        _end_at_once(f"error: Prefect's server was killed, and cannot be started again: {error}")

    thread = threading.Thread(target=watch, name="watch the server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _end_at_once(line: str) -> None:
    """Write a line and end this process. Prefect's client would wait minutes for the server before it lets an error through."""
    show_cursor = "\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{show_cursor}{line}\n")
    sys.stderr.flush()
    os._exit(1)


def _ensure_started(folder: Path, ports: Sequence[int], say: Callable[[str], None], *, again: bool = False) -> str:
    """The URL of the server, once it answers.

    ports: of a newly started server, the first that is free; 0 is any.
    again: it was killed, and other clients may be starting it at this moment.
    Raises HeadraceError if it does not start.
    """
    begin = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    starts = 0
    with contextlib.ExitStack() as listeners:
        while (waited := time.monotonic() - begin) < (RESTART_TIMEOUT_S if again else START_TIMEOUT_S):
            url = running_url(folder)
            if url and is_healthy(url):
                if process is not None and (note := _read_address(folder).get("note")):
                    say(note)
                return url
            has_failed = process is not None and process.poll() not in (None, 0)
            if has_failed and not (again and starts < RESTART_STARTS):
                break
            if (process is None or process.poll() is not None) and not is_held(folder / "server.lock"):
                listeners.close()
                try:
                    listener = listeners.enter_context(contextlib.closing(_listen(*ports)))
                except OSError as error:
                    if not again or waited > RESTART_PORT_S:
                        raise HeadraceError(f"{error}") from None
                else:
                    process = _spawn(folder, listener)
                    starts += 1
            time.sleep(LOOK_EVERY_S)
    log = folder / "server.log"
    tail = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
    raise HeadraceError(
        f"Prefect's server did not start within {waited:.0f} s: {' '.join(tail) or 'it wrote nothing'} (log: {log}; "
        f"{folder}/prefect-*.db hold only the history of runs, and may be moved away)"
    )


def _listen(*ports: int) -> socket.socket:
    """A socket that listens on the first of `ports` that is free on the loopback interface; port 0 is any free one.

    Requests wait in it until a server answers them. Raises OSError if no port is free.
    """
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(2048)
            return listener
        except OSError:
            listener.close()
    raise OSError(f"another process has port {ports[-1]} of 127.0.0.1")


def _spawn(folder: Path, listener: socket.socket) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    if log.exists() and log.stat().st_size > 10_000_000:
        log.unlink()
    with log.open("ab") as out:
        socket_number = listener.fileno()
        command = [sys.executable, "-P", "-m", "flows.runtime.server", str(folder), str(socket_number)]
        return subprocess.Popen(
            command,
            env=FEW_ARENAS | os.environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(socket_number,),
        )


def wait_until_gone(folder: Path) -> None:
    """Wait at most 20 s until the project's own server has ended. Returns at once if another client uses it."""
    clients = folder / "clients.lock"
    end = time.monotonic() + STOP_TIMEOUT_S
    while is_held(folder / "server.lock") and time.monotonic() < end:
        if not is_held(clients):  # a server that shuts down holds it exclusively
            try:
                with lock(clients, wait=False):
                    pass
            except Busy:
                return
        time.sleep(0.05)


# ---- the server's own process ------------------------------------------------------------------------------------------


def serve(folder: Path, listener: socket.socket) -> None:
    """Run the server until its last client ends. Returns at once if another process is the server already."""
    with contextlib.suppress(Busy), lock_soon(folder / "server.lock"):
        address = folder / "server.json"
        address.unlink(missing_ok=True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        database = folder / f"prefect-{version('prefect')}.db"
        os.environ.update(server_environment(folder, url, database))
        stop = threading.Event()
        call_when_released(folder / "clients.lock", lambda: _shut_down(address, stop))
        note = prepare(folder, database)
        _run(listener, address, {"url": url, "pid": os.getpid(), "note": note}, stop)


def server_environment(folder: Path, url: str, database: Path) -> Mapping[str, str]:
    """Environment variables of a server that listens at `url`. The UI reads the address of its API from the last two."""
    return {
        **client_environment(folder, url),
        **{key: os.environ.get(key, value) for key, value in (BATCHED | DEPLOYMENTS).items()},
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": url.rsplit(":", 1)[1].removesuffix("/api"),
        "PREFECT_UI_API_URL": url,
    }


def _run(listener: socket.socket, address: Path, content: Mapping[str, Any], stop: threading.Event) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(final=True), log_level="warning", timeout_keep_alive=30, timeout_graceful_shutdown=3))

    def exit_when_stopped() -> None:
        stop.wait()
        server.should_exit = True

    threading.Thread(target=exit_when_stopped, daemon=True).start()
    replace_atomically(address, lambda draft: draft.write_text(json.dumps(content)))
    collect_again()
    server.run(sockets=[listener])
    os._exit(0)


def _shut_down(address: Path, stop: threading.Event) -> None:
    """Stop the server: cleanly if it is up, else at once; after ten seconds in any case."""
    if not address.exists():
        os._exit(0)
    address.unlink()
    stop.set()
    time.sleep(10)
    os._exit(0)


if __name__ == "__main__":
    collect_seldom()
    serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
