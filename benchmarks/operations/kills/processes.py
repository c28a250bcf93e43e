"""The processes that work in a folder."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Killed:
    """kills: how many. recovered: those after which the work ended as an undisturbed one. left: processes that were left in the end."""

    kills: int
    recovered: int
    left: int


def processes_of(folder: Path, word: str = "") -> list[int]:
    """Processes that work in the folder or name it, and have the word in their command line; the youngest last."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in command and str(folder) in command + str((entry / "cwd").readlink()):
                found.append((entry.stat().st_ctime, int(entry.name)))
    return [pid for _, pid in sorted(found)]


def kill(pid: int) -> bool:
    """Whether the process was there to be killed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def left_in(folder: Path) -> int:
    """Processes of the folder that are alive after ten seconds."""
    end = time.monotonic() + 10
    while (left := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    return len(left)
