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
        self.failure: str | None = None

    def refresh(self, wait_s: float = 0.0) -> bool:
        """Returns whether there is an index to search; begins to build one if the store has changed.

        wait_s: to wait for the first one.
        """
        self._drop_withdrawn()
        wanted = self._name()
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
        """Whether the index has all that is committed."""
        return self._is(self._name())

    def query(self, sql: str, values: Sequence[Any]) -> pl.DataFrame:
        """Rows of the index. Call `refresh` first.

        Raises:
            BadInput: rows were withdrawn meanwhile, and the index without them is not there yet.
        """
        with self._mutex:
            if self._open is None:
                raise BadInput("some rows were withdrawn, and the index is made anew without them; reload the page")
            cursor = self._open[1].cursor()
        found = pl.from_arrow(cursor.sql(sql, params=list(values)).to_arrow_table())
        assert isinstance(found, pl.DataFrame)
        return found

    def _is(self, name: str) -> bool:
        return self._open is not None and self._open[0] == name

    def _is_building(self) -> bool:
        return self._builder is not None and self._builder.is_alive()

    def _drop_withdrawn(self) -> None:
        """Forgets the index if rows were withdrawn since it was built."""
        tombstones = self._store.query("SELECT part_id FROM parts WHERE table_name = 'withdrawn' ORDER BY part_id")["part_id"].to_list()
        with self._mutex:
            if self._tombstones is not None and tombstones != self._tombstones:
                self._open, self._not_before = None, 0.0
                for index in self._folder.glob(f"{self._prefix}-*.duckdb"):
                    index.unlink(missing_ok=True)
            self._tombstones = tombstones

    def _name(self) -> str:
        tables = ", ".join(f"'{table}'" for table in self._tables)
        parts = self._store.query(f"SELECT part_id FROM parts WHERE table_name IN ({tables}) ORDER BY part_id")
        digest = hashlib.sha256("\n".join([self._build_sql, *parts["part_id"]]).encode()).hexdigest()
        return f"{self._prefix}-{digest[:16]}.duckdb"

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
