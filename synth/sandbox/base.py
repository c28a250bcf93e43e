"""What a sandbox is to its callers: limits that go in, a result that comes out, and whose failure a failure is.

One idea: what the program did (a traceback, a crash, running out of its limits) is a `Result`; what we failed to do (the engine does not
answer, no box comes up) is a `SandboxError`. A policy is judged by the first and never by the second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, Protocol

from storage.errors import HeadraceError

if TYPE_CHECKING:
    from pathlib import Path

    from synth.sandbox.wire import Wire

WORK_DIR = "/tmp"
"""The one folder of a box that can be written, and every program's working directory."""
PROGRAM_BYTES = 120_000
"""Longest Python program or command that a run takes: Linux gives one argument 128 KiB."""

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
    "guest",
    "descriptors",
    "environment",
    "text",
    "reset",
]
"""What stands between a program and harm, one name a mechanism."""


class SandboxError(HeadraceError):
    """The sandbox itself failed: no engine, no image, a box that died or stopped answering. Says nothing about the program in it."""


class BoxDied(SandboxError):
    """A box that had come up died, stopped answering or makes no sense. It may have been spoiled before, so the program is run once more,
    in a box that nobody has used; a program that ends that one too has done it itself, and it is the program's failure."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use up. The first five hold for a box, all its programs together; the others for each run.

    There is no limit to lift for network (none), capabilities (none), new privileges (none), the user (nobody) and the root (read-only).
    """

    memory_bytes: int = 512 * 2**20
    """With `disk_bytes`: what is written to the work folder is memory. Without a control group of our own it holds per process."""
    processes: int = 64
    """Processes and threads alive at a time, one or two of which are ours."""
    cpus: float = 1.0
    disk_bytes: int = 64 * 2**20
    inodes: int = 4_096
    """Files and folders in the work folder."""
    cpu_s: int = 10
    """CPU seconds of each process of a run."""
    wall_s: float = 10.0
    open_files: int = 256
    output_bytes: int = 64 * 2**10
    """Of stdout and of stderr each; what comes after is read and thrown away."""

    def __post_init__(self) -> None:
        whole = {"memory_bytes", "processes", "disk_bytes", "inodes", "cpu_s", "open_files", "output_bytes"}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        wrong = [name for name, value in values.items() if not 0 < value < math.inf or (name in whole and not isinstance(value, int))]
        if wrong:
            raise ValueError(f"limits of a sandbox are above 0 and finite, and whole but for cpus and wall_s: {', '.join(wrong)}")
        if self.memory_bytes < 2**25 or self.processes < 8 or self.cpus < 0.01:
            raise ValueError("a sandbox needs at least 32 MiB of memory, 8 processes and 0.01 cpus to run Python at all")

    @property
    def of_box(self) -> tuple[float, ...]:
        """What a box is started with: two limits with the same can share one."""
        return (self.memory_bytes, self.processes, self.cpus, self.disk_bytes, self.inodes)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a program.

    exit_code: the program's; minus the signal's number where one ended it.
    stdout, stderr: safe to show (see `text.py`), cut at the limit.
    timed_out: its wall time or CPU time ran out.
    files: contents of the files that were asked for; missing: those that are not there, or are no plain files within the limits.
    """

    exit_code: int
    stdout: str
    stderr: str
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


class Box(Protocol):
    """A started container or namespace with its guest (`guest.py`); what a provider makes."""

    name: str
    wire: Wire

    def said(self) -> str:
        """The beginning of what it complained of while it came up."""
        ...

    def close(self) -> None:
        """Ends every process in it and removes all that is left of it; may be called again. Raises SandboxError where it cannot."""
        ...


class Provider(Protocol):
    """A way to start boxes. `without` takes single protections away: the escape suite shows with it what each is good for, and
    nothing else may ask for it."""

    name: str
    limits_whole_box: bool
    """Whether memory and CPU are limited for all processes of a box together, not for each."""

    def open(self, limits: Limits, *, without: frozenset[Protection] = frozenset()) -> Box:
        """Starts a box and waits until its guest is ready.

        Raises:
            SandboxError: it could not be started.
        """
        ...

    def showing(self, folder: Path) -> Provider:
        """The same provider, whose boxes without the protection `mounts` see this folder of the host: for the escape suite."""
        ...

    def missing(self) -> str:
        """What it needs and this machine has not, and how to get it; empty where it works."""
        ...

    def reap(self) -> int:
        """Removes what owners that died have left behind; returns how many boxes that was."""
        ...
