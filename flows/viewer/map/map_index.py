"""A map of one kind of rows of a store: built in a process of its own, kept in the user's cache folder, and asked by the pages.

Like the indexes (`indexes/store_index.py`), it is named by the store's folder and the committed parts; an older one serves until the new
one is there, unless rows were withdrawn since; after a build comes a pause of nine times its duration.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from flows.viewer.map.density import Grid, density_difference
from flows.viewer.map.map_points import HIGH, LOW
from flows.viewer.map.map_rows import KINDS
from storage.errors import BadInput
from storage.files import sweep
from storage.store import Store
from train.child_process import THREADS

VERSION = 1
MOST_COLOURS = 10
MOST_SETS = 15
"""Values of a column that are offered for a comparison."""
OTHER, NONE = 0, 255
"""Codes of values that have no colour of their own, and of rows without a value; the colours are 1 to `MOST_COLOURS`."""
DIFFERENCE_CELLS = 128
MOST_CORNERS = 200
"""Of a lasso."""
_MEMORY_LIMIT = "192MB"
_RETRY_S = 30.0
_PAUSE_PER_BUILD = 9.0
_OLD_DRAFT_S = 3600.0
_ONE_BUILD = threading.Lock()


@dataclass(frozen=True)
class Area:
    """A part of the map: a region by its number, or a lasso by its corners, [n, 2]."""

    region: int | None = None
    lasso: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Comparison:
    """Two sets of points. difference: by `density_difference`, rows from low y to high y; shares: of each set, by region."""

    counts: tuple[int, int]
    difference: Grid
    shares: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class _MapFile:
    """An open file. tables: column -> its table; total, drawn: numbers of rows; sets: filled by the first question for them."""

    name: str
    connection: duckdb.DuckDBPyConnection
    tables: dict[str, str]
    total: int
    drawn: int
    sets: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self.connection.cursor()


class MapIndex:
    """Safe to share between threads. progress: what the build does, in words; failure: why the last one failed, or None."""

    def __init__(self, store: Store, kind: str, folder: Path | None = None) -> None:
        self.kind = KINDS[kind]
        self._store = store
        self.name = kind
        self._folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "view"
        self._prefix = f"map-{kind}-{hashlib.sha256(str(store.root.resolve()).encode()).hexdigest()[:16]}"
        self._mutex = threading.Lock()
        self._open: _MapFile | None = None
        self._builder: threading.Thread | None = None
        self._not_before = 0.0
        self.progress = ""
        self.failure: str | None = None

    def is_empty(self) -> bool:
        """Whether the store has no such row."""
        tables = ", ".join(f"'{table}'" for table in self.kind.text_tables)
        return bool(self._store.query(f"SELECT coalesce(sum(rows), 0) = 0 AS empty FROM parts WHERE table_name IN ({tables})")["empty"][0])

    def refresh(self, wait_s: float = 0.0) -> bool:
        """Returns whether there is a map; begins to build one if the store has changed. wait_s: to wait for the first one."""
        places, wanted = self._names()
        with self._mutex:
            if self._open is not None and not self._open.name.startswith(wanted.rpartition("-")[0]):
                self._open = None
                self._delete_others(places, wanted)
            if (self._open is None or self._open.name != wanted) and (self._folder / wanted).exists():
                self._attach(places, wanted)
            is_building = self._builder is not None and self._builder.is_alive()
            if not self._is(wanted) and not is_building and time.monotonic() >= self._not_before:
                self._builder = threading.Thread(target=self._build, args=(places, wanted), daemon=True)
                self._builder.start()
            builder = self._builder if self._open is None else None
        if builder is not None:
            builder.join(wait_s)
        return self._open is not None

    def is_current(self) -> bool:
        """Whether the map has all that is committed."""
        return self._is(self._names()[1])

    def size(self) -> tuple[int, int]:
        """The number of all rows, and of those that are drawn."""
        return self._file().total, self._file().drawn

    def drawn(self) -> tuple[int, NDArray[np.float32]]:
        """The number of all rows, and the points that are drawn, [n, 2], in the order of their numbers."""
        file = self._file()
        found = file.cursor().sql("SELECT x, y FROM points WHERE drawn").fetchnumpy()
        return file.total, np.stack([np.asarray(found["x"]), np.asarray(found["y"])], axis=1).astype(np.float32)

    def colours(self, column: str) -> tuple[list[tuple[str, int]], NDArray[np.uint8]]:
        """The most frequent values of a column with their numbers of rows, and the code of every drawn point: 1 for the first of them."""
        file, table = self._file(), self._table_of(column)
        values = self._frequent(column, MOST_COLOURS)
        found = (
            file.cursor()
            .execute(
                f"""SELECT number, coalesce(list_position(?::VARCHAR[], "{column}"), {OTHER})::UTINYINT AS code
                FROM {table} WHERE "{column}" IS NOT NULL AND number < ?""",
                [[value for value, _ in values], file.drawn],
            )
            .fetchnumpy()
        )
        codes = np.full(file.drawn, NONE, dtype=np.uint8)
        codes[np.asarray(found["number"])] = np.asarray(found["code"])
        return values, codes

    def point(self, number: int) -> dict[str, Any]:
        """Its id, text and columns. Raises BadInput: there is no such point."""
        rows = self._rows(self._file().cursor(), "number = ?", [number])
        if not rows:
            raise BadInput(f"the map has no point {number}")
        return rows[0]

    def regions(self) -> list[dict[str, Any]]:
        """Every region that has rows: region, name, x, y, n; the largest first."""
        counted = "SELECT region, count(*) AS n FROM points GROUP BY region"
        sql = f"SELECT r.*, p.n FROM regions r JOIN ({counted}) p USING (region) ORDER BY n DESC"
        return _frame(self._file().cursor(), sql).to_dicts()

    def sets(self) -> dict[str, list[tuple[str, int]]]:
        """What can be compared: column -> its most frequent values with their numbers of rows, and `release` -> releases."""
        file = self._file()
        if not file.sets:
            sets = {column: self._frequent(column, MOST_SETS) for column in self.kind.columns}
            sets["release"] = file.cursor().execute("SELECT release, count(*) FROM memberships GROUP BY 1 ORDER BY 1").fetchall()
            file.sets.update({name: values for name, values in sets.items() if len(values) > 1})
        return file.sets

    def _frequent(self, column: str, most: int) -> list[tuple[str, int]]:
        filled = f'{self._table_of(column)} WHERE "{column}" IS NOT NULL'
        sql = f'SELECT "{column}", count(*) FROM {filled} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}'
        return self._file().cursor().execute(sql).fetchall()

    def compare(self, first: str, second: str) -> Comparison:
        """first, second: `column:value`, or `release:ID`.

        Raises:
            BadInput: no such column, or a set without a row.
        """
        cell = f"least(greatest(floor(({{}} - {LOW}) / {HIGH - LOW} * {DIFFERENCE_CELLS}), 0), {DIFFERENCE_CELLS - 1})::INTEGER"
        cells = f"SELECT {cell.format('x')} AS across, {cell.format('y')} AS up, region, count(*) AS n FROM points"
        grids = np.zeros((2, DIFFERENCE_CELLS, DIFFERENCE_CELLS), dtype=np.int64)
        by_region: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for grid, shares, chosen in zip(grids, by_region, (first, second), strict=True):
            condition, value = self._condition(chosen)
            found = _frame(self._file().cursor(), f"{cells} WHERE {condition} GROUP BY ALL", [value])
            if not found.height:
                raise BadInput(f"no row on the map is in the set {chosen}")
            np.add.at(grid, (found["up"].to_numpy(), found["across"].to_numpy()), found["n"].to_numpy())
            shares.update(found.group_by("region").agg(pl.col("n").sum() / found["n"].sum()).iter_rows())
        counts = (int(grids[0].sum()), int(grids[1].sum()))
        shares_of = {region: (by_region[0].get(region, 0.0), by_region[1].get(region, 0.0)) for region in {*by_region[0], *by_region[1]}}
        return Comparison(counts, density_difference(*grids), shares_of)

    def count_inside(self, area: Area) -> tuple[int, dict[str, list[tuple[str, int]]]]:
        """The number of rows in an area, drawn or not, and the five most frequent values of each column."""
        file, (cursor, count) = self._file(), self._inside(area)
        frequent: dict[str, list[tuple[str, int]]] = {}
        for table in sorted(set(file.tables.values())):
            names = [f'"{column}"' for column, its_table in file.tables.items() if its_table == table]
            sets = ", ".join(f"({name})" for name in names)
            sql = (
                f"SELECT {', '.join(names)}, count(*) AS n FROM {table} WHERE number IN (SELECT number FROM inside) GROUP BY GROUPING SETS"
            )
            found = _frame(cursor, f"{sql} ({sets})")
            for column in found.columns[:-1]:
                rows = found.select(column, "n").filter(pl.col(column).is_not_null()).sort("n", column, descending=[True, False])
                frequent[column] = list(rows.head(5).iter_rows())
        return count, {column: frequent[column] for column in self.kind.columns if frequent.get(column)}

    def rows_inside(self, area: Area, *, first: int, count: int) -> list[dict[str, Any]]:
        """Rows in an area, in the order of the map: number, id, text and columns."""
        cursor, _ = self._inside(area)
        return self._rows(cursor, "number IN (SELECT number FROM inside) ORDER BY number LIMIT ? OFFSET ?", [count, first])

    def ids_inside(self, area: Area) -> Iterator[str]:
        """Ids of all rows in an area, drawn or not, a batch of lines at a time."""
        cursor, _ = self._inside(area)
        for batch in cursor.sql("SELECT id FROM texts WHERE number IN (SELECT number FROM inside)").to_arrow_reader(10_000):
            yield "".join(f"{id}\n" for id in batch["id"].to_pylist())

    def _rows(self, cursor: duckdb.DuckDBPyConnection, which: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        joins = "".join(f" LEFT JOIN {table} USING (number)" for table in sorted(set(self._file().tables.values())))
        chosen = f"WITH chosen AS (SELECT number FROM points WHERE {which})"
        sql = f"{chosen} SELECT * FROM chosen JOIN texts USING (number){joins} ORDER BY number"
        return _frame(cursor, sql, values).to_dicts()

    def _inside(self, area: Area) -> tuple[duckdb.DuckDBPyConnection, int]:
        """A cursor that has the numbers of the points in an area as table `inside`, and how many they are."""
        cursor = self._file().cursor()
        if area.lasso is None:
            numbers = cursor.execute("SELECT number FROM points WHERE region = ?", [area.region]).fetchnumpy()["number"]
        else:
            (left, low), (right, high) = area.lasso.min(axis=0), area.lasso.max(axis=0)
            near = cursor.execute(
                "SELECT number, x, y FROM points WHERE x BETWEEN ? AND ? AND y BETWEEN ? AND ?", [left, right, low, high]
            ).fetchnumpy()
            numbers = np.asarray(near["number"])[is_inside(np.asarray(near["x"]), np.asarray(near["y"]), area.lasso)]
        cursor.register("inside", pa.table({"number": np.asarray(numbers)}))
        return cursor, len(numbers)

    def _condition(self, chosen: str) -> tuple[str, str]:
        """A condition on `points`, and its parameter."""
        column, _, value = chosen.partition(":")
        if column == "release":
            return "number IN (SELECT number FROM memberships WHERE release = ?)", value
        return f'number IN (SELECT number FROM {self._table_of(column)} WHERE "{column}" = ?)', value

    def _table_of(self, column: str) -> str:
        table = self._file().tables.get(column)
        if table is None:
            raise BadInput(f"the map of {self.kind.noun} has no column {column}; it has {', '.join(self.kind.columns)}")
        return table

    def _file(self) -> _MapFile:
        with self._mutex:
            if self._open is None:
                raise BadInput("some rows were withdrawn, and the map is made anew without them; reload the page")
            return self._open

    def _is(self, name: str) -> bool:
        return self._open is not None and self._open.name == name

    def _names(self) -> tuple[str, str]:
        """The file of places and the file of points that fit what is committed. Both begin with what fits the rows that were withdrawn."""
        tables = ", ".join(f"'{table}'" for table in (*self.kind.tables, "withdrawn"))
        parts = self._store.query(f"SELECT table_name, part_id FROM parts WHERE table_name IN ({tables}) ORDER BY part_id")
        texts = parts.filter(pl.col("table_name").is_in(self.kind.text_tables))
        withdrawn, of_texts, of_all = (
            hashlib.sha256("\n".join([str(VERSION), duckdb.__version__, *some["part_id"]]).encode()).hexdigest()[:16]
            for some in (parts.filter(table_name="withdrawn"), texts, parts)
        )
        return f"{self._prefix}-{withdrawn}-{of_texts}.parquet", f"{self._prefix}-{withdrawn}-{of_all}.duckdb"

    def _attach(self, places: str, points: str) -> None:
        """Call with the mutex held. Older files are deleted."""
        self._open = _open_file(self._folder / points)
        self._delete_others(places, points)
        sweep(self._folder, _OLD_DRAFT_S)

    def _delete_others(self, places: str, points: str) -> None:
        for other in self._folder.glob(f"{self._prefix}-*"):
            if other.name not in (places, points):
                other.unlink(missing_ok=True)

    def _build(self, places: str, points: str) -> None:
        self.progress = "waiting until another map is made"
        with _ONE_BUILD:
            begun = time.monotonic()
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.chmod(0o700)
                at = (str(self._folder / places), str(self._folder / points))
                if not (self._folder / places).exists():
                    self._run(at[0])
                self._run(*at)
                with self._mutex:
                    self._attach(places, points)
                self.failure, self._not_before = None, time.monotonic() + _PAUSE_PER_BUILD * (time.monotonic() - begun)
            except Exception as error:
                self.failure, self._not_before = (str(error).splitlines() or [type(error).__name__])[0], time.monotonic() + _RETRY_S

    def _run(self, *files: str) -> None:
        """Raises BadInput: the process failed; with its last line."""
        command = [sys.executable, "-P", "-m", "flows.viewer.map.map_process", str(os.getpid()), str(self._store.root), self.name, *files]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | THREADS) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.progress = line.strip() or self.progress
        if process.returncode:
            raise BadInput(self.progress or f"the process ended with {process.returncode}")


def _open_file(path: Path) -> _MapFile:
    connection = duckdb.connect(str(path), read_only=True, config={"memory_limit": _MEMORY_LIMIT, "threads": "1"})
    found = connection.execute("SELECT column_name, table_name FROM duckdb_columns() WHERE table_name LIKE 'columns_%'").fetchall()
    ((total, drawn),) = connection.execute("SELECT count(*), count(*) FILTER (drawn) FROM points").fetchall()
    return _MapFile(path.name, connection, {column: table for column, table in found if column != "number"}, total, drawn)


def _frame(cursor: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] = ()) -> pl.DataFrame:
    found = pl.from_arrow(cursor.sql(sql, params=list(values)).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def is_inside(x: NDArray[Any], y: NDArray[Any], corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points are inside a polygon, by the even-odd rule."""
    inside = np.zeros(len(x), dtype=bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, 1, axis=0), strict=True):
        if y1 != y2:
            crosses = (y1 > y) != (y2 > y)
            inside ^= crosses & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
    return inside
