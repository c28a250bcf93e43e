"""How long a user waits for the first answer: `headrace --help` and `headrace doctor`, each in a fresh process.

help_cold_s, doctor_s: median wall seconds of some calls, of whole processes, with compiled bytecode. The first call of each is left out: it
writes the bytecode, and reads files that are not in memory yet.
help_slowest_s: the slowest `--help` of all commands, one call each.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from typer.main import get_command

from benchmarks.harness import ROOT, Deadline, Figures
from flows.cli.main import app

KEYS = ("help_cold_s", "help_slowest_s", "doctor_s")
MINUTES = 2
CALLS = 7


def measure(_: Deadline) -> Figures:
    return {
        "help_cold_s": _median_s(["--help"]),
        "help_slowest_s": max(call_s([*command, "--help"]) for command in list_commands()),
        "doctor_s": _median_s(["doctor"]),
    }


def list_commands() -> list[list[str]]:
    """The words of every command and group of commands."""
    found, groups = [], [([], get_command(app))]
    while groups:
        words, group = groups.pop()
        for name, command in getattr(group, "commands", {}).items():
            found.append([*words, name])
            groups.append(([*words, name], command))
    return found


def call_s(arguments: Sequence[str]) -> float:
    """Wall seconds of a call of `headrace` in a new process. Raises CalledProcessError if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli.main", *arguments], env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def _median_s(arguments: Sequence[str]) -> float:
    call_s(arguments)
    return statistics.median(call_s(arguments) for _ in range(CALLS))
