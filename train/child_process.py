"""Child processes that die with their parent, even if the kernel kills the parent; and work that is shared among such processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

Result = TypeVar("Result")
Job = TypeVar("Job", bound=Hashable)
_PR_SET_PDEATHSIG = 1
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
"""Environment of a training stage."""


def dying_with_parent(parent: int | None = None) -> Callable[[], None]:
    """A function that a child calls before exec, or first of all, to die with its parent. parent: process id; None: this process."""
    parent = os.getpid() if parent is None else parent  # 0 is valid: the parent of a container's first process
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return die_with_parent


def run_in_workers(call: Callable[..., Result], jobs: Mapping[Job, tuple[Any, ...]], processes: int) -> Iterator[tuple[Job, Result]]:
    """Each job with what `call(*arguments)` returned, as they end, in `processes` workers. An error or a stop drops those not begun."""
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(jobs)), mp_context=context, initializer=start_worker, initargs=(os.getpid(),))
    try:
        futures = {pool.submit(call, *arguments): job for job, arguments in jobs.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def start_worker(parent: int) -> None:
    """Initialises a worker process that `parent` started: it dies with the parent and uses torch as a stage does."""
    dying_with_parent(parent)()
    from train.device import settle

    settle()
