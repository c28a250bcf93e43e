"""The house: how large it is, how it hangs together, how long its tests take and what they catch, and whether it became slower.

tree      lines, loose files, circles, shared names, long functions, modules with one importer (`tests/module_graph.py`)
tests     `make test` five times in a row, and `make quick` after a change of one line, in a fresh clone of the commit that shares this
          checkout's environments; each run's output is kept beside the figures
mutants   40 small changes, the same in the commit before the rebuild of the tree (BEFORE) and in this one: how many does a test notice?
speed     the sample run, the funnel and the worlds as `make bench spine` measures them; rollouts beside TRL's as `make bench tags` does

Runs and mutants are kept under `.cache/bench/house/`, in a folder named after the code, so that a call that was cut off goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks import spine
from benchmarks.harness import ROOT, Deadline, Figures, Section, code_mark, fail, run_sections
from benchmarks.house_sections.mutants import Mutant, Result, Tree, draw, table
from benchmarks.tags_sections import policy, rollouts
from tests import module_graph

WORK = ROOT / ".cache" / "bench" / "house" / code_mark()
BEFORE = "53fb810"
"""The last commit whose rooms were flat lists of files."""
A_ROOM = 8
SEED = 28
TEST_RUNS = 5
RUN_MINUTES = 15
CHANGED = "synth/tasks/split.py"
"""A module in the middle of the house: `make quick` runs after a line was added to it."""
MUTANTS = ROOT / "benchmarks" / "results" / "house_mutants.md"


def main() -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    spine.WORK.mkdir(parents=True, exist_ok=True)
    return run_sections(
        "house",
        [
            Section(
                "tree",
                (
                    "product_lines", "test_lines", "loose_files_max", "module_circles", "shared_file_names", "functions_over_50_lines",
                    "single_importer_modules",
                ),
                measure_tree,
                minutes=1,
            ),
            Section("run", ("run_cpu_s",), measure_run, minutes=15),
            Section("funnel", ("funnel_1m_s",), measure_funnel, minutes=3),
            Section("worlds", ("city_calls_per_s", "retail_calls_per_s"), measure_worlds, minutes=2),
            Section("rollouts", ("rollouts_vs_trl",), measure_rollouts, minutes=policy.MINUTES + 4),
            Section("quick", ("quick_seconds",), measure_quick, minutes=3),
            Section("tests", ("test_minutes", "test_runs_red"), measure_tests, minutes=0),
            Section("mutants", ("mutants_caught_before", "mutants_caught_after"), measure_mutants, minutes=0),
        ],
    )  # fmt: skip


def measure_tree(_: Deadline) -> Figures:
    return {
        "product_lines": module_graph.lines(module_graph.ROOMS),
        "test_lines": module_graph.lines(["tests"]),
        "loose_files_max": max(module_graph.loose_files().values()),
        "module_circles": len(module_graph.circles(module_graph.import_graph())),
        "shared_file_names": len(module_graph.shared_file_names()),
        "functions_over_50_lines": len(module_graph.long_functions()),
        "single_importer_modules": len(module_graph.single_importers()),
    }


# ---- tests --------------------------------------------------------------------------------------------------------------------


def measure_tests(deadline: Deadline) -> Figures:
    """Wall time of `make test` once everything is installed: mean of the runs, red ones included."""
    runs = []
    for number in range(TEST_RUNS):
        kept, log = WORK / f"test-run-{number}.json", WORK / f"test-run-{number}.log"
        if not kept.exists():
            deadline.allows(RUN_MINUTES)
            seconds, returncode = _make("test", log)
            kept.write_text(json.dumps({"minutes": seconds / 60, "red": returncode != 0}))
        run = json.loads(kept.read_text())
        summary = [line for line in log.read_text(errors="replace").splitlines() if " passed" in line or " failed" in line][-1:]
        print(f"    run {number}: {run['minutes']:.1f} minutes, {'red' if run['red'] else 'green'}: {' '.join(summary)}", flush=True)
        runs.append(run)
    return {"test_minutes": sum(run["minutes"] for run in runs) / len(runs), "test_runs_red": sum(run["red"] for run in runs)}


def measure_quick(_: Deadline) -> Figures:
    """Wall time of `make quick` with one changed module, as somebody at work calls it: the caches of an earlier call are there."""
    _make("quick", WORK / "quick-first.log")
    path = _clone("HEAD") / CHANGED
    source = path.read_text()
    path.write_text(source + "\n_CHANGED = True\n")
    try:
        seconds, returncode = _make("quick", WORK / "quick.log")
    finally:
        path.write_text(source)
    if returncode:
        fail(f"make quick ended with code {returncode}; its output is in {WORK / 'quick.log'}")
    return {"quick_seconds": seconds}


def _make(target: str, log: Path) -> tuple[float, int]:
    """Seconds and return code of a target of the Makefile in the clone; its output goes into the file."""
    clone = _clone("HEAD")
    environment = os.environ | {"PYTHONPATH": str(clone), "CI": "true"}
    begun = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(["make", target], cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    return time.monotonic() - begun, done.returncode


def _clone(commit: str) -> Path:
    """A fresh clone of a commit; it uses the checkout's environments, which are as new as its requirements."""
    clone = WORK / f"clone-{commit}"
    if not (clone / ".venv").exists():
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "checkout", "--quiet", _hash_of(commit)], cwd=clone, check=True)
        for name in ("pyproject.toml", "constraints.txt"):
            os.utime(clone / name, (0, (ROOT / name).stat().st_mtime))
        with (clone / ".git" / "info" / "exclude").open("a") as exclude:
            exclude.write(".venv\n.venv-vllm\n")
        (clone / ".venv-vllm").symlink_to(ROOT / ".venv-vllm")
        (clone / ".venv").symlink_to(ROOT / ".venv")
    return clone


def _hash_of(commit: str) -> str:
    return subprocess.run(["git", "rev-parse", commit], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


# ---- mutants ------------------------------------------------------------------------------------------------------------------


def measure_mutants(deadline: Deadline) -> Figures:
    """Both trees side by side, a process each. The list goes into MUTANTS."""
    trees = {"before": Tree(_clone(BEFORE)), "after": Tree(_clone("HEAD"))}
    mutants = draw(trees["before"], trees["after"], A_ROOM, SEED)
    with ThreadPoolExecutor(len(trees)) as pool:
        sides = pool.map(partial(_try_all, mutants=mutants, trees=trees, deadline=deadline), trees)
        results = dict(zip(trees, sides, strict=True))
    MUTANTS.write_text(table(mutants, results["before"], results["after"]))
    print(f"    wrote {MUTANTS.relative_to(ROOT)}", flush=True)
    return {f"mutants_caught_{side}": float(sum(result.caught for result in found)) for side, found in results.items()}


def _try_all(side: str, *, mutants: Sequence[Mutant], trees: dict[str, Tree], deadline: Deadline) -> list[Result]:
    results = []
    for number, mutant in enumerate(mutants):
        kept = WORK / f"mutant-{side}-{number}.json"
        if not kept.exists():
            deadline.allows(3)
            result = trees[side].try_mutant(getattr(mutant, side), mutant.site)
            kept.write_text(json.dumps(asdict(result)))
            print(f"    {side} {number}: {getattr(mutant, side)}, {mutant.change}: {result.test or 'not caught'}", flush=True)
        results.append(Result(**json.loads(kept.read_text())))
    return results


# ---- speed --------------------------------------------------------------------------------------------------------------------


def measure_run(deadline: Deadline) -> Figures:
    return _only(("run_cpu_s",), spine.measure_run(deadline))


def measure_funnel(deadline: Deadline) -> Figures:
    return _only(("funnel_1m_s",), spine.measure_funnel(deadline))


def measure_worlds(deadline: Deadline) -> Figures:
    return _only(("city_calls_per_s", "retail_calls_per_s"), spine.measure_worlds(deadline))


def measure_rollouts(deadline: Deadline) -> Figures:
    return _only(("rollouts_vs_trl",), rollouts.measure_speed(deadline))


def _only(keys: Sequence[str], figures: Figures) -> Figures:
    """Prints each beside its committed value."""
    for key in keys:
        for name in ("spine", "tags"):
            earlier = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
            if key in earlier["figures"]:
                print(f"    {key}: {figures[key]:.4g}; {name}.json says {earlier['figures'][key]:.4g} at {earlier['commit']}")
    return {key: figures[key] for key in keys}


if __name__ == "__main__":
    sys.exit(main())
