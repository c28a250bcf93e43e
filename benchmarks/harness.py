"""What every benchmark shares: sections that are measured once, a budget of time, and the result file.

A benchmark is a list of sections, each a function that returns some of the figures. A section's figures are kept under `.cache/bench/`
with the commit they were measured at, so that a call that ran out of its time (75 minutes) goes on where it stopped; the result file
is written once every key is there. Figures are numbers only; units are in their names.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 75 * 60
PACKAGES = ("polars", "duckdb", "datasketch", "numba", "prefect", "torch", "transformers", "trl")

Figures = dict[str, float]


@dataclass(frozen=True)
class Section:
    """`keys` are the figures that `measure` returns, all of them."""

    name: str
    keys: tuple[str, ...]
    measure: Callable[[], Mapping[str, float]]


def commit() -> str:
    """The commit measured, marked where the tree differs from it."""
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "-uno", "--", ":!benchmarks/results"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return f"{head}+changes" if dirty.strip() else head


def machine() -> str:
    model = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ""
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB"


def run_sections(name: str, sections: Sequence[Section]) -> int:
    """Measures what is not measured yet at this commit, and writes `benchmarks/results/NAME.json` when all is there.

    Returns 0 when the result file was written, 3 when the time ran out before (call again).
    """
    started = time.monotonic()
    at = commit()
    partial_path = ROOT / ".cache" / "bench" / f"{name}.json"
    partial = json.loads(partial_path.read_text()) if partial_path.exists() else {}
    if partial.get("commit") != at:
        partial = {"commit": at, "figures": {}}
    figures: Figures = partial["figures"]
    for position, section in enumerate(sections, 1):
        if all(key in figures for key in section.keys):
            print(f"[{position}/{len(sections)}] {section.name}: measured before", flush=True)
            continue
        if time.monotonic() - started > BUDGET_S:
            left = [later.name for later in sections if not all(key in figures for key in later.keys)]
            print(f"out of time; left: {', '.join(left)}. Run the same command again to go on.")
            return 3
        print(f"[{position}/{len(sections)}] {section.name} ...", flush=True)
        measured = dict(section.measure())
        if set(measured) != set(section.keys):
            raise ValueError(f"section {section.name} returned {sorted(measured)}, its keys are {sorted(section.keys)}")
        figures.update({key: float(value) for key, value in measured.items()})
        for key in section.keys:
            print(f"    {key} = {figures[key]:.4g}", flush=True)
        partial_path.parent.mkdir(parents=True, exist_ok=True)
        partial_path.write_text(json.dumps(partial))
    result = {
        "figures": {key: round(figures[key], 6) for section in sections for key in section.keys},
        "commit": at,
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
    }
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")
    return 0


@dataclass(frozen=True)
class TreeUsage:
    wall_s: float
    cpu_s: float
    peak_gib: float
    """Largest sum of resident memory over the process tree, sampled four times a second."""
    returncode: int


def run_tree(command: Sequence[str], *, cwd: Path = ROOT, log: Path | None = None) -> TreeUsage:
    """Runs a command and measures its whole process tree, orphans included (they are adopted and waited for)."""
    import psutil

    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    peak_bytes, done = 0, threading.Event()

    def sample() -> None:
        nonlocal peak_bytes
        own = psutil.Process()
        while not done.wait(0.25):
            total = 0
            for process in own.children(recursive=True):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            peak_bytes = max(peak_bytes, total)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    output = log.open("wb") if log else subprocess.DEVNULL
    returncode = subprocess.run(command, cwd=cwd, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False).returncode
    wall_s = time.monotonic() - started
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    done.set()
    sampler.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return TreeUsage(wall_s, cpu_s, peak_bytes / 2**30, returncode)


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)
