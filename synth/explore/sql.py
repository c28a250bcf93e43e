"""Texts for tools that take SQL: a value of a row, a row changed, added or removed, with slots for what the request says."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.records import JSON


@dataclass(frozen=True)
class Statement:
    """text: with slots. slots: their values. labels: what requests call them. says: how a request asks for it, after `Please`. told: the
    column that it shows, for a query."""

    text: str
    slots: dict[str, JSON]
    labels: dict[str, str]
    says: str
    told: str | None = None


def takes_sql(parameter: str, description: str) -> bool:
    """Whether a parameter holds SQL."""
    return parameter in ("query", "sql", "statement") and any(
        word in description for word in ("SQL", "SELECT", "INSERT", "UPDATE", "CREATE")
    )


def tables_of(state: Mapping[str, JSON]) -> dict[str, list[dict[str, JSON]]]:
    """The tables in a state: mappings of rows that share their columns."""
    tables = {}
    for name, rows in state.items():
        if isinstance(rows, Mapping) and rows and all(isinstance(row, Mapping) for row in rows.values()):
            tables[name] = [dict(row) for row in rows.values()]
    return tables


def propose_statement(tables: Mapping[str, Sequence[Mapping[str, JSON]]], description: str, rng: random.Random) -> Statement | None:
    """A statement of the kind that the tool's description names: SELECT, or one of UPDATE, INSERT, DELETE; None if no table suits."""
    name = rng.choice(sorted(tables))
    rows = tables[name]
    row = rng.choice(list(rows))
    columns = [column for column, value in row.items() if isinstance(value, str | int | float) and str(value).strip()]
    keys = [column for column in columns if len({str(each.get(column)) for each in rows}) == len(rows)]
    others = [column for column in columns if column not in keys[:1]]
    if not keys or not others:
        return None
    key, noun = rng.choice(keys), name[:-1] if name.endswith("s") else name
    told = rng.choice([column for column in columns if column != key])
    where = {f"{noun}_{key}": row[key]}
    said = f"whose {key} is {{{noun}_{key}}}"
    quoted = _quoted(f"{noun}_{key}", row[key])
    if "SELECT" in description.upper() and "INSERT" not in description.upper():
        text = f"SELECT {told} FROM {name} WHERE {key} = {quoted}"
        return Statement(text, where, {f"{noun}_{key}": key}, f"tell me the {told} of the {noun} {said}", told)
    way = rng.choice(("UPDATE", "UPDATE", "INSERT", "DELETE"))
    if way == "DELETE":
        return Statement(f"DELETE FROM {name} WHERE {key} = {quoted}", where, {f"{noun}_{key}": key}, f"delete the {noun} {said}")
    if way == "UPDATE":
        choices = sorted({str(each[told]): each[told] for each in rows if each.get(told) not in (None, row[told], "")}.items())
        if not choices:
            return None
        slots = {**where, f"new_{told}": rng.choice(choices)[1]}
        text = f"UPDATE {name} SET {told} = {_quoted(f'new_{told}', slots[f'new_{told}'])} WHERE {key} = {quoted}"
        says = f"set the {told} of the {noun} {said} to {{new_{told}}}"
        return Statement(text, slots, {f"{noun}_{key}": key, f"new_{told}": told}, says)
    return _insert(name, noun, rows, rng)


def _insert(name: str, noun: str, rows: Sequence[Mapping[str, JSON]], rng: random.Random) -> Statement:
    """A new row: numbers that rows are told by go up, all other values are those of other rows."""
    slots: dict[str, JSON] = {}
    for column in rows[0]:
        values: list[Any] = [row[column] for row in rows if row.get(column) is not None]
        is_id = column == "id" and all(isinstance(value, int) for value in values)
        slots[f"{noun}_{column}"] = max(values) + rng.randrange(1, 50) if is_id else rng.choice(values or ["none"])
    columns = list(rows[0])
    texts = ", ".join(_quoted(f"{noun}_{column}", slots[f"{noun}_{column}"]) for column in columns)
    says = f"add {'an' if noun[:1] in 'aeiou' else 'a'} {noun}: " + ", ".join(f"{column} {{{noun}_{column}}}" for column in columns)
    text = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({texts})"
    return Statement(text, slots, {f"{noun}_{column}": column for column in columns}, says)


def _quoted(slot: str, value: JSON) -> str:
    return f"{{{slot}}}" if isinstance(value, int | float) else f"'{{{slot}}}'"
