"""A process that has imported everything a flow run needs, and waits for one: most of the seconds between an event and its run are imports.

One idea: the worker of `headrace up` has one spare. It listens at `.prefect/spare.sock`; a guard (`run_process.py`) hands it a run's
environment, folder and output, and it becomes that run's process. The guard then starts the next spare. Nothing is forked, so libraries
with threads are safe.

A spare refuses a run if our code has changed since its imports, or if the run's environment differs in more than Prefect's variables: the
guard then starts a fresh process, as without a spare. It ends with the worker, by the worker's lock.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flows.runtime.deployed.dead_runs import home_of
from flows.runtime.locks import Busy, die_with, is_held, lock

SOCKET, GO = "spare.sock", b"!"
OF_A_SHELL = {"PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES"}
OUR_PACKAGES = ("flows", "train", "filters", "synth", "storage")
IMPORTED = (
    "prefect.main",
    "prefect._internal.metrics",
    "prefect.flow_engine",
    "prefect.deployments.steps.core",
    "prefect.deployments.steps.pull",
    "prefect.events.worker",
    "prefect.runner.storage",
    "flows.pipeline",
)
IMPORTS_TIMEOUT_S, ANSWER_TIMEOUT_S, LOOK_EVERY_S = 60.0, 5.0, 0.5


class TakenSpare:
    """A spare that has become a run's process, as its guard sees it."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection, self.pid = connection, pid

    def wait(self) -> int:
        """Its exit code, once it has ended; -SIGKILL if it ended without one."""
        with contextlib.closing(_Descriptor(os.pidfd_open(self.pid))) as process:  # readable when it has ended, also of a zombie
            select.select([process.number], [], [])
        self._connection.settimeout(LOOK_EVERY_S)
        with contextlib.suppress(OSError, struct.error):
            return int(struct.unpack("i", self._connection.recv(4))[0])
        return -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def start_spare(worker_lock: Path) -> None:
    """Start a spare; it ends at once if there is one already."""
    command = [sys.executable, "-P", "-m", "flows.runtime.deployed.spare_engine", str(worker_lock)]
    with (home_of(worker_lock) / "keeper.log").open("ab") as log:
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def take_spare(home: Path, guard_pipe: int) -> TakenSpare | None:
    """Hand this process's environment, folder and output, and the guard's pipe, to the spare; None if there is none, or it refuses.

    A spare that still imports is waited for: it is ahead of a fresh process.
    """
    end = time.monotonic() + IMPORTS_TIMEOUT_S
    while not (home / SOCKET).exists() and is_held(home / "spare.lock") and time.monotonic() < end:
        time.sleep(0.05)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(ANSWER_TIMEOUT_S)
    with contextlib.suppress(OSError, struct.error), _address(home) as address:
        connection.connect(address)
        if _uid_of(connection) == os.getuid():
            job = json.dumps({"environment": dict(os.environ), "folder": str(Path.cwd())}).encode()
            socket.send_fds(connection, [struct.pack("i", len(job))], [0, 1, 2, guard_pipe])
            connection.sendall(job)
            spare = TakenSpare(connection, struct.unpack("i", connection.recv(4))[0])
            connection.sendall(GO)  # without it, the spare ends: it was too late, and a fresh process is started
            return spare
    connection.close()
    return None


@contextlib.contextmanager
def _address(home: Path) -> Iterator[str]:
    """The socket's address, by the number of the open folder: the path of a socket has at most 108 bytes."""
    with contextlib.closing(_Descriptor(os.open(home, os.O_RDONLY | os.O_DIRECTORY))) as folder:
        yield f"/proc/self/fd/{folder.number}/{SOCKET}"


def _uid_of(connection: socket.socket) -> int:
    """The user whose process is at the other end."""
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1])


def run_engine(guard_pipe: int) -> None:
    """Run Prefect's engine on the flow run that the environment names. guard_pipe: closed by the kernel when the guard ends."""

    def watch() -> None:
        os.read(guard_pipe, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="watch the guard", daemon=True).start()
    import runpy
    import warnings

    from flows.runtime.watched.traces import start_traces

    start_traces()
    warnings.filterwarnings("ignore", message=".*found in sys.modules", category=RuntimeWarning)
    sys.argv = sys.argv[:1]
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


def run_spare(worker_lock: Path) -> None:
    """Import, wait for one run, and become its process."""
    die_with(worker_lock)
    home = home_of(worker_lock)
    with contextlib.suppress(Busy), contextlib.ExitStack() as waiting:
        waiting.enter_context(lock(home / "spare.lock", wait=False))
        began_ns = time.time_ns()
        _import_all()
        files = _own_files()
        listener = waiting.enter_context(socket.socket(socket.AF_UNIX))
        (home / SOCKET).unlink(missing_ok=True)
        mask = os.umask(0o077)  # others must neither take the spare nor be taken for it
        with _address(home) as address:
            listener.bind(address)
        os.umask(mask)
        listener.listen(1)
        connection, _ = listener.accept()
        (home / SOCKET).unlink()
        waiting.close()
        connection.settimeout(ANSWER_TIMEOUT_S)
        try:
            header, descriptors, _, _ = socket.recv_fds(connection, 4, 4)
            job = json.loads(_receive(connection, struct.unpack("i", header)[0]))
            is_stale = _own_files() != files or max(files.values()) > began_ns
            if (differing := _differing(job["environment"])) or is_stale:
                print("the spare process is not used:", *(sorted(differing) or ["the code has changed"]), flush=True)
                return
            connection.sendall(struct.pack("i", os.getpid()))
            if connection.recv(1) != GO:
                return
        except (OSError, ValueError, struct.error) as error:
            print(f"the spare process is not used: {error!r}", flush=True)
            return
        connection.settimeout(None)
        _become(job, descriptors)
        code = _exit_code(lambda: run_engine(descriptors[3]))
        with contextlib.suppress(OSError):
            connection.sendall(struct.pack("i", code))
        connection.detach()  # open until the process has ended, with what Prefect sends at its exit


def _import_all() -> None:
    for name in IMPORTED:
        importlib.import_module(name)


def _own_files() -> Mapping[str, int]:
    """The files of our code that are imported, and when each was changed last, in nanoseconds."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in OUR_PACKAGES]
    paths = [path for module in modules if (path := getattr(module, "__file__", None))]
    return {path: os.stat(path).st_mtime_ns for path in paths if os.path.exists(path)}  # noqa: PTH110, PTH116


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size and (chunk := connection.recv(size - len(chunks))):
        chunks += chunk
    return bytes(chunks)


def _differing(environment: Mapping[str, str]) -> set[str]:
    """Names of variables that a run's environment has otherwise than this process, Prefect's aside."""
    names = {name for name, _ in set(environment.items()) ^ set(os.environ.items())} - OF_A_SHELL
    return {name for name in names if not name.startswith("PREFECT_")}


def _become(job: Mapping[str, Any], descriptors: list[int]) -> None:
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    from prefect.context import refresh_global_settings_context

    refresh_global_settings_context()


def _exit_code(run: Callable[[], None]) -> int:
    try:
        run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    run_spare(Path(sys.argv[1]))
