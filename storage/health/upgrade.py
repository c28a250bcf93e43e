"""Brings a store of an older version to this one.

One idea: parts are immutable, and a column that an older part lacks reads as null. So an upgrade builds the catalogue again from the log
of commits and the parts, and no part is written; what an older version stored and this one does not know stays in the parts.
Of a store that machines share, each upgrades its own copy; the first one also tells the others (`Store.announce_version`).
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog
from storage.errors import BadInput
from storage.files import file_lock, replace_atomically
from storage.store import LOCK_WAIT_S, Store
from storage.tables import TABLES, schema_version

ASIDE = "catalog.{version}.duckdb"


@dataclass(frozen=True)
class Upgrade:
    """From which schema version to which, and what that changes, one sentence each; none if it is the same."""

    old: str
    new: str
    changes: tuple[str, ...]


def plan_upgrade(root: Path) -> Upgrade:
    """What an upgrade of the store at `root` would change; writes nothing.

    Raises:
        BadInput: there is no catalogue to read.
    """
    with closing(_open(root)) as connection:
        old = duckdb_catalog.versions(connection)[-1]
        rows = connection.execute(
            """SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns
               WHERE database_name = current_database() AND NOT internal GROUP BY 1"""
        ).fetchall()
    if old == schema_version():
        return Upgrade(old, old, ())
    before = {table: [column for column in columns if column != "part_id"] for table, columns in rows}
    changes = []
    for table, schema in TABLES.items():
        added = [name for name in schema.columns if name not in before.get(table, [])]
        gone = [name for name in before.get(table, []) if name not in schema.columns]
        if table not in before:
            changes += [] if schema.is_late else [f"table {table} is new, and empty"]
            continue
        if added:
            changes.append(f"table {table} gets {', '.join(added)}; null in the rows that are there")
        if gone:
            changes.append(f"table {table} loses {', '.join(gone)}; the parts keep the values")
    return Upgrade(old, schema_version(), tuple(changes))


def upgrade(root: Path) -> Upgrade:
    """Brings the store at `root`, on which no flow is at work, to this version; the catalogue of before is kept beside it. Killed anywhere,
    it can be called again.

    Raises:
        BadInput: there is no catalogue to read; or machines share the store, and it has a version that this copy never had.
        HeadraceError: a part is missing; `headrace store repair` helps.
    """
    planned = plan_upgrade(root)
    if planned.old != planned.new:
        with file_lock(root / "catalog.lock", wait_s=LOCK_WAIT_S):
            _rebuild(root, planned.old)
    Store(root).announce_version()
    return planned


def _rebuild(root: Path, old: str) -> None:
    with closing(_open(root)) as connection:
        earlier, commits = duckdb_catalog.versions(connection), duckdb_catalog.list_commits(connection)
    log = CommitLog(root)
    if {one.part.path for one in log.parts()} != {part.path for parts in commits.values() for part in parts}:
        log.rewrite(commits)
    log.note_versions(earlier)
    kept = root / ASIDE.format(version=old)
    if (root / "catalog.duckdb").exists() and not kept.exists():
        replace_atomically(kept, lambda draft: shutil.copyfile(root / "catalog.duckdb", draft))
    for name in ("catalog.duckdb", "catalog.read.duckdb", "catalog.stale"):
        (root / name).unlink(missing_ok=True)
    Store(root).rebuild_catalogue()


def _open(root: Path) -> duckdb.DuckDBPyConnection:
    """The catalogue of whatever version; after an upgrade that was killed, the latest that it kept."""
    paths = [root / "catalog.duckdb", *sorted(root.glob(ASIDE.format(version="*")), key=lambda path: path.stat().st_mtime, reverse=True)]
    path = next((path for path in paths if path.is_file() and path.name != "catalog.read.duckdb"), paths[0])
    connection = duckdb_catalog.connect(":memory:", root)
    try:
        connection.execute(f"ATTACH '{duckdb_catalog.quote(path)}' AS store (READ_ONLY)")
        connection.execute("USE store")
        duckdb_catalog.versions(connection)
    except duckdb.Error as error:
        connection.close()
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} cannot be read as a store's catalogue ({reason}); try `headrace store repair`") from error
    return connection
