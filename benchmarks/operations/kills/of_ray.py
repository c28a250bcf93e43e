"""Ray's workers, killed below a funnel."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.operations.kills.processes import Killed, kill, left_in, processes_of
from benchmarks.operations.whole_runs import FOLDER, headrace
from storage.store import Store

_KILLS = 10
_CONFIG = "haystack:\n  rows: 300000\n"
"""So many rows that the tasks last."""
_OF_A_FUNNEL = 4
"""Most workers killed below one funnel: Ray tries a task six times."""


def kill_workers_of_ray(picked: random.Random) -> Killed:
    """A kill has recovered if the command that was running ended with the hash of one that runs without Ray."""
    folder = FOLDER / "ray"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "ray.yaml").write_text(_CONFIG)
    curate = ("curate", "--config", "ray.yaml", "--store")
    headrace(*curate, "undisturbed", folder=folder)
    expected = Store(folder / "undisturbed").content_hash()
    kills = recovered = left = number = 0
    while kills < _KILLS:
        number += 1
        killed: list[int] = []
        ended = headrace(*curate, str(number), "--ray", "local", folder=folder, kill_when=_killer(folder, picked, killed))
        done = len(killed)
        is_equal = ended.code == 0 and Store(folder / str(number)).content_hash() == expected
        kills, recovered, left = kills + done, recovered + done * is_equal, left + left_in(folder)
        print(f"    {kills}: {done} workers of Ray killed; {'equal hash' if is_equal else f'NOT equal: {ended.last_line}'}", flush=True)
    shutil.rmtree(folder)
    return Killed(kills, recovered, left)


def _killer(folder: Path, picked: random.Random, killed: list[int]) -> Callable[[], bool]:
    """To be asked again and again: kills one of Ray's workers every few seconds, and notes its process. Always returns False."""
    next_at = time.monotonic()

    def kill_one() -> bool:
        nonlocal next_at
        if len(killed) < _OF_A_FUNNEL and time.monotonic() >= next_at and (workers := processes_of(folder, "ray::_call")):
            worker = picked.choice(workers)
            if kill(worker):
                killed.append(worker)
            next_at = time.monotonic() + picked.uniform(0.5, 3.0)
        return False

    return kill_one
