"""A control group of our own for a bubblewrap box: memory, processes and CPU of all its processes together.

Both versions of the kernel's interface: with version 1 a folder under each controller, with version 2 one folder beside our own. Where
we may not write there is none, and the box falls back on limits per process (`bubblewrap.py`).
Source: the kernel's admin-guide/cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from synth.sandbox.base import Limits, SandboxError
from synth.sandbox.owner import PREFIX, is_orphan

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""Not there in a kernel without swap accounting."""


@dataclass(frozen=True)
class Group:
    """folders: one a controller, or just one. A process joins by writing its id into `doors`."""

    folders: tuple[Path, ...]

    @property
    def doors(self) -> tuple[str, ...]:
        return tuple(str(folder / "cgroup.procs") for folder in self.folders)

    def close(self) -> None:
        """Ends every process in it, and removes it.

        Raises:
            SandboxError: processes that do not end in 5 s.
        """
        ends = time.monotonic() + 5.0
        for folder in self.folders:
            while folder.exists():
                _kill(folder)
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if time.monotonic() > ends:
                        raise SandboxError(f"the control group {folder} cannot be removed: {error}") from error
                    time.sleep(0.002)


def homes(root: Path = ROOT, own: str | None = None) -> tuple[Path, ...]:
    """The folders in which groups of ours can be made; none where we may not.

    own: what /proc/self/cgroup says.
    """
    lines = (own if own is not None else Path("/proc/self/cgroup").read_text()).splitlines()
    paths = {controller: path for _, names, path in (line.split(":", 2) for line in lines) for controller in names.split(",")}
    if (root / "cgroup.controllers").exists():
        parents = [(root / paths.get("", "/").lstrip("/")).parent, root]
        fit = [parent for parent in parents if parent.is_relative_to(root) and _delegates(parent)]
        return tuple(fit[:1])
    found = []
    for controller in CONTROLLERS:
        mount = root / controller
        inner = mount / paths.get(controller, "/").lstrip("/")
        folder = inner if inner.is_dir() else mount
        if not (folder / "cgroup.procs").exists() or not os.access(folder, os.W_OK):
            return ()
        found.append(folder)
    return tuple(found)


def make(name: str, limits: Limits, *, inside: tuple[Path, ...]) -> Group:
    """A new group in `homes()`; bubblewrap's own process counts among its processes. Raises SandboxError where the kernel refuses it."""
    memory_bytes, processes = limits.memory_bytes, limits.processes + 1
    group = Group(tuple(home / name for home in inside))
    quota_us = int(limits.cpus * PERIOD_US)
    try:
        for folder in group.folders:
            folder.mkdir()
        if len(group.folders) == 1:
            settings = {"memory.max": memory_bytes, "memory.swap.max": 0, "pids.max": processes, "cpu.max": f"{quota_us} {PERIOD_US}"}
            _set(group.folders[0], settings)
        else:
            memory, pids, cpu = group.folders
            _set(memory, {"memory.limit_in_bytes": memory_bytes, "memory.memsw.limit_in_bytes": memory_bytes})
            _set(pids, {"pids.max": processes})
            _set(cpu, {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us})
    except OSError as error:
        group.close()
        raise SandboxError(f"no control group of our own: {error}") from error
    return group


def reap(inside: tuple[Path, ...]) -> int:
    """Removes the groups whose owner is gone."""
    orphans = {path.name for home in inside for path in home.glob(f"{PREFIX}-*") if is_orphan(path.name)}
    for name in sorted(orphans):
        Group(tuple(home / name for home in inside)).close()
    return len(orphans)


def _delegates(folder: Path) -> bool:
    try:
        given = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return set(CONTROLLERS) <= set(given) and os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _set(folder: Path, settings: dict[str, object]) -> None:
    for name, value in settings.items():
        path = folder / name
        if path.exists() or name not in SWAP:
            path.write_text(str(value))


def _kill(folder: Path) -> None:
    """Its processes; none where somebody else has removed it meanwhile."""
    with contextlib.suppress(OSError):
        for line in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)
