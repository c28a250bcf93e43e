"""Reads a table of the user's own: CSV, TSV, Parquet, JSON Lines, or a table of a SQLite or DuckDB file.

One idea: cells become text, as everything in a spec is text until its schema gives it a type; a list stays a list. A table of millions of
rows is read as far as a sample needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from storage.errors import BadInput

MAX_COLUMNS = 300
SAMPLED = 20_000
"""About how many rows of a longer table are looked at: chosen by a hash of their place, of a SQLite table the first."""
_DATABASES = {".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite", ".duckdb": "duckdb", ".ddb": "duckdb"}
_READERS: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
    ".csv": partial(pl.scan_csv, infer_schema=False),
    ".tsv": partial(pl.scan_csv, separator="\t", infer_schema=False),
    ".parquet": pl.scan_parquet,
    ".jsonl": pl.scan_ndjson,
    ".ndjson": pl.scan_ndjson,
}
KNOWN = (*_READERS, *_DATABASES)


def read_table(path: Path, table: str | None = None) -> pl.DataFrame:
    """The rows of a table, or a sample (`SAMPLED`); columns of text, or of lists of text.

    Args:
        table: of a database; None where it has one table.

    Raises:
        BadInput: there is no such file or table, it is of another kind, it cannot be read, or it has no rows or too many columns.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    if suffix not in KNOWN:
        raise BadInput(f"{path}: no table; give a file that ends with {', '.join(KNOWN)}")
    try:
        rows = _from_database(path, _DATABASES[suffix], table) if suffix in _DATABASES else _sample(_READERS[suffix](path))
    except (pl.exceptions.PolarsError, sqlite3.Error, duckdb.Error, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({str(error).splitlines()[0][:120]})") from None
    if rows.is_empty():
        raise BadInput(f"{path}: has no rows")
    if rows.width > MAX_COLUMNS:
        raise BadInput(f"{path}: has {rows.width} columns; a table may have {MAX_COLUMNS}. Choose some, e.g. in a view")
    return rows.select(_as_text(rows[name]) for name in rows.columns)


def tables_in(path: Path) -> list[str]:
    """The tables of a database; none for another file. Raises BadInput as `read_table`."""
    kind = _DATABASES.get(path.suffix.lower())
    if kind is None:
        return []
    try:
        return _names(path, kind)
    except (sqlite3.Error, duckdb.Error) as error:
        raise BadInput(f"{path}: cannot be read ({str(error).splitlines()[0][:120]})") from None


def _sample(rows: pl.LazyFrame) -> pl.DataFrame:
    count = rows.select(pl.len()).collect().item()
    if count > SAMPLED:
        rows = rows.with_row_index("_place").filter(pl.col("_place").hash(0) % count < SAMPLED).drop("_place")
    return rows.collect()


def _names(path: Path, kind: str) -> list[str]:
    if kind == "sqlite":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")]
    with duckdb.connect(str(path), read_only=True) as connection:
        return [name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()]


def _from_database(path: Path, kind: str, table: str | None) -> pl.DataFrame:
    names = _names(path, kind)
    if table is None and len(names) != 1:
        raise BadInput(f"{path}: has the tables {', '.join(names) or 'none'}; name one")
    name = table or names[0]
    if name not in names:
        raise BadInput(f"{path}: has no table {name!r}; there are {', '.join(names)}")
    quoted = '"' + name.replace('"', '""') + '"'
    if kind == "sqlite":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            cursor = database.execute(f"SELECT * FROM {quoted} LIMIT {SAMPLED}")
            columns = [column[0] for column in cursor.description]
            return pl.DataFrame([dict(zip(columns, row, strict=True)) for row in cursor], schema=columns, infer_schema_length=None)
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(f"SELECT * FROM {quoted} USING SAMPLE reservoir({SAMPLED} ROWS) REPEATABLE (0)")
        return pl.DataFrame(
            found.fetchall(), schema=[column[0] for column in found.description or ()], orient="row", infer_schema_length=None
        )


def _as_text(column: pl.Series) -> pl.Series:
    if isinstance(column.dtype, pl.List):
        return pl.Series(column.name, [None if cell is None else [str(each) for each in cell] for cell in column], dtype=pl.List(pl.String))
    return pl.Series(column.name, [_text(cell) for cell in column], dtype=pl.String)


def _text(cell: Any) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip() or None


def cells_of(column: pl.Series) -> Sequence[str | None]:
    """The cells as single texts: of a list the first."""
    if isinstance(column.dtype, pl.List):
        return [cell[0] if cell is not None and len(cell) else None for cell in column]
    return column.to_list()
