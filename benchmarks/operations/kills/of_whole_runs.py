"""Whole runs whose flow, Prefect server or trainer is killed."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.operations.kills.processes import Killed, kill, left_in, processes_of
from benchmarks.operations.whole_runs import FOLDER, run
from storage.store import Store

_OF_A_RUN = 10
"""Most kills of one run, one after another, before it may end."""


def kill_in_whole_run(name: str, expected: str, picked: random.Random, *, most: int) -> Killed:
    """Runs the pipeline in the folder of this name, kills it up to `most` times, and lets it end. expected: content hash."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    kills = 0
    while kills < min(_OF_A_RUN, most):
        victim = picked.choice(list(VICTIMS))
        was_killed, is_over = _run_and_kill(folder, victim, picked.uniform(1.0, 25.0))
        kills += was_killed
        print(f"    {kills}: {victim} {'killed' if was_killed else 'not seen'}{', the run ended' if is_over else ''}", flush=True)
        if is_over or not was_killed:
            break  # a kill of a run that has ended tries nothing
    ended = run(folder)
    is_equal = ended.code == 0 and Store(folder / "store").content_hash() == expected
    if not is_equal:
        print(f"    NOT equal: {ended.last_line}", flush=True)
    left = left_in(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return Killed(kills, kills * is_equal, left)


def _run_and_kill(folder: Path, victim: str, after_s: float) -> tuple[bool, bool]:
    """Runs, and kills the victim once it has been seen for `after_s` seconds; whether it was killed, and whether the run ended well."""
    seen_at: list[float] = []
    killed: list[int] = []

    def look() -> bool:
        pid = None if killed else VICTIMS[victim](folder)
        if pid is not None:
            seen_at.append(time.monotonic())
            if seen_at[-1] - seen_at[0] >= after_s and kill(pid):
                killed.append(pid)
        return False

    ended = run(folder, kill_when=look)
    return bool(killed), ended.code == 0


def _youngest(word: str) -> Callable[[Path], int | None]:
    return lambda folder: (processes_of(folder, word) or [None])[-1]


def _server(folder: Path) -> int | None:
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((folder / ".prefect" / "server.json").read_text())["pid"])
    return None


VICTIMS: dict[str, Callable[[Path], int | None]] = {
    "flow": _youngest("flows.cli.main"),
    "server": _server,
    "trainer": _youngest("train.run"),
}
