"""Whose box is it: the mark of the process that started it, so that what a killed process left can be told from what is in use.

A mark is where the process runs (this start of the kernel, this process namespace), its id, and its start time in clock ticks, since an
id alone is used again. What was marked elsewhere is never an orphan here: an engine may serve several machines and containers.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from functools import cache
from pathlib import Path

PREFIX = "headrace"
_counter = itertools.count()


def new_name(what: str = PREFIX) -> str:
    """A name that no other box of this machine has, and that tells its owner. `what`: its first word."""
    return f"{what}-{mark(os.getpid())}-{next(_counter)}"


def mark(pid: int) -> str:
    """`place-pid-start time` of a living process; start time 0 where there is no /proc, or no such process."""
    return f"{_place()}-{pid}-{_start_time(pid) or 0}"


def is_orphan(name: str, what: str = PREFIX) -> bool:
    """Whether a box of this name has lost its owner; False for names that are not ours, or not of this place."""
    parts = name.removeprefix(f"{what}-").split("-")
    if not name.startswith(f"{what}-") or len(parts) != 4 or parts[0] != _place() or not all(part.isdigit() for part in parts[1:]):
        return False
    return mark(int(parts[1])) != "-".join(parts[:3])


@cache
def _place() -> str:
    try:
        boot, namespace = Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, namespace = "", ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]


def _start_time(pid: int) -> int | None:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
