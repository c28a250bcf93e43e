"""Backups while a run works on the store: each is a state that can be restored, checked, and continued to the same end.

backup_while_running_equal: 1 if every backup succeeded and was whole, and the run on the middle one ended with the hash of an
undisturbed run.
"""

from __future__ import annotations

import shutil
import threading
import time

from benchmarks.harness import Deadline, Figures
from benchmarks.operations.whole_runs import FOLDER, Ended, headrace, run, undisturbed
from storage.health.backups import backups, restore
from storage.health.damage import check
from storage.store import Store

KEYS = ("backup_while_running_equal",)
MINUTES = 10.0


def measure(_: Deadline) -> Figures:
    _, expected = undisturbed()
    folder, kept = FOLDER / "backed-up", FOLDER / "backup"
    for path in (folder, kept):
        shutil.rmtree(path, ignore_errors=True)
    beside, made = list[Ended](), list[Ended]()
    worker = threading.Thread(target=lambda: beside.append(run(folder)))
    worker.start()
    while worker.is_alive():
        if Store(folder / "store").exists():
            made.append(headrace("store", "backup", str(kept), "--store", str(folder / "store"), folder=FOLDER / "backing-up"))
            print(f"    {made[-1].last_line[:120]}", flush=True)
        time.sleep(3)
    worker.join()
    names = backups(str(kept))
    states = []
    for name in names:
        target = FOLDER / "restored" / name
        shutil.rmtree(target, ignore_errors=True)
        restore(str(kept), target / "store", name=name)
        states.append(not check(target / "store"))
    middle = FOLDER / "restored" / names[len(names) // 2]
    ended = run(middle)
    is_equal = ended.code == 0 and Store(middle / "store").content_hash() == expected
    print(f"    {len(names)} backups while it ran, {sum(states)} whole")
    print(f"    continued from the middle one: {'equal hash' if is_equal else ended.last_line}", flush=True)
    return {
        "backup_while_running_equal": float(len(names) >= 2 and all(states) and is_equal and not any(one.code for one in (*beside, *made)))
    }
