"""Mutants: small faults put into functions that two trees of the project have in common.

Two functions are the same where their syntax trees are equal once names, docstrings and annotations are erased (`anonymise`); names of
built-ins, operators, numbers and other strings stay. Only functions that are unique in each tree are drawn, so there is no doubt which
is which. The places of a function that can be mutated (`mutation_points`) come in the order of its syntax tree, so the same number is the
same place in both trees.

No place is in a docstring, an annotation, a decorator, a formatted string, a log message, a print or a raised error: what stands there
is for people, and no test needs to notice it. What this does not do: find equivalent mutants, which no test can notice. They are the same
in both trees.
"""

from __future__ import annotations

import ast
import builtins
import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LEAST_STATEMENTS = 4
SHOWN_ONLY = frozenset({"__repr__", "__str__"})
LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "print"})
COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
BUILTINS = frozenset(dir(builtins))
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """
    path: of its file, in the tree
    name: with its class, as `Store.commit`
    node: its syntax tree
    """

    path: Path
    name: str
    node: FunctionNode


@dataclass(frozen=True)
class Point:
    """
    kind: of mutation, as `comparison`
    node: the expression to replace
    replacement: its source code
    """

    kind: str
    node: ast.expr
    replacement: str


@dataclass(frozen=True)
class Mutant:
    """
    room: of the function in the later tree
    before, after: the same function in the two trees
    number: position of the mutated place among `mutation_points`
    """

    room: str
    before: Function
    after: Function
    number: int


# ---- which functions are the same ---------------------------------------------------------------------------------------------


class _Anonymiser(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(node.id if node.id in BUILTINS else "_", node.ctx)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("name", "attr", "arg", "asname", "module", "rest"):
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, "_")
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("_", ast.Load())
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = ["_"] * len(node.names)
        if isinstance(node, FunctionNode | ast.ClassDef):
            node.body = _without_docstring(node.body)
        if isinstance(node, FunctionNode):
            node.returns = None
        return super().generic_visit(node)


def anonymise(function: FunctionNode) -> str:
    """The syntax tree without names, docstrings and annotations; equal texts mean equal functions."""
    return ast.dump(_Anonymiser().visit(copy.deepcopy(function)))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    has_docstring = body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if has_docstring and isinstance(body[0].value.value, str) else body  # type: ignore[attr-defined]


def functions(path: Path) -> Iterator[Function]:
    """A file's functions and methods that are large enough and not for display only."""

    def visit(body: Sequence[ast.stmt], prefix: str) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, FunctionNode) and node.name not in SHOWN_ONLY:
                statements = sum(
                    isinstance(child, ast.stmt) for statement in _without_docstring(node.body) for child in ast.walk(statement)
                )
                if statements >= LEAST_STATEMENTS:
                    yield Function(path, f"{prefix}{node.name}", node)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")).body, "")


def common_functions(before: Sequence[Path], after: Sequence[Path]) -> list[tuple[Function, Function]]:
    """Functions that occur exactly once in the files of each tree and can be mutated, in the order of the later tree's files."""
    earlier, later = _unique_functions(before), _unique_functions(after)
    pairs = [(earlier[text], function) for text, function in later.items() if text in earlier]
    return [
        pair
        for pair in pairs
        if (kinds := [point.kind for point in mutation_points(pair[1].node)]) and kinds == [p.kind for p in mutation_points(pair[0].node)]
    ]


def _unique_functions(paths: Sequence[Path]) -> dict[str, Function]:
    by_text: dict[str, list[Function]] = defaultdict(list)
    for path in paths:
        for function in functions(path):
            by_text[anonymise(function.node)].append(function)
    return {text: group[0] for text, group in by_text.items() if len(group) == 1}


# ---- what is mutated ----------------------------------------------------------------------------------------------------------


def mutation_points(function: FunctionNode) -> list[Point]:
    """Every place of the function that can be mutated, in the order of its syntax tree."""
    defaults = [default for default in (*function.args.defaults, *function.args.kw_defaults) if default]
    return [point for part in (*defaults, *_without_docstring(function.body)) for point in _points(part)]


def _points(node: ast.AST) -> Iterator[Point]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.arguments) or _is_log_call(node):
        return
    yield from _own_points(node)
    if isinstance(node, FunctionNode | ast.ClassDef):
        children: list[ast.AST] = list(_without_docstring(node.body))
    elif isinstance(node, ast.AnnAssign):
        children = [node.value] if node.value else []
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from _points(child)


def _is_log_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in LOGGING


def _own_points(node: ast.AST) -> Iterator[Point]:
    match node:
        case ast.Compare(ops=[operator]) if not (isinstance(operator, ORDER) and _has_float(node)):
            yield _point("comparison", node, ops=[COMPARISONS[type(operator)]()])
        case ast.BoolOp(op=operator):
            yield _point("and/or", node, op=ast.And() if isinstance(operator, ast.Or) else ast.Or())
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            yield _point("arithmetic", node, op=ARITHMETIC[type(node.op)]())
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            yield Point("number", node, repr(node.value + 1))
        case ast.If(test=test) | ast.IfExp(test=test):
            yield Point("not", test, f"(not ({ast.unparse(test)}))")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield Point("return", value, "None")
        case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all" as name)):
            yield _point("call", node, func=ast.Name(OPPOSITES[name], ast.Load()))
        case ast.Call(func=ast.Name(id="sorted")):
            yield _point("call", node, keywords=_reversed(node.keywords))


def _has_float(node: ast.Compare) -> bool:
    """Compares with a float: whether equality counts there is hardly ever to be noticed."""
    return any(isinstance(side, ast.Constant) and isinstance(side.value, float) for side in (node.left, *node.comparators))


def _point(kind: str, node: ast.expr, **changes: object) -> Point:
    changed = copy.deepcopy(node)
    for field, value in changes.items():
        setattr(changed, field, value)
    return Point(kind, node, f"({ast.unparse(changed)})")


def _reversed(keywords: list[ast.keyword]) -> list[ast.keyword]:
    """The keywords of a call to `sorted` that gives the opposite order."""
    reverse: ast.expr = next((keyword.value for keyword in keywords if keyword.arg == "reverse"), ast.Constant(False))
    others = [keyword for keyword in keywords if keyword.arg != "reverse"]
    return [*others, ast.keyword("reverse", ast.UnaryOp(ast.Not(), reverse))]


def mutate(source: str, point: Point) -> str:
    """The source file with one expression replaced. Positions of syntax trees count bytes of UTF-8."""
    node = point.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (head + point.replacement.encode() + tail).decode()


# ---- which are drawn ----------------------------------------------------------------------------------------------------------


def draw(pairs: Sequence[tuple[Function, Function]], after: Path, rooms: Sequence[str], per_room: int, seed: int) -> list[Mutant]:
    """As many mutants of each room of the later tree `after`, at most one a function; the kind is drawn before the place.

    Raises ValueError where a room has too few functions.
    """
    mutants = []
    for room in rooms:
        rng = random.Random(f"{seed} {room}")
        of_room = [pair for pair in pairs if pair[1].path.relative_to(after).parts[0] == room]
        if len(of_room) < per_room:
            raise ValueError(f"{room}: {len(of_room)} functions are the same in both trees, {per_room} are needed")
        for earlier, later in rng.sample(of_room, per_room):
            kinds = [point.kind for point in mutation_points(later.node)]
            kind = rng.choice(sorted(set(kinds)))
            number = rng.choice([number for number, other in enumerate(kinds) if other == kind])
            mutants.append(Mutant(room, earlier, later, number))
    return mutants
