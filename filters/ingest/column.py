"""Finds the query in a row: a column or key by its name, or a dotted path into nested data (`messages.0.content`).

If a column has the exact name, dots included, the name is not read as a path.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from storage.errors import BadInput

Keys = tuple[str, ...]
"""The path to a value: keys of objects, and positions in lists as decimal digits."""

_LISTED, _DEEPEST = 20, 6


def keys_of(column: str, names: Iterable[str]) -> Keys:
    """The path to a column, if rows have these names at the top level."""
    return (column,) if column in names else tuple(column.split("."))


def value_at(value: object, keys: Keys) -> object:
    """The value at the end of a path; None if there is none."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def dotted_names(value: object, prefix: str = "") -> Iterator[str]:
    """The paths to the leaves of a value; of a list, those of its first item."""
    inner = value if isinstance(value, dict) else {"0": value[0]} if isinstance(value, list) and value else {}
    if inner and prefix.count(".") < _DEEPEST:
        for key, item in inner.items():
            yield from dotted_names(item, f"{prefix}{key}.")
    elif prefix:
        yield prefix[:-1]


class MissingColumn(BadInput):
    """A file has no column of a name."""


def missing_column(path: str, column: str, columns: Iterable[str]) -> MissingColumn:
    names = list(dict.fromkeys(columns))
    near = difflib.get_close_matches(column.lower(), [name.lower() for name in names], n=3, cutoff=0.5)
    nearest = [name for name in names if name.lower() in near]
    hint = f"nearest: {', '.join(nearest)}; " if nearest else ""
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return MissingColumn(f"{path}: no column '{column}' ({hint}it has: {listed or 'none'})")
