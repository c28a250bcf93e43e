"""What both providers start a box with: the guest's source and configuration, and the wait until it is ready."""

from __future__ import annotations

import marshal
import os
import platform
import time
from dataclasses import replace
from pathlib import Path

from synth.sandbox import seccomp
from synth.sandbox.base import Box, Limits, Protection, SandboxError

READY_S = 30.0
NOBODY = 65_534
GUEST_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
GUEST = Path(__file__).with_name("guest.py").read_text(encoding="utf-8")


def guest_command(
    python: str,
    name: str,
    without: frozenset[Protection],
    *,
    mount: str = "",
    address_bytes: int = 0,
    processes: int = 0,
) -> list[str]:
    """The command line of a box's process 1; the box's `name` stands at its end, for whoever looks at the list of processes.

    mount: options of the work folder's file system, where the guest mounts it itself. address_bytes, processes: limits that hold for
    each process and user, where no control group does; 0 for none.
    """
    try:
        program = b"" if "seccomp" in without else seccomp.program(platform.machine())
    except ValueError as error:
        raise SandboxError(str(error)) from error
    # Without no_new_privs an unprivileged process may install no filter: these two go together.
    configuration = {
        "without": sorted(without),
        "filter": "" if "new_privileges" in without else program.hex(),
        "mount": mount,
        "address_bytes": address_bytes,
        "processes": processes,
        "environment": {name: value for name, value in os.environ.items() if "environment" in without and name.startswith("HEADRACE_")},
    }
    return [python, "-s", "-S", "-c", GUEST, marshal.dumps(configuration, 2).hex(), name]


def lifted(limits: Limits, without: frozenset[Protection]) -> Limits:
    """The limits of a box, twice as high where they are not to protect: escapes shall do bounded harm then."""
    names = {"memory": "memory_bytes", "processes": "processes", "disk": "disk_bytes", "inodes": "inodes"}
    return replace(limits, **{name: 2 * getattr(limits, name) for protection, name in names.items() if protection in without})


def work_folder(limits: Limits) -> str:
    """Options of the tmpfs that is the work folder."""
    return f"size={limits.disk_bytes},nr_inodes={limits.inodes},mode=1777"


def wait_until_ready(box: Box) -> None:
    """Raises SandboxError, the box closed, if its guest does not come up."""
    try:
        header, _ = box.wire.receive(0, time.monotonic() + READY_S)
        if not header.get("ready"):
            raise SandboxError(f"the guest of {box.name} began with {header}")
    except SandboxError as error:
        said = " ".join(box.said().split())
        box.close()
        raise SandboxError(f"the box {box.name} did not come up: {error}{f'; it said: {said}' if said else ''}") from error
