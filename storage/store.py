"""The store: a folder in which no committed row is lost and none counts twice, even if processes are killed at any time.

One idea: rows lie in immutable Parquet parts. Any process may write a part (`write`); its rows count once `commit` has committed it, in one
DuckDB transaction under a file lock. The first commit of a part id wins, a second changes nothing; so a resumed run skips the parts that
exist.
`catalog.duckdb` is opened only during a commit, because while one process writes a DuckDB file no other can read it. Readers use
`catalog.read.duckdb`, which is replaced atomically after each commit. Lake tables are views over the *registered* parts, with paths
relative to the store: readers `cd` into it, or set `file_search_path` as `connect` does.
Several machines share a store through an object store: each has a whole one in a folder of its own, and the log of commits orders what
they commit (`storage/object_store/shared_log.py`).

It does not interpret rows, except that the counts of a funnel must add up (`storage/commits/funnel_invariants.py`).
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog, by_commit
from storage.commits.funnel_invariants import check_funnel
from storage.errors import BadInput, HeadraceError
from storage.files import Busy, disk_errors, file_lock, replace_atomically, sweep, sync_dir
from storage.journal import Journal, journal_at
from storage.object_store.flow_lease import refuse_if_lost
from storage.object_store.shared_log import SharedLog, open_log
from storage.parts import DamagedPart, Part, check_part, columns_on_disk, find_written, part_id, read_part, rows_on_disk, write_part
from storage.query_cancel import as_keyboard_interrupt, run_query
from storage.tables import TABLES, schema_version

__all__ = ["Journal", "Part", "Store", "part_id"]

LOCK_WAIT_S = 120.0
LOST_VERSION = "lost"
"""Stands in the list of a store's schema versions for those that nothing tells any more."""
_UNFIT = ",?\\"
"""Characters that DuckDB does not read literally in a path: list separator, start of a URL's query, folder separator of Windows."""


class Store:
    """A store in folder `root`, which is created by the first write. Cheap to construct, safe to share between threads, picklable.

    Raises:
        BadInput: `root` cannot be a store's folder (no folder, out of reach, a path that DuckDB cannot take), holds something else, or has
            another schema version.
    """

    def __init__(self, root: Path | str, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.root = Path(root).absolute()
        self.lake = self.root / "lake"
        self.log = CommitLog(self.root)
        self._lock_wait_s = lock_wait_s
        self._writable = self.root / "catalog.duckdb"
        self._readable = self.root / "catalog.read.duckdb"
        self._stale_flag = self.root / "catalog.stale"
        self._mutex = threading.Lock()
        self._reader: tuple[tuple[int, int, int], duckdb.DuckDBPyConnection] | None = None
        _refuse_unfit(Path(root))
        with self._mutex:
            self._current_reader()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.root), self._lock_wait_s)

    def exists(self) -> bool:
        """Whether the store has had a commit."""
        return self._readable.exists()

    # ---- writing ------------------------------------------------------------------------------------------------------

    def find(self, part: str) -> Part | None:
        """The part of this id: the committed one, or else one with a complete file on disk."""
        rows = self.query("SELECT table_name, path, rows, content_hash FROM parts WHERE part_id = ?", [part])
        if rows.height:
            table, path, count, digest = rows.row(0)
            return Part(part, table, Path(path), count, digest)
        return find_written(self.root, part)

    def write(self, table: str, part_id: str, frame: pl.DataFrame | pl.LazyFrame) -> Part:
        """Writes rows of `table` as an immutable part. Any process may do so at any time. The rows count once committed.

        Raises:
            ValueError: the columns are not those of the table, or the part id is another table's.
            HeadraceError: two rows have the same key; the disk is full.
        """
        return write_part(self.root, table, part_id, frame)

    def commit(self, parts: Sequence[Part]) -> None:
        """Commits parts, all or none, and publishes the read copy. Parts whose id is committed already are skipped.

        Raises:
            HeadraceError: another process holds the store for too long; the disk is full; a part's file is missing; a funnel does not add
                up; a row of a catalogue table has the key of a committed row with other content (in a lake table the row committed first
                stays). Then nothing is committed. Exception: if the disk fills up during the write of the read copy, everything is
                committed, and visible as soon as there is room for the copy.
        """
        if not parts:
            return
        if self._all_committed(parts):
            self._drop_losers(parts)
            return
        shared = SharedLog.of(self.root)
        if shared is not None:
            refuse_if_lost(self.root)
            shared.send([part for part in parts if not self._all_committed([part])])
        with self._writing("committing", self._lock_wait_s) as connection:
            is_done = False
            while not is_done:
                self._apply_missed(connection, shared)
                fresh = duckdb_catalog.find_uncommitted(connection, parts)
                is_done = not fresh or self._commit_fresh(connection, fresh, shared)
            self._publish_and_log(connection)
        self._drop_losers(parts)

    def journal(self, name: str) -> Journal:
        """The journal of this name; nothing is on disk until its first entry."""
        return journal_at(self.lake / "_journal" / f"{name}.jsonl")

    # ---- sharing ------------------------------------------------------------------------------------------------------

    def share(self, url: str) -> None:
        """Makes this folder a machine's copy of the store under the URL of an object store: commits go there too, `pull` fetches those of
        others. A store that has commits becomes the one under the URL if there is none yet. Safe to call again.

        Raises:
            BadInput: `url` is not usable (see `open_log`), or holds another store, or the folder is a copy of another URL.
        """
        shared = SharedLog.of(self.root)
        if shared is not None:
            if shared.files.url != url.rstrip("/"):
                raise BadInput(f"{self.root} is a copy of {shared.files.url}, not of {url}; name another folder, or that URL")
            self.pull()
            return
        shared = open_log(self.root, url)
        if self._writable.exists():
            with self._writing("sharing the store", self._lock_wait_s) as connection:
                shared.adopt(duckdb_catalog.list_commits(connection), duckdb_catalog.versions(connection))
        shared.save()
        self.pull()

    def pull(self) -> None:
        """Takes over the commits of other machines, with their files. Does nothing in a store that is not shared.

        Raises:
            HeadraceError: the URL is out of reach; the disk is full. What was taken over before is intact.
        """
        shared = SharedLog.of(self.root)
        if shared is not None and shared.read(shared.applied) is not None:
            with self._writing("taking over commits", self._lock_wait_s) as connection:
                self._apply_missed(connection, shared)
                self._publish_and_log(connection)

    def announce_version(self) -> None:
        """Makes this Headrace's schema version, to which the catalogue was upgraded, that of a shared store. Does nothing if it is that, or
        the store is not shared.

        Raises:
            BadInput: the shared store has a version that this catalogue never had. HeadraceError: the URL is out of reach.
        """
        shared = SharedLog.of(self.root)
        if shared is not None:
            with self._writing("upgrading", self._lock_wait_s) as connection:
                is_done = False
                while not is_done:
                    self._apply_missed(connection, shared)
                    newest = shared.newest()
                    is_done = newest is None or newest[1].versions[-1] == schema_version() or self._commit_fresh(connection, [], shared)
                self._publish_and_log(connection)

    # ---- reading ------------------------------------------------------------------------------------------------------

    def query(self, sql: str, params: Sequence[Any] = ()) -> pl.DataFrame:
        """The rows of a SELECT over the tables, as last committed. All tables are empty if the store does not exist yet."""
        with self._mutex, as_keyboard_interrupt():
            reader = self._current_reader()
            try:
                answer = run_query(reader, lambda: pl.from_arrow(reader.sql(sql, params=list(params)).to_arrow_table()))
            except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.InterruptException):
                raise
            except duckdb.Error as error:
                self._refuse_damaged(reader, error)
                raise
        assert isinstance(answer, pl.DataFrame)
        return answer

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A new read-only connection to the current read copy. The caller closes it."""
        self._repair_if_stale()
        return self._open_readable()

    @staticmethod
    def rebuild_catalogue(root: Path) -> None:
        """Builds the catalogue of the store at `root` anew from the log of commits and the parts, and then replaces the one that is there,
        damaged or of another version, with its read copy.

        The caller holds `catalog.lock`.

        Raises:
            HeadraceError: the disk is full; a part in the log has no file.
        """
        log = CommitLog(root)
        commits = by_commit(log.parts())
        for part in (part for parts in commits.values() for part in parts):
            _check_file(root, part)
        fresh = root / ".tmp-catalog.rebuilt"
        fresh.unlink(missing_ok=True)
        with disk_errors("rebuilding the catalogue", root):
            with closing(duckdb_catalog.open_for_writing(fresh, root)) as connection:
                duckdb_catalog.create_tables(connection, log.versions() or _lost_versions(root, commits))
                connection.execute("BEGIN")
                duckdb_catalog.register_all(connection, commits)
                connection.execute("COMMIT")
                connection.execute("CHECKPOINT")
            _flag_stale(root)
            (root / "catalog.duckdb.wal").unlink(missing_ok=True)
            fresh.replace(root / "catalog.duckdb")
            _publish_copy(root)

    def content_hash(self) -> str:
        """64 hex digits over everything committed: the parts' content hashes with their tables, in order.

        Independent of commit order, part ids, times and paths. Rows that are split into parts differently give another hash, which is
        right because part ids, and so the split, are a function of the work.
        """
        with self._mutex:
            return duckdb_catalog.content_hash(self._current_reader())

    # ---- inside -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, doing: str, wait_s: float) -> Iterator[duckdb.DuckDBPyConnection]:
        """The one writing connection, under the lock, to a catalogue that has its tables; rolled back and closed after an error."""
        with disk_errors(doing, self.root), as_keyboard_interrupt():
            self.root.mkdir(parents=True, exist_ok=True)
            with file_lock(self.root / "catalog.lock", wait_s=wait_s):
                connection = duckdb_catalog.open_for_writing(self._writable, self.root)
                try:
                    if duckdb_catalog.is_empty(connection, self.root):
                        _flag_stale(self.root)
                        duckdb_catalog.create_tables(connection)
                    yield connection
                except BaseException:
                    with suppress(duckdb.Error):
                        connection.rollback()
                    raise
                finally:
                    with suppress(duckdb.Error):
                        connection.close()

    def _apply_missed(self, connection: duckdb.DuckDBPyConnection, shared: SharedLog | None) -> None:
        """Commits here what other machines have committed since, in their order."""
        if shared is not None:
            shared.reload()
            known = duckdb_catalog.versions(connection)
            for entry in shared.missed(known):
                earlier = [version for version in entry.versions if version not in known]
                if earlier:
                    known = [*earlier, *known]
                    self.log.note_versions(known[:-1])
                    connection.execute("BEGIN")
                    duckdb_catalog.set_versions(connection, known)
                    connection.execute("COMMIT")
                fresh = duckdb_catalog.find_uncommitted(connection, entry.parts)
                if fresh:
                    self._commit_fresh(connection, fresh, None, at_us=entry.at_us)
                shared.mark_applied()

    def _commit_fresh(
        self, connection: duckdb.DuckDBPyConnection, fresh: Sequence[Part], shared: SharedLog | None, at_us: int | None = None
    ) -> bool:
        """Commits parts in one transaction, which is the next entry of the log if there is one; False: another machine was first."""
        connection.execute("BEGIN")
        at_us = at_us or duckdb_catalog.next_commit_us(connection)
        self._register(connection, fresh, at_us)
        check_funnel(connection, self._touched_runs(fresh))
        _flag_stale(self.root)
        if shared is not None and not shared.append(fresh, at_us, duckdb_catalog.versions(connection)):
            connection.execute("ROLLBACK")
            return False
        connection.execute("COMMIT")
        if shared is not None:
            shared.mark_applied()
        return True

    def _publish_and_log(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Publishes, then logs the commits that the log lacks: the last one, and any before it whose line a kill prevented."""
        unlogged = duckdb_catalog.list_commits(connection, self.log.last_us())
        self._publish(connection)
        self.log.add(unlogged)

    def _refuse_damaged(self, reader: duckdb.DuckDBPyConnection, error: duckdb.Error) -> None:
        """Raises DamagedPart if a part of the lake cannot be read: one that the error names, else any; BadInput if the catalogue cannot."""
        if str(self._readable) in str(error) or "Corrupt database file" in str(error):
            raise duckdb_catalog.unreadable(self._readable, error) from error
        rows = reader.execute("SELECT part_id, table_name, path, rows, content_hash FROM parts ORDER BY part_id").fetchall()
        parts = [Part(part, table, Path(path), count, digest) for part, table, path, count, digest in rows]
        for part in parts:
            if rows_on_disk(self.root / part.path) is None:
                raise DamagedPart(self.root, part.path, "is damaged" if (self.root / part.path).exists() else "is missing")
        for part in [part for part in parts if str(part.path) in str(error)] or [part for part in parts if TABLES[part.table].is_lake]:
            check_part(self.root, part)

    def _register(self, connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], at_us: int) -> None:
        by_table: dict[str, list[Part]] = {}
        for part in parts:
            _check_file(self.root, part)
            by_table.setdefault(part.table, []).append(part)
        duckdb_catalog.create_late_tables(connection, by_table)
        for table, group in by_table.items():
            if not TABLES[table].is_lake:
                for part in group:
                    duckdb_catalog.insert_rows(connection, part)
            elif TABLES[table].unique_across_parts:
                duckdb_catalog.shadow_repeats(connection, table, group)
            duckdb_catalog.register_parts(connection, group, at_us)
            if TABLES[table].is_lake:
                connection.execute(duckdb_catalog.view_sql(connection, table))
        duckdb_catalog.hide_withdrawn(connection, by_table)

    def _touched_runs(self, parts: Sequence[Part]) -> list[str]:
        """Funnel runs that have rows in these parts."""
        runs: set[str] = set()
        for part in parts:
            if part.table in ("funnel", "queries", "verdicts"):
                runs |= set(read_part(self.root, part.path, ["run"])["run"].drop_nulls().unique().to_list())
        return sorted(runs)

    def _all_committed(self, parts: Sequence[Part]) -> bool:
        part_ids = {part.part_id for part in parts}
        committed = self.query("SELECT part_id FROM parts WHERE part_id IN (SELECT unnest(?))", [sorted(part_ids)])
        return committed.height == len(part_ids)

    def _drop_losers(self, parts: Sequence[Part]) -> None:
        """Removes the files of parts whose id another process committed first, and old temporary files. Registered files stay."""
        registered = set(
            self.query("SELECT path FROM parts WHERE part_id IN (SELECT unnest(?))", [[part.part_id for part in parts]])["path"]
        )
        for part in parts:
            if registered and str(part.path) not in registered:
                with suppress(OSError):
                    (self.root / part.path).unlink(missing_ok=True)
        for folder in {self.root, *((self.root / part.path).parent for part in parts)}:
            sweep(folder)

    def _publish(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Closes the connection, and replaces the read copy by the catalogue if it is behind."""
        if self._stale_flag.exists() or not self._readable.exists():
            connection.execute("CHECKPOINT")
            connection.close()
            _publish_copy(self.root)

    def _is_stale(self) -> bool:
        return self._writable.exists() and (self._stale_flag.exists() or not self._readable.exists())

    def _repair_if_stale(self) -> None:
        """Publishes the commit of a process that was killed before it could publish.

        If another process is committing, or the disk is full, the last published copy stays.
        """
        if self._is_stale():
            try:
                with self._writing("repairing the read copy", wait_s=0) as connection:
                    self._publish(connection)
            except BadInput:
                raise
            except HeadraceError as error:
                if not isinstance(error, Busy) and not self._readable.exists():
                    raise

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
        """A connection to the read copy, or to empty tables if it does not exist."""
        if self._readable.exists():
            return duckdb_catalog.open_for_reading(self._readable, self.root)
        connection = duckdb_catalog.connect(":memory:", self.root)
        duckdb_catalog.create_tables(connection)
        return connection


def _flag_stale(root: Path) -> None:
    """Records durably that the catalogue will be ahead of the read copy; the next process repairs the copy after a kill."""
    replace_atomically(root / "catalog.stale", lambda temporary: temporary.write_text("the catalogue is ahead of the read copy\n"))


def _publish_copy(root: Path) -> None:
    replace_atomically(root / "catalog.read.duckdb", lambda temporary: shutil.copyfile(root / "catalog.duckdb", temporary))
    (root / "catalog.stale").unlink(missing_ok=True)
    sync_dir(root)


def _check_file(root: Path, part: Part) -> None:
    if not (root / part.path).exists():
        raise HeadraceError(f"part {part.part_id} has no file {root / part.path}; it was removed after it was written, write it again")


def _lost_versions(root: Path, commits: Mapping[int, Sequence[Part]]) -> list[str]:
    """What stands for the schema versions before the present one where nothing tells them: none if all lake parts have today's columns."""
    lake = (part for parts in commits.values() for part in parts if TABLES[part.table].is_lake)
    return [LOST_VERSION] if any(columns_on_disk(root, part.path) != set(TABLES[part.table].columns) for part in lake) else []


def _refuse_unfit(root: Path) -> None:
    """Raises BadInput if `root` cannot be the folder of a store, or has other content."""
    if scheme := re.match(r"(\w+):/", str(root)):
        raise BadInput(f"a store is a folder, not a URL: name one, and {scheme[1]}://... as object_store in the configuration")
    odd = next((char for char in _UNFIT if char in str(root.absolute())), None)
    if odd:
        raise BadInput(f"the path of a store may not contain {odd} (DuckDB does not read it as it is written): {root.absolute()}")
    try:
        names = sorted(path.name for path in root.iterdir())
    except FileNotFoundError:
        names = []
    except (OSError, ValueError) as error:
        raise BadInput(f"{root} cannot be a store: {getattr(error, 'strerror', None) or error}; name another folder") from None
    is_store = any(name in ("lake", "models", ".headrace") or name.startswith("catalog.") for name in names)
    if names and not is_store:
        raise BadInput(f"{root.absolute()} holds {names[0]}, which is not of a store; name an empty or new folder")
    if root == Path() and not is_store:
        raise BadInput("a store needs a separate folder, not the current one; name one")


def _reopen(root: str, lock_wait_s: float) -> Store:
    return Store(root, lock_wait_s=lock_wait_s)
