"""What a compiled expression consists of: its type, its function, and the fields and row counts that it reads.

One idea: compiling also records what an expression reads, and which of its tests decide it: what a policy must have seen to know its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol


class ExpressionError(Exception):
    """An expression that cannot be compiled; the message is for its author."""


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value.

    kind: whole, real, date, time, flag, choice, name, ref, or word (text that gets its meaning from what it is compared with).
    entity: of a ref.
    values: of a choice or name, else None.
    """

    kind: str
    entity: str = ""
    values: frozenset[str] | None = None

    @property
    def is_number(self) -> bool:
        return self.kind in ("whole", "real")

    def __str__(self) -> str:
        return f"a {self.entity}" if self.kind == "ref" else _DESCRIPTIONS.get(self.kind, f"a {self.kind}")


_DESCRIPTIONS = {"whole": "a whole number", "real": "a number", "flag": "yes or no", "time": "a time of day", "word": "text"}
WHOLE, REAL, FLAG, DATE, TIME, WORD = (Type(kind) for kind in ("whole", "real", "flag", "date", "time", "word"))
PLAIN_TYPES = {"integer": WHOLE, "money": WHOLE, "number": REAL, "date": DATE, "time": TIME, "flag": FLAG}
"""By the `type` key of a field, parameter or kind."""

Function = Callable[[Any, Any], Any]
"""(state, values of names) -> value."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A field of the rows of an entity.

    entity: the entity's number.
    place: in the row, if the field is stored.
    run: (state, row) -> value, if the field is derived.
    """

    type: Type
    entity: int
    place: int
    run: Function | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A field that an expression reads. path: a root name, then the references that lead to the row."""

    path: tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows that an expression reads: the rows of an entity with these values.

    filters: (field, its value).
    reads: fields that the values depend on.
    """

    entity: str
    filters: tuple[tuple[str, Function], ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A condition as a tree of tests.

    joint: `and`, `or` or `not`, which joins `parts`; empty for a single test.
    reads, counts: all that a single test reads.
    """

    run: Function
    joint: str = ""
    parts: tuple[Part, ...] = ()
    reads: tuple[Read, ...] = ()
    counts: tuple[Count, ...] = ()

    def tests(self) -> Iterator[Part]:
        """Its single tests."""
        if not self.joint:
            yield self
        for part in self.parts:
            yield from part.tests()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression.

    text: its source.
    type, run: its type and function.
    reads, counts: all that it reads.
    names: the root names in it.
    part: the tests that decide it.
    equalities: simple equalities that must hold for it to be true: (root, field, value) of `tool.status == free and ...`.
    """

    text: str
    type: Type
    run: Function
    reads: tuple[Read, ...]
    counts: tuple[Count, ...]
    names: frozenset[str]
    part: Part
    equalities: tuple[tuple[str, str, Any], ...] = ()


class Scope(Protocol):
    """The meaning of names in an expression."""

    today: date
    is_keyed: bool
    """Whether the values of names come as a mapping with the names as keys."""

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

    def has_row(self, entity: str, key: str) -> bool:
        """Whether every fresh world has this row."""

    def is_broken(self, name: str) -> bool:
        """Whether that entity or field has a reported problem."""


class AlreadyReported(Exception):
    """An expression that uses a part with a reported problem, so it gets no report of its own."""
