"""How much CPU time the same work takes beside other processes that compute, over what it takes alone.

Cores of one machine share caches, memory bandwidth, their clock and, on virtual machines, often their execution units; processes that take
turns on a core find its caches cold. The work is rounds of tokens of a rollout worker (`queue_costs.opened_rows`), in processes that begin
together. What it is for: `Machine` of `queue_simulation.py`.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

ROWS = 16
"""Rows of a round, about as many as a worker of the measured stage has that do not wait."""
ROUNDS = 60
"""Rounds until conversations end and others begin."""
SECONDS = 10.0


def measure_slowdown(policy: Path, length: int, most: int) -> tuple[float, ...]:
    """At index n: of n + 1 processes at once, for up to `most` of them; the first is 1. length: tokens of a row's prompt."""
    passes = [[_conversations_s(policy, length, processes) for processes in range(1, most + 1)] for _ in range(2)]
    alone, *beside = (statistics.fmean(column) for column in zip(*passes, strict=True))
    return (1.0, *(seconds / alone for seconds in beside))


def _conversations_s(policy: Path, length: int, processes: int) -> float:
    """Mean CPU seconds of `ROUNDS` rounds while so many processes compute."""
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(processes), context.Queue()
    children = [context.Process(target=_compute, args=(policy, length, barrier, found), daemon=True) for _ in range(processes)]
    for child in children:
        child.start()
    seconds = [found.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    return statistics.fmean(seconds)


def _compute(policy: Path, length: int, barrier: Barrier, found: Queue[float]) -> None:
    import torch

    from benchmarks.cluster.queue_sections.queue_costs import opened_rows
    from synth.engines.local.hf import HFEngine

    torch.set_num_threads(1)
    engine = HFEngine(policy)

    def conversations() -> None:
        batch = opened_rows(engine, ROWS, length)
        for _ in range(ROUNDS):
            batch.step()

    conversations()  # compiles
    barrier.wait(timeout=120)
    started, spent, times = time.monotonic(), time.process_time(), 0
    while time.monotonic() - started < SECONDS:
        conversations()
        times += 1
    found.put((time.process_time() - spent) / times)
    barrier.wait(timeout=120)  # nobody ends while others are measured
