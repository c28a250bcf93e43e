"""The same mutants in two trees: whether the tests of today catch what those of another commit caught.

A mutant is one small change to one function. Only functions that stand in both trees are drawn: their syntax trees are equal once names,
strings, annotations, docstrings and imports are erased (`outline`). So the change falls on the same node in both.
A mutant is *caught* if a test fails that passes without it. The tests are those that reach the module by their imports, nearest first,
without those that need a service, until one fails or the time for a mutant is used up: the same rule in both trees.

What it does not do: tell an equivalent mutant from one that no test notices.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.module_graph import ROOMS

LEAST_STATEMENTS = 4
MUTANT_S = 90
"""Seconds that the tests of a mutant may take, collection included."""
TEST_TIMEOUT_S = 40
MOST_FLAKY = 3
"""So many tests that fail without the mutant too are left out, one after another, before the mutant counts as not caught."""
SERVICES = "not (server or ray or vllm or e2e)"
Function = ast.FunctionDef | ast.AsyncFunctionDef

_SWAPS: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.Div: ast.Mult,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True)
class Mutant:
    """function: dotted name in each tree, `before` and `after`. site: number of the changed node among the function's `sites`."""

    room: str
    before: str
    after: str
    site: int
    change: str


@dataclass(frozen=True)
class Result:
    """test: the one that failed; empty where none did."""

    caught: bool
    test: str


# ---- functions and changes ----------------------------------------------------------------------------------------------------


def outline(function: Function) -> str:
    """The syntax tree without names, strings, annotations, docstrings and imports, as text: equal for a function that was only renamed."""
    return ast.dump(_Eraser().visit(copy.deepcopy(function)), annotate_fields=False)


class _Eraser(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        for field in ("name", "id", "attr", "arg", "asname"):
            if isinstance(getattr(node, field, None), str) and getattr(node, field) not in _CALLS:
                setattr(node, field, "_")
        for field in ("annotation", "returns", "type_comment"):
            if hasattr(node, field):
                setattr(node, field, None)
        if isinstance(node, Function):
            node.decorator_list = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            node.value = "_"
        if isinstance(getattr(node, "body", None), list):
            node.body = [item for item in node.body if not _says_nothing(item)]
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = ["_"] * len(node.names)
        return node


def _says_nothing(node: ast.AST) -> bool:
    """An import, or a string that stands alone."""
    is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom) or is_string


def sites(function: Function) -> list[tuple[ast.AST, str]]:
    """Nodes that a mutation can change and what it would do, in an order that names do not change."""
    return [(node, change) for node in _walk(function) if (change := _change_of(node))]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _says_nothing(child) and not isinstance(child, ast.Raise):
                yield child
                yield from _walk(child)


def _change_of(node: ast.AST) -> str:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
        return f"{type(node.ops[0]).__name__} -> {_SWAPS[type(node.ops[0])].__name__}"
    if isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in _SWAPS:
        return f"{type(node.op).__name__} -> {_SWAPS[type(node.op)].__name__}"
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return f"{node.value} -> {node.value + 1}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return f"{node.func.id} -> {_CALLS[node.func.id]}"
    if isinstance(node, ast.If | ast.IfExp):
        return "if -> if not"
    if isinstance(node, ast.Return) and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        return "return ... -> return None"
    return ""


def _apply(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.Call):
        swapped = _CALLS[node.func.id]  # type: ignore[attr-defined]
        node.func = ast.Name(swapped)
        if swapped == "list":
            node.keywords = []
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)


def mutate(source: str, qualified: str, site: int) -> str:
    """The source of a module with one node of one of its functions changed.

    Args:
        qualified: the function's name in the module, `Class.method` for a method.
    """
    function = next(function for name, function in functions(ast.parse(source)) if name == qualified)
    start = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]) - 1
    lines = source.splitlines(keepends=True)
    _apply(sites(function)[site][0])
    indent = " " * function.col_offset
    text = "".join(f"{indent}{line}\n" if line else "\n" for line in ast.unparse(ast.fix_missing_locations(function)).splitlines())
    return "".join(lines[:start]) + text + "".join(lines[function.end_lineno :])


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of a module and methods of its classes by name; functions inside functions belong to the outer one."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{item.name}", item) for item in node.body if isinstance(item, Function))


# ---- a tree and its tests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A clone of one commit."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Modules of the rooms, the tests and the benchmarks by their dotted names."""
        paths = {}
        for folder in (*ROOMS, "tests", "benchmarks"):
            for path in sorted((self.root / folder).rglob("*.py")):
                parts = path.relative_to(self.root).with_suffix("").parts
                paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return paths

    @cached_property
    def functions(self) -> dict[str, list[str]]:
        """Outline -> `module:function` of every function of the rooms that is large enough to be drawn."""
        by_outline: dict[str, list[str]] = {}
        for module, path in self.modules.items():
            if module.split(".")[0] in ROOMS:
                for name, function in functions(ast.parse(path.read_text(encoding="utf-8"))):
                    if sum(isinstance(node, ast.stmt) for node in ast.walk(function)) > LEAST_STATEMENTS and not name.endswith("__repr__"):
                        by_outline.setdefault(outline(function), []).append(f"{module}:{name}")
        return by_outline

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Module -> the modules that import it, anywhere in their text."""
        importers: dict[str, set[str]] = {}
        for module, path in self.modules.items():
            for target in self._imported(module, path):
                importers.setdefault(target, set()).add(module)
        return importers

    def _imported(self, module: str, path: Path) -> set[str]:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        dotted: list[str] = []
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                dotted += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                prefix = package[: len(package) - node.level + 1] if node.level else []
                dotted += [".".join([*prefix, *([node.module] if node.module else []), alias.name]) for alias in node.names]
        return {found for name in dotted if (found := self._nearest_module(name))} - {module}

    def _nearest_module(self, dotted: str) -> str:
        while dotted and dotted not in self.modules:
            dotted = dotted.rpartition(".")[0]
        return dotted

    def tests_of(self, module: str) -> list[str]:
        """Test files that reach the module by imports: the one named after it first, then by the number of imports in between."""
        distances, queue = {module: 0}, deque([module])
        while queue:
            for importer in sorted(self.importers.get(name := queue.popleft(), ())):
                if importer not in distances:
                    distances[importer] = distances[name] + 1
                    queue.append(importer)
        mirror = f"test_{module.rpartition('.')[2]}"
        found = [(name.rpartition(".")[2] != mirror, distance, name) for name, distance in distances.items() if _is_test(name)]
        return [str(self.modules[name].relative_to(self.root)) for *_, name in sorted(found)]

    def try_mutant(self, function: str, site: int) -> Result:
        """Runs the tests on the mutated tree, and puts the file back."""
        module, qualified = function.split(":")
        path = self.modules[module]
        source = path.read_text(encoding="utf-8")
        deselected: list[str] = []
        for _ in range(MOST_FLAKY):
            path.write_text(mutate(source, qualified, site), encoding="utf-8")
            try:
                failed = self._first_failure(self.tests_of(module), deselected)
            finally:
                path.write_text(source, encoding="utf-8")
            if not failed:
                return Result(caught=False, test="")
            if not self._first_failure([failed], []):
                return Result(caught=True, test=failed)
            deselected.append(failed)
        return Result(caught=False, test="")

    def _first_failure(self, tests: Sequence[str], deselected: Sequence[str]) -> str:
        """The first test that fails, or file that cannot be read; empty where all pass in time."""
        options = ["-x", "-q", "--tb=no", "-rfE", f"--timeout={TEST_TIMEOUT_S}", "-p", "no:cacheprovider", "-m", SERVICES]
        command = [sys.executable, "-m", "pytest", *options, *(f"--deselect={test}" for test in deselected), *tests]
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            command, cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        ) as process:
            try:
                output, _ = process.communicate(timeout=MUTANT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        match = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return match.group(1) if match else ""


def _is_test(module: str) -> bool:
    return module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")


def draw(before: Tree, after: Tree, a_room: int, seed: int) -> list[Mutant]:
    """So many mutants of each room, no two in one function.

    Raises:
        ValueError: a room has too few functions that stand in both trees.
    """
    rng = random.Random(seed)
    by_room: dict[str, list[tuple[str, str]]] = {room: [] for room in ROOMS}
    for shape, names in sorted(after.functions.items(), key=lambda item: item[1]):
        others = before.functions.get(shape, [])
        if len(names) == len(others) == 1:
            by_room[names[0].split(".")[0].split(":")[0]].append((others[0], names[0]))
    mutants = []
    for room, pairs in by_room.items():
        rng.shuffle(pairs)
        drawn = [mutant for old, new in pairs if (mutant := _drawn_mutant(room, old, new, after, rng))][:a_room]
        if len(drawn) < a_room:
            raise ValueError(f"{room} has {len(drawn)} functions that stand in both trees and can be mutated, not {a_room}")
        mutants += drawn
    return mutants


def _drawn_mutant(room: str, before: str, after: str, tree: Tree, rng: random.Random) -> Mutant | None:
    module, qualified = after.split(":")
    source = ast.parse(tree.modules[module].read_text(encoding="utf-8"))
    found = sites(next(function for name, function in functions(source) if name == qualified))
    if not found or not tree.tests_of(module):
        return None
    site = rng.randrange(len(found))
    return Mutant(room, before, after, site, found[site][1])


def table(mutants: Sequence[Mutant], before: Sequence[Result], after: Sequence[Result]) -> str:
    """The mutants and what caught them, as Markdown."""

    def cell(result: Result) -> str:
        return f"`{result.test.split('::')[-1]}`" if result.caught else "not caught"

    rows = [
        f"| {number} | `{mutant.after.replace(':', '.')}` | {mutant.change} | {cell(old)} | {cell(new)} |"
        for number, (mutant, old, new) in enumerate(zip(mutants, before, after, strict=True), 1)
    ]
    counts = Counter({"before": sum(result.caught for result in before), "after": sum(result.caught for result in after)})
    head = f"# Mutants: {counts['before']} of {len(mutants)} caught before, {counts['after']} after\n\n"
    return head + "| | function | change | caught before by | caught after by |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
