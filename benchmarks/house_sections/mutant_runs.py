"""How many mutants the nearest tests catch: the same mutants in the tree before the restructuring, and in HEAD.

In each tree a mutant meets the 20 test files that reach its module by imports and are nearest to it (`nearest_tests`): first four of them,
then the others, 60 seconds each. It is caught when a test fails or hangs with it twice, and passes without it. A test that fails without
it too, or only once, is left out, and the others run again. Tests of services (server, ray, vllm, e2e) do not take part. The rule is the
same in both trees, and they run side by side, a process each.

Each mutant's result in each tree is kept in WORK: the next call continues after one that ran out of time. The table of all results goes
to benchmarks/results/house_mutants.md.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path

from benchmarks.harness import ROOT, Deadline, Figures
from benchmarks.house_sections.clones import WORK, clone_commit, clone_environment
from benchmarks.house_sections.mutants import Function, Mutant, common_functions, draw, mutate, mutation_points
from tests.module_graph import ROOMS, import_graph, modules

COMMITS = {"before": "53fb810", "after": "HEAD"}
"""`before`: the last commit before the restructuring."""
PER_ROOM, SEED = 8, 1
LIMIT_S = 60
"""No test begins later after pytest has collected all of them: a busy machine takes long to import."""
TEST_TIMEOUT_S = 60
KILL_S = LIMIT_S + TEST_TIMEOUT_S + 165
"""A pytest that runs for so long, collection included, hangs where it cannot be interrupted."""
FIRST_FILES, MOST_FILES, MOST_ATTEMPTS = 4, 20, 4
"""The nearest files run first, and the others only if these notice nothing: importing many files takes longer than most tests."""
MUTANT_MINUTES = 6
PASSED = (0, 2, 5)
"""Exit codes of pytest where no test failed: all passed, no time was left, no test was selected."""
EXCLUDED_MARKS = "server or ray or vllm or e2e"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SCRIPT = Path(__file__).with_name("run_nearest.py")
TABLE = ROOT / "benchmarks" / "results" / "house_mutants.md"


@dataclass(frozen=True)
class Result:
    """
    test: the test that caught the mutant; empty where none did
    files: number of test files that reach the module and could run
    passed: number of tests that passed with the mutant
    """

    test: str
    files: int
    passed: int


def measure_mutants(deadline: Deadline, per_room: int = PER_ROOM) -> Figures:
    trees = {side: clone_commit(commit, WORK / f"tree-{side}") for side, commit in COMMITS.items()}
    for tree in trees.values():
        (tree / "tests" / "__init__.py").touch()  # without it, `import tests` would find the installed checkout's
    pairs = common_functions(*(list(modules(tree).values()) for tree in trees.values()))
    print(f"    {len(pairs):,} functions are the same in both trees, and can be mutated", flush=True)
    mutants = draw(pairs, trees["after"], ROOMS, per_room, SEED)
    with ThreadPoolExecutor(len(trees)) as pool:
        pending = {side: pool.submit(_try_all, mutants, side, tree, deadline) for side, tree in trees.items()}
    results = {side: future.result() for side, future in pending.items()}
    TABLE.write_text(format_table(mutants, results["before"], results["after"], trees["after"]))
    print(f"    wrote {TABLE.relative_to(ROOT)}")
    return {f"mutants_caught_{side}": sum(bool(result.test) for result in results[side]) for side in trees}


def _try_all(mutants: Sequence[Mutant], side: str, tree: Path, deadline: Deadline) -> list[Result]:
    """In the order of the mutants, as kept or measured now. Raises OutOfTime."""
    results = []
    for number, mutant in enumerate(mutants):
        kept = WORK / f"mutant-{number:02}-{side}.json"
        if not kept.exists():
            deadline.allows(MUTANT_MINUTES)
            function: Function = getattr(mutant, side)
            result = try_mutant(tree, function, mutant.number)
            kept.write_text(json.dumps(asdict(result)))
            print(f"    {side} {number}: {function.path.stem}.{function.name}: {result.test or 'not caught'}", flush=True)
        results.append(Result(**json.loads(kept.read_text())))
    return results


def try_mutant(tree: Path, function: Function, number: int) -> Result:
    """What the nearest tests of the tree make of the mutant; the tree is as before afterwards."""
    source = function.path.read_text(encoding="utf-8")
    mutated = mutate(source, mutation_points(function.node)[number])
    files = nearest_tests(tree, function.path)[:MOST_FILES]
    left_out: list[str] = []
    passed = 0
    try:
        for group in (files[:FIRST_FILES], files[FIRST_FILES:]):
            for _ in range(MOST_ATTEMPTS):
                running = [file for file in group if file not in left_out]
                if not running:
                    break
                function.path.write_text(mutated, encoding="utf-8")
                failed, passed_now = _run_tests(tree, running, left_out)
                if failed is None:
                    passed += passed_now
                    break
                fails_again = _run_tests(tree, [failed])[0] is not None
                function.path.write_text(source, encoding="utf-8")
                if fails_again and _run_tests(tree, [failed])[0] is None:
                    return Result(failed, len(files), passed + passed_now)
                left_out.append(failed)
    finally:
        function.path.write_text(source, encoding="utf-8")
    return Result("", len(files), passed)


def _run_tests(tree: Path, tests: Sequence[str], left_out: Sequence[str] = ()) -> tuple[str | None, int]:
    """The first test (or file that cannot be imported) that fails or hangs, and the number of tests that passed before."""
    state_path = tree.with_name(f"{tree.name}.json")
    state_path.unlink(missing_ok=True)
    options = ["-m", f"not ({EXCLUDED_MARKS})", f"--timeout={TEST_TIMEOUT_S}", "-p", "no:cacheprovider"]
    options += [option for test in left_out for option in ("--deselect", test)]
    command = [str(tree / ".venv/bin/python"), "-P", str(SCRIPT), str(state_path), str(LIMIT_S), *tests, "--", *options]
    with (WORK / f"{tree.name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=tree, env=clone_environment(tree) | ONE_THREAD,
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            returncode = process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            returncode = process.wait()
    state = json.loads(state_path.read_text()) if state_path.exists() else {"running": None, "failed": None, "passed": 0}
    if state["failed"] is None and returncode not in PASSED:
        state["failed"] = state["running"] or tests[0]
    return state["failed"], state["passed"]


def nearest_tests(tree: Path, module: Path) -> list[str]:
    """Test files whose imports reach the module, lazy ones included, the nearest first: the file that mirrors it, then by the number of
    imports between them, then by the number of folders that they share. Paths in the tree."""
    folders = (*ROOMS, "benchmarks", "tests")
    paths, graph = modules(tree, folders), import_graph(tree, folders)
    importers: dict[str, list[str]] = defaultdict(list)
    for name, targets in graph.items():
        for target in targets:
            importers[target].append(name)
    start = next(name for name, path in paths.items() if path == module)
    distance, queue = {start: 0}, deque([start])
    while queue:
        name = queue.popleft()
        for importer in importers[name]:
            if importer not in distance:
                distance[importer] = distance[name] + 1
                queue.append(importer)
    own_folders = module.relative_to(tree).parts[:-1]
    mirror = Path("tests", *own_folders, f"test_{module.name}")

    def order(name: str) -> tuple[bool, int, int, str]:
        file = paths[name].relative_to(tree)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own_folders, file.parts[1:-1], strict=False)))
        return file != mirror, distance[name], -shared, name

    tests = [name for name in distance if name.startswith("tests.") and paths[name].name.startswith("test_")]
    return [str(paths[name].relative_to(tree)) for name in sorted(tests, key=order)]


def format_table(mutants: Sequence[Mutant], before: Sequence[Result], after: Sequence[Result], tree: Path) -> str:
    """A Markdown table, a row a mutant. Modules and lines are those of the tree after the restructuring."""
    rows = [
        f"Mutants that the nearest tests catch, before the restructuring ({COMMITS['before']}) and after ({WORK.name}); "
        "written by `make bench house`.\n",
        "| module | function | line | was | is | caught before | caught after |",
        "|---|---|---|---|---|---|---|",
    ]
    for mutant, *results in zip(mutants, before, after, strict=True):
        point = mutation_points(mutant.after.node)[mutant.number]
        tests = [f"`{result.test}`" if result.test else f"no ({result.passed} tests passed)" for result in results]
        cells = [
            str(mutant.after.path.relative_to(tree)), mutant.after.name, str(point.node.lineno),
            f"`{ast.unparse(point.node)}`", f"`{point.replacement}`", *tests,
        ]  # fmt: skip
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(rows) + "\n"
