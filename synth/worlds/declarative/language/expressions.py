"""The expressions of a spec: a small, typed subset of Python, compiled to closures.

One idea: the text is parsed by `ast` and only what is listed here is given a meaning; nothing of it is ever evaluated by Python itself,
so an untrusted spec can only compute. Types are checked when it is compiled (a date is not a number, `loan.status` is one
of its values), so that no expression fails at run time: division by zero gives 0.

There are: names (parameters, fields, `today`), attributes along references (`loan.member.status`), numbers, text in quotes or the bare
value of a choice, `+ - * / // %`, comparisons, `in (a, b)`, `and or not`, `x if c else y`, and the functions
days_until, days_since, min, max, round, abs, count(entity, field=value, ...).
Values at run time: dates are whole days from the domain's today, references are ids, all else is plain.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import Any

from synth.worlds.declarative.language.expression_types import (
    DATE,
    FLAG,
    REAL,
    WHOLE,
    WORD,
    AlreadyReported,
    Attribute,
    Compiled,
    Count,
    ExpressionError,
    Function,
    Part,
    Read,
    Scope,
    Type,
)
from synth.worlds.declarative.language.problems import nearest
from synth.worlds.declarative.language.values import FUNCTIONS

MAX_DEPTH = 24


@dataclass(frozen=True, slots=True)
class _Piece:
    type: Type
    run: Function
    path: tuple[str, ...] | None = None
    """The name and the attributes that lead to the value, as (loan, member); None for any other expression."""
    part: Part | None = None
    """The tests that `and`, `or` or `not` combines; None for any other expression."""
    key: str = ""
    """The name, if the expression is one name and the scope looks names up in a mapping; else empty."""
    is_constant: bool = False


def compile_expression(text: str, scope: Scope, expect: Type | None = None) -> Compiled:
    """Compiles `text`.

    Args:
        expect: the type that it must have; None for any.

    Raises:
        ExpressionError: what is wrong, and the nearest name where one is unknown.
        AlreadyReported: it uses a part that has a reported problem.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"not an expression: {text[:80]!r}{_hint(text)}") from None
    work = _Compiler(scope)
    piece = work.fit_type(tree.body, expect) if expect is not None else work.piece(tree.body)
    if piece.type.kind == "word":
        raise ExpressionError(f"{text!r} is only text; compare it with a field, or assign it to one")
    reads, counts, names = tuple(dict.fromkeys(work.reads)), tuple(work.counts), frozenset(work.names)
    part = piece.part or Part(piece.run, reads=reads, counts=counts)
    return Compiled(text, piece.type, piece.run, reads, counts, names, part, tuple(_equalities(tree.body, scope)))


def _source(node: ast.expr) -> str:
    return ast.unparse(node)[:60]


def _hint(text: str) -> str:
    """What the author may have meant with text that cannot be parsed."""
    if re.search(r"&&|\|\||!(?!=)", text):
        return "; write and, or, not"
    if re.search(r"(?<![=!<>])=(?!=)", text):
        return "; compare with == (one = stands only in count(...))"
    return ""


def _equalities(node: ast.expr, scope: Scope) -> Iterator[tuple[str, str, Any]]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for each in node.values:
            yield from _equalities(each, scope)
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)):
        return
    left, right = node.left, node.comparators[0]
    if isinstance(left, ast.Attribute) and isinstance(left.value, ast.Name):
        if isinstance(right, ast.Constant) and isinstance(right.value, (str, bool)):
            yield left.value.id, left.attr, right.value
        elif isinstance(right, ast.Name) and scope.root(right.id) is None and right.id != "today":
            yield left.value.id, left.attr, right.id == "true" if right.id in ("true", "false") else right.id


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else 0.0,
    ast.FloorDiv: lambda left, right: left // right if right else 0,
    ast.Mod: lambda left, right: left % right if right else 0,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _binary(act: Callable[[Any, Any], Any], left: _Piece, right: _Piece) -> Function:
    first, second = left.run, right.run
    if right.is_constant:  # as on the right of most comparisons: a call less
        value = second(None, None)
        return lambda state, names: act(first(state, names), value)
    return lambda state, names: act(first(state, names), second(state, names))


def _both(first: Function, second: Function) -> Function:
    return lambda state, names: first(state, names) and second(state, names)


def _either(first: Function, second: Function) -> Function:
    return lambda state, names: first(state, names) or second(state, names)


def _reader(field: Attribute, row: _Piece) -> Function:
    """The function that reads a field of the row that `row` computes; a faster one if `row` is a parameter, as it is most often."""
    number, place, work, inner, key = field.entity, field.place, field.run, row.run, row.key
    if work is not None:
        return lambda state, names: work(state, state.row(number, inner(state, names)))
    if key:
        return lambda state, names: state.row(number, names[key])[place]
    return lambda state, names: state.row(number, inner(state, names))[place]


def _constant(kind: Type, value: Any) -> _Piece:
    return _Piece(kind, lambda state, names: value, is_constant=True)


class _Compiler:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.reads: list[Read] = []
        self.counts: list[Count] = []
        self.names: set[str] = set()
        self.depth = 0

    def piece(self, node: ast.expr) -> _Piece:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError("nested too deeply; split it")
        try:
            handler = getattr(self, f"_{type(node).__name__.lower()}", None)
            if handler is None:
                raise ExpressionError(f"{_source(node)!r} is not part of the language (docs/worlds.md lists what is)")
            compiled: _Piece = handler(node)
            return compiled
        finally:
            self.depth -= 1

    def fit_type(self, node: ast.expr, expect: Type) -> _Piece:
        """A piece of the expected type; words become values of a choice, whole numbers pass as numbers."""
        word = self._word(node)
        if word is not None and expect.kind in ("choice", "name", "time", "date"):
            return _constant(expect, self._literal(word, expect))
        if word is not None and expect.kind == "ref" and isinstance(node, ast.Constant):
            if not self.scope.has_row(expect.entity, word):
                raise ExpressionError(f"a fresh world has no {expect.entity} {word!r}")
            return _constant(expect, word)
        piece = self._ifexp(node, expect) if isinstance(node, ast.IfExp) else self.piece(node)
        if not _fits(piece.type, expect):
            hint = "; use round(...)" if (piece.type.kind, expect.kind) == ("real", "whole") else ""
            raise ExpressionError(f"{_source(node)!r} is {piece.type}, expected {expect}{hint}")
        return piece

    def _word(self, node: ast.expr) -> str | None:
        """The text of a quoted word, or of a bare name that stands for nothing else."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name) and node.id != "today" and self.scope.root(node.id) is None and not self.scope.is_broken(node.id):
            return node.id
        return None

    def _literal(self, word: str, expect: Type) -> Any:
        if expect.kind == "date":
            try:
                return (date.fromisoformat(word) - self.scope.today).days
            except ValueError:
                raise ExpressionError(f"{word!r} is no date; write it as '2026-05-13'") from None
        if expect.kind == "time":
            if len(word) != 5 or word[2] != ":" or not (word[:2] + word[3:]).isdigit():
                raise ExpressionError(f"{word!r} is no time of day; write it as '09:30'")
            return word
        if expect.values is not None and word not in expect.values:
            raise ExpressionError(f"no value {word!r}; {nearest(word, [*expect.values, *self.scope.roots()])}")
        return word

    # ---- leaves ---------------------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> _Piece:
        value = node.value
        if isinstance(value, bool):
            return _constant(FLAG, value)
        if isinstance(value, int) and abs(value) <= 10**9:
            return _constant(WHOLE, value)
        if isinstance(value, float) and abs(value) <= 10**9:
            return _constant(REAL, value)
        if isinstance(value, str):
            return _constant(WORD, value)
        raise ExpressionError(f"{str(value)[:40]!r} is no value of the language")

    def _name(self, node: ast.Name) -> _Piece:
        name = node.id
        if name == "today":
            return _constant(DATE, 0)
        if name in ("true", "false"):
            return _constant(FLAG, name == "true")
        root = self.scope.root(name)
        if root is None:
            if self.scope.is_broken(name):
                raise AlreadyReported
            raise ExpressionError(f"unknown name {name!r}; {nearest(name, [*self.scope.roots(), 'today'])}")
        self.names.add(name)
        return _Piece(root[0], root[1], (name,), key=name if self.scope.is_keyed else "")

    def _attribute(self, node: ast.Attribute) -> _Piece:
        row = self.piece(node.value)
        if row.type.kind != "ref":
            raise ExpressionError(f"{_source(node.value)!r} is {row.type}, which has no fields")
        attribute = self.scope.attribute(row.type.entity, node.attr)
        if attribute is None:
            if self.scope.is_broken(f"{row.type.entity}.{node.attr}") or self.scope.is_broken(row.type.entity):
                raise AlreadyReported
            raise ExpressionError(
                f"no field {node.attr!r} of {row.type.entity}; {nearest(node.attr, self.scope.attributes(row.type.entity))}"
            )
        if row.path is None:
            text = ast.unparse(node)[:60]
            raise ExpressionError(
                f"{text!r}: which row that is shows nowhere; put the `if` around it: a.{node.attr} if ... else b.{node.attr}"
            )
        self.reads.append(Read(row.path, node.attr))
        return _Piece(attribute.type, _reader(attribute, row), (*row.path, node.attr))

    # ---- operators ------------------------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> _Piece:
        act = _ARITHMETIC.get(type(node.op))
        if act is None:
            raise ExpressionError(f"{_source(node)!r}: there are + - * / // %")
        left, right = self.piece(node.left), self.piece(node.right)
        kinds = (left.type.kind, right.type.kind)
        if kinds == ("date", "date") and isinstance(node.op, ast.Sub):
            return _Piece(WHOLE, _binary(act, left, right))
        if kinds == ("date", "whole") and isinstance(node.op, (ast.Add, ast.Sub)):
            return _Piece(DATE, _binary(act, left, right))
        if not (left.type.is_number and right.type.is_number):
            raise ExpressionError(f"{_source(node)!r}: {left.type} and {right.type} do not go together")
        is_whole = kinds == ("whole", "whole") and not isinstance(node.op, ast.Div)
        return _Piece(WHOLE if is_whole else REAL, _binary(act, left, right))

    def _unaryop(self, node: ast.UnaryOp) -> _Piece:
        if isinstance(node.op, ast.Not):
            part = self._part(node.operand)
            inner = part.run
            return self._join("not", lambda state, names: not inner(state, names), part)
        piece = self.piece(node.operand)
        if not isinstance(node.op, ast.USub) or not piece.type.is_number:
            raise ExpressionError(f"{_source(node)!r} is not part of the language")
        value = piece.run
        return _Piece(piece.type, lambda state, names: -value(state, names))

    def _boolop(self, node: ast.BoolOp) -> _Piece:
        parts = [self._part(each) for each in node.values]
        joint, join = ("and", _both) if isinstance(node.op, ast.And) else ("or", _either)
        return self._join(joint, reduce(join, (part.run for part in parts)), *parts)

    def _part(self, node: ast.expr) -> Part:
        """The test that a flag expression is, with the reads and counts of this expression alone."""
        reads, counts = len(self.reads), len(self.counts)
        piece = self.fit_type(node, FLAG)
        return piece.part or Part(piece.run, reads=tuple(self.reads[reads:]), counts=tuple(self.counts[counts:]))

    def _join(self, joint: str, run: Function, *parts: Part) -> _Piece:
        return _Piece(FLAG, run, part=Part(run, joint, parts))

    def _compare(self, node: ast.Compare) -> _Piece:
        terms = [node.left, *node.comparators]
        tests = [self._comparison(left, op, right) for left, op, right in zip(terms, node.ops, terms[1:], strict=False)]
        if len(tests) == 1:
            return _Piece(FLAG, tests[0])
        return _Piece(FLAG, lambda state, names: all(test(state, names) for test in tests))

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Function:
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._membership(left, right, is_in=isinstance(op, ast.In))
        act = _COMPARISONS.get(type(op))
        if act is None:
            raise ExpressionError("compare with == != < <= > >= in")
        if self._word(left) is not None and self._word(right) is None:
            second = self.piece(right)
            first = self.fit_type(left, second.type)
        else:
            first = self.piece(left)
            second = self.fit_type(right, first.type) if self._word(right) is not None else self.piece(right)
        if not (_fits(second.type, first.type) or _fits(first.type, second.type)):
            raise ExpressionError(f"{ast.unparse(left)[:40]!r} is {first.type}, {ast.unparse(right)[:40]!r} is {second.type}: never equal")
        if not isinstance(op, (ast.Eq, ast.NotEq)) and first.type.kind not in ("whole", "real", "date", "time"):
            raise ExpressionError(f"{ast.unparse(left)[:40]!r} is {first.type}, which has no order; compare with == or !=")
        return _binary(act, first, second)

    def _membership(self, left: ast.expr, right: ast.expr, *, is_in: bool) -> Function:
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not right.elts:
            raise ExpressionError("after `in` stands a list of values: status in (open, late)")
        first = self.piece(left)
        options = [self.fit_type(each, first.type).run for each in right.elts]
        value = first.run
        if is_in:
            return lambda state, names: value(state, names) in [option(state, names) for option in options]
        return lambda state, names: value(state, names) not in [option(state, names) for option in options]

    def _ifexp(self, node: ast.IfExp, expect: Type | None = None) -> _Piece:
        test = self.fit_type(node.test, FLAG).run
        if expect is not None:
            first, second = self.fit_type(node.body, expect), self.fit_type(node.orelse, expect)
        else:
            first, second = self.piece(node.body), self.piece(node.orelse)
        if not (_fits(second.type, first.type) or _fits(first.type, second.type)):
            raise ExpressionError(f"{_source(node)!r}: {first.type} or {second.type}; both must be of one type")
        then, other = first.run, second.run
        kind = REAL if "real" in (first.type.kind, second.type.kind) else first.type
        return _Piece(kind, lambda state, names: then(state, names) if test(state, names) else other(state, names))

    # ---- functions ------------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> _Piece:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            raise ExpressionError(f"no function {ast.unparse(node.func)[:40]!r}; {nearest(name, FUNCTIONS)}")
        if name == "count":
            return self._count(node)
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise ExpressionError(f"{name} takes plain values")
        if name in ("days_until", "days_since"):
            if len(node.args) != 1:
                raise ExpressionError(f"{name} takes one date")
            day = self.fit_type(node.args[0], DATE).run
            return _Piece(WHOLE, day if name == "days_until" else lambda state, names: -day(state, names))
        pieces = [self.piece(each) for each in node.args]
        if name in ("round", "abs"):
            if len(pieces) != 1 or not pieces[0].type.is_number:
                raise ExpressionError(f"{name} takes one number")
            value, act = pieces[0].run, round if name == "round" else abs
            return _Piece(WHOLE if name == "round" else pieces[0].type, lambda state, names: act(value(state, names)))
        return self._extreme(name, node, pieces)

    def _extreme(self, name: str, node: ast.Call, pieces: list[_Piece]) -> _Piece:
        kinds = {piece.type.kind for piece in pieces}
        if len(pieces) < 2 or not (kinds <= {"whole", "real"} or kinds == {"date"}):
            raise ExpressionError(f"{_source(node)!r}: {name} takes two or more numbers, or dates")
        act, values = min if name == "min" else max, [piece.run for piece in pieces]
        kind = pieces[0].type if len(kinds) == 1 else REAL
        return _Piece(kind, lambda state, names: act(value(state, names) for value in values))

    def _count(self, node: ast.Call) -> _Piece:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Name) or any(each.arg is None for each in node.keywords):
            raise ExpressionError("count takes an entity and fields: count(loan, member=member, status=active)")
        entity = node.args[0].id
        try:
            attributes = self.scope.attributes(entity)
        except KeyError:
            if self.scope.is_broken(entity):
                raise AlreadyReported from None
            raise ExpressionError(f"count: no entity {entity!r}") from None
        before, filters = len(self.reads), []
        for keyword in node.keywords:
            name = str(keyword.arg)
            attribute = self.scope.attribute(entity, name)
            if attribute is None:
                raise ExpressionError(f"count: no field {name!r} of {entity}; {nearest(name, attributes)}")
            filters.append((name, self.fit_type(keyword.value, attribute.type).run))
        self.counts.append(Count(entity, tuple(filters), tuple(self.reads[before:])))
        counter = self.scope.counter(entity, tuple(name for name, _ in filters))
        values = [value for _, value in filters]
        return _Piece(WHOLE, lambda state, names: counter(state, tuple(value(state, names) for value in values)))


def _fits(given: Type, expect: Type) -> bool:
    if given.kind == "whole" and expect.kind == "real":
        return True
    if given.kind != expect.kind:
        return False
    if given.kind == "ref":
        return given.entity == expect.entity
    if given.kind in ("choice", "name") and given.values is not None and expect.values is not None:
        return given.values <= expect.values
    return True
