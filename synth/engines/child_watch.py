"""Runs a command that ends with the process that started it: `python -P child_watch.py COMMAND...`, with a pipe as standard input.

One idea: the pipe closes when the starting process ends, however it ends; then the command's process group is terminated. The command has
its own session, so Ctrl-C in a terminal reaches only this process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL."""


def main(command: list[str]) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_input, args=(process,), daemon=True).start()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: _terminate(process))
    code = process.wait()
    _kill_group(process)  # processes that the command started and left behind
    return code if code >= 0 else 128 - code


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the command's process group and waits until the group is empty, at most GRACE_S: a killed process ends a moment later."""
    end = time.monotonic() + GRACE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)


def _end_with_input(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    _terminate(process)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
