"""The funnel: raw queries in, a small set of executable tasks out, a verdict on every row.

Order (design of STAgent's funnel, cheap steps first): ingest, normalise, exact, rules, near, ground, equal, taxonomy, quality, difficulty,
coverage, admission. What a step is stands in `step.py`. Batches stream through the disk; the joining steps go by partitions of keys and by
bands (`dedup.py`), and what is held in memory is some 15 bytes a row, and the texts that are compared while near duplicates are decided.
A run's id is a hash of the files' contents and formats, the configuration, the code of this room and the one below, and what was seen
before (`seen.py`); so a killed run goes on where it was, a finished one is not done again, and either gives the same rows.

It decides nothing itself, and trains on nothing: what becomes of the tasks is another room's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filters import ingest
from filters.funnel_config import FunnelConfig
from filters.run import FunnelResult, Run
from filters.seen import NothingNew, unread
from filters.step import Executor, Progress
from storage.store import Store

__all__ = ["FunnelConfig", "FunnelResult", "NothingNew", "curate"]


def curate(
    store: Store, sources: Sequence[str | Path], config: FunnelConfig, *, progress: Progress | None = None, executor: Executor | None = None
) -> FunnelResult:
    """Runs the funnel over the files and commits everything that it found.

    Args:
        progress: is told the step, how many of its batches are done, and how many there are.
        executor: runs batches; threads of this process by default, as many as there are cores.

    Raises:
        NothingNew: `only_new`, and an earlier run has read every file.
        BadInput: see `ingest.inspect`; nothing was written then.
        HeadraceError: the disk is full, the store is held by another process. What was done is there for the next try.
    """
    started = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        run = executor or threads
        files = ingest.inspect(sources, config.ingest, run)
        if config.only_new:
            files = unread(store, files)
        return Run(store, files, config, progress, run, started).result()
