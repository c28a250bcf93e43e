"""The funnel on Ray against the funnel on threads: the same store, and what Ray costs on one machine.

A million rows are curated twice, each in a fresh process whose whole tree is measured: on threads, and on a Ray cluster of this machine's
own (`ray_executor("local")`, its start and end included). `ray_equal` is 1 where both stores have the same content hash; `ray_overhead` is
CPU over CPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from benchmarks.funnel_sections.rows import WORK, kept_json, log
from benchmarks.funnel_sections.scale import FEWER_THREADS, ONE_IN
from benchmarks.harness import Deadline, Figures, Section, fail, run_tree

ROWS = 1_000_000


def sections() -> list[Section]:
    return [Section("ray", ("ray_equal", "ray_overhead"), measure, minutes=10)]


def measure(_: Deadline) -> Figures:
    return kept_json(WORK / "ray.json", _measured)


def _measured() -> Figures:
    queries, _plants = log(ROWS, ROWS // ONE_IN)
    hashes, spent = {}, {}
    for where in ("threads", "ray"):
        store, output = WORK / f"store-{where}", WORK / f"{where}.log"
        shutil.rmtree(store, ignore_errors=True)
        environment = {key: value for key, value in os.environ.items() if key not in FEWER_THREADS}
        command = [sys.executable, "-m", "benchmarks.funnel", f"--on-{where}", str(queries), str(store)]
        usage = run_tree(command, log=output, environment=environment)
        if usage.returncode:
            fail(f"curating {queries} on {where} ended with code {usage.returncode}; its output is in {output}")
        hashes[where], spent[where] = output.read_text().split()[-1], usage.cpu_s
        print(
            f"    {where}: {usage.wall_s:.1f} s, {usage.cpu_s:.1f} CPU-s, {usage.peak_gib:.2f} GiB, content {hashes[where][:16]}",
            flush=True,
        )
        shutil.rmtree(store)
    return {"ray_equal": float(hashes["threads"] == hashes["ray"]), "ray_overhead": spent["ray"] / spent["threads"]}


def curate_on(where: str, queries: Path, store: Path) -> None:
    """In a process of its own: the run that is measured; its last word is the store's content hash."""
    from contextlib import nullcontext

    from filters.funnel import FunnelConfig, curate
    from flows.runtime.ray_executor import LOCAL, ray_executor
    from storage.store import Store

    with ray_executor(LOCAL) if where == "ray" else nullcontext() as executor:
        curate(Store(store), [queries], FunnelConfig(keep_one_in=ONE_IN), executor=executor)
    print(Store(store).content_hash())
