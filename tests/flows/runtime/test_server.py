"""The project's own Prefect server: clients share it, it ends with the last client, even a killed one, and a killed server comes back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.runtime.locks import Busy, die_with, is_held, lock
from flows.runtime.server import is_healthy, running_url
from tests.waiting import eventually

Marked = tuple[dict[str, str], Callable[[], list[str]]]

CLIENT = """
import sys
from pathlib import Path
from flows.runtime.server import own_server
with own_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    sys.stdin.readline()
"""


def client(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", CLIENT, str(folder)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_lock_is_free_after_its_holder_was_killed(tmp_path: Path, marked: Marked) -> None:
    # given a process that holds a lock, and another that must end with it
    path = tmp_path / "a.lock"
    hold = f"""
import time
from pathlib import Path
from flows.runtime.locks import lock
with lock(Path({str(path)!r})):
    print(1, flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-P", "-c", hold], stdout=subprocess.PIPE, text=True, env=marked[0])
    assert holder.stdout is not None and holder.stdout.readline()
    assert is_held(path)
    with pytest.raises(Busy), lock(path, wait=False):
        pass
    follow = (
        f"import time; from pathlib import Path; from flows.runtime.locks import die_with\ndie_with(Path({str(path)!r})); time.sleep(60)"
    )
    follower = subprocess.Popen([sys.executable, "-P", "-c", follow], env=marked[0], start_new_session=True)
    time.sleep(0.5)
    assert follower.poll() is None
    # when the holder is killed
    holder.kill()
    # then the other ends too, and the lock is free
    assert follower.wait(10) == -signal.SIGKILL
    assert not is_held(path)
    assert holder.wait() and not marked[1]()


@pytest.mark.slow
def test_clients_share_a_server_that_ends_with_the_last_client(tmp_path: Path, marked: Marked) -> None:
    environment, alive = marked
    folder = tmp_path / ".prefect"
    # given a client that is killed while the server creates its database
    first = client(folder, environment)
    assert eventually(lambda: any(folder.glob("prefect.db.new*")), every_s=0.02)
    first.kill()
    assert first.wait() and eventually(lambda: not alive()), alive()
    # when two clients start at once after that
    clients = [client(folder, environment) for _ in range(2)]
    urls = {process.stdout.readline().strip() for process in clients if process.stdout}
    # then they share one working server on loopback
    assert len(urls) == 1 and (url := urls.pop()).startswith("http://127.0.0.1:")
    assert is_healthy(url) and running_url(folder) == url
    # and when the server is killed, a client starts it again on its port
    server = json.loads((folder / "server.json").read_text())["pid"]
    os.kill(server, signal.SIGKILL)
    assert eventually(lambda: running_url(folder) == url and is_healthy(url), 120)
    assert json.loads((folder / "server.json").read_text())["pid"] != server
    # and the server stays when one client ends
    clients[0].communicate("\n")
    assert clients[0].returncode == 0 and is_healthy(url)
    # and it ends when the last client is killed
    clients[1].kill()
    assert clients[1].wait() and eventually(lambda: not alive()), alive()
    assert running_url(folder) is None
    # and a client that finds the database damaged is told, and leaves no process when it ends normally
    (database,) = folder.glob("prefect-*.db")
    database.write_bytes(bytes(database.stat().st_size))
    last = client(folder, environment)
    assert last.stdout is not None and f"is now in {database}.damaged-" in last.stdout.readline()
    assert last.stdout.readline().startswith("http://127.0.0.1:")
    last.communicate("\n")
    assert last.returncode == 0 and eventually(lambda: not alive()), alive()


LOSER = """
import sys, time
from pathlib import Path
from flows.runtime import server
folder = Path(sys.argv[1])
server.running_url = lambda folder: "http://127.0.0.1:1/api" if server.is_held(folder / "server.lock") else None
server.is_healthy = lambda url: True
with server.own_server(folder) as url:
    print(url, flush=True)
    server.RESTART_PORT_S = 0.5
    time.sleep(60)
"""
FAKE_SERVER = """
import sys, time
from pathlib import Path
from flows.runtime.locks import lock
with lock(Path(sys.argv[1]) / "server.lock"):
    print(1, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_client_whose_server_cannot_come_back_ends_with_one_line(tmp_path: Path, marked: Marked) -> None:
    # given a client of a server whose port another process has taken meanwhile
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": marked[0]}
    server = subprocess.Popen([sys.executable, "-P", "-c", FAKE_SERVER, str(tmp_path)], stdout=subprocess.PIPE)
    assert server.stdout is not None and server.stdout.readline()
    loser = subprocess.Popen([sys.executable, "-P", "-c", LOSER.replace(":1/", f":{port}/"), str(tmp_path)], **pipes)
    assert loser.stdout is not None and loser.stdout.readline()
    # when the server is killed
    server.kill()
    # then the client ends soon, with exit code 1
    _, errors = loser.communicate(timeout=30)
    assert loser.returncode == 1
    assert errors == f"error: Prefect's server was killed, and cannot be started again: another process has port {port} of 127.0.0.1\n"
    assert server.wait()
    taken.close()


def test_die_with_a_free_lock_ends_the_process_at_once(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        die_with(tmp_path / "free.lock")
        time.sleep(60)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
