"""The benchmark of the house: which functions count as the same, what a mutant changes, which tests meet it, and when it is caught."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import house
from benchmarks.house_sections import mutant_runs
from benchmarks.house_sections.make_runs import pytest_summary
from benchmarks.house_sections.mutants import Function, FunctionNode, anonymise, common_functions, draw, functions, mutate, mutation_points
from tests.module_graph import ROOMS

SHARE = '''
def share(rows: list[int], limit: int = 3) -> float:
    """How many are below 5."""
    below = [row for row in rows if row < limit]
    if not rows and limit == 1:
        return 0.0
    print(f"{limit + 1}", len(rows) + 1)
    best = max(below)
    return best / len(rows)
'''
RENAMED = """
def part(items, most=3):
    few = [item for item in items if item < most]
    if not items and most == 1:
        return 0.0
    print(f"{most + 1}", len(items) + 1)
    largest = max(few)
    return largest / len(items)
"""


def function_of(source: str) -> FunctionNode:
    node = ast.parse(source).body[0]
    assert isinstance(node, FunctionNode)
    return node


def test_a_function_with_other_names_annotations_and_docstring_is_the_same() -> None:
    assert anonymise(function_of(SHARE)) == anonymise(function_of(RENAMED))


@pytest.mark.parametrize(("old", "new"), [("<", "<="), ("3", "4"), ("max(", "min("), ("not items and", "items or"), ("/", "//")])
def test_a_function_with_another_operator_number_or_built_in_is_another(old: str, new: str) -> None:
    assert anonymise(function_of(SHARE)) != anonymise(function_of(RENAMED.replace(old, new)))


def test_every_place_is_mutated_alike_under_other_names() -> None:
    points, renamed = mutation_points(function_of(SHARE)), mutation_points(function_of(RENAMED))
    kinds = ["number", "comparison", "not", "and/or", "comparison", "number", "return", "number", "call", "return"]
    assert [point.kind for point in points] == [point.kind for point in renamed] == kinds
    mutated = [mutate(SHARE, point) for point in points]
    assert len({ast.unparse(ast.parse(source)) for source in (SHARE, *mutated)}) == 1 + len(mutated)
    for source, other in zip(mutated, [mutate(RENAMED, point) for point in renamed], strict=True):
        assert anonymise(function_of(source)) == anonymise(function_of(other))


@pytest.mark.parametrize(
    ("line", "mutated"),
    [
        ("return a < b", ["return (a <= b)", "return None"]),
        ("x = a - b", ["x = (a + b)"]),
        ("x = 'ü' if a else 7", ["x = 'ü' if (not (a)) else 7", "x = 'ü' if a else 8"]),
        ("x = sorted(a, reverse=True)", ["x = (sorted(a, reverse=not True))"]),
        ("x = any(a)", ["x = (all(a))"]),
        ("x: Literal[3] = a is None", ["x: Literal[3] = (a is not None)"]),
        ("return None", []),
        ("x = a < 0.5", ["x = a < 1.5"]),
        ("raise ValueError(a + b)", []),
        ("log.info('%s', a + 1)", []),
    ],
)
def test_what_a_mutant_changes(line: str, mutated: list[str]) -> None:
    source = f"def f(a, b):\n    {line}\n"
    results = [mutate(source, point).splitlines()[1].strip() for point in mutation_points(function_of(source))]
    assert sorted(results) == sorted(mutated)


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_only_functions_that_are_unique_in_each_tree_are_drawn_and_each_once(tmp_path: Path) -> None:
    twice = SHARE.replace("3", "9")
    before = write_tree(tmp_path / "before", {"storage/old.py": SHARE + twice, "storage/other.py": SHARE.replace("3", "8")})
    after = write_tree(tmp_path / "after", {"synth/new.py": RENAMED + twice + twice + RENAMED.replace("3", "8")})
    pairs = common_functions(sorted(before.rglob("*.py")), sorted(after.rglob("*.py")))
    assert [(earlier.path.name, later.path.name) for earlier, later in pairs] == [("old.py", "new.py"), ("other.py", "new.py")]
    drawn = draw(pairs, after, ["synth"], 2, seed=1)
    assert {mutant.before.path.name for mutant in drawn} == {"old.py", "other.py"}
    assert drawn == draw(pairs, after, ["synth"], 2, seed=1)
    with pytest.raises(ValueError, match="storage: 0 functions"):
        draw(pairs, after, ["storage"], 1, seed=1)


TREE = {
    "storage/__init__.py": "",
    "storage/sums.py": SHARE,
    "storage/middle.py": "def use():\n    from storage.sums import share\n",
    "tests/storage/test_far.py": "import storage.middle\n",
    "tests/test_near.py": "from storage import sums\n",
    "tests/storage/test_sums.py": "import storage.middle\n",
    "tests/storage/test_other.py": "import json\n",
}


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, TREE)
    nearest = mutant_runs.nearest_tests(tree, tree / "storage/sums.py")
    assert nearest == ["tests/storage/test_sums.py", "tests/test_near.py", "tests/storage/test_far.py"]


def first_mutated(tree: Path, kind: str) -> tuple[Function, int]:
    function = next(functions(tree / "storage/sums.py"))
    return function, next(number for number, point in enumerate(mutation_points(function.node)) if point.kind == kind)


def load_no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest begins in a third of the time, with the one plugin whose option is given."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_timeout")


@pytest.mark.slow
def test_a_mutant_is_caught_by_a_test_that_passes_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a test that is red in any case, and one that checks the result."""
    tests = {
        "tests/storage/test_sums.py": (
            "from storage.sums import share\ndef test_red():\n    assert share([1, 2, 4]) > 9\n"
            "def test_value():\n    assert share([1, 2, 4, 4]) == 0.5\n"
        )
    }
    options = "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\nmarkers = ['server', 'ray', 'vllm', 'e2e']\n"
    tree = write_tree(tmp_path / "tree", {**TREE, **tests, "pyproject.toml": options})
    (tree / ".venv").symlink_to(Path(sys.prefix))
    monkeypatch.setattr(mutant_runs, "WORK", tmp_path)
    load_no_plugins(monkeypatch)
    caught = mutant_runs.try_mutant(tree, *first_mutated(tree, "call"))
    assert caught.test == "tests/storage/test_sums.py::test_value"
    missed = mutant_runs.try_mutant(tree, *first_mutated(tree, "and/or"))
    assert (missed.test, missed.passed) == ("", 1)
    assert (tree / "storage/sums.py").read_text() == SHARE


def test_no_test_begins_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_no_plugins(monkeypatch)
    (tmp_path / "test_b.py").write_text("def test_first():\n    pass\ndef test_second():\n    pass\n")
    (tmp_path / "test_a.py").write_text("def test_third():\n    pass\n")
    state = tmp_path / "state.json"
    command = [sys.executable, "-P", str(mutant_runs.SCRIPT), str(state), "0", "test_b.py", "test_a.py", "--", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode in mutant_runs.PASSED
    assert json.loads(state.read_text()) == {"running": None, "failed": None, "passed": 1}


def test_the_table_has_a_row_a_mutant(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, {"storage/sums.py": SHARE})
    function = next(functions(tree / "storage/sums.py"))
    mutants = draw([(function, function)], tree, ["storage"], 1, seed=1)
    table = mutant_runs.format_table(mutants, [mutant_runs.Result("tests/test_x.py::test_y", 1, 0)], [mutant_runs.Result("", 1, 7)], tree)
    assert table.splitlines()[-1].startswith("| storage/sums.py | share | ")
    assert table.splitlines()[-1].endswith("| `tests/test_x.py::test_y` | no (7 tests passed) |")


def test_pytests_last_line_is_found() -> None:
    assert (
        pytest_summary("x\n=== 3 failed, 1 passed in 62.10s (0:01:02) ===\nmake: *** [test]\n") == "3 failed, 1 passed in 62.10s (0:01:02)"
    )
    assert pytest_summary("no tests\n") == ""


def test_the_figures_of_the_result_file() -> None:
    keys = [key for section in house.sections() for key in section.keys]
    assert len(keys) == len(set(keys)) == 17
    figures = house.measure_graph(house.Deadline(0))
    assert figures["module_circles"] == 0
    assert figures["product_lines"] > figures["functions_over_50_lines"]
    assert len(ROOMS) * mutant_runs.PER_ROOM == 40
