"""The mutants of `make bench house`: the same change in both trees, and caught only by a test that passes without it."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from benchmarks.house_sections.mutants import Tree, draw, functions, mutate, outline, sites

OLD = '''
def told(self, rows: list[int], most: int) -> int:
    """What is told."""
    found = 0
    for row in rows:
        if row < most:
            found = found + row
    return found
'''
NEW = '''
import math


class Reader:
    @property
    def sum_below(self, values, limit):
        """Sum of the values below the limit."""
        from storage import records
        total = 0
        for value in values:
            if value < limit:
                total = total + value
        return total
'''


def function_of(source: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    return next(functions(ast.parse(source)))[1]


def test_an_outline_survives_new_names_docstrings_annotations_and_imports() -> None:
    assert outline(function_of(OLD)) == outline(function_of(NEW))


@pytest.mark.parametrize(("old", "new"), [("<", "<="), ("found = 0", "found = 1"), ("+ row", "- row"), ("return found", "return")])
def test_an_outline_tells_what_is_done(old: str, new: str) -> None:
    assert outline(function_of(OLD)) != outline(function_of(OLD.replace(old, new)))


def test_the_same_site_is_the_same_change_in_both_trees() -> None:
    old, new = sites(function_of(OLD)), sites(function_of(NEW))
    assert [change for _, change in old] == [change for _, change in new] == [
        "0 -> 1", "if -> if not", "Lt -> LtE", "Add -> Sub", "return ... -> return None",
    ]  # fmt: skip


def test_a_mutant_changes_one_node_and_stays_python() -> None:
    mutated = mutate(NEW, "Reader.sum_below", site=2)
    assert "if value <= limit:" in mutated
    assert "import math" in mutated and "@property" in mutated
    ast.parse(mutated)


def tree(root: Path, body: str, test: str) -> Tree:
    for folder in ("storage", "synth", "filters", "train", "flows", "tests"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    for more, room in enumerate(("storage", "synth", "filters", "train", "flows")):
        extra = "\n".join(f"    total += {number}" for number in range(3 + more))
        (root / room / "sums.py").write_text(textwrap.dedent(body).replace("    return total", f"{extra}\n    return total"))
    (root / "tests" / "test_sums.py").write_text(test)
    (root / "tests" / "helper.py").write_text("from storage.sums import add\n")
    (root / "tests" / "test_far.py").write_text("import tests.helper\n")
    return Tree(root)


BODY = """
def add(values):
    total = 0
    for value in values:
        if value > 3:
            total += value
    return total
"""
MARKS = "import pytest\nfrom storage.sums import add\n"


def test_tests_are_ordered_by_their_distance(tmp_path: Path) -> None:
    assert tree(tmp_path, BODY, MARKS).tests_of("storage.sums") == ["tests/test_sums.py", "tests/test_far.py"]


@pytest.mark.slow
def test_a_mutant_is_caught_by_a_test_that_passes_without_it(tmp_path: Path) -> None:
    test = MARKS + "def test_red():\n    assert False\ndef test_add():\n    assert add([3, 4]) == 4 + 3\n"
    result = tree(tmp_path, BODY, test).try_mutant("storage.sums:add", site=2)
    assert result.caught and result.test == "tests/test_sums.py::test_add"
    assert (tmp_path / "storage" / "sums.py").read_text().count(">=") == 0


@pytest.mark.slow
def test_a_mutant_that_no_test_notices_is_not_caught(tmp_path: Path) -> None:
    test = MARKS + "def test_add():\n    assert add([7]) == 7 + 3\n"
    assert not tree(tmp_path, BODY, test).try_mutant("storage.sums:add", site=2).caught


def test_functions_are_drawn_from_every_room_or_not_at_all(tmp_path: Path) -> None:
    before, after = tree(tmp_path / "a", BODY, MARKS), tree(tmp_path / "b", BODY, MARKS)
    with pytest.raises(ValueError, match="synth has 0 functions"):
        draw(before, after, 1, seed=0)
    (tmp_path / "b" / "tests" / "helper.py").write_text("import flows.sums, filters.sums, synth.sums, train.sums")
    mutants = draw(before, Tree(tmp_path / "b"), 1, seed=0)
    assert [mutant.room for mutant in mutants] == ["storage", "synth", "filters", "train", "flows"]
    assert mutants == draw(before, Tree(tmp_path / "b"), 1, seed=0)
