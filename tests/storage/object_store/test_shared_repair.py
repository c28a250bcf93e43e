"""A machine's damaged copy of a shared store is repaired from the object store, and nothing is forgotten that is whole there."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import polars as pl
import pytest

from storage.errors import HeadraceError
from storage.health.backups import back_up
from storage.health.damage import check, look
from storage.health.repair import repair
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from tests.storage.health.test_damage_and_repair import KINDS, cut, part_file, work
from tests.storage.object_store.test_shared_log import COMMITS, copy_of

numbers = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    yield f"memory://repaired/{next(numbers)}"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def store(url: str, tmp_path: Path) -> Store:
    made = copy_of(url, tmp_path / "store")
    work(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("path_of", "how"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_nothing_is_forgotten(store: Store, path_of: Callable[[Path], Path], how: Callable[[Path], None]) -> None:
    """Given a damaged file of any kind, then the repair of the copy ends with the commits of before."""
    expected, commits, path = store.content_hash(), store.query(COMMITS), path_of(store.root)
    how(path)
    if path.name == "model.safetensors" and path.exists():
        path.write_bytes(b"weights X")
    done = repair(store.root)
    again = Store(store.root)
    assert done.damages and done.forgotten == {}
    assert again.content_hash() == expected and again.query(COMMITS).equals(commits)
    assert check(store.root) == [] and look(Store(store.root)) == []


def test_a_copy_with_other_bytes_of_the_same_rows_is_as_good(store: Store, url: str) -> None:
    """Given the part as another machine may have written it, then a repair takes it, and no flow refuses the store."""
    expected, part = store.content_hash(), part_file(store.root)
    pl.read_parquet(part).write_parquet(part, compression="uncompressed")
    UrlFiles(url).write(str(part.relative_to(store.root)), part.read_bytes())
    cut(part)
    assert repair(store.root).forgotten == {} and look(Store(store.root)) == []
    assert Store(store.root).content_hash() == expected


@pytest.mark.slow
def test_a_part_and_a_model_come_from_s3(s3: str, tmp_path: Path) -> None:
    store = copy_of(f"{s3}/repaired", tmp_path / "store")
    expected = work(store)
    damaged = part_file(store.root)
    cut(damaged)
    shutil.rmtree(store.root / "models/stage-1")
    done = repair(store.root)
    assert set(done.restored) == {damaged.relative_to(store.root), Path("models/stage-1/model")} and done.forgotten == {}
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_commits_come_from_the_log_if_catalogue_and_list_are_lost(store: Store) -> None:
    """Given that a part is gone too, then it comes back with the commits, in the order that all machines tell."""
    expected, commits = store.content_hash(), store.query(COMMITS)
    for path in (store.log.path, store.root / "catalog.duckdb", store.root / "catalog.read.duckdb"):
        path.write_bytes(b"nothing")
    part_file(store.root).unlink()
    assert repair(store.root).forgotten == {}
    again = Store(store.root)
    assert again.content_hash() == expected and again.query(COMMITS).equals(commits) and check(store.root) == []


def test_what_is_not_whole_under_the_url_comes_from_a_backup_or_is_forgotten(store: Store, url: str, tmp_path: Path) -> None:
    back_up(store, str(tmp_path / "backup"))
    part, model = part_file(store.root), store.root / "models/stage-1/model/model.safetensors"
    name, files = str(part.relative_to(store.root)), UrlFiles(url)
    files.write(name, b"no part")
    (weights,) = [each for each in files.names("models") if each.startswith("models/stage-1-") and each.endswith(".safetensors")]
    files.write(weights, b"other")
    for backup in (str(tmp_path / "backup"), None):
        part.write_bytes(b"no part")
        model.unlink()
        forgotten = repair(store.root, backup=backup).forgotten
        assert bool(forgotten) == (backup is None) and check(store.root) == []


def test_while_the_object_store_is_out_of_reach_nothing_is_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(part_file(store.root))

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "exists", fail)
        with pytest.raises(HeadraceError, match="cannot be reached: no route"):
            repair(store.root)
    assert repair(store.root).forgotten == {} and check(store.root) == []


def test_while_the_object_store_is_out_of_reach_a_lost_catalogue_is_built_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given that `lake/_commits.jsonl` and the parts are whole."""
    expected = store.content_hash()
    for path in (store.root / "catalog.duckdb", store.root / "catalog.read.duckdb"):
        path.write_bytes(b"nothing")

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "cat_file", fail)
        assert repair(store.root).forgotten == {}
    assert Store(store.root).content_hash() == expected and check(store.root) == []


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 1}'])
def test_a_damaged_object_or_note_is_told_with_its_name(store: Store, url: str, tmp_path: Path, content: bytes) -> None:
    UrlFiles(url).write("log/00000001.json", content)
    with pytest.raises(HeadraceError, match=r"log/00000001\.json is damaged: take this object"):
        copy_of(url, tmp_path / "new").pull()
    (store.root / "catalog.shared.json").write_bytes(content)
    with pytest.raises(HeadraceError, match=r"catalog\.shared\.json is damaged: name a new folder"):
        repair(store.root)
