"""The sandbox's interface for callers: the limits of a program, its result, and the two errors.

One idea: what the program did (a traceback, a crash, reaching a limit) is a `Result`; what the sandbox failed to do (the engine does not
answer, no box starts) is a `SandboxError`. A policy is judged by the first and never by the second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from storage.errors import HeadraceError

PROGRAM_BYTES = 120_000
"""Longest Python program or command of a run: Linux gives one argument 128 KiB."""

Protection = Literal[
    "network",
    "mounts",
    "read_only",
    "user",
    "capabilities",
    "new_privileges",
    "seccomp",
    "pids",
    "memory",
    "processes",
    "cpu",
    "wall",
    "open_files",
    "disk",
    "inodes",
    "output",
    "core",
    "sweep",
    "supervisor",
    "descriptors",
    "environment",
    "text",
    "reset",
]
"""The mechanisms that protect the host, one name each. The escape tests switch off single ones; no other caller may."""


class SandboxError(HeadraceError):
    """The sandbox itself failed: no engine, no image, no box that starts or answers. It says nothing about the program."""


class BoxDied(SandboxError):
    """A started box died, stopped answering or sent malformed data. An earlier program may have damaged it, so the sandbox runs the program
    once more in a fresh box. If the fresh box dies too, the program is the cause, and has failed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a program. The first five hold for all programs of a box together, the others for each run.

    Whatever the limits: no network, no capabilities, no new privileges, an unprivileged user, a read-only root.
    """

    memory_bytes: int = 512 * 2**20
    """Includes the files of the work folder. Without a control group it holds for each process."""
    processes: int = 64
    """Processes and threads alive at a time; one or two of them are the sandbox's."""
    cpus: float = 1.0
    disk_bytes: int = 64 * 2**20
    inodes: int = 4_096
    """Files and folders of the work folder."""
    cpu_s: int = 10
    """CPU seconds of each process."""
    wall_s: float = 10.0
    open_files: int = 256
    output_bytes: int = 64 * 2**10
    """Of stdout and of stderr each; further bytes are read and discarded."""

    def __post_init__(self) -> None:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        fractions = ("cpus", "wall_s")
        wrong = [name for name, value in values.items() if not 0 < value < math.inf or not (isinstance(value, int) or name in fractions)]
        if wrong:
            raise ValueError(f"limits of a sandbox are above 0 and finite, and whole but for cpus and wall_s: {', '.join(wrong)}")
        if self.memory_bytes < 2**25 or self.processes < 8 or self.cpus < 0.01:
            raise ValueError("a sandbox needs at least 32 MiB of memory, 8 processes and 0.01 cpus to run Python at all")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a program.

    exit_code: of the program; minus the signal's number if a signal ended it.
    stdout, stderr: safe to show (`safe_text.py`), cut at the limit.
    value: the representation of a snippet's last line, safe to show; empty for programs.
    timed_out: the wall time or the CPU time ran out.
    ended_box: the program ended two boxes, the second one fresh.
    """

    exit_code: int
    stdout: str
    stderr: str
    value: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False
    ended_box: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out
