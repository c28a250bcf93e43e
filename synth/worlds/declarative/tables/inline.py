"""Puts the rows of the tables that a spec names into the spec's values: `rows_from: restaurants.csv`.

One idea: after that a spec needs no file, so a world with tables is stored, sent to other machines and named by its content like any other.
Large tables are sampled by a hash of each row. A row that refers to another one is kept if that one is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl

from storage.errors import BadInput
from synth.worlds.declarative.language.problems import Problem, SpecError, nearest
from synth.worlds.declarative.tables.read_table import cells_of, read_table

ROWS_FROM = "rows_from"
MOST_ROWS, USUAL_ROWS = 900, 200
"""Rows of a table that a spec keeps, and rows in a world where the spec does not say how many."""
KEY = "."
"""In a row of a spec's values: what other rows refer to it by."""
DATE_FORMATS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d %B %Y", "%B %d, %Y"),
    *("%Y年%m月%d日", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"),
)
_KEYS = ("file", "table", "key", "columns")

Raw = dict[str, Any]


def inline_tables(raw: Any, folder: Path, where: str = "") -> Any:
    """A spec's values with rows in place of the file that each `rows_from` names. folder: from which paths of tables start.

    Raises:
        SpecError: with all problems of the tables.
    """
    found = raw.get("entities") if isinstance(raw, Mapping) else None
    entities: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    named = {
        name: entity for name, entity in entities.items()
        if isinstance(entity, Mapping) and isinstance(entity.get(ROWS_FROM), (str, Mapping))
    }  # fmt: skip
    if not named:
        return raw
    problems, tables = list[Problem](), dict[str, list[Raw]]()
    for name in _parents_first(named):
        path = f"entities.{name}.rows_from"
        try:
            tables[name] = _rows(named[name], folder, tables)
        except BadInput as error:
            problems.append(Problem(path, str(error)))
    if problems:
        raise SpecError(problems, where)
    _drop_orphans(named, tables)
    related = {to for entity in named.values() for to in _refs(entity).values()} & tables.keys()
    related |= {name for name, entity in named.items() if set(_refs(entity).values()) & tables.keys()}
    inlined = {name: _with_rows(entity, tables[name], is_whole=name in related) for name, entity in named.items()}
    return {**raw, "entities": {**entities, **inlined}}


def _with_rows(entity: Mapping[str, Any], table: list[Raw], *, is_whole: bool) -> Raw:
    rest = {key: value for key, value in entity.items() if key != ROWS_FROM}
    rows = str(len(table)) if is_whole else rest.get("rows", str(min(len(table), USUAL_ROWS)))
    return {**rest, "rows": rows, ROWS_FROM: table}


def _refs(entity: Mapping[str, Any]) -> dict[str, str]:
    """Field -> the entity that it refers to."""
    fields = entity.get("fields")
    items = fields.items() if isinstance(fields, Mapping) else ()
    return {name: str(field["to"]) for name, field in items if isinstance(field, Mapping) and field.get("type") == "ref" and "to" in field}


def _parents_first(entities: Mapping[str, Mapping[str, Any]]) -> list[str]:
    order: list[str] = []

    def add(name: str, waiting: tuple[str, ...]) -> None:
        if name in entities and name not in order and name not in waiting:
            for parent in _refs(entities[name]).values():
                add(parent, (*waiting, name))
            order.append(name)

    for name in entities:
        add(name, ())
    return order


def _drop_orphans(entities: Mapping[str, Mapping[str, Any]], tables: dict[str, list[Raw]]) -> None:
    """Drops rows that refer to a row that is not there, until none does: tables may refer to one another, or to themselves."""
    is_changed = True
    while is_changed:
        is_changed = False
        for name, rows in list(tables.items()):
            kept = rows
            for field, to in _refs(entities[name]).items():
                known = {row.get(KEY) for row in tables.get(to, ())}
                kept = [row for row in kept if field not in row or to not in tables or row[field] in known]
            is_changed |= len(kept) < len(rows)
            tables[name] = kept


def _rows(entity: Mapping[str, Any], folder: Path, parents: Mapping[str, list[Raw]]) -> list[Raw]:
    source = entity[ROWS_FROM]
    source = {"file": source} if isinstance(source, str) else source
    if not isinstance(source, Mapping) or "file" not in source or set(source) - set(_KEYS):
        raise BadInput(f"write a file, or keys and values of {', '.join(_KEYS)}")
    table = read_table(folder / str(source["file"]), source.get("table"))
    fields = entity.get("fields")
    cells = _columns(table, fields if isinstance(fields, Mapping) else {}, source.get("columns") or {})
    key = source.get("key")
    if key is not None and key not in table.columns:
        raise BadInput(f"no column {key!r}; {nearest(str(key), table.columns)}")
    keys: Sequence[str | None] = cells_of(table[key]) if key is not None else [None] * table.height
    if key is not None and len({each for each in keys if each}) < len([each for each in keys if each]):
        raise BadInput(f"key: two rows have the same {key!r}; name a column whose values differ")
    rows = []
    for number in range(table.height):
        row = {name: column[number] for name, column in cells.items()}
        if all(value is not None for value in row.values()) and (key is None or keys[number] is not None):
            rows.append({**row, KEY: keys[number]} if key is not None else row)
    for field, to in _refs(entity).items():
        if to in parents and field in cells:
            known = {row.get(KEY) for row in parents[to]}
            rows = [row for row in rows if row[field] in known]
    if len(rows) < 2:
        raise BadInput(f"{len(rows)} of {table.height} rows have a value in all of {', '.join(cells)}; at least two must")
    return sorted(rows, key=_hash)[:MOST_ROWS]


def _columns(table: pl.DataFrame, fields: Mapping[str, Any], mapping: Mapping[str, Any]) -> dict[str, Sequence[str | None]]:
    """Field -> its cells, of the fields that the table has."""
    if unknown := sorted(set(mapping) - set(fields)):
        raise BadInput(f"columns: no field {unknown[0]!r}; {nearest(unknown[0], list(fields))}")
    columns: dict[str, Sequence[str | None]] = {}
    for name, field in fields.items():
        wanted = mapping.get(name, name)
        has = wanted.get("has") if isinstance(wanted, Mapping) else None
        column = str(wanted.get("column") if isinstance(wanted, Mapping) else wanted)
        if column in table.columns:
            kind = str(field.get("type")) if isinstance(field, Mapping) else ""
            columns[name] = _has(table[column], str(has)) if has is not None else [_cell(each, kind) for each in cells_of(table[column])]
        elif name in mapping:
            raise BadInput(f"no column {column!r}; {nearest(column, table.columns)}")
    if not columns:
        raise BadInput(f"no field is named as a column ({', '.join(table.columns[:8])}); say which under `columns`")
    return columns


def _has(column: pl.Series, value: str) -> list[str | None]:
    """true where a cell (a list, or a text with separators) has this value."""
    return [None if cell is None else str(value in (split(cell) if isinstance(cell, str) else cell)).lower() for cell in column]


def split(cell: str) -> list[str]:
    """The parts of a text that lists something."""
    return [part.strip() for part in re.split("[;|,、；，/]", cell) if part.strip()]


def _cell(text: str | None, kind: str) -> str | None:
    if text is None:
        return None
    if kind == "date":
        return iso_date(text)
    if kind == "time":
        clock = re.fullmatch(r"(\d{1,2}):(\d\d)(?::\d\d)?", text)
        return f"{int(clock[1]):02d}:{clock[2]}" if clock else None
    if kind in ("integer", "money", "number"):
        return number_text(text, is_whole=kind != "number")
    return text


def number_text(text: str, *, is_whole: bool) -> str | None:
    """`1,250.00 €` as 1250; None without a number."""
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?", text)
    if found is None:
        return None
    value = float(found[0].replace(",", ""))
    return str(round(value)) if is_whole else f"{value:.1f}"


def iso_date(text: str) -> str | None:
    """A date in one of `DATE_FORMATS` as an ISO date; None for any other text."""
    for form in DATE_FORMATS:
        try:
            found: date = datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
        return found.isoformat()
    return None


def _hash(row: Raw) -> bytes:
    return hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest()
