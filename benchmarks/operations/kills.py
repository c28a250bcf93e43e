"""kill -9 at seeded moments: of the flow, the Prefect server and the trainer of whole runs, and of Ray's workers below a funnel.

kills: how many. recoveries_equal_hash: kills after which the same command (for a worker of Ray: the command that was running) ended with
the content hash of an undisturbed one. left_processes: processes in a folder that were alive ten seconds after its last command had ended.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.harness import Deadline, Figures
from benchmarks.operations.whole_runs import FOLDER, Pieces, headrace, run, undisturbed
from storage.store import Store

KEYS = ("kills", "recoveries_equal_hash", "left_processes")
MINUTES = 10.0
KILLS, RAY_KILLS = 50, 10
RAY_CONFIG = "haystack:\n  rows: 300000\n"
"""For the funnel on Ray: so many rows that its tasks last."""
_IN_A_FOLDER = 10
"""Most kills of one run, one after another, before it may end."""
_OF_A_FUNNEL = 4
"""Most workers of Ray killed below one funnel: Ray tries a task six times."""


def measure(deadline: Deadline) -> Figures:
    """Each run is killed up to ten times on its way; a kill counts as recovered if its run ends with the hash of an undisturbed one."""
    _, expected = undisturbed()
    deadline.allows(MINUTES)
    pieces = Pieces("kills")
    if "ray" not in pieces.kept:
        kills, recovered, left = _kill_workers_of_ray(random.Random(7))
        pieces.keep("ray", kills=kills, recovered=recovered, left=left)
    while (kills := pieces.total("kills")) < KILLS:
        deadline.allows(MINUTES)
        picked = random.Random(len(pieces.kept))
        folder = FOLDER / f"killed-{len(pieces.kept)}"
        shutil.rmtree(folder, ignore_errors=True)
        done = 0
        while done < min(_IN_A_FOLDER, KILLS - kills):
            victim = picked.choice(list(VICTIMS))
            was_killed, is_over = _run_and_kill(folder, victim, picked.uniform(1.0, 25.0))
            done += was_killed
            print(
                f"    {kills + done}: {victim} {'killed' if was_killed else 'not seen'}{', the run ended' if is_over else ''}", flush=True
            )
            if is_over or not was_killed:
                break  # a kill of a run that has ended tries nothing
        ended = run(folder)
        is_equal = ended.code == 0 and Store(folder / "store").content_hash() == expected
        pieces.keep(folder.name, kills=done, recovered=done * is_equal, left=_left(folder))
        print(f"    {done} kills in this folder; {'equal hash' if is_equal else f'NOT equal: {ended.last_line}'}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return {key: pieces.total(figure) for key, figure in zip(KEYS, ("kills", "recovered", "left"), strict=True)}


def _kill_workers_of_ray(picked: random.Random) -> tuple[int, int, int]:
    """Kills, kills after which the command that was running ended with the hash of one that runs without Ray, and processes left."""
    folder = FOLDER / "ray"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "ray.yaml").write_text(RAY_CONFIG)
    curate = ("curate", "--config", "ray.yaml", "--store")
    headrace(*curate, "undisturbed", folder=folder)
    expected = Store(folder / "undisturbed").content_hash()
    kills = recovered = left = number = 0
    while kills < RAY_KILLS:
        number += 1
        killed: list[int] = []
        ended = headrace(*curate, str(number), "--ray", "local", folder=folder, kill_when=_killer_of_workers(folder, picked, killed))
        done = len(killed)
        is_equal = ended.code == 0 and Store(folder / str(number)).content_hash() == expected
        kills, recovered, left = kills + done, recovered + done * is_equal, left + _left(folder)
        print(f"    {kills}: {done} workers of Ray killed; {'equal hash' if is_equal else f'NOT equal: {ended.last_line}'}", flush=True)
    shutil.rmtree(folder)
    return kills, recovered, left


def _killer_of_workers(folder: Path, picked: random.Random, killed: list[int]) -> Callable[[], bool]:
    """To be asked again and again: kills one of Ray's workers every few seconds, and notes its process. Always returns False."""
    next_at = time.monotonic()

    def kill_one() -> bool:
        nonlocal next_at
        if len(killed) < _OF_A_FUNNEL and time.monotonic() >= next_at and (workers := _of(folder, "ray::_call")):
            with suppress(ProcessLookupError):
                os.kill(worker := picked.choice(workers), signal.SIGKILL)
                killed.append(worker)
            next_at = time.monotonic() + picked.uniform(0.5, 3.0)
        return False

    return kill_one


def _run_and_kill(folder: Path, victim: str, after_s: float) -> tuple[bool, bool]:
    """Runs, and kills the victim once it has been seen for `after_s` seconds; whether it was killed, and whether the run ended well."""
    seen_at: list[float] = []
    killed: list[int] = []

    def look() -> bool:
        if killed:
            return False
        pid = VICTIMS[victim](folder)
        if pid is None:
            return False
        seen_at.append(time.monotonic())
        if seen_at[-1] - seen_at[0] < after_s:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return False

    ended = run(folder, kill_when=look)
    return bool(killed), ended.code == 0


def _of(folder: Path, word: str) -> list[int]:
    """Processes that work in the folder or name it, and have a word in their command line; the youngest last."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in command and str(folder) in command + str((entry / "cwd").readlink()):
                found.append((entry.stat().st_ctime, int(entry.name)))
    return [pid for _, pid in sorted(found)]


def _youngest(word: str) -> Callable[[Path], int | None]:
    return lambda folder: (_of(folder, word) or [None])[-1]


def _server(folder: Path) -> int | None:
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((folder / ".prefect" / "server.json").read_text())["pid"])
    return None


VICTIMS: dict[str, Callable[[Path], int | None]] = {
    "flow": _youngest("flows.cli.main"),
    "server": _server,
    "trainer": _youngest("train.run"),
}


def _left(folder: Path) -> int:
    """Processes of the folder that are alive after ten seconds."""
    end = time.monotonic() + 10
    while (left := _of(folder, "")) and time.monotonic() < end:
        time.sleep(0.2)
    return len(left)
