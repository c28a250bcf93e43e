"""An installation that works for an hour: does it forget a run, start one twice, or grow?

soak_runs                scheduled runs that were to start
soak_missed              of them, those that never did
soak_doubled             of them, those that started more than once
soak_memory_growth_mib   resident memory of server and worker at the end, over that after a tenth of the runs
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psutil

from benchmarks.operations.light_deployments import Installation, installed, wait_for

RUNS, EVERY_S = 200, 20.0
SETTLED_S = 900.0
"""How much later than planned the last run may end."""


def measure(runs: int = RUNS, every_s: float = EVERY_S) -> dict[str, float]:
    """The figures over so many scheduled runs. Takes `runs * every_s` seconds, and more where the machine was too busy to keep up."""
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder, installed(Path(folder), every_s=every_s) as installation:
        wait_for(lambda: bool(ran(installation)), 300)
        first = min(ran(installation))
        samples: list[float] = []
        while (now := (datetime.now(UTC) - datetime.fromisoformat(first)).total_seconds()) < runs * every_s:
            samples.append(memory_mib(installation))
            time.sleep(min(every_s, max(0.1, runs * every_s - now)))
        begin = datetime.fromisoformat(first)
        planned = [(begin + timedelta(seconds=number * every_s)).isoformat() for number in range(runs)]
        wait_for(lambda: set(planned) <= set(ran(installation)) or not_waiting(installation, planned), SETTLED_S + every_s)
        counts = Counter(ran(installation))
    tenth = max(1, len(samples) // 10)
    print("    resident MiB, from tenth to tenth of the time:", *(round(memory) for memory in samples[::tenth]), flush=True)
    return {
        "soak_runs": float(len(planned)),
        "soak_missed": float(sum(counts[time_] == 0 for time_ in planned)),
        "soak_doubled": float(sum(counts[time_] > 1 for time_ in planned)),
        "soak_memory_growth_mib": float(np.median(samples[-tenth:]) - np.median(samples[tenth : 2 * tenth] or samples[:tenth])),
    }


def ran(installation: Installation) -> list[str]:
    """The times for which the runs that worked were scheduled; a run that worked twice is there twice."""
    note = installation.folder / "ran.txt"
    return note.read_text().splitlines() if note.exists() else []


def not_waiting(installation: Installation, planned: list[str]) -> bool:
    """Whether every planned run has ended in some way."""
    states = {run.expected_start_time.isoformat(): run.state for run in installation.runs("light/often") if run.expected_start_time}
    return all((state := states.get(time_)) is not None and state.is_final() for time_ in planned)


def memory_mib(installation: Installation) -> float:
    """Resident memory of the server and the worker."""
    processes = installation.state("server")["pid"], installation.state("keeper")["worker"]
    return sum(psutil.Process(process).memory_info().rss for process in processes) / 2**20
