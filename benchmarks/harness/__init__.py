"""Shared by all benchmarks: sections that are measured once, a time budget, and the result file.

A benchmark is a list of sections, each a function that returns some of the figures. `.cache/bench/` has the figures of finished sections
with a hash of the measured code, so that a call that exceeded its time (75 minutes) resumes. The result file is written when all keys
exist, and says the commit of each section's code. A section checks the call's deadline before each long piece of work, so a call ends
cleanly. Figures are numbers only; units are in their names.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 75 * 60
PACKAGES = ("polars", "duckdb", "datasketch", "numba", "prefect", "torch", "transformers", "trl")

MEASURED = ("flows", "train", "filters", "synth", "storage", "benchmarks", "configs", "constraints.txt", ":!benchmarks/results")
"""What figures depend on, as git's path specifications."""

Figures = dict[str, float]
Result = TypeVar("Result")


class OutOfTime(Exception):
    """What is left to measure is for another call."""


@dataclass(frozen=True)
class Deadline:
    """`ends`: on the monotonic clock."""

    ends: float

    def allows(self, minutes: float) -> None:
        """Raises OutOfTime unless that many minutes are left."""
        if time.monotonic() + minutes * 60 > self.ends:
            raise OutOfTime

    @property
    def minutes_left(self) -> float:
        """0 once the time is up."""
        return max(0.0, self.ends - time.monotonic()) / 60


@dataclass(frozen=True)
class Section:
    """`keys` are the figures that `measure` returns, all of them; `minutes`: how long it takes at most, on two quiet cores.

    A section that takes longer as a whole gives the minutes of one piece, keeps each piece that is done, and asks the deadline itself.
    """

    name: str
    keys: tuple[str, ...]
    measure: Callable[[Deadline], Mapping[str, float]]
    minutes: float


@cache
def code_mark() -> str:
    """The commit measured; where the tree differs from it, with a hash of the difference."""
    head = _git("rev-parse", "--short=12", "HEAD").decode().strip()
    changes = hashlib.sha256(_git("diff", "HEAD", "--binary", "--", *MEASURED))
    untracked = _git("ls-files", "--others", "--exclude-standard", "-z", "--", *MEASURED).split(b"\0")
    for name in filter(None, sorted(untracked)):
        changes.update(name + b"\0" + (ROOT / name.decode()).read_bytes())
    is_clean = changes.digest() == hashlib.sha256().digest()
    return head if is_clean else f"{head}+changes-{changes.hexdigest()[:8]}"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def machine() -> str:
    model = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ""
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB"


def run_sections(name: str, sections: Sequence[Section]) -> int:
    """Measures what is not measured yet of this code, and writes `benchmarks/results/NAME.json` when all is there.

    Returns 0 when the result file was written, 3 when the time ran out before (call again).
    """
    deadline = Deadline(time.monotonic() + BUDGET_S)
    at = code_mark()
    partial_path = ROOT / ".cache" / "bench" / f"{name}.json"
    partial = json.loads(partial_path.read_text()) if partial_path.exists() else {}
    if partial.get("commit") != at:
        partial = {"commit": at, "figures": {}}
    figures: Figures = partial["figures"]
    commits: dict[str, str] = partial.setdefault("commits", {})
    for position, section in enumerate(sections, 1):
        if all(key in figures for key in section.keys):
            print(f"[{position}/{len(sections)}] {section.name}: measured before", flush=True)
            continue
        print(f"[{position}/{len(sections)}] {section.name} ...", flush=True)
        try:
            deadline.allows(section.minutes)
            measured = dict(section.measure(deadline))
        except OutOfTime:
            left = [later.name for later in sections if not all(key in figures for key in later.keys)]
            print(f"out of time; left: {', '.join(left)}. Run the same command again to go on.")
            return 3
        if set(measured) != set(section.keys):
            raise ValueError(f"section {section.name} returned {sorted(measured)}, its keys are {sorted(section.keys)}")
        figures.update({key: float(value) for key, value in measured.items()})
        commits[section.name] = at
        for key in section.keys:
            print(f"    {key} = {figures[key]:.4g}", flush=True)
        partial_path.parent.mkdir(parents=True, exist_ok=True)
        partial_path.write_text(json.dumps(partial))
    result = {
        "figures": {key: round(figures[key], 6) for section in sections for key in section.keys},
        "commit": at,
        "commits": {section.name: commits.get(section.name, at) for section in sections},
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in PACKAGES},
    }
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")
    return 0


def in_turn(sides: Mapping[str, Callable[[], Result]], turn: int) -> tuple[dict[str, float], dict[str, Result]]:
    """CPU seconds of this process, and what came of it, by name. Who comes first changes with the turn, so that what the machine does
    besides falls on all alike."""
    seconds, results = dict[str, float](), dict[str, Result]()
    for name in list(sides)[:: -1 if turn % 2 else 1]:
        begun = time.process_time()
        results[name] = sides[name]()
        seconds[name] = time.process_time() - begun
    return seconds, results


@dataclass(frozen=True)
class TreeUsage:
    wall_s: float
    cpu_s: float
    peak_gib: float
    """Largest sum of resident memory over the process tree, sampled four times a second."""
    returncode: int


def run_tree(
    command: Sequence[str], *, cwd: Path = ROOT, log: Path | None = None, environment: Mapping[str, str] | None = None
) -> TreeUsage:
    """Runs a command and measures its whole process tree, orphans included (they are adopted and waited for), and no other child of this
    process. CPU time is what the kernel tells of processes that were waited for, or what was seen of each four times a second where that
    is more: of workers whose parent does not wait for them, as Ray's, the kernel tells nothing.

    environment: the command's, in place of this process's own.
    """
    import psutil

    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
    own = psutil.Process()
    others = {process.pid for process in own.children(recursive=True)}

    def tree(*, recursive: bool) -> list[psutil.Process]:
        return [process for process in own.children(recursive=recursive) if process.pid not in others]

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    peak_bytes, done = 0, threading.Event()
    seen_s: dict[psutil.Process, float] = {}

    def sample() -> None:
        nonlocal peak_bytes
        while not done.wait(0.25):
            total = 0
            for process in tree(recursive=True):
                try:
                    total += process.memory_info().rss
                    spent = process.cpu_times()
                except psutil.Error:
                    continue
                seen_s[process] = spent.user + spent.system
            peak_bytes = max(peak_bytes, total)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    output = log.open("wb") if log else subprocess.DEVNULL
    returncode = subprocess.run(
        command, cwd=cwd, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
    ).returncode
    wall_s = time.monotonic() - started
    while left := tree(recursive=False):
        with suppress(ChildProcessError):
            os.waitpid(left[0].pid, 0)
    done.set()
    sampler.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return TreeUsage(wall_s, max(cpu_s, sum(seen_s.values())), peak_bytes / 2**30, returncode)


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)
