"""A Prefect server of the project's own, for whoever has named none.

One idea: the server is one process that lives as long as somebody holds the shared lock `.prefect/clients.lock`. Every run that
uses it holds that lock, so the kernel itself tells the server when the last of them is gone, however it went; concurrent runs
share one server; a run that starts while the old server is going down waits for it and starts the next.
Its database lies in `.prefect/` of the folder in which Headrace is called, and is migrated under another name before it is
renamed, so a kill in the middle leaves no half-made one. It listens on loopback only and sends nothing anywhere.

With PREFECT_API_URL set none of this happens: that server is used. Prefect's ephemeral mode is never used (a killed run leaves
its server behind). The library below `flows/` needs no server.
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

from flows.runtime.locks import Busy, is_held, lock, when_released
from storage.errors import BadInput, HeadraceError

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is reported to anyone unless the user's environment says otherwise."""

BATCHED = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "50",
}
"""Task runs and events reach the database in batches: a third of the server's work, and no lag after the last task."""


def home() -> Path:
    """The folder of the project's own server: `.prefect` where Headrace is called. Raises BadInput where a file is in its place."""
    folder = Path.cwd() / ".prefect"
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file, where the folder of the project's own Prefect server belongs; move it away")
    return folder


def named_server() -> str | None:
    """The API URL of the server that the user has named, if any."""
    return os.environ.get("PREFECT_API_URL", "").rstrip("/") or None


def client_environment(folder: Path, url: str) -> dict[str, str]:
    """What a process needs in its environment to use the server at `url` (an API URL)."""
    return {**QUIET, **{key: os.environ[key] for key in QUIET if key in os.environ}, "PREFECT_HOME": str(folder), "PREFECT_API_URL": url}


def is_healthy(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a Prefect API answers at `url`."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def running_url(folder: Path) -> str | None:
    """The API URL of the project's own server, if that server lives."""
    if not is_held(folder / "server.lock"):
        return None
    try:
        return str(json.loads((folder / "server.json").read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None


@contextlib.contextmanager
def own_server(folder: Path, *, port: int = 0) -> Iterator[str]:
    """Use the project's own server, starting it where it is not there; yields its API URL.

    port: the one to listen on if it is free and the server must be started; 0 takes any.
    Raises HeadraceError with the end of the server's log where it does not come up within four minutes.
    """
    try:
        with lock(folder / "clients.lock", shared=True):
            yield _started(folder, port)
    finally:
        wait_until_gone(folder)


def _started(folder: Path, port: int) -> str:
    begun = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    while (waited := time.monotonic() - begun) < START_TIMEOUT_S:
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
    """Wait, at most 20 s, until the project's own server has ended, unless somebody still uses it."""
    clients = folder / "clients.lock"
    end = time.monotonic() + STOP_TIMEOUT_S
    while is_held(folder / "server.lock") and time.monotonic() < end:
        if not is_held(clients):  # by a server that is going down
            try:
                with lock(clients, wait=False):
                    pass
            except Busy:
                return
        time.sleep(0.05)


# ---- the server's own process ------------------------------------------------------------------------------------------


def serve(folder: Path, port: int) -> None:
    """Be the server, until no client is left. Exits 0 at once where another process is it already."""
    with contextlib.suppress(Busy), lock(folder / "server.lock", wait=False):
        address = folder / "server.json"
        address.unlink(missing_ok=True)
        listener = _listen(port)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        database = folder / f"prefect-{version('prefect')}.db"
        os.environ.update(server_environment(folder, url, database))
        stop = threading.Event()
        when_released(folder / "clients.lock", lambda: _leave(address, stop))
        _migrate(folder, database)
        _run(listener, address, url, stop)


def server_environment(folder: Path, url: str, database: Path) -> Mapping[str, str]:
    """The environment of a server that listens at `url`; the UI is told where its API is by the last two."""
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
    """A socket bound to `port` of the loopback interface, or to any free one where that is taken."""
    for wanted in (port, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted))
            return listener
        except OSError:
            listener.close()
    raise OSError("no free port on the loopback interface")


def _migrate(folder: Path, database: Path) -> None:
    """Make `database` where it is not there, from the newest of another Prefect version if there is one."""
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

    def hand_over() -> None:
        stop.wait()
        server.should_exit = True

    threading.Thread(target=hand_over, daemon=True).start()
    draft = address.with_suffix(".new")
    draft.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    draft.rename(address)
    server.run(sockets=[listener])
    os._exit(0)


def _leave(address: Path, stop: threading.Event) -> None:
    """Stop: in good order where the server has come up, else at once; never later than ten seconds."""
    if not address.exists():
        os._exit(0)
    address.unlink()
    stop.set()
    time.sleep(10)
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
