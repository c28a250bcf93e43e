"""The store: a folder in which nothing is lost and nothing counts twice, whoever is killed when.

One idea: rows live in immutable Parquet parts; whoever computes them writes them (`write`), and only `commit` makes them count, in one
DuckDB transaction under a file lock. The first commit of a part id wins; a second is a no-op; so a killed run resumes by skipping what is there.
`catalog.duckdb` is opened for the length of a commit and by nobody else, because DuckDB lets one process write and then none read.
Everyone reads `catalog.read.duckdb`, which is replaced atomically after each commit. Lake tables are views over the *registered*
parts, by paths relative to the store: readers `cd` into it, or set `file_search_path` as `connect` does.

It knows nothing of what the rows mean, except that a funnel must add up (`storage/addup.py`).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from storage.addup import check_funnel
from storage.errors import BadInput, HeadraceError
from storage.files import Busy, disk_errors, file_lock, is_disk_full, replace_atomically, sweep, sync_dir
from storage.journal import Journal
from storage.parts import Part, find_written, part_id, write_part
from storage.schema import TABLES, migrations, schema_version

__all__ = ["Journal", "Part", "Store", "part_id"]

LOCK_WAIT_S = 120.0
_SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


class Store:
    """A store in folder `root`; nothing is on disk until the first write. Cheap to make, safe to share between threads, and picklable.

    Raises:
        BadInput: `root` is no folder, is not a store, or was written by a newer Headrace.
    """

    def __init__(self, root: Path | str, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.root = Path(root).absolute()
        self.lake = self.root / "lake"
        self._lock_wait_s = lock_wait_s
        self._writable = self.root / "catalog.duckdb"
        self._readable = self.root / "catalog.read.duckdb"
        self._stale_flag = self.root / "catalog.stale"
        self._mutex = threading.Lock()
        self._reader: tuple[tuple[int, int, int], duckdb.DuckDBPyConnection] | None = None
        if self.root.exists() and not self.root.is_dir():
            raise BadInput(f"{self.root} is a file, not a store; name a folder")
        if "," in str(self.root):
            raise BadInput(f"the path of a store may not contain a comma (DuckDB reads it as two paths): {self.root}")
        with self._mutex:
            self._current_reader()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.root), self._lock_wait_s)

    def exists(self) -> bool:
        """Whether anything was ever committed here."""
        return self._readable.exists()

    # ---- writing ------------------------------------------------------------------------------------------------------

    def find(self, part: str) -> Part | None:
        """The part of this id: the committed one, or one that lies complete on disk and was not committed yet."""
        rows = self.query("SELECT table_name, path, rows, content_hash FROM parts WHERE part_id = ?", [part])
        if rows.height:
            table, path, count, digest = rows.row(0)
            return Part(part, table, Path(path), count, digest)
        return find_written(self.root, part)

    def write(self, table: str, part_id: str, frame: pl.DataFrame | pl.LazyFrame) -> Part:
        """Writes rows of `table` as an immutable part; any process may, at any time. They count once committed.

        Raises:
            ValueError: the columns are not those of the table, or the part id is another table's.
            HeadraceError: two rows have the same key; the disk is full.
        """
        return write_part(self.root, table, part_id, frame)

    def commit(self, parts: Sequence[Part]) -> None:
        """Makes parts count, all or none, and publishes the read copy. Parts whose id is committed already are passed over.

        Raises:
            HeadraceError: another process holds the store for too long; the disk is full; a part's file is gone; a funnel does not add up;
                a row's key is there with other content. Nothing of this commit is kept then.
        """
        if not parts or self._all_committed(parts):
            return
        with self._writing("committing", self._lock_wait_s) as connection:
            fresh = _fresh(connection, parts)
            if fresh:
                connection.execute("BEGIN")
                self._register(connection, fresh)
                check_funnel(connection, self._touched_runs(fresh))
                self._flag_stale()
                connection.execute("COMMIT")
            self._publish(connection)
        self._drop_losers(parts)

    def journal(self, name: str) -> Journal:
        """The journal of this name; nothing is on disk until its first entry."""
        return Journal(self.lake / "_journal" / f"{name}.jsonl")

    # ---- reading ------------------------------------------------------------------------------------------------------

    def query(self, sql: str, params: Sequence[Any] = ()) -> pl.DataFrame:
        """The rows of a SELECT over the tables, as last committed; all tables are empty where the store does not exist yet."""
        with self._mutex:
            reader = self._current_reader()
            answer = pl.from_arrow(reader.sql(sql, params=list(params)).to_arrow_table())
        assert isinstance(answer, pl.DataFrame)
        return answer

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own to the read copy as it is now: tables cannot be changed, views find their files. Close it after use."""
        self._repair_if_stale()
        return self._open_readable()

    def content_hash(self) -> str:
        """64 hex digits over everything committed: the parts' content hashes with their tables, in order.

        Independent of commit order, part ids, times and paths. Rows that are split into parts differently give another hash, which is
        right because part ids, and so the split, are a function of the work.
        """
        rows = self.query("SELECT table_name, content_hash FROM parts WHERE rows > 0 ORDER BY table_name, content_hash")
        return hashlib.sha256("\n".join(f"{table}:{digest}" for table, digest in rows.iter_rows()).encode()).hexdigest()

    # ---- inside -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, doing: str, wait_s: float) -> Iterator[duckdb.DuckDBPyConnection]:
        """The one writing connection, under the lock, with the newest schema; rolled back and closed after an error."""
        with disk_errors(doing, self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            with file_lock(self.root / "catalog.lock", wait_s=wait_s):
                connection = _open_database(self._writable, self.root)
                try:
                    if _version(connection, self.root) < schema_version():
                        self._flag_stale()
                        _migrate(connection)
                    yield connection
                except BaseException:
                    with suppress(duckdb.Error):
                        connection.rollback()
                    raise
                finally:
                    with suppress(duckdb.Error):
                        connection.close()

    def _register(self, connection: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
        by_table: dict[str, list[Part]] = {}
        for part in parts:
            if not (self.root / part.path).exists():
                raise HeadraceError(
                    f"part {part.part_id} has no file {self.root / part.path}; it was removed after it was written, write it again"
                )
            by_table.setdefault(part.table, []).append(part)
        for table, group in by_table.items():
            if not TABLES[table].is_lake:
                for part in group:
                    _insert_rows(connection, part)
            elif TABLES[table].unique_across_parts:
                _shadow(connection, self.root, table, group)
            connection.executemany(
                "INSERT INTO parts VALUES (?, ?, ?, ?, ?, now())",
                [[part.part_id, table, str(part.path), part.rows, part.content_hash] for part in group],
            )
            if TABLES[table].is_lake:
                connection.execute(_view_sql(connection, table))

    def _touched_runs(self, parts: Sequence[Part]) -> list[str]:
        """Funnel runs that these parts say something of."""
        runs: set[str] = set()
        for part in parts:
            if part.table in ("funnel", "queries", "verdicts"):
                found = pl.scan_parquet(self.root / part.path, glob=False).select(pl.col("run").unique()).collect()
                runs |= set(found["run"].drop_nulls().to_list())
        return sorted(runs)

    def _all_committed(self, parts: Sequence[Part]) -> bool:
        wanted = {part.part_id for part in parts}
        known = self.query("SELECT part_id FROM parts WHERE part_id IN (SELECT unnest(?))", [sorted(wanted)])
        return known.height == len(wanted)

    def _drop_losers(self, parts: Sequence[Part]) -> None:
        """Removes the files of parts that lost the race, and old temporary files; whatever is registered stays."""
        registered = set(
            self.query("SELECT path FROM parts WHERE part_id IN (SELECT unnest(?))", [[part.part_id for part in parts]])["path"]
        )
        for part in parts:
            if registered and str(part.path) not in registered:
                with suppress(OSError):
                    (self.root / part.path).unlink(missing_ok=True)
        for folder in {self.root, *((self.root / part.path).parent for part in parts)}:
            sweep(folder)

    def _flag_stale(self) -> None:
        """Notes durably that the catalogue is about to be ahead of the read copy; whoever comes next repairs it."""

        def write(temporary: Path) -> None:
            temporary.write_text("the catalogue is ahead of the read copy\n", encoding="utf-8")

        replace_atomically(self._stale_flag, write)

    def _publish(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Closes the connection, and replaces the read copy by the catalogue if it is behind."""
        if self._stale_flag.exists() or not self._readable.exists():
            connection.execute("CHECKPOINT")
            connection.close()
            replace_atomically(self._readable, lambda temporary: _copy(self._writable, temporary))
            self._stale_flag.unlink(missing_ok=True)
            sync_dir(self.root)

    def _is_stale(self) -> bool:
        return self._writable.exists() and (self._stale_flag.exists() or not self._readable.exists())

    def _repair_if_stale(self) -> None:
        """Publishes what a killed process committed but could not publish.

        While another process is committing, the last published copy is right, and is left alone.
        """
        if self._is_stale():
            with suppress(Busy), self._writing("repairing the read copy", wait_s=0) as connection:
                self._publish(connection)

    def _current_reader(self) -> duckdb.DuckDBPyConnection:
        """The connection that `query` keeps open as long as the read copy is the same file. Call with the mutex held."""
        self._repair_if_stale()
        stamp = self._stamp()
        if self._reader is None or self._reader[0] != stamp:
            if self._reader is not None:
                self._reader[1].close()
                self._reader = None
            self._reader = (stamp, self._open_readable())
        return self._reader[1]

    def _stamp(self) -> tuple[int, int, int]:
        try:
            status = self._readable.stat()
        except FileNotFoundError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def _open_readable(self) -> duckdb.DuckDBPyConnection:
        """The read copy, attached read-only to a database in memory: DuckDB would otherwise hand out a replaced file that is still open."""
        if self._readable.exists() and _version_of(self._readable, self.root) < schema_version():
            with self._writing("migrating an older store", wait_s=self._lock_wait_s) as writer:
                self._publish(writer)
        connection = _connect(":memory:", self.root)
        if self._readable.exists():
            connection.execute(f"ATTACH '{_quoted(self._readable)}' AS store (READ_ONLY)")
            connection.execute("USE store")
        else:
            _migrate(connection)
        return connection


def _reopen(root: str, lock_wait_s: float) -> Store:
    return Store(root, lock_wait_s=lock_wait_s)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def _connect(database: str, root: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(database, config=dict(_SETTINGS))
    connection.execute(f"SET file_search_path = '{_quoted(root)}'")
    connection.execute(f"SET temp_directory = '{_quoted(Path(tempfile.gettempdir()))}'")
    return connection


def _open_database(path: Path, root: Path) -> duckdb.DuckDBPyConnection:
    try:
        return _connect(str(path), root)
    except duckdb.Error as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> Exception:
    return error if is_disk_full(error) else BadInput(f"{path} cannot be opened as a store's catalogue: {str(error).splitlines()[0]}")


def _version_of(path: Path, root: Path) -> int:
    """The schema version of a database file, read without a lock on it.

    Raises:
        BadInput: it is no catalogue of a store, or a newer Headrace wrote it.
    """
    connection = _connect(":memory:", root)
    try:
        connection.execute(f"ATTACH '{_quoted(path)}' AS store (READ_ONLY)")
        connection.execute("USE store")
        return _version(connection, root)
    except duckdb.Error as error:
        raise _unreadable(path, error) from error
    finally:
        connection.close()


def _version(connection: duckdb.DuckDBPyConnection, root: Path) -> int:
    tables = {
        name
        for (name,) in connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = current_database()"
        ).fetchall()
    }
    if not tables:
        return 0
    if "migrations" not in tables:
        raise BadInput(f"{root} holds a DuckDB database that is not a Headrace store; name another folder")
    row = connection.execute("SELECT max(version) FROM migrations").fetchone()
    version = int(row[0]) if row and row[0] is not None else 0
    if version > schema_version():
        raise BadInput(
            f"the store {root} has schema version {version}, this Headrace knows versions up to {schema_version()}; "
            "use the newer Headrace that wrote it, or another store"
        )
    return version


def _migrate(connection: duckdb.DuckDBPyConnection) -> None:
    """Applies the migrations that are missing, all or none, and makes the views."""
    has_any = connection.execute(
        "SELECT count(*) FROM information_schema.tables WHERE table_name = 'migrations' AND table_catalog = current_database()"
    ).fetchone()
    applied = 0
    if has_any and has_any[0]:
        row = connection.execute("SELECT max(version) FROM migrations").fetchone()
        applied = int(row[0]) if row and row[0] is not None else 0
    connection.execute("BEGIN")
    for version, name, sql in migrations():
        if version > applied:
            connection.execute(sql)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", [version, name])
    for table, schema in TABLES.items():
        if schema.is_lake:
            connection.execute(_view_sql(connection, table))
    connection.execute("COMMIT")


def _fresh(connection: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> list[Part]:
    """The parts whose id is not committed yet; of several with one id, the first."""
    known = {part for (part,) in connection.execute("SELECT part_id FROM parts").fetchall()}
    fresh: list[Part] = []
    for part in parts:
        if part.part_id not in known:
            known.add(part.part_id)
            fresh.append(part)
    return fresh


def _insert_rows(connection: duckdb.DuckDBPyConnection, part: Part) -> None:
    """Inserts the rows of a catalogue table's part, except those whose key is there already with the same content."""
    schema = TABLES[part.table]
    columns = ", ".join(f'"{name}"' for name in schema.columns)
    source = f"read_parquet('{part.path}')"
    same_key = " AND ".join(f'fresh."{name}" IS NOT DISTINCT FROM held."{name}"' for name in schema.key)
    others = [name for name in schema.columns if name not in schema.key and name not in schema.unhashed]
    if others:
        differs = " OR ".join(f'fresh."{name}" IS DISTINCT FROM held."{name}"' for name in others)
        key = ", ".join(f'fresh."{name}"' for name in schema.key)
        clash = connection.execute(
            f"SELECT {key}, held.part_id FROM {source} fresh JOIN {part.table} held ON {same_key} WHERE {differs} LIMIT 1"
        ).fetchone()
        if clash:
            raise HeadraceError(
                f"{part.table} already holds {dict(zip(schema.key, clash[:-1], strict=True))} with other content (part {clash[-1]}); "
                "nothing was committed. Use a fresh store, or whatever made both must put the difference into the id"
            )
    connection.execute(
        f"INSERT INTO {part.table} (part_id, {columns}) SELECT ?, {columns} FROM {source} fresh ANTI JOIN {part.table} held ON {same_key}",
        [part.part_id],
    )


def _shadow(connection: duckdb.DuckDBPyConnection, root: Path, table: str, parts: Sequence[Part]) -> None:
    """Notes which rows of new lake parts repeat a key that a committed part, or an earlier one of these, holds."""
    (key,) = TABLES[table].key
    keys = pl.concat(
        pl.scan_parquet(root / part.path, glob=False).select(
            pl.lit(part.part_id).alias("part_id"), pl.lit(position).alias("position"), pl.col(key)
        )
        for position, part in enumerate(parts)
    ).collect()
    connection.register("fresh_keys", keys.to_arrow())
    connection.execute(
        f"""INSERT INTO shadowed SELECT '{table}', part_id, "{key}" FROM
            (SELECT *, row_number() OVER (PARTITION BY "{key}" ORDER BY position) AS nth FROM fresh_keys)
            WHERE nth > 1 OR "{key}" IN (SELECT "{key}" FROM {table})"""
    )
    connection.unregister("fresh_keys")


def _view_sql(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """The view of a lake table over its registered parts, in the order of their ids."""
    schema = TABLES[table]
    columns = ", ".join(f'"{name}"' for name in schema.columns)
    paths = connection.execute(
        "SELECT path, part_id IN (SELECT part_id FROM shadowed WHERE table_name = ?) FROM parts WHERE table_name = ? ORDER BY part_id",
        [table, table],
    ).fetchall()
    whole = ", ".join(f"'{path}'" for path, has_shadows in paths if not has_shadows)
    selects = [f"SELECT {columns} FROM read_parquet([{whole}])"] if whole else []
    for path, has_shadows in paths:
        if has_shadows:
            part = Path(path).stem.rpartition("-")[0]
            hidden = f"SELECT key FROM shadowed WHERE table_name = '{table}' AND part_id = '{part}'"
            selects.append(f"SELECT {columns} FROM read_parquet('{path}') WHERE \"{schema.key[0]}\" NOT IN ({hidden})")
    if not selects:
        typed = ", ".join(f'NULL::{sql_type} AS "{name}"' for name, sql_type in schema.sql_columns().items())
        selects = [f"SELECT {typed} WHERE false"]
    return f"CREATE OR REPLACE VIEW {table} AS {' UNION ALL '.join(selects)}"
