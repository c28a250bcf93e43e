"""What compiled expressions are made of: types, what is looked at, and what names mean where they stand.

One idea: compiling tells which fields of which rows an expression looks at, and which of its tests settle it: what has to be seen before
one can judge by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol


class ExpressionError(Exception):
    """What is wrong with an expression, for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Type:
    """kind: whole, real, date, time, flag, choice, name, ref, or word (text whose meaning the other side decides).
    entity: of a ref. values: of a choice or name, else None."""

    kind: str
    entity: str = ""
    values: frozenset[str] | None = None

    @property
    def is_number(self) -> bool:
        return self.kind in ("whole", "real")

    def __str__(self) -> str:
        plain = {
            "whole": "a whole number",
            "real": "a number",
            "flag": "yes or no",
            "time": "a time of day",
            "name": "a name",
            "word": "text",
        }
        if self.kind == "ref":
            return f"a {self.entity}"
        if self.kind == "choice":
            return "a choice"
        return plain.get(self.kind, f"a {self.kind}")


WHOLE, REAL, FLAG, DATE, TIME, WORD = (Type(kind) for kind in ("whole", "real", "flag", "date", "time", "word"))

Function = Callable[[Any, Any], Any]
"""(state, what names stand for) -> value."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A field of rows: at `place` of those of entity number `entity`, or what `run` makes of (state, row)."""

    type: Type
    entity: int
    place: int
    run: Function | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A field of a row that is looked at. path: how the row is reached: a root name, then fields that refer to rows."""

    path: tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows that is looked at: those of an entity with these values."""

    entity: str
    filters: tuple[tuple[str, Function], ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A condition as one judges by it. joint: `and`, `or`, `not` of its `parts`; empty where it is one test, which needs all that it
    `reads` and `counts`."""

    run: Function
    joint: str = ""
    parts: tuple[Part, ...] = ()
    reads: tuple[Read, ...] = ()
    counts: tuple[Count, ...] = ()

    def tests(self) -> Iterator[Part]:
        """The single tests that it is put together from."""
        if not self.joint:
            yield self
        for part in self.parts:
            yield from part.tests()


@dataclass(frozen=True, slots=True)
class Compiled:
    """type and run: what it gives. reads, counts: all that it looks at; part: which of that must be seen to know its value.
    names: roots that it mentions.
    equalities: (root, field, value) that must hold for it to be true, as far as they are plain: `tool.status == free and ...`."""

    text: str
    type: Type
    run: Function
    reads: tuple[Read, ...]
    counts: tuple[Count, ...]
    names: frozenset[str]
    part: Part
    equalities: tuple[tuple[str, str, Any], ...] = ()


class Scope(Protocol):
    """What names mean where an expression stands."""

    today: date
    is_keyed: bool
    """Whether what names stand for is a mapping with the names as keys."""

    def root(self, name: str) -> tuple[Type, Function] | None:
        """Type and getter of a plain name."""

    def roots(self) -> list[str]:
        """All plain names, for hints."""

    def attribute(self, entity: str, name: str) -> Attribute | None:
        """A field of an entity."""

    def attributes(self, entity: str) -> list[str]:
        """All fields of an entity, for hints; raises KeyError for an unknown entity."""

    def counter(self, entity: str, fields: tuple[str, ...]) -> Callable[[Any, tuple[Any, ...]], int]:
        """How many rows of an entity have these values in these fields."""

    def is_broken(self, name: str) -> bool:
        """Whether that entity or field could not be read, and was complained of already."""


class Silent(Exception):
    """An expression that cannot be judged, for what it uses was complained of already."""
