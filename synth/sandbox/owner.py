"""Whose box is it: the mark of the process that started it, so that what a killed process left can be told from what is in use.

A mark is the process id and the kernel's start time of it, in clock ticks: a process id alone is used again.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

PREFIX = "headrace"
_counter = itertools.count()


def new_name() -> str:
    """A name that no other box of this machine has, and that tells its owner."""
    return f"{PREFIX}-{mark(os.getpid())}-{next(_counter)}"


def mark(pid: int) -> str:
    """`pid-start time` of a living process; start time 0 where there is no /proc."""
    return f"{pid}-{_start_time(pid) or 0}"


def is_orphan(name: str) -> bool:
    """Whether a box of this name has lost its owner; False for names that are not ours."""
    parts = name.split("-")
    if len(parts) != 4 or parts[0] != PREFIX or not all(part.isdigit() for part in parts[1:]):
        return False
    return mark(int(parts[1])) != f"{parts[1]}-{parts[2]}"


def _start_time(pid: int) -> int | None:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else int(after_name[19])
