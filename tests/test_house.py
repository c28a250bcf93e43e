"""The rooms' modules import each other in one direction: no module circles back to itself, be it lazily or for a type alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("storage", "synth", "filters", "train", "flows")

CIRCLES: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "synth.worlds.retail.intents",
            "synth.worlds.retail.intents.base",
            "synth.worlds.retail.intents.orders",
            "synth.worlds.retail.intents.service",
            "synth.worlds.retail.intents.shopping",
            "synth.worlds.retail.world",
        }
    ),
    frozenset({"synth.sandbox.base", "synth.sandbox.wire"}),
)
"""Circles that are there today. This list is to become empty; nothing is added to it."""

Graph = Mapping[str, Set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Every module of the rooms, by its dotted name."""
    found = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imported(name: str, path: Path, known: Set[str]) -> set[str]:
    """The rooms' modules that a module names in an import, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {_nearest(alias.name, known) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, name, is_package=path.name == "__init__.py")
            found |= {_nearest(f"{base}.{alias.name}", known) for alias in node.names}
    return found - {"", name}


def _base(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    """What `from ... import` takes from, as a dotted name from the root."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    up = node.level - is_package
    return ".".join([*(parts[:-up] if up else parts), *([node.module] if node.module else [])])


def _nearest(name: str, known: Set[str]) -> str:
    """The module that a dotted name leads to: itself, or that in which it is defined; nothing where it is not of the house."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    open_: set[str] = set()
    found: list[frozenset[str]] = []

    for start in graph:
        if start in number:
            continue
        work: list[tuple[str, Iterator[str]]] = [_entered(start, graph, number, lowest, stack, open_)]
        while work:
            node, following = work[-1]
            for other in following:
                if other not in number:
                    work.append(_entered(other, graph, number, lowest, stack, open_))
                    break
                if other in open_:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    at = stack.index(node)
                    together, stack[at:] = frozenset(stack[at:]), []
                    open_ -= together
                    found += [together] if len(together) > 1 else []
    return found


def _entered(
    node: str, graph: Graph, number: dict[str, int], lowest: dict[str, int], stack: list[str], open_: set[str]
) -> tuple[str, Iterator[str]]:
    number[node] = lowest[node] = len(number)
    stack.append(node)
    open_.add(node)
    return node, iter(sorted(graph[node]))


def house(root: Path) -> dict[str, set[str]]:
    """Every module of the rooms with those that it imports."""
    found = modules(root)
    return {name: imported(name, path, found.keys()) for name, path in found.items()}


@cache
def circles_here() -> frozenset[frozenset[str]]:
    return frozenset(circles(house(ROOT)))


def test_no_module_imports_itself_through_others() -> None:
    found = circles_here()
    told = "\n".join(f"{len(circle)} modules: {', '.join(sorted(circle))}" for circle in found if circle not in CIRCLES)
    assert not told, f"modules that import each other in a circle:\n{told}"


def test_every_circle_that_is_allowed_is_there() -> None:
    """A circle that was broken leaves the list, so that it cannot come back."""
    assert set(CIRCLES) <= circles_here()


def test_a_circle_is_found_whichever_way_its_imports_are_written(tmp_path: Path) -> None:
    """Given a lazy, a type-only, a relative and a package's import that close circles, when the house is read, then each is found."""
    for name, text in {
        "storage/__init__.py": "",
        "storage/lazy.py": "def late():\n    from storage.plain import thing\n",
        "storage/plain.py": "import storage.lazy\nthing = 1\n",
        "synth/__init__.py": "from synth.inner import thing\n",
        "synth/inner.py": "from . import other\nthing = 1\n",
        "synth/other.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from synth import thing\n",
        "filters/deep/__init__.py": "",
        "filters/deep/left.py": "from .right import a\n",
        "filters/deep/right.py": "from ..deep import left\na = 1\n",
        "train/alone.py": "import json\nfrom storage import plain\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    assert set(circles(house(tmp_path))) == {
        frozenset({"storage.lazy", "storage.plain"}),
        frozenset({"synth", "synth.inner", "synth.other"}),
        frozenset({"filters.deep.left", "filters.deep.right"}),
    }


def test_circles_that_share_a_module_are_one_and_a_way_that_only_branches_is_none() -> None:
    shared: Graph = {"a": {"b", "c"}, "b": {"a"}, "c": {"a"}, "d": {"a"}}
    branches: Graph = {"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}
    assert circles(shared) == [frozenset({"a", "b", "c"})]
    assert circles(branches) == []
