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
from storage.errors import BadInput, HeadraceError, OtherVersion
from storage.health.backups import back_up, restore
from storage.health.damage import check
from storage.health.repair import repair
from storage.health.upgrade import plan_upgrade, upgrade
from storage.health.weights import PRUNED
from storage.report.page import write_report
from storage.store import Store
from storage.tables import EARLIER_VERSIONS, TABLES, schema_version
from tests.storage.conftest import write

GOLDEN = {path.name[len("store-") : -len(".tar.xz")]: path for path in sorted((Path(__file__).parents[2] / "golden").glob("*.tar.xz"))}
OLDER = [version for version in GOLDEN if version != schema_version()]


def unpacked(version: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN[version]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def test_there_is_a_golden_store_of_this_version_and_of_an_older_one():
    assert schema_version() in GOLDEN, "tables.py has changed: add a golden store of the new version"
    assert tuple(OLDER) == EARLIER_VERSIONS


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


@pytest.mark.parametrize("version", OLDER)
def test_a_whole_older_store_is_not_damaged(tmp_path, version):
    """Given nothing but another version, then check and repair say what helps, and touch nothing."""
    root = unpacked(version, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for do in (check, repair):
        with pytest.raises(OtherVersion, match=rf"has schema version {version}.*headrace store upgrade"):
            do(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "catalog.lock"} == before


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_with_a_damaged_part_is_repaired_and_brought_to_this_version(tmp_path, version):
    root = unpacked(version, tmp_path)
    next(root.glob("lake/rollouts/*.parquet")).write_bytes(b"PAR1")
    with pytest.raises(HeadraceError, match=r"is damaged \(lake/rollouts/.*nothing was done: `headrace store repair"):
        upgrade(root)
    assert (root / "catalog.duckdb").exists()
    assert repair(root).forgotten["rollouts"] == 1
    with closing(Store(root).connect()) as connection:
        assert duckdb_catalog.versions(connection) == [version, schema_version()]


@pytest.mark.parametrize("version", OLDER)
def test_an_older_store_with_one_file_of_its_catalogue_is_upgraded(tmp_path, version):
    """Given a damaged catalogue beside a whole read copy, then the upgrade goes by that; with neither, the repair that it names works."""
    root = unpacked(version, tmp_path)
    (root / "catalog.duckdb").write_bytes(b"no database")
    upgrade(root)
    before = Store(root).query("FROM queries ORDER BY ALL")
    other = unpacked(version, tmp_path / "other")
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (other / name).write_bytes(b"no database")
    with pytest.raises(BadInput, match="headrace store repair"):
        upgrade(other)
    repair(other)
    assert Store(other).query("FROM queries ORDER BY ALL").equals(before)


def altered(root: Path, *statements: str) -> None:
    """Writes into the catalogue, whatever its version."""
    with closing(duckdb_catalog.connect(str(root / "catalog.duckdb"), root)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO schema_version VALUES ('ffffffffffffffff')",
        "INSERT INTO parts VALUES ('future-1', 'future', 'lake/future/future-1-2.parquet', 1, '2', now())",
    ],
    ids=["version", "table"],
)
def test_a_store_of_a_newer_version_is_not_touched(tmp_path, statement):
    """Given a version or a table that this one does not know, then the upgrade is refused, and the catalogue stays."""
    root = unpacked(OLDER[0], tmp_path)
    altered(root, statement)
    before = (root / "catalog.duckdb").read_bytes()
    with pytest.raises(BadInput, match=r"a newer (or unreleased )?one wrote it, use that"):
        upgrade(root)
    assert (root / "catalog.duckdb").read_bytes() == before


def test_the_catalogue_of_before_stays_until_the_new_one_is_built(tmp_path, monkeypatch):
    root = unpacked(OLDER[0], tmp_path)
    monkeypatch.setattr(duckdb_catalog, "register_all", lambda *_: (_ for _ in ()).throw(HeadraceError("the disk is full")))
    with pytest.raises(HeadraceError, match="the disk is full"):
        upgrade(root)
    assert plan_upgrade(root).old == OLDER[0]


def test_a_backup_of_an_older_version_is_restored_and_then_upgraded(tmp_path):
    root = unpacked(OLDER[0], tmp_path)
    upgrade(root)
    (root / "models").mkdir()
    (root / "models" / PRUNED).write_text("{}")  # no model is in a golden store
    made = back_up(Store(root), str(tmp_path / "backup"))
    older = root / f"catalog.{OLDER[0]}.duckdb"
    (tmp_path / f"backup/backups/{made.name}/catalog.duckdb").write_bytes(older.read_bytes())
    restored = restore(str(tmp_path / "backup"), tmp_path / "new")
    assert restored.is_other_version and not made.is_other_version
    upgrade(tmp_path / "new")
    assert Store(tmp_path / "new").content_hash() == made.content_hash
