"""A shared store of an older version: one machine's upgrade brings it to this version, and each machine follows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import fsspec
import pytest

from storage import duckdb_catalog
from storage.errors import BadInput
from storage.health.damage import check
from storage.health.upgrade import upgrade
from storage.object_store.shared_log import SharedLog, open_log
from storage.store import Store
from storage.tables import TABLES, schema_version
from tests.storage.health.test_upgrade import OLDER, unpacked
from tests.storage.object_store.test_shared_log import COMMITS, commit, copy_of

numbers = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    yield f"memory://upgraded/{next(numbers)}"
    fsspec.filesystem("memory").store.clear()


def shared_by_older(url: str, version: str, folder: Path) -> Path:
    """The folder of a machine whose Headrace has an older version, and that shares its store."""
    root = unpacked(version, folder)
    with closing(duckdb_catalog.connect(":memory:", root)) as connection:
        connection.execute(f"ATTACH '{root / 'catalog.duckdb'}' AS store (READ_ONLY)")
        connection.execute("USE store")
        commits = duckdb_catalog.list_commits(connection)
    log = open_log(root, url)
    log.adopt(commits, [version])
    log.save()
    return root


def rows_of(store: Store) -> dict[str, int]:
    return {table: store.query(f"SELECT count(*) FROM {table}").item() for table in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize("version", OLDER)
def test_a_new_machine_joins_a_store_that_was_upgraded(url: str, tmp_path: Path, version: str) -> None:
    """Given an upgrade and no commit after it, then a new folder gets every row of before, and takes part."""
    root = shared_by_older(url, version, tmp_path / "old")
    upgrade(root)
    new, upgraded = copy_of(url, tmp_path / "new"), Store(root)
    assert new.content_hash() == upgraded.content_hash() and rows_of(new) == rows_of(upgraded)
    assert new.query(COMMITS).equals(upgraded.query(COMMITS))
    commit(new, 1)
    upgraded.pull()
    assert new.content_hash() == upgraded.content_hash()
    before = rows_of(new)
    Store.rebuild_catalogue(new.root)
    assert rows_of(new) == before
    assert [one for one in check(new.root) if one.kind != "model"] == []


@pytest.mark.slow
def test_a_new_machine_joins_an_upgraded_store_on_s3(s3: str, tmp_path: Path) -> None:
    root = shared_by_older(f"{s3}/upgraded", OLDER[0], tmp_path / "old")
    upgrade(root)
    assert copy_of(f"{s3}/upgraded", tmp_path / "new").content_hash() == Store(root).content_hash()


@pytest.mark.slow
def test_a_store_that_was_upgraded_before_it_was_shared_can_be_joined(url: str, tmp_path: Path) -> None:
    root = unpacked(OLDER[0], tmp_path / "old")
    upgrade(root)
    assert rows_of(copy_of(url, tmp_path / "new")) != rows_of(copy_of(url, root))
    assert rows_of(copy_of(url, tmp_path / "newer")) == rows_of(Store(root))


@pytest.mark.slow
def test_machines_of_another_version_than_the_store_are_refused(url: str, tmp_path: Path) -> None:
    """Given a newer Headrace before the upgrade, or an older one after it, then it is refused in a line, with nothing fetched."""
    version = OLDER[0]
    root = shared_by_older(url, version, tmp_path / "old")
    behind = f"has schema version {version}, this Headrace has {schema_version()}: use the same Headrace"
    with pytest.raises(BadInput, match=behind):
        copy_of(url, tmp_path / "early")
    assert not (tmp_path / "early" / "lake").exists()
    upgrade(root)
    older = SharedLog.of(root)
    assert older is not None
    older.applied -= 1  # as a copy that an older Headrace keeps
    with pytest.raises(BadInput, match=f"has schema version {schema_version()}"):
        next(older.missed([version]))
    older.applied = 0
    with pytest.raises(BadInput, match=f"has schema version {schema_version()}"):
        next(older.missed([version]))


@pytest.mark.slow
def test_each_machine_upgrades_its_own_copy_and_one_of_them_tells_it(url: str, tmp_path: Path) -> None:
    """Given two copies of an older store, of which one lacks a commit, then both can be upgraded, in any order, killed or not."""
    version = OLDER[0]
    whole, lacking = shared_by_older(url, version, tmp_path / "a"), shared_by_older(url, version, tmp_path / "b")
    with closing(duckdb_catalog.connect(str(lacking / "catalog.duckdb"), lacking)) as connection:
        last = max(duckdb_catalog.list_commits(connection))
        for (view,) in connection.execute("SELECT view_name FROM duckdb_views WHERE NOT internal").fetchall():
            connection.execute(f"DROP VIEW {view}")
        connection.execute("DELETE FROM parts WHERE epoch_us(committed_at) = ?", [last])
    log = SharedLog.of(lacking)
    assert log is not None
    log.applied -= 1
    log.save()
    (lacking / "lake/_commits.jsonl").unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "announce_version", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            upgrade(lacking)
    upgrade(lacking)
    upgrade(whole)
    log = SharedLog.of(whole)
    assert log is not None and log.read(log.applied) is None and log.applied == len(set(Store(whole).query(COMMITS)["us"])) + 1
    assert Store(whole).content_hash() == Store(lacking).content_hash() == copy_of(url, tmp_path / "c").content_hash()


def test_an_older_headrace_cannot_bring_a_store_back(url: str, tmp_path: Path) -> None:
    """Given a store that a newer Headrace has upgraded, then `upgrade` of this one is refused."""
    store = copy_of(url, tmp_path / "here")
    commit(store, 1)
    log = SharedLog.of(store.root)
    assert log is not None and log.append([], 1, [schema_version(), "newer"])
    with pytest.raises(BadInput, match="has schema version newer"):
        upgrade(store.root)
    with pytest.raises(BadInput, match="has schema version newer"):
        commit(store, 2)
