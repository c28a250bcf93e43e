"""How long `make test` and `make quick` take, and how often `make test` fails on unchanged code.

`make test` runs in the checkout itself: that is where its environments are installed, and its last step checks that the installed wheel
does not need the checkout, which a PYTHONPATH to a clone would hide. So commit first, and do not edit while it runs.
`make quick` runs in a clone, because it needs a changed file. One `make lint` comes before the change: a developer's caches are warm.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import ROOT, Deadline, Figures, fail
from benchmarks.house_sections.clones import WORK, clone_commit, clone_environment, shell_environment

TEST_RUNS = 5
TEST_MINUTES = 20
"""One `make test` takes at most so long."""
CHANGED = "synth/tasks/split.py"
"""A module that many modules import."""
ADDED_LINE = "CHANGED_BY_THE_BENCHMARK = True"


def measure_test_runs(deadline: Deadline, runs: int = TEST_RUNS) -> Figures:
    """Every finished run is kept in WORK: `test-N.json`, and its output in `test-N.log`. When the time is up after some of the runs, the
    figures are of those; `test_runs` is their number."""
    results: list[dict[str, float]] = []
    for number in range(1, runs + 1):
        result_path, log = WORK / f"test-{number}.json", WORK / f"test-{number}.log"
        if not result_path.exists():
            if results and deadline.minutes_left < TEST_MINUTES:
                break
            deadline.allows(TEST_MINUTES)
            wall_s, returncode = _time_make("vllm", "test", cwd=ROOT, environment=shell_environment(), log=log)
            result_path.write_text(json.dumps({"minutes": wall_s / 60, "returncode": returncode}))
        results.append(json.loads(result_path.read_text()))
        state = "passed" if results[-1]["returncode"] == 0 else f"FAILED, see {log.relative_to(ROOT)}"
        print(f"    run {number}: {results[-1]['minutes']:.1f} minutes, {state}; {pytest_summary(log.read_text())}", flush=True)
    return {
        "test_minutes": statistics.fmean(result["minutes"] for result in results),
        "test_runs_red": sum(result["returncode"] != 0 for result in results),
        "test_runs": len(results),
    }


def measure_quick(_: Deadline) -> Figures:
    clone = clone_commit("HEAD", WORK / "quick")
    log, environment = WORK / "quick.log", clone_environment(clone)
    if _time_make("lint", cwd=clone, environment=environment, log=log)[1]:
        fail(f"`make lint` fails on HEAD; its output is in {log}")
    with (clone / CHANGED).open("a") as file:
        file.write(f"\n\n{ADDED_LINE}\n")
    wall_s, returncode = _time_make("quick", cwd=clone, environment=environment, log=log)
    if returncode:
        fail(f"`make quick` fails after an added line in {CHANGED}; its output is in {log}")
    print(f"    {pytest_summary(log.read_text())}")
    return {"quick_seconds": wall_s}


def _time_make(*goals: str, cwd: Path, environment: dict[str, str], log: Path) -> tuple[float, int]:
    """Wall seconds and exit code of the last goal; the goals before it are set-up, and may fail."""
    with log.open("wb") as output:
        for goal in goals:
            begin = time.monotonic()
            process = subprocess.run(
                ["make", "--no-print-directory", goal],
                cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
    return time.monotonic() - begin, process.returncode


def pytest_summary(output: str) -> str:
    """pytest's last line, as `3 passed, 1 skipped in 2.01s`; empty where pytest did not come to its end."""
    summaries: Sequence[str] = re.findall(r"^(?:=+ )?(\d+ [a-z]+[^\n]* in [\d.]+s(?: \([\d:]+\))?)(?: =+)?$", output, re.MULTILINE)
    return summaries[-1] if summaries else ""
