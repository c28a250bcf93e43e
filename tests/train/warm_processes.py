"""Processes in which the trainer is imported already: forked from one server, they save the six CPU-seconds of its import."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from train.child_process import OFFLINE, THREADS

IMPORTED = ["train.run", "train.sft.sft", "train.rl.rl"]


@cache
def context() -> ForkServerContext:
    """Starts the server, which ends with this process."""
    here = multiprocessing.get_context("forkserver")
    here.set_forkserver_preload(IMPORTED)
    before = dict(os.environ)
    try:
        os.environ.update(THREADS | OFFLINE)
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return here


def warm_workers(patch: pytest.MonkeyPatch, module: str = "train.child_process") -> None:
    """Has pools of worker processes that this module starts fork from the server."""
    patch.setattr(f"{module}.multiprocessing", SimpleNamespace(get_context=lambda _: context()))
    patch.setattr(f"{module}.start_worker", start_player)


class WarmProcess:
    """The part of `subprocess.Popen` that `LocalBackend` uses."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._process = context().Process(target=_execute, args=(arguments, log))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("stage", timeout or 0.0)
        return self._process.exitcode


def start(command: list[str], log: Path) -> WarmProcess:
    """Replaces `train.backends.local.start` for a command `python -P -m train.run SPEC`."""
    assert command[:-1] == [sys.executable, "-P", "-m", "train.run"]
    return WarmProcess(command[3:], log)


def run_code(code: str, *arguments: str, log: Path) -> int:
    """As `python -c CODE ARGUMENTS`. Gives the exit code, negative for a signal; the output is in the log."""
    return WarmProcess(["-c", code, *arguments], log).wait()


def start_player(_: int) -> None:
    """Replaces `train.child_process.start_worker`: the process's parent is the server."""
    from train.device import settle

    settle()


def _execute(arguments: list[str], log: Path) -> None:
    os.setsid()
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(arguments[1], names)
    else:
        from train.run import main

        sys.exit(main(arguments[1:]))
