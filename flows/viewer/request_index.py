"""An index of the raw rows of a store: one table of text, verdict and frame, so that a search of a million rows takes half a second.

The store's tables are Parquet parts whose rows meet by id; joining them takes seconds. The index is a DuckDB file in the user's cache
folder, named by the store's folder and the committed parts, so a store is never written to, and a changed one has another index. It is
built beside the old one, which goes on serving until the new one is there.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from storage.store import Store

VERSION = 1
MEMORY_LIMIT = "512MB"
_BUILD_SQL = """CREATE TABLE {index}.requests AS
SELECT q.query_id, q.run, q.source, q.row, q.text, lower(q.text) AS lowered, q.language, q.occurrences, v.step, v.reason,
  coalesce(v.kept, true) AS kept, v.duplicate_of, v.similarity, f.world, f.intent, f.leaf, f.quality, f.difficulty
FROM queries q LEFT JOIN verdicts v USING (run, query_id) LEFT JOIN frames f USING (run, query_id) ORDER BY q.run, q.source, q.row"""
FACETS = ("step", "reason", "world", "leaf", "language")
"""Columns that a search can be narrowed by."""


@dataclass(frozen=True)
class Search:
    """What is looked for. text: a part of the text, in any case; is_kept: verdict, or None for both; facets: column -> value."""

    text: str = ""
    is_kept: bool | None = None
    facets: Mapping[str, str] = field(default_factory=dict)
    least_quality: float | None = None

    def where(self, *, without: str = "") -> tuple[str, list[Any]]:
        """The condition, and its parameters. without: a facet that is left out, for its own counts."""
        conditions, values = ["true"], list[Any]()
        if self.text:
            conditions.append("contains(lowered, ?)")
            values.append(self.text.lower())
        if self.is_kept is not None:
            conditions.append("kept = ?")
            values.append(self.is_kept)
        for column, value in self.facets.items():
            if column in FACETS and column != without:
                conditions.append(f'"{column}" = ?')
                values.append(value)
        if self.least_quality is not None:
            conditions.append("quality >= ?")
            values.append(self.least_quality)
        return " AND ".join(conditions), values


class RequestIndex:
    """The index of one store. Safe to share between threads."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "view"
        self._mutex = threading.Lock()
        self._open: tuple[str, duckdb.DuckDBPyConnection] | None = None
        self._builder: threading.Thread | None = None
        self.failure: str | None = None

    def is_ready(self) -> bool:
        """Whether there is an index to search; begins to build one if the store has changed."""
        wanted = self._name()
        with self._mutex:
            if self._open is not None and self._open[0] == wanted:
                return True
            if (self._folder / wanted).exists():
                self._attach(wanted)
                return True
            if self._builder is None or not self._builder.is_alive():
                self._builder = threading.Thread(target=self._build, args=(wanted,), daemon=True)
                self._builder.start()
            return self._open is not None

    def is_building(self) -> bool:
        """Whether the store has changed and its index is not there yet."""
        return self.is_ready() and self._open is not None and self._open[0] != self._name()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the index that is being built. Returns whether there is one."""
        is_ready = self.is_ready()
        if self._builder is not None and (not is_ready or self.is_building()):
            self._builder.join(timeout_s)
        return self.is_ready()

    def rows(self, search: Search, *, first: int, count: int) -> list[dict[str, Any]]:
        """Rows in the order of their sources."""
        where, values = search.where()
        return self._query(f"SELECT * EXCLUDE lowered FROM requests WHERE {where} LIMIT ? OFFSET ?", [*values, count, first])

    def count(self, search: Search) -> int:
        where, values = search.where()
        return int(self._query(f"SELECT count(*) AS n FROM requests WHERE {where}", values)[0]["n"])

    def facet(self, column: str, search: Search, most: int = 40) -> list[tuple[str, int]]:
        """Values of a column with their numbers of rows, the most frequent first, whatever the search says of this column."""
        where, values = search.where(without=column)
        rows = self._query(
            f'SELECT "{column}" AS value, count(*) AS n FROM requests WHERE {where} AND "{column}" IS NOT NULL '
            "GROUP BY 1 ORDER BY n DESC, 1 LIMIT ?",
            [*values, most],
        )
        return [(row["value"], row["n"]) for row in rows]

    def _query(self, sql: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        with self._mutex:
            assert self._open is not None, "is_ready() comes first"
            cursor = self._open[1].cursor()
        rows = cursor.execute(sql, list(values)).fetchall()
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _name(self) -> str:
        parts = self._store.query("SELECT part_id FROM parts WHERE table_name IN ('queries', 'verdicts', 'frames') ORDER BY part_id")
        digest = hashlib.sha256("\n".join([str(VERSION), *parts["part_id"]]).encode()).hexdigest()
        return f"{self._prefix()}-{digest[:16]}.duckdb"

    def _prefix(self) -> str:
        return hashlib.sha256(str(self._store.root.resolve()).encode()).hexdigest()[:16]

    def _attach(self, name: str) -> None:
        """Call with the mutex held. Older connections are closed by their last cursor."""
        self._open = (name, duckdb.connect(str(self._folder / name), read_only=True, config={"memory_limit": MEMORY_LIMIT}))
        for other in self._folder.glob(f"{self._prefix()}-*"):
            if other.name != name:
                other.unlink(missing_ok=True)

    def _build(self, name: str) -> None:
        self.failure = None
        draft = self._folder / f"{name}.{os.getpid()}.new"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            connection = self._store.connect()
            try:
                connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
                connection.execute(f"ATTACH '{str(draft).replace(chr(39), chr(39) * 2)}' AS built")
                connection.execute(_BUILD_SQL.format(index="built"))
                connection.execute("DETACH built")
            finally:
                connection.close()
            draft.replace(self._folder / name)
        except Exception as error:
            self.failure = str(error).splitlines()[0]
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
