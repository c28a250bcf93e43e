"""Stores that other versions wrote: each opens, or is brought to this version by one command, without a change to its parts.

`tests/golden/store-VERSION.tar.xz` is a store that `tests/storage/conftest.py` built when VERSION was the schema version. Whoever changes
`storage/tables.py` leaves these files, and adds one of the new version.
"""

from __future__ import annotations

import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from storage import duckdb_catalog
from storage.commits.commit_log import CommitLog
from storage.errors import BadInput
from storage.health.damage import check
from storage.health.repair import repair
from storage.health.upgrade import plan_upgrade, upgrade
from storage.report.page import write_report
from storage.store import Store
from storage.tables import TABLES, schema_version
from tests.storage.conftest import write

GOLDEN = {path.name[len("store-") : -len(".tar.xz")]: path for path in sorted((Path(__file__).parents[2] / "golden").glob("*.tar.xz"))}
OLDER = [version for version in GOLDEN if version != schema_version()]


def unpacked(version: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN[version]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def test_there_is_a_golden_store_of_this_version_and_of_an_older_one():
    assert schema_version() in GOLDEN, "tables.py has changed: add a golden store of the new version"
    assert OLDER


def test_a_store_of_this_version_opens(tmp_path):
    root = unpacked(schema_version(), tmp_path)
    assert Store(root).query("FROM policies").height == 2
    assert plan_upgrade(root).changes == ()


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_is_refused_with_the_command_that_helps(tmp_path, version):
    root = unpacked(version, tmp_path)
    with pytest.raises(BadInput, match=rf"has schema version {version}.*headrace store upgrade"):
        Store(root)


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_is_brought_to_this_version(tmp_path, version):
    """Given an upgrade, then every row of before is there, new columns are null, new rows come in, and no part is touched."""
    root = unpacked(version, tmp_path)
    parts = {path: path.read_bytes() for path in root.glob("lake/*/*.parquet")}
    planned = plan_upgrade(root)
    assert planned.old == version and planned.changes
    assert {path: path.read_bytes() for path in root.glob("lake/*/*.parquet")} == parts
    assert upgrade(root) == planned
    store = Store(root)
    for table, rows in store.query("SELECT table_name, sum(rows) FROM parts GROUP BY 1").iter_rows():
        assert store.query(f"SELECT count(*) FROM {table}").item() == rows, table
    for table, schema in TABLES.items():
        assert [name for name in store.query(f"FROM {table} LIMIT 0").columns if name != "part_id"] == list(schema.columns), table
    assert {path: path.read_bytes() for path in root.glob("lake/*/*.parquet")} == parts
    assert write_report(store).stat().st_size > 10_000
    before = store.content_hash()
    store.commit([write(store, "rollouts", {"rollout_id": "new"}, n=99), write(store, "decisions", {"run": "new", "round": 1}, n=99)])
    assert store.query("SELECT count(*) FROM rollouts WHERE rollout_id = 'new'").item() == 1
    assert store.content_hash() != before
    assert [one for one in check(root) if one.kind != "model"] == []
    assert upgrade(root).changes == ()


@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_that_was_killed_is_called_again(tmp_path, version, monkeypatch):
    """Given a kill before the new catalogue is there, then a second call ends as an undisturbed one."""
    root, other = unpacked(version, tmp_path / "a"), unpacked(version, tmp_path / "b")
    with monkeypatch.context() as context:
        context.setattr(Store, "rebuild_catalogue", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            upgrade(root)
    upgrade(root)
    upgrade(other)
    assert Store(root).content_hash() == Store(other).content_hash()


@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_that_was_killed_in_the_log_loses_no_commit(tmp_path, version):
    """Given a log with the first commit alone, then the upgrade writes all of them."""
    root = unpacked(version, tmp_path)
    with closing(duckdb_catalog.connect(":memory:", root)) as connection:
        connection.execute(f"ATTACH '{root / 'catalog.duckdb'}' AS store (READ_ONLY)")
        connection.execute("USE store")
        commits = duckdb_catalog.list_commits(connection)
    CommitLog(root).add(dict(list(commits.items())[:1]))
    upgrade(root)
    assert Store(root).query("FROM parts").height == sum(map(len, commits.values()))


@pytest.mark.parametrize("version", OLDER)
def test_an_upgraded_store_is_repaired_as_any_other(tmp_path, version):
    """Given a lost catalogue after an upgrade, then it is built again, with the columns of today."""
    root = unpacked(version, tmp_path)
    upgrade(root)
    before = Store(root).query("FROM decisions ORDER BY ALL")
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (root / name).write_bytes(b"no database")
    repair(root)
    assert Store(root).query("FROM decisions ORDER BY ALL").equals(before)
