"""A backup is consistent while commits go on, copies only what is new, and can be killed and called again."""

from __future__ import annotations

import datetime
import json
import os
import threading
from pathlib import Path

import fsspec
import polars as pl
import pytest

from storage.errors import BadInput, HeadraceError
from storage.health.backups import back_up, backups, restore
from storage.health.damage import look
from storage.health.prune import find_prunable, prune
from storage.health.repair import repair
from storage.health.sizes import sizes
from storage.store import Store
from tests.storage.conftest import write
from tests.storage.health.test_damage_and_repair import check, work

DAY = datetime.timedelta(days=1)
NOON = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    work(made)
    return made


def draw(store: Store, number: int) -> None:
    store.commit([write(store, "rollouts", {"rollout_id": f"late-{number}", "messages": "x"}, n=1000 + number)])


@pytest.mark.parametrize("kind", ["folder", "URL"])
def test_a_restored_store_is_the_one_that_was_backed_up(store, tmp_path, kind):
    where = str(tmp_path / "backup") if kind == "folder" else f"memory://{tmp_path.name}"
    store.journal("notes").append("a", 1)
    made = back_up(store, where, at=NOON)
    restore(where, tmp_path / "new")
    new = Store(tmp_path / "new")
    assert new.content_hash() == store.content_hash() == made.content_hash
    assert new.query("SELECT * EXCLUDE (path) FROM parts ORDER BY ALL").equals(
        store.query("SELECT * EXCLUDE (path) FROM parts ORDER BY ALL")
    )
    assert new.journal("notes").entries() == {"a": 1}
    assert check(new.root) == []


def test_only_new_files_are_copied_and_every_state_can_be_restored(store, tmp_path):
    where = str(tmp_path / "backup")
    first = back_up(store, where, at=NOON)
    draw(store, 1)
    second = back_up(store, where, at=NOON + DAY)
    assert (first.copied, second.copied) == (first.files, 1)
    assert backups(where) == [first.name, second.name]
    restore(where, tmp_path / "old", name=first.name)
    assert Store(tmp_path / "old").content_hash() == first.content_hash != second.content_hash


def test_commits_may_go_on(store, tmp_path):
    """Given a process that commits all the time, then each of five backups is a state that the store had."""
    states, stop = {store.content_hash()}, threading.Event()

    def commit() -> None:
        writer = Store(store.root)
        for number in range(10_000):
            if stop.is_set():
                return
            draw(writer, number)
            states.add(writer.content_hash())

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        made = [back_up(store, str(tmp_path / "backup"), at=NOON + n * DAY) for n in range(5)]
    finally:
        stop.set()
        thread.join()
    assert len({one.content_hash for one in made}) > 1
    assert {one.content_hash for one in made} <= states
    for one in made:
        restore(str(tmp_path / "backup"), tmp_path / one.name, name=one.name)


def test_a_backup_that_was_killed_is_none_and_goes_on(store, tmp_path, monkeypatch):
    """Given a copy that fails at the third file, then no backup stands there, and the next call copies the rest."""
    where = str(tmp_path / "backup")
    put, calls = fsspec.implementations.local.LocalFileSystem.put_file, []

    def fail(*arguments, **named):
        calls.append(1)
        if len(calls) == 4:
            raise OSError("the disk is gone")
        return put(*arguments, **named)

    monkeypatch.setattr(fsspec.implementations.local.LocalFileSystem, "put_file", fail)
    with pytest.raises(HeadraceError, match="cannot be reached: the disk is gone"):
        back_up(store, where, at=NOON)
    assert backups(where) == []
    with pytest.raises(BadInput, match="has no backup; it has none"):
        restore(where, tmp_path / "new")
    made = back_up(store, where, at=NOON)
    assert made.copied == made.files - 3


def test_a_damaged_store_is_not_backed_up(store, tmp_path):
    """Given a part that was cut after a backup, then the next backup is refused, and the whole copy stays."""
    where = tmp_path / "backup"
    back_up(store, str(where), at=NOON)
    part = next(store.root.glob("lake/rollouts/*.parquet"))
    content = part.read_bytes()
    part.write_bytes(content[:100])
    with pytest.raises(HeadraceError, match="is damaged"):
        back_up(store, str(where), at=NOON + DAY)
    assert (where / part.relative_to(store.root)).read_bytes() == content
    (store.root / "lake/_commits.jsonl").unlink()  # as in a store of a version without a log: only the size tells
    with pytest.raises(HeadraceError, match="is damaged"):
        back_up(store, str(where), at=NOON + DAY)
    assert (where / part.relative_to(store.root)).read_bytes() == content


def test_other_weights_of_a_stage_stand_beside_the_first(store, tmp_path):
    """Given a stage that was trained again, then both states of the model can be restored."""
    where = str(tmp_path / "backup")
    first = back_up(store, where, at=NOON)
    cut = store.root / "models/stage-1/model/model.safetensors"
    cut.write_bytes(b"weights X")
    repair(store.root)
    assert work(Store(store.root)) == first.content_hash
    back_up(Store(store.root), where, at=NOON + DAY)
    restore(where, tmp_path / "old", name=first.name)
    assert check(tmp_path / "old") == []


def test_a_backup_that_was_cut_is_not_restored(store, tmp_path):
    where = tmp_path / "backup"
    back_up(store, str(where), at=NOON)
    part = next(where.glob("lake/rollouts/*.parquet"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(HeadraceError, match=r"was restored, but is damaged: lake/rollouts/"):
        restore(str(where), tmp_path / "new")


def test_a_manifest_cannot_name_files_outside_the_store(store, tmp_path):
    where = tmp_path / "backup"
    made = back_up(store, str(where), at=NOON)
    manifest = where / "backups" / made.name / "manifest.json"
    manifest.write_text(json.dumps({"content_hash": "0", "files": {"../outside": "lake/x"}}))
    with pytest.raises(BadInput, match="outside a store"):
        restore(str(where), tmp_path / "new")


def test_a_restore_is_refused_over_a_store_and_of_altered_files(store, tmp_path):
    where = tmp_path / "backup"
    back_up(store, str(where), at=NOON)
    with pytest.raises(BadInput, match="is a store already"):
        restore(str(where), store.root)
    with pytest.raises(BadInput, match="has no backup yesterday"):
        restore(str(where), tmp_path / "new", name="yesterday")
    manifest = where / "backups" / backups(str(where))[0] / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"content_hash": "0" * 64}))
    with pytest.raises(HeadraceError, match=r"has another content than its backup .* says"):
        restore(str(where), tmp_path / "new")


def test_an_empty_store_and_an_unknown_url_are_refused(tmp_path):
    with pytest.raises(BadInput, match="has no commit yet"):
        back_up(Store(tmp_path / "none"), str(tmp_path / "backup"))
    with pytest.raises(BadInput, match="nosuch"):
        backups("nosuch://bucket/path")


def test_what_can_go_is_named_and_goes(store):
    """Given a model that was promoted, one that a later stage goes on from, and one of neither kind, then the third can go, with old
    left-overs; rows and hash stay."""
    expected = store.content_hash()
    store.commit([write(store, "promotions", {"policy_id": "p0", "position": 0, "passed": True, "checks": "{}"})])
    store.commit([write(store, "stages", {"stage_id": "s", "name": "s", "input_policy_id": "p1"})])
    expected = store.content_hash()
    (store.root / "models/stage-0/checkpoints").mkdir()
    left = [store.root / "models/stage-9/log.txt", store.root / "lake/_work/run-1/rules.parquet", store.root / "lake/rollouts/.tmp-x"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    write(store, "rollouts", {"rollout_id": "never committed", "messages": "x"}, n=77)
    assert find_prunable(store) == []
    assert find_prunable(store, older_than_s=0) == []  # the latest model stays
    store.commit([write(store, "policies", {"policy_id": "p9", "path": "openai:m", "weights_hash": "x"}, n=99)])
    expected = store.content_hash()
    assert [one.path.relative_to(store.root) for one in find_prunable(store, older_than_s=0)] == [Path("models/stage-2/model")]
    for path in (*store.root.rglob("*"),):
        os.utime(path, (1, 1))
    found = find_prunable(store, older_than_s=0)
    assert sorted(one.what for one in found) == [
        "a model that was not promoted",
        "a part that was never committed",
        "a stage that was not finished",
        "a temporary file",
        "checkpoints of a finished stage",
        "intermediate rows of a killed run",
    ]
    assert prune(store, found) == sum(one.size_bytes for one in found)
    assert find_prunable(store, older_than_s=0) == []
    assert store.content_hash() == expected
    assert check(store.root) == []


def test_a_model_that_a_begun_stage_goes_on_from_stays(store):
    """Given a stage that was killed in the middle, then its input model stays, so that the stage can be resumed."""
    begun = store.root / "models/stage-9"
    begun.mkdir()
    (begun / "spec.json").write_text(json.dumps({"model_in": str(store.root / "models/stage-2/model")}))
    models = {one.path.parent.name for one in find_prunable(store, older_than_s=0) if one.path.name == "model"}
    assert models == {"stage-0", "stage-1"}


def test_a_budget_takes_the_oldest_models(store):
    assert [one.path.parent.name for one in find_prunable(store, keep_bytes=20)] == ["stage-0", "stage-1"]


def test_sizes_name_every_table_and_the_rest(store):
    frame = sizes(store)
    row = frame.row(by_predicate=pl.col("what") == "rollouts", named=True)
    on_disk = sum(path.stat().st_size for path in store.root.glob("lake/rollouts/*"))
    assert (row["parts"], row["rows"], row["size_bytes"]) == (3, 120, on_disk)
    assert {"catalogue", "models"} <= set(frame["what"])
    assert row["oldest"] < row["newest"]


def test_a_restored_store_has_its_log(store, tmp_path):
    """Given a restore, then damage is seen at once, as in the store of before, and the schema versions are known without the catalogue."""
    store.log.note_versions(["of before"])
    Store.rebuild_catalogue(store.root)
    back_up(store, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "new")
    new = Store(tmp_path / "new")
    assert new.log.versions() == ["of before"] and len(new.log.parts()) == len(store.log.parts())
    part = next(new.root.glob("lake/rollouts/*.parquet"))
    part.write_bytes(part.read_bytes()[:100])
    new.commit([write(new, "tags", {"task_id": "new"}, n=99)])
    assert [one.path for one in look(new)] == [part.relative_to(new.root)]


@pytest.mark.parametrize("content", ["{", "[1]", "{}", '{"content_hash": "0", "files": [1]}', '{"content_hash": "0", "files": {"a": 7}}'])
def test_a_damaged_manifest_is_told(store, tmp_path, content):
    where = str(tmp_path / "backup")
    made = back_up(store, where)
    (tmp_path / "backup/backups" / made.name / "manifest.json").write_text(content)
    for use in (lambda: restore(where, tmp_path / "new"), lambda: repair(store.root, backup=where)):
        with pytest.raises(HeadraceError, match=r"manifest\.json is damaged: name an earlier backup"):
            use()


@pytest.mark.parametrize("pattern", ["lake/rollouts/*.parquet", "models/*/model/model.safetensors", "backups/*/catalog.duckdb"])
def test_a_backup_that_lacks_a_file_is_told(store, tmp_path, pattern):
    back_up(store, str(tmp_path / "backup"))
    gone = next((tmp_path / "backup").glob(pattern))
    gone.unlink()
    with pytest.raises(HeadraceError, match=rf"lacks a file of its backup .*{gone.name}.*name another with --at"):
        restore(str(tmp_path / "backup"), tmp_path / "new")


def test_whole_parts_that_a_repair_forgot_stay(store):
    """Given forgotten parts of long ago, also in a log that was written again since, then none of them can go."""
    next(store.root.glob("lake/rollouts/*.parquet")).write_bytes(b"PAR1")
    assert repair(store.root).forgotten["verdicts"] == 1
    again = Store(store.root)
    again.log.rewrite({}, [])
    assert look(again) == [] and again.log.forgotten()
    for path in again.root.glob("lake/*/*.parquet"):
        os.utime(path, (1, 1))
    assert [one.what for one in find_prunable(again, older_than_s=1e9)] == []
