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
from storage.errors import BadInput, HeadraceError
from storage.execution import Progress
from storage.files import file_lock, replace_atomically
from storage.health.damage import CATALOGUE, Damage, check_parts, parts_of
from storage.store import LOCK_WAIT_S, Store
from storage.tables import EARLIER_VERSIONS, TABLES, schema_version

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
        BadInput: there is no catalogue to read, or a newer Headrace wrote the store.
    """
    with closing(_open(root)[1]) as connection:
        old = duckdb_catalog.versions(connection)[-1]
        if old not in (*EARLIER_VERSIONS, schema_version()):
            raise BadInput(
                f"{root} has schema version {old}, which this Headrace does not know: a newer or unreleased one wrote it, use that"
            )
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
        BadInput: there is no catalogue to read, or a newer Headrace wrote the store; or machines share the store, and it has a version that
            this copy never had.
        HeadraceError: a part is missing or damaged; nothing was done.
    """
    planned = plan_upgrade(root)
    if planned.old != planned.new:
        if damaged := check_older(root):
            raise HeadraceError(
                f"{root} is damaged ({damaged[0]}), so nothing was done: `headrace store repair --store {root}` sets that aside, and "
                "brings the store to this version"
            )
        with file_lock(root / "catalog.lock", wait_s=LOCK_WAIT_S):
            prepare(root)
            Store.rebuild_catalogue(root)
    Store(root).announce_version()
    return planned


def check_older(root: Path, progress: Progress = lambda *_: None) -> list[Damage]:
    """The damaged parts of a store of another version. Raises BadInput: see `plan_upgrade`."""
    plan_upgrade(root)
    with closing(_open(root)[1]) as connection:
        parts = parts_of(connection)
    return check_parts(root, parts, progress)


def prepare(root: Path) -> None:
    """Writes what the catalogue of this version is built from: the log, with the versions of before. Keeps the catalogue of before."""
    path, connection = _open(root)
    with closing(connection):
        earlier, commits = duckdb_catalog.versions(connection), duckdb_catalog.list_commits(connection)
    log = CommitLog(root)
    if {one.part.path for one in log.parts()} != {part.path for parts in commits.values() for part in parts}:
        log.rewrite(commits, earlier)
    else:
        log.note_versions(earlier)
    kept = root / ASIDE.format(version=earlier[-1])
    if not kept.exists():
        replace_atomically(kept, lambda draft: shutil.copyfile(path, draft))


def _open(root: Path) -> tuple[Path, duckdb.DuckDBPyConnection]:
    """The catalogue of whatever version, or its read copy: the first that can be read. Raises BadInput: neither can."""
    unreadable = None
    for path in (root / name for name in CATALOGUE):
        try:
            return path, duckdb_catalog.open_any_version(path, root)
        except BadInput as error:
            unreadable = unreadable or error
    assert unreadable is not None
    raise unreadable
