"""The project's own Prefect server, used if PREFECT_API_URL is not set.

One idea: the server is one process. It lives as long as any run holds the shared lock `.prefect/clients.lock`. Every run that uses the
server holds this lock, so the server learns from the kernel when the last run ends, even by a kill. Concurrent runs share one server.
A run that starts while the old server shuts down waits for it and starts a new one.
The database lies in `.prefect/` of the working folder. It is migrated under another name and then renamed, so a kill leaves no
incomplete database. The server listens on loopback only and sends no data out.

With PREFECT_API_URL set, that server is used instead. Prefect's ephemeral mode is never used: a killed run would leave its server
running. The library below `flows/` needs no server.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from flows.runtime.locks import Busy, call_when_released, is_held, lock
from storage.errors import BadInput, HeadraceError
from synth.gc_paused import collect_seldom

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Settings that turn telemetry off. The user's environment overrides them."""

BATCHED = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "50",
}
"""Write task runs and events to the database in batches: a third of the server's work, and no delay after the last task."""


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
    return {**QUIET, **{key: os.environ[key] for key in QUIET if key in os.environ}, "PREFECT_HOME": str(folder), "PREFECT_API_URL": url}


def is_healthy(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a Prefect API answers at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def running_url(folder: Path) -> str | None:
    """The API URL of the project's own server, or None if it does not run."""
    if not is_held(folder / "server.lock"):
        return None
    try:
        return str(json.loads((folder / "server.json").read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None


@contextlib.contextmanager
def own_server(folder: Path, *, port: int = 0) -> Iterator[str]:
    """Use the project's own server, and start it if needed; yields its API URL.

    port: port of a newly started server if it is free; 0 takes any free port.
    Raises HeadraceError, with the last line of the server's log, if the server does not start within 240 s.
    """
    try:
        with lock(folder / "clients.lock", shared=True):
            yield _ensure_started(folder, port)
    finally:
        wait_until_gone(folder)


def _ensure_started(folder: Path, port: int) -> str:
    start = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    while (waited := time.monotonic() - start) < START_TIMEOUT_S:
        url = running_url(folder)
        if url and is_healthy(url):
            return url
        if process is not None and process.poll() not in (None, 0):
            break
        if (process is None or process.poll() is not None) and not is_held(folder / "server.lock"):
            process = _spawn(folder, port)
        time.sleep(0.1)
    log = folder / "server.log"
    tail = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
    raise HeadraceError(f"Prefect's server did not start within {waited:.0f} s: {' '.join(tail) or 'it wrote nothing'} (log: {log})")


def _spawn(folder: Path, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    if log.exists() and log.stat().st_size > 10_000_000:
        log.unlink()
    with log.open("ab") as out:
        command = [sys.executable, "-P", "-m", "flows.runtime.server", str(folder), str(port)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


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


def serve(folder: Path, port: int) -> None:
    """Run the server until its last client ends. Returns at once if another process is the server already."""
    with contextlib.suppress(Busy), lock(folder / "server.lock", wait=False):
        address = folder / "server.json"
        address.unlink(missing_ok=True)
        listener = _listen(port)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        database = folder / f"prefect-{version('prefect')}.db"
        os.environ.update(server_environment(folder, url, database))
        stop = threading.Event()
        call_when_released(folder / "clients.lock", lambda: _shut_down(address, stop))
        _migrate(folder, database)
        _run(listener, address, url, stop)


def server_environment(folder: Path, url: str, database: Path) -> Mapping[str, str]:
    """Environment variables of a server that listens at `url`. The UI reads the address of its API from the last two."""
    return {
        **client_environment(folder, url),
        **{key: os.environ.get(key, value) for key, value in BATCHED.items()},
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": url.rsplit(":", 1)[1].removesuffix("/api"),
        "PREFECT_UI_API_URL": url,
    }


def _listen(port: int) -> socket.socket:
    """A socket bound to `port` on the loopback interface, or to any free port if `port` is taken."""
    for candidate in (port, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
            return listener
        except OSError:
            listener.close()
    raise OSError("no free port on the loopback interface")


def _migrate(folder: Path, database: Path) -> None:
    """Create `database` if missing: a copy of the newest database of another Prefect version, if any, with the schema migrated."""
    if database.exists():
        return
    import asyncio

    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import provide_database_interface, temporary_database_config

    new = folder / "prefect.db.new"
    for leftover in folder.glob("prefect.db.new*"):
        leftover.unlink()
    with contextlib.closing(sqlite3.connect(new)) as target:
        for older in sorted(folder.glob("prefect-*.db"), key=lambda path: path.stat().st_mtime)[-1:]:
            with contextlib.closing(sqlite3.connect(older)) as source:
                source.backup(target)

    async def migrate() -> None:
        with temporary_database_config(AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{new}")):
            interface = provide_database_interface()
            await interface.create_db()
            await (await interface.engine()).dispose()

    asyncio.run(migrate())
    with contextlib.closing(sqlite3.connect(new)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new.rename(database)


def _run(listener: socket.socket, address: Path, url: str, stop: threading.Event) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(final=True), log_level="warning", timeout_keep_alive=30, timeout_graceful_shutdown=3))

    def exit_when_stopped() -> None:
        stop.wait()
        server.should_exit = True

    threading.Thread(target=exit_when_stopped, daemon=True).start()
    draft = address.with_suffix(".new")
    draft.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    draft.rename(address)
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
    serve(Path(sys.argv[1]), int(sys.argv[2]))
