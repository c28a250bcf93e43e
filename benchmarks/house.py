"""The code itself: size and dependencies, duration of the tests, faults that they catch, and speed.

graph     lines, circles of modules, crowded folders, shared names, long functions (`tests/module_graph.py`)
tests     up to five `make test` in a row; their wall minutes, and how many failed (`house_sections/make_runs.py`)
quick     wall seconds of `make quick` after a changed line in the middle of the house
mutants   of 40 small faults, how many the nearest tests catch before and after the restructuring (`house_sections/mutant_runs.py`)
speed     the run, the funnel and the city as `make bench spine` measures them, rollouts as `make bench tags` does

`.cache/bench/house/` has the files kept between calls, in a folder named after the code; folders of other code are removed. The working
files of `speed` are in the folders of the two other benchmarks.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

from benchmarks import spine
from benchmarks.harness import ROOT, Deadline, Figures, Section, run_sections
from benchmarks.house_sections import make_runs, mutant_runs
from benchmarks.house_sections.clones import CACHE, WORK
from benchmarks.tags_sections import policy, rollouts
from tests.module_graph import ROOMS, circles, import_graph, lines, long_functions, loose_files, shared_file_names, single_importers


def sections() -> list[Section]:
    return [
        Section(
            "graph",
            (
                "product_lines", "test_lines", "loose_files_max", "module_circles", "shared_file_names", "functions_over_50_lines",
                "single_importer_modules",
            ),
            measure_graph,
            minutes=1,
        ),
        Section("quick", ("quick_seconds",), make_runs.measure_quick, minutes=5),
        Section("run", ("run_cpu_s",), _as_committed("spine", spine.measure_run, "run_cpu_s"), minutes=15),
        Section("funnel", ("funnel_1m_s",), _as_committed("spine", spine.measure_funnel, "funnel_1m_s"), minutes=3),
        Section("city", ("city_calls_per_s",), _as_committed("spine", spine.measure_worlds, "city_calls_per_s"), minutes=2),
        Section(
            "rollouts", ("rollouts_vs_trl",), _as_committed("tags", rollouts.measure_speed, "rollouts_vs_trl"), minutes=policy.MINUTES + 4
        ),
        Section(
            "mutants", ("mutants_caught_before", "mutants_caught_after"), mutant_runs.measure_mutants, mutant_runs.MUTANT_MINUTES
        ),
        Section("tests", ("test_minutes", "test_runs_red", "test_runs"), make_runs.measure_test_runs, minutes=make_runs.TEST_MINUTES),
    ]  # fmt: skip


def main() -> int:
    for folder, kept in ((CACHE, WORK), (spine.KEPT, spine.WORK)):
        kept.mkdir(parents=True, exist_ok=True)
        for other in folder.iterdir():
            if other != kept:
                shutil.rmtree(other) if other.is_dir() else other.unlink()
    return run_sections("house", sections())


def measure_graph(_: Deadline) -> Figures:
    return {
        "product_lines": lines(ROOMS),
        "test_lines": lines(["tests"]),
        "loose_files_max": max(loose_files((*ROOMS, "benchmarks")).values()),
        "module_circles": len(circles(import_graph())),
        "shared_file_names": len(shared_file_names()),
        "functions_over_50_lines": len(long_functions()),
        "single_importer_modules": len(single_importers()),
    }


def _as_committed(benchmark: str, measure: Callable[[Deadline], Figures], key: str) -> Callable[[Deadline], Figures]:
    """Measures with another benchmark's function, keeps one figure, and prints its ratio to the one in that benchmark's result file."""

    def measure_one(deadline: Deadline) -> Figures:
        value = measure(deadline)[key]
        committed = json.loads((ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text())["figures"][key]
        print(f"    {key}: {value / committed:.2f} times the committed {committed:.4g} ({benchmark}.json)")
        return {key: value}

    return measure_one


if __name__ == "__main__":
    raise SystemExit(main())
