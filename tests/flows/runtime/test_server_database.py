"""A damaged database of the project's own Prefect server is set aside, and a sound one never is."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.runtime import server_database

SPOIL: dict[str, Callable[[bytes], bytes]] = {
    "zeroed": lambda sound: bytes(len(sound)),
    "random bytes": lambda sound: random.Random(0).randbytes(len(sound)),
    "cut to nothing": lambda sound: b"",
    "cut in the middle": lambda sound: sound[: len(sound) // 2],
    "schema flipped": lambda sound: sound.replace(b"infrastructure_pid", b"infrastructure_pie"),
    "page flipped": lambda sound: sound[:4096] + bytes(byte ^ 0xFF for byte in sound[4096:8192]) + sound[8192:],
    "no version": lambda sound: sound.replace(b"alembic_version", b"alembic_versiom"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with Prefect's tables. The migrations, which take half a minute, would make the same."""
    import sqlalchemy
    from prefect.server.database.orm_models import Base

    path = tmp_path_factory.mktemp("sound") / "prefect.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    tables = Base.metadata.tables.values()
    with engine.begin() as connection:
        for table in tables:
            columns = ", ".join(f'"{column.name}" TEXT' for column in table.columns)
            connection.execute(sqlalchemy.text(f"CREATE TABLE {table.name} ({columns})"))
        connection.execute(sqlalchemy.text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(sqlalchemy.text("INSERT INTO alembic_version VALUES ('1')"))
    engine.dispose()
    return path


@pytest.mark.parametrize("how", SPOIL)
def test_a_damaged_database_is_set_aside_with_its_journal(how: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a database that a disk has spoilt
    database = tmp_path / "prefect-1.db"
    database.write_bytes(spoilt := SPOIL[how](sound.read_bytes()))
    monkeypatch.setattr(server_database, "_create", lambda folder, new: new.write_bytes(b"new"))
    # when the server starts
    note = server_database.prepare(tmp_path, database)
    # then it begins with a new one, and says where the old one is
    (aside,) = (path for path in tmp_path.glob("prefect-1.db.damaged-*") if not path.name.endswith(("-wal", "-shm")))
    assert str(aside) in note and "no store has lost anything" in note
    assert aside.read_bytes() == spoilt and database.read_bytes() == b"new"
    assert not list(tmp_path.glob("prefect-1.db-*"))


def test_a_sound_database_stays_also_while_another_program_writes_to_it(sound: Path, tmp_path: Path) -> None:
    database = tmp_path / "prefect-1.db"
    database.write_bytes(sound.read_bytes())
    assert server_database.prepare(tmp_path, database) == ""
    with contextlib.closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        connect = sqlite3.connect
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda path: connect(path, timeout=0.1))
            assert server_database.prepare(tmp_path, database) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["prefect-1.db"]
