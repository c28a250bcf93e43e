"""How much of a flow's wall time is not the work itself: Prefect's engine, its server's answers, artifacts, and our locks and notes.

prefect_share: 1 - (time of the funnel's own work) / (time of the flow `curate`), on ROWS generated queries, with a server that runs
already, as a deployment's does. Of the funnel's subtasks only the work inside counts as its own. What Prefect costs does not grow with the
rows, so at ten million the share is smaller.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Deadline, Figures
from benchmarks.operations.whole_runs import FOLDER

KEYS = ("prefect_share", "prefect_share_rows")
MINUTES = 12.0
ROWS = 2_000_000


def measure(_: Deadline) -> Figures:
    from flows.runtime.server import client_environment, own_server

    folder = FOLDER / "share"
    shutil.rmtree(folder, ignore_errors=True)
    with own_server(folder / ".prefect") as url:
        environment = os.environ | client_environment(folder / ".prefect", url)
        command = [sys.executable, "-m", "benchmarks.operations.prefect_share", str(folder), str(ROWS)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)  # a process of its own, because Prefect reads its settings once
    return {"prefect_share": json.loads((folder / "share.json").read_text()), "prefect_share_rows": ROWS}


def _share(folder: Path, rows: int) -> float:
    from flows.config import Config
    from flows.curate import curate, make_haystack
    from flows.runtime.run_flow import flush_to_server

    settings = Config(store=folder / "store")
    settings = settings.model_copy(update={"haystack": settings.haystack.model_copy(update={"rows": rows})})
    queries = make_haystack.fn(settings)
    with _timed() as inside:
        began = time.monotonic()
        curate(settings, [str(queries.absolute())])
        total = time.monotonic() - began
        flush_to_server()
    print(f"    {rows:,} rows: the flow {total:.0f} s, the funnel {inside[0]:.0f} s of them", flush=True)
    return 1 - inside[0] / total


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Adds up the seconds inside `filters.funnel.curate`, without what Prefect takes for the subtasks inside it."""
    from filters import funnel
    from flows.runtime.deployed import subtasks

    seconds, original, as_task = [0.0], funnel.curate, subtasks.run_as_task

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return original(*arguments, **named)
        finally:
            seconds[0] += time.monotonic() - began

    def timed_subtask(name: str, work: Callable[[], Any]) -> Any:
        inside = 0.0

        def timed_work() -> Any:
            nonlocal inside
            began = time.monotonic()
            try:
                return work()
            finally:
                inside = time.monotonic() - began

        began = time.monotonic()
        try:
            return as_task(name, timed_work)
        finally:
            seconds[0] -= time.monotonic() - began - inside

    funnel.curate, subtasks.run_as_task = timed, timed_subtask
    try:
        yield seconds
    finally:
        funnel.curate, subtasks.run_as_task = original, as_task


if __name__ == "__main__":
    measured = _share(Path(sys.argv[1]), int(sys.argv[2]))
    (Path(sys.argv[1]) / "share.json").write_text(json.dumps(measured))
