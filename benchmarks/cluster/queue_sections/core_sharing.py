"""Slowdown of a process by others that compute: its CPU time for the same work, over that when alone.

Cores of one machine share caches, memory bandwidth, their clock and, on virtual machines, often their execution units; processes that take
turns on a core find its caches cold. The work is rounds of tokens of a rollout worker, in processes that begin together. What it is for:
`Machine` of `queue_simulation.py`.

What it does not do: measure learning, or the start of a process.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from synth.engines.local.continuous import ContinuousBatch
    from synth.engines.local.hf import HFEngine

ROWS, ROUNDS = 16, 60
"""Conversations of a process, and tokens of each until others begin."""
MEASURED_S = 10.0
"""Wall seconds that each process computes, at least."""
TIMEOUT_S = 120.0


def opened_rows(engine: HFEngine, rows: int, length: int) -> ContinuousBatch:
    """Conversations with prompts of `length` random tokens, none of them read. No token ends an answer, so every round has all rows."""
    from storage.records import Message
    from synth.engines.base import ChatRequest
    from synth.engines.local.continuous import ContinuousBatch

    vocabulary, rng = engine.model.config.vocab_size, random.Random(0)
    engine.chat_format.ends = frozenset()
    batch = ContinuousBatch(engine, rows)
    for row in range(rows):
        batch.join(str(row), ChatRequest(messages=(Message(role="user", content="a"),), max_tokens=10_000, temperature=1.0, seed=row))
        batch._taken[row].row.known[:] = [rng.randrange(vocabulary) for _ in range(length)]
        batch._taken[row].row.turn = length
    return batch


def measure_slowdown(policy: Path, length: int, most: int) -> tuple[float, ...]:
    """At index n: slowdown with n + 1 processes, 1 to `most`. length: tokens of a conversation's prompt."""
    passes = [[_conversations_s(policy, length, processes) for processes in range(1, most + 1)] for _ in range(2)]
    alone, *beside = (statistics.fmean(column) for column in zip(*passes, strict=True))
    return (1.0, *(seconds / alone for seconds in beside))


def _conversations_s(policy: Path, length: int, processes: int) -> float:
    """Mean CPU seconds of opening `ROWS` conversations and of `ROUNDS` rounds, while so many processes compute."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = (policy, length, barrier, results, os.getpid())
    children = [context.Process(target=_compute, args=arguments, daemon=True) for _ in range(processes)]
    try:
        for child in children:
            child.start()
        return statistics.fmean(results.get(timeout=TIMEOUT_S) for _ in children)
    except Empty:
        codes = [child.exitcode for child in children]
        raise RuntimeError(f"a process gave no CPU time within {TIMEOUT_S:g} s; exit codes: {codes}") from None
    finally:
        for child in children:
            if child.pid is not None:
                child.kill()
                child.join()


def _compute(policy: Path, length: int, barrier: Barrier, results: Queue[float], parent: int) -> None:
    from synth.engines.local.hf import HFEngine
    from train.child_process import start_worker

    start_worker(parent)
    engine = HFEngine(policy)

    def play() -> None:
        batch = opened_rows(engine, ROWS, length)
        for _ in range(ROUNDS):
            batch.step()

    play()  # compiles
    barrier.wait(timeout=TIMEOUT_S)
    started, spent, repeats = time.monotonic(), time.process_time(), 0
    while time.monotonic() - started < MEASURED_S:
        play()
        repeats += 1
    results.put((time.process_time() - spent) / repeats)
    barrier.wait(timeout=TIMEOUT_S)  # no process exits while others are measured
