"""An index of rows of a store: tables that join what pages search, so that a search of a million rows takes a fraction of a second.

The store's tables are Parquet parts whose rows meet by id, and conversations are JSON; joining and reading them takes seconds. The index
is a DuckDB file in the user's cache folder, which other users cannot read, named by the store's folder and the committed parts. So a store
is never written to, and a changed one has another index: it is built beside the old one, which goes on serving until the new one is there,
unless rows were withdrawn since: then it is deleted at once. While a run commits part after part, nine tenths of the time are a pause.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from storage.duckdb_catalog import quote
from storage.errors import BadInput
from storage.store import Store

MEMORY_LIMIT = "512MB"
_RETRY_S = 30.0
"""After a build that failed."""
_PAUSE_PER_BUILD = 9.0
"""Pause after a build, in durations of it."""


Condition = tuple[str, Sequence[Any]]
"""SQL, and its parameters."""
Found = tuple[list[dict[str, Any]], pl.DataFrame]
"""The rows that are listed; and rows by every combination of values of some columns, with n, their number."""


class StoreIndex:
    """An index of one store. Safe to share between threads. failure: why the last build failed, or None.

    Args:
        kind: of the rows, in names of files.
        tables: those that the index is made from.
        build_sql: creates its tables in the database `built`.
    """

    def __init__(self, store: Store, kind: str, tables: Sequence[str], build_sql: str, folder: Path | None = None) -> None:
        self._store, self._tables, self._build_sql = store, (*tables, "withdrawn"), build_sql
        self._folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "view"
        self._prefix = f"{kind}-{hashlib.sha256(str(store.root.resolve()).encode()).hexdigest()[:16]}"
        self._mutex = threading.Lock()
        self._open: tuple[str, duckdb.DuckDBPyConnection] | None = None
        self._builder: threading.Thread | None = None
        self._not_before = 0.0
        self._tombstones: list[str] | None = None
        self._name = ""
        self.failure: str | None = None

    def refresh(self, wait_s: float = 0.0) -> bool:
        """Returns whether there is an index to search; begins to build one if the store has changed.

        wait_s: to wait for the first one.
        """
        wanted = self._wanted()
        with self._mutex:
            if (self._open is None or self._open[0] != wanted) and (self._folder / wanted).exists():
                self._attach(wanted)
            if not self._is(wanted) and not self._is_building() and time.monotonic() >= self._not_before:
                self._builder = threading.Thread(target=self._build, args=(wanted, self._tombstones), daemon=True)
                self._builder.start()
            builder = self._builder if self._open is None else None
        if builder is not None:
            builder.join(wait_s)
        return self._open is not None

    def is_current(self) -> bool:
        """Whether the index has all that was committed at the last `refresh`."""
        return self._is(self._name)

    def search(
        self,
        table: str,
        text: str,
        listed: Condition,
        counted: Condition,
        columns: Sequence[str],
        filtered: Sequence[str],
        *,
        first: int,
        count: int,
    ) -> Found:
        """Rows of a table whose `lowered` has a text, from one look at all texts. Call `refresh` first.

        Args:
            listed, counted: what else must hold of the rows that are listed, and of those that are counted.
            columns: by which rows are counted. filtered: others that `listed` and `counted` use.
            first, count: of the rows that are listed, in the order of the table.

        Raises:
            BadInput: rows were withdrawn meanwhile, and the index without them is not there yet.
        """
        cursor = self._cursor()
        names, hits = ", ".join(f'"{column}"' for column in columns), table
        (where, values), (counted_where, counted_values) = listed, counted
        which = f"{where} LIMIT ? OFFSET ?"
        if text:
            used = ", ".join(f'"{column}"' for column in (*columns, *filtered))
            condition = "contains(lowered, lower(?))"
            cursor.execute(f"CREATE TEMP TABLE hits AS SELECT rowid AS place, {used} FROM {table} WHERE {condition}", [text])
            hits, which = "hits", f"rowid IN (SELECT place FROM hits WHERE {where} ORDER BY place LIMIT ? OFFSET ?) ORDER BY rowid"
        rows = _frame(cursor, f"SELECT * EXCLUDE lowered FROM {table} WHERE {which}", [*values, count, first])
        cube = _frame(cursor, f"SELECT {names}, count(*) AS n FROM {hits} WHERE {counted_where} GROUP BY ALL", counted_values)
        return rows.to_dicts(), cube

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._mutex:
            if self._open is None:
                raise BadInput("some rows were withdrawn, and the index is made anew without them; reload the page")
            return self._open[1].cursor()

    def _is(self, name: str) -> bool:
        return self._open is not None and self._open[0] == name

    def _is_building(self) -> bool:
        return self._builder is not None and self._builder.is_alive()

    def _wanted(self) -> str:
        """The name of the index of what is committed now. Forgets the one that is open if rows were withdrawn since it was built."""
        tables = ", ".join(f"'{table}'" for table in self._tables)
        parts = self._store.query(f"SELECT table_name, part_id FROM parts WHERE table_name IN ({tables}) ORDER BY part_id")
        tombstones = parts.filter(table_name="withdrawn")["part_id"].to_list()
        digest = hashlib.sha256("\n".join([self._build_sql, *parts["part_id"]]).encode()).hexdigest()
        with self._mutex:
            if self._tombstones is not None and tombstones != self._tombstones:
                self._open, self._not_before = None, 0.0
                for index in self._folder.glob(f"{self._prefix}-*.duckdb"):
                    index.unlink(missing_ok=True)
            self._tombstones, self._name = tombstones, f"{self._prefix}-{digest[:16]}.duckdb"
            return self._name

    def _attach(self, name: str) -> None:
        """Call with the mutex held. An older index serves those who read it, and is deleted."""
        self._open = (name, duckdb.connect(str(self._folder / name), read_only=True, config={"memory_limit": MEMORY_LIMIT}))
        for other in self._folder.glob(f"{self._prefix}-*.duckdb"):
            if other.name != name:
                other.unlink(missing_ok=True)

    def _build(self, name: str, tombstones: list[str] | None) -> None:
        """tombstones: parts of table `withdrawn` that the index will heed; if there are others in the end, it is thrown away."""
        begun = time.monotonic()
        draft = self._folder / f"{name}.{secrets.token_hex(4)}.new"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            connection = self._store.connect()
            try:
                connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
                connection.execute(f"ATTACH '{quote(draft)}' AS built")
                connection.execute(self._build_sql)
                connection.execute("DETACH built")
            finally:
                connection.close()
            with self._mutex:
                self.failure = None
                if tombstones == self._tombstones:
                    draft.replace(self._folder / name)
                    self._attach(name)
                    self._not_before = time.monotonic() + _PAUSE_PER_BUILD * (time.monotonic() - begun)
        except Exception as error:
            self.failure, self._not_before = (str(error).splitlines() or [type(error).__name__])[0], time.monotonic() + _RETRY_S
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _frame(cursor: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any]) -> pl.DataFrame:
    found = pl.from_arrow(cursor.sql(sql, params=list(values)).to_arrow_table())
    assert isinstance(found, pl.DataFrame)
    return found
