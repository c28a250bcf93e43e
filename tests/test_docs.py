"""Documents and docstrings name modules, functions and files that are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from flows.config import Config
from tests.module_graph import ROOMS, ROOT, modules

DOTTED = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
FILE = re.compile(rf"`((?:{'|'.join(ROOMS)}|tests|benchmarks|configs)/[\w/.-]+\.(?:py|yaml|md))`")
IN_EXAMPLES = {"filters/steps/words.py", "tests/filters/steps/test_words.py", "train/backends/detached.py", "synth/engines/program.py"}
"""Files that docs/extending.md has its reader write."""


@cache
def members(module: str) -> dict[str, frozenset[str]]:
    """The names that a module defines or imports; of a class, those of its methods and fields."""
    names: dict[str, frozenset[str]] = {}
    for node in ast.parse(modules()[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = frozenset(name for item in node.body for name in names_of(item))
        else:
            names |= dict.fromkeys(names_of(node), frozenset())
    return names


def names_of(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        yield from (each.id for each in (node.targets if isinstance(node, ast.Assign) else [node.target]) if isinstance(each, ast.Name))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)


def is_there(dotted: str) -> bool:
    """Whether a module, or a name in one, or a key of the configuration is called so."""
    parts = dotted.split(".")
    length = next(length for length in range(len(parts), 0, -1) if ".".join(parts[:length]) in modules())
    name, *more = parts[length:] or [""]
    section = Config.model_fields.get(parts[0])
    if length == 1 and section is not None and name in getattr(section.annotation, "model_fields", {}):
        return True
    known = members(".".join(parts[:length]))
    return not name or (name in known and (not more or more[0] in known[name]))


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *modules().values()]


def test_what_documents_and_docstrings_name_is_there() -> None:
    missing = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        missing += [f"{path.relative_to(ROOT)}: {name}" for name in DOTTED.findall(text) if not is_there(name)]
        missing += [
            f"{path.relative_to(ROOT)}: {name}" for name in FILE.findall(text) if name not in IN_EXAMPLES and not (ROOT / name).exists()
        ]
    assert missing == []


@pytest.mark.parametrize("dotted", ["storage.store.Store.commit", "train.cluster", "synth.tasks", "filters.steps.exact.step"])
def test_a_name_that_is_there_is_found(dotted: str) -> None:
    assert is_there(dotted)


@pytest.mark.parametrize("dotted", ["storage.store.Store.comit", "train.clusters", "synth.tasks.solvers", "filters.steps.exact.steps"])
def test_a_name_that_is_not_there_is_missed(dotted: str) -> None:
    assert not is_there(dotted)
