"""Cells: trainings and their results, kept in one file and worked on by processes beside each other.

A cell is a function of its specification (a frozen dataclass with numbers and names only), so any process may work on it. The results are
entries of the journal `benchmarks/results/evidence_cells.jsonl`, keyed by a hash of the specification and the version of the code that
decides them; a killed benchmark, or another machine, continues where it ends.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import ROOT, Deadline, OutOfTime
from storage.errors import HeadraceError
from storage.journal import Journal
from storage.records import content_id
from synth.blueprints import single_goal
from train.child_process import start_worker

VERSION = 2
"""To be raised by hand when code changes what a cell's result is: prompts, pools, held-out set, base, training."""
DRILLS = 2
"""Version of the drills (`single_goal.VERSION`) that the kept cells of routing and price were measured on; later ones have retail's
intents in another order. To measure all these cells anew, set it to that of the code."""
KEPT = ROOT / "benchmarks" / "results" / "evidence_cells.jsonl"
WORK = ROOT / ".cache" / "bench" / "evidence"
"""Bases, pools and held-out sets; made again where they are missing."""
PROCESSES = 2
Result = dict[str, Any]


class MissingCell(KeyError):
    """No result is kept of a specification."""


class Cells:
    """The kept results, by the key of their specification."""

    def __init__(self, path: Path = KEPT) -> None:
        self._journal = Journal(path)
        self._results: dict[str, Any] = {key: entry["result"] for key, entry in self._journal.entries().items()}

    def __contains__(self, spec: object) -> bool:
        return key_of(spec) in self._results

    def __getitem__(self, spec: object) -> Result:
        try:
            result: Result = self._results[key_of(spec)]
        except KeyError:
            raise MissingCell(f"no result of {spec} is kept: run `make bench evidence`") from None
        return result

    def add(self, spec: Any, result: Result) -> None:
        self._results[key_of(spec)] = result
        self._journal.append(key_of(spec), {"spec": {"kind": type(spec).__name__, **asdict(spec)}, "result": result})


def check_drills(drills: int) -> None:
    """Raises HeadraceError if the code draws other drills than the kept cells were measured on: cells of both cannot be compared."""
    if drills != single_goal.VERSION:
        raise HeadraceError(
            f"the kept cells have drills of version {drills}, the code draws version {single_goal.VERSION}: "
            "set DRILLS in benchmarks/experiment/cells.py to it, and all of routing and price are measured anew"
        )


def key_of(spec: Any) -> str:
    return content_id("cell", VERSION, type(spec).__name__, asdict(spec))


def work(
    specs: Sequence[Any], run: Callable[[Any], Result], cells: Cells, deadline: Deadline, *, minutes: float, again: bool = False
) -> None:
    """Has all specifications worked on that have no result yet, `PROCESSES` at once, the first ones first.

    again: work on those that have a result, too, because files that they leave are missing.
    minutes: that one takes at most; none is started that the deadline does not allow, and those at work are waited for.

    Raises:
        OutOfTime: the deadline left some undone.
    """
    waiting = deque(spec for spec in specs if again or spec not in cells)
    if not waiting:
        return
    running: dict[Future[Result], Any] = {}
    done, total, is_late = 0, len(waiting), False
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=start_worker, initargs=(os.getpid(),)) as pool:
        while waiting or running:
            while waiting and len(running) < PROCESSES and not is_late:
                try:
                    deadline.allows(minutes)
                except OutOfTime:
                    is_late = True
                    break
                spec = waiting.popleft()
                running[pool.submit(run, spec)] = spec
            if not running:
                break
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                spec = running.pop(future)
                cells.add(spec, future.result())
                done += 1
                print(f"    {done}/{total} {spec}: {_summary(cells[spec])}", flush=True)
    if waiting:
        raise OutOfTime


def _summary(result: Result) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in result.items() if isinstance(value, (int, float)))


def pack(bits: Sequence[bool]) -> str:
    return np.packbits(np.asarray(bits, dtype=bool)).tobytes().hex()


def unpack(packed: str, count: int) -> NDArray[np.float64]:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(packed), dtype=np.uint8))
    return bits[:count].astype(np.float64)
