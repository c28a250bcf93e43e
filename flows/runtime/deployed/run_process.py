"""The process of a flow run that a worker starts (`command` in prefect.yaml): no part of a run outlives it.

One idea: a small guard starts Prefect's engine in a process group of its own, or takes the spare one (`spare_engine.py`), and is what the
worker sees.
- The engine ends: the guard kills what is left of the group, and ends with the engine's exit code.
- The worker asks it to end (a cancelled run): the engine gets SIGTERM and GRACE_S to clean up, then the whole group is killed. Without the
  guard a run that computes in C code is not stopped at all, and its children live on.
- The guard is killed, or the worker of `headrace up`: the kernel closes a pipe, or frees a lock, and the engine kills its group.
So once a worker of `headrace up` is dead, its runs are (`dead_runs.py`).

A process that left the group (a model server, a container) ends by its own means, as after any `kill -9`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from flows.runtime.deployed.dead_runs import home_of
from flows.runtime.deployed.spare_engine import TakenSpare, run_engine, start_spare, take_spare
from flows.runtime.locks import die_with

GRACE_S, SPARE_AFTER_S = 12.0, 5.0
Engine = subprocess.Popen[bytes] | TakenSpare
WORKER_LOCK = "HEADRACE_WORKER_LOCK"
"""Environment variable with the path of the lock of the worker that `headrace up` started. Its runs end when the lock is released."""


def guard() -> int:
    """Run the engine and end with it; returns its exit code, negative for a signal."""
    worker_lock, ended = os.environ.get(WORKER_LOCK), threading.Event()
    with contextlib.ExitStack() as stack:
        read_end, write_end = os.pipe()
        if worker_lock is None:
            engine: Engine = _start_engine(read_end)
        else:
            die_with(Path(worker_lock))
            engine = take_spare(home_of(Path(worker_lock)), read_end) or _start_engine(read_end)
            spare = threading.Thread(target=_start_spare_later, args=(Path(worker_lock), ended))
            spare.start()
            stack.callback(spare.join)
        os.close(read_end)
        signal.signal(signal.SIGTERM, lambda *_: _end(engine))
        code = engine.wait()
        ended.set()
        _kill_group(engine.pid)
        os.close(write_end)
        return code


def _start_engine(guard_pipe: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "flows.runtime.deployed.run_process", str(guard_pipe)]
    return subprocess.Popen(command, pass_fds=(guard_pipe,), start_new_session=True)


def _start_spare_later(worker_lock: Path, ended: threading.Event) -> None:
    """Start the next spare once this run has begun or ended: its imports would slow the begin."""
    ended.wait(SPARE_AFTER_S)
    start_spare(worker_lock)


def _end(engine: Engine) -> None:
    """Ask the engine to end, and kill its group after GRACE_S."""

    def kill_late() -> None:
        time.sleep(GRACE_S)
        _kill_group(engine.pid)

    with contextlib.suppress(ProcessLookupError):
        engine.send_signal(signal.SIGTERM)
    threading.Thread(target=kill_late, daemon=True).start()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_engine(int(sys.argv[1]))
    elif (exit_code := guard()) < 0:
        if -exit_code not in (signal.SIGKILL, signal.SIGSTOP):  # these two have no handler
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    else:
        sys.exit(exit_code)
