"""The house as a graph, read from its source: modules, what each imports, and what a stranger would stumble over.

Every import counts: at the top of a module, inside a function (lazy), and under TYPE_CHECKING. Nothing is imported to find out.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("storage", "synth", "filters", "train", "flows")
Graph = Mapping[str, frozenset[str]]


@cache
def modules(root: Path = ROOT, folders: tuple[str, ...] = ROOMS) -> Mapping[str, Path]:
    """Every module and package below these folders of a checkout by its dotted name, and its file."""
    found = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def import_graph(root: Path = ROOT, folders: tuple[str, ...] = ROOMS) -> Graph:
    """Module -> the modules below these folders that it imports."""
    known = modules(root, folders)
    return {name: frozenset(_imported(name, path, known)) - {name} for name, path in known.items()}


def _imported(name: str, path: Path, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _nearest_module(alias.name, known)
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            prefix = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*prefix, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from _nearest_module(f"{source}.{alias.name}", known)


def _nearest_module(dotted: str, known: Collection[str]) -> Iterator[str]:
    """The longest prefix of a dotted name that is a known module."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    if dotted:
        yield dotted


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node, each sorted, the largest first (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    components: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in on_stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            start = stack.index(node)
            component = stack[start:]
            del stack[start:]
            on_stack.difference_update(component)
            components.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted((component for component in components if len(component) > 1), key=len, reverse=True)


def folder_graph(room: str) -> Graph:
    """The folders of a room (its loose modules count as folders of one) -> those that their modules import."""

    def folder(name: str) -> str:
        return ".".join(name.split(".")[:2])

    graph: dict[str, set[str]] = defaultdict(set)
    for name, targets in import_graph().items():
        if name.split(".")[0] == room and name != room:
            graph[folder(name)] |= {folder(target) for target in targets if target.startswith(f"{room}.")} - {folder(name)}
    return {name: frozenset(targets & graph.keys()) for name, targets in graph.items()}


def loose_files(rooms: Iterable[str] = ROOMS) -> Counter[str]:
    """Python files directly in each folder, `__init__.py` included."""
    return Counter(str(path.parent.relative_to(ROOT)) for room in rooms for path in (ROOT / room).rglob("*.py"))


def shared_file_names() -> dict[str, list[str]]:
    """File names, `__init__.py` apart, that several modules have, and these modules."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, path in modules().items():
        if path.name != "__init__.py":
            by_name[path.name].append(name)
    return {file_name: names for file_name, names in by_name.items() if len(names) > 1}


def long_functions(most_lines: int = 50) -> dict[str, int]:
    """Functions of more lines than that, signature and docstring included: `module.function` -> lines."""
    return {
        f"{name}.{node.name}": node.end_lineno - node.lineno + 1
        for name, path in modules().items()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno and node.end_lineno - node.lineno + 1 > most_lines
    }


def single_importers() -> dict[str, str]:
    """Modules, packages apart, that exactly one other module imports, and which."""
    importers: dict[str, list[str]] = defaultdict(list)
    for name, targets in import_graph().items():
        for target in targets:
            importers[target].append(name)
    return {name: of[0] for name, of in sorted(importers.items()) if len(of) == 1 and modules()[name].name != "__init__.py"}


def lines(folders: Iterable[str]) -> int:
    """Lines of all Python files below these folders."""
    return sum(len(path.read_bytes().splitlines()) for folder in folders for path in (ROOT / folder).rglob("*.py"))
