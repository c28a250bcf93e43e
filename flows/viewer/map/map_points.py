"""Writes the file of a map: its points with their columns, a DuckDB file.

Its tables: `points` (number, x, y, region, drawn), in the order of the numbers: those that are drawn first, by the cells of a grid;
`texts` (number, id, text); `columns_0`, `columns_1` ... (number, and some columns); `memberships` (release, number); `regions`. A table for
each join, so that a million rows need 256 MB.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from flows.viewer.map.map_rows import RowKind
from storage.duckdb_catalog import quote
from storage.files import replace_atomically
from storage.store import Store

CELLS = 64
"""Columns and rows of the grid."""
LOW, HIGH = -1.25, 1.25
"""Bounds of the grid."""
SHOWN_CHARACTERS = 400
"""Of a text."""
_MEMORY_LIMIT = "256MB"


def write_points(store: Store, kind: RowKind, places: Path, target: Path) -> None:
    """Writes the file, which appears whole or not at all."""
    print("writing the points with their columns", flush=True)
    with closing(store.connect()) as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        connection.execute("SET threads = 1")
        replace_atomically(target, lambda draft: _write_tables(connection, kind, places, draft))


def _write_tables(connection: duckdb.DuckDBPyConnection, kind: RowKind, places: Path, draft: Path) -> None:
    cell = f"least(greatest(floor(({{}} - {LOW}) / {HIGH - LOW} * {CELLS}), 0), {CELLS - 1})"
    connection.execute(f"ATTACH '{quote(draft)}' AS built")
    connection.execute(
        f"""CREATE TEMP TABLE placed AS SELECT (row_number() OVER () - 1)::INTEGER AS number, * FROM (
              FROM read_parquet('{quote(places)}') ORDER BY drawn DESC, {cell.format("y")}, {cell.format("x")})"""
    )
    connection.execute("CREATE TABLE built.points AS SELECT number, x, y, region, drawn FROM placed ORDER BY number")
    text = f"left(t.text, {SHOWN_CHARACTERS}) AS text"
    connection.execute(f"CREATE TABLE built.texts AS SELECT p.number, t.id, {text} FROM ({kind.texts_sql}) t JOIN placed p USING (key)")
    for at, columns_sql in enumerate(kind.columns_sql):
        connection.execute(
            f"CREATE TABLE built.columns_{at} AS SELECT p.number, c.* EXCLUDE key FROM ({columns_sql}) c JOIN placed p USING (key)"
        )
    connection.execute(
        f"CREATE TABLE built.memberships AS SELECT DISTINCT r.release, p.number FROM ({kind.releases_sql}) r JOIN placed p USING (key)"
    )
    connection.execute("CREATE TABLE built.regions (region UTINYINT, name VARCHAR, x FLOAT, y FLOAT)")
    for at, region in enumerate(json.loads(pq.read_schema(places).metadata[b"regions"])):
        connection.execute("INSERT INTO built.regions VALUES (?, ?, ?, ?)", [at, region["name"], region["x"], region["y"]])
    connection.execute("DETACH built")
