"""The database of the project's own Prefect server: created whole, carried over from an older Prefect, set aside when it is damaged.

One idea: the database holds only the history of runs, and no store needs it. So a damaged one never stops the server: it is moved aside
with its journal, and the server begins with a new one. It is called damaged if SQLite says so (`PRAGMA quick_check`), or if a table or a
column of Prefect's schema is missing, as in a file that was cut to nothing. A busy, unreadable or full disk is no damage.
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from pathlib import Path

DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Codes of SQLite that mean: the content of the file is wrong."""


def prepare(folder: Path, database: Path) -> str:
    """Set a damaged `database` aside, and create it if missing; returns a sentence for the user if it was damaged, else nothing.

    A new database is a copy of the newest sound one of another Prefect version, if any, with the schema migrated. It is made under another
    name and then renamed, so a kill leaves no incomplete database.
    """
    aside = _set_aside(database) if _is_damaged(database) else None
    if not database.exists():
        _create(folder, database)
    if aside is None:
        return ""
    return f"the database of the project's Prefect server was damaged: its history of runs is now in {aside}, no store has lost anything"


def _is_damaged(database: Path) -> bool:
    if not database.exists():
        return False
    from prefect.server.database.orm_models import Base

    try:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            if not _passes_quick_check(connection):
                return True
            for table in Base.metadata.tables.values():
                columns = ", ".join(f'{table.name}."{column.name}"' for column in table.columns)
                connection.execute(f"SELECT {columns} FROM {table.name} LIMIT 1")
            return bool(connection.execute("SELECT count(*) FROM alembic_version").fetchone() != (1,))
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode & 0xFF in DAMAGE
    except UnicodeDecodeError:
        return True


def _passes_quick_check(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))


def _set_aside(database: Path) -> Path:
    """Rename the database and the files of its journal; returns the new path of the database."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    aside = database.with_name(f"{database.name}.damaged-{date}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            database.with_name(database.name + suffix).rename(f"{aside}{suffix}")
    return aside


def _create(folder: Path, database: Path) -> None:
    import asyncio

    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import provide_database_interface, temporary_database_config

    new = folder / "prefect.db.new"
    for leftover in folder.glob("prefect.db.new*"):
        leftover.unlink()
    for older in sorted(folder.glob("prefect-*.db"), key=lambda path: path.stat().st_mtime)[-1:]:
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(older)) as source:
            if _passes_quick_check(source):
                with contextlib.closing(sqlite3.connect(new)) as target:
                    source.backup(target)

    async def migrate() -> None:
        with temporary_database_config(AioSqliteConfiguration(connection_url=f"sqlite+aiosqlite:///{new}")):
            interface = provide_database_interface()
            await interface.create_db()
            await (await interface.engine()).dispose()

    asyncio.run(migrate())
    with contextlib.closing(sqlite3.connect(new)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    new.rename(database)
