"""All columns of some rows of a query file, as values that JSON can hold: the columns of the user's file that go with a kept query.

Rows are found by their place, so nothing is read of a file that `inspect` did not count. Values that JSON does not have become texts
(dates and times in ISO form, decimals, bytes in base64), numbers that are not finite become null, and undecodable characters become `?`.
Times that Python does not have (nanoseconds, the year 10000, an unknown time zone) are written by Arrow, in UTC. Of columns with one name
the second is `name_2`.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import count, islice
from typing import Any

import polars as pl
import pyarrow as pa

from filters.ingest import parquet, source_files
from filters.ingest.column import Keys
from filters.ingest.csv_rows import DELIMITERS, csv_records
from filters.ingest.lines import Lines, json_object

_ROWS = 16_384


def read_rows(location: str, start: int, end: int | None, places: Sequence[int]) -> list[dict[str, Any]]:
    """The rows at these places, ascending, counted from the line at `start` (or the first row of row group `start`)."""
    kind = source_files.format_of(location)
    if kind == "text" or not places:
        return [{} for _ in places]
    if kind == "parquet":
        return [dict(to_json(row)) for row in _parquet_rows(location, range(start, end or 0), places)]
    with source_files.reading(location), source_files.open_unpacked(location) as stream:
        rows = _csv_rows(stream, DELIMITERS[kind]) if kind in DELIMITERS else _json_rows(stream, start, end)
        wanted = set(places)
        found = (row() for place, row in enumerate(islice(rows, places[-1] + 1)) if place in wanted)
        return [dict(to_json(row)) for row in found]


def with_value(row: dict[str, Any], keys: Keys, value: str) -> dict[str, Any]:
    """The row with another value at the end of a path, which leads through objects and lists."""
    inner: Any = row
    for key in keys[:-1]:
        inner = inner[int(key) if isinstance(inner, list) else key]
    inner[int(keys[-1]) if isinstance(inner, list) else keys[-1]] = value
    return row


def to_json(value: Any) -> Any:
    """A value as JSON can hold it."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {to_json(str(key)): to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
        case date() | datetime() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
    return str(value)


def _parquet_rows(location: str, groups: range, places: Sequence[int]) -> Iterator[dict[str, Any]]:
    with parquet.open_parquet(location) as file:
        first, left = 0, list(places)
        for batch in file.iter_batches(_ROWS, row_groups=list(groups), use_threads=False):
            here = [place - first for place in left if place < first + batch.num_rows]
            if here:
                names = _numbered(batch.schema.names)
                values = [_python_values(column) for column in batch.take(here).columns]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
                left = left[len(here) :]
            first += batch.num_rows
            if not left:
                return


def _python_values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return _as_text(column)
    try:
        values: list[Any] = column.to_pylist()
    except (LookupError, ValueError, OverflowError, ImportError, pa.ArrowException):  # LookupError: the time zone is unknown
        return _as_text(column)
    return values


def _as_text(column: pa.Array) -> list[Any]:
    """What Arrow writes of values that Python cannot hold; of nested ones, and of numbers that mean no time, the text of each."""
    zone = "+00:00" if pa.types.is_timestamp(column.type) and column.type.tz else ""
    try:
        plain = column.cast(pa.timestamp(column.type.unit)) if zone else column
        return [value if value is None else value.replace(" ", "T") + zone for value in plain.cast(pa.string()).to_pylist()]
    except pa.ArrowException:
        return [str(value) if value.is_valid else None for value in column]


def _numbered(names: Sequence[str]) -> list[str]:
    """The names, each one that was there before with a number that makes it another."""
    taken, out = set(names), list[str]()
    for name in names:
        free = name
        if name in out:
            free = next(f"{name}_{number}" for number in count(2) if f"{name}_{number}" not in taken)
        taken.add(free)
        out.append(free)
    return out


def _json_rows(stream: io.BufferedReader, start: int, end: int | None) -> Iterator[Callable[[], dict[str, Any]]]:
    """Of every line, what parses it."""
    lines = Lines(stream, lambda taken: pl.Series(taken, dtype=pl.Binary), start, end)
    while len(taken := lines.take(_ROWS)):
        yield from (partial(_parse, line) for line in taken)


def _parse(line: bytes) -> dict[str, Any]:
    """The object on a line, whole numbers of any size as they are."""
    try:
        value = json.loads(line.decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return json_object(line) or {}
    return value if isinstance(value, dict) else {}


def _csv_rows(stream: io.BufferedReader, delimiter: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Of every record, what names its values."""
    records = csv_records(stream, delimiter)
    header: list[str] | None = next(records)
    names = _numbered(header or [])
    yield from (partial(_named, names, record or []) for record in records)


def _named(names: list[str], record: list[str]) -> dict[str, Any]:
    return dict(zip(names, record, strict=False))
