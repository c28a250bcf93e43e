"""The funnel: raw queries in, a small set of executable tasks out, a verdict on every row.

Order (design of STAgent's funnel, cheap steps first): ingest, normalise, exact, rules, near, ground, equal, taxonomy, quality, difficulty,
pool, semantic (with taxonomy and reach by vectors), contamination, coverage, admission. What a step is stands in `step.py`. With a
language model for what the parser cannot read (`ground_model.py`), parse and ask come before ground.
Batches stream through the disk; the joining steps go by ranges of keys and by bands (`join_steps.py`). In memory are some 30 bytes a row
read; while near duplicates are decided, the compared texts, their candidate pairs and some 40 bytes a row of these; and when the pool is
drawn, the labels and unread words of what grounding has left. A run's id is a hash of the files' contents and formats, the configuration,
the code of this room and the one below, and what was seen before (`dedup_index.py`); so a killed run goes on where it was, a finished one
is not done again, and either gives the same rows.

It decides nothing itself, and trains on nothing: what becomes of the tasks is another room's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filters import ingest
from filters.dedup.dedup_index import NothingNew, read_before
from filters.funnel_config import FunnelConfig
from filters.ingest import source_files
from filters.run import FunnelResult, Run
from filters.step import Executor, Progress
from storage.store import Store

__all__ = ["FunnelConfig", "FunnelResult", "NothingNew", "curate", "new_files"]


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
        HeadraceError: the disk is full, the store is held by another process, a language model is gone or its budget spent. What was
            done is there for the next try.
    """
    started = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        run = executor or threads
        named = source_files.locate(sources)
        if config.only_new:
            named = new_files(store, named, run)
        return Run(store, ingest.inspect(named, config.ingest, run), config, progress, run, started).result()


def new_files(store: Store, named: Sequence[str], executor: Executor) -> list[str]:
    """The files that no run has read into the store, known by their hash alone; what was read may be damaged by now.

    Raises NothingNew: there is none.
    """
    known = read_before(store)
    new = [name for name, content_hash in zip(named, executor.map(ingest.content_hash, named), strict=True) if content_hash not in known]
    if not new:
        raise NothingNew(f"nothing new: every file ({len(named)} in all) was read into {store.root} before")
    return new
