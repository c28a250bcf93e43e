"""Every kind of damage is found and named; after a repair the same work ends with the content of before."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storage.commits.commit_log import CommitLog
from storage.errors import BadInput, HeadraceError
from storage.health.backups import back_up
from storage.health.damage import check, look
from storage.health.repair import repair
from storage.health.weights import check_stage_weights
from storage.parts import DamagedPart, Part, content_hash, part_of_path, read_part
from storage.store import Store
from storage.tables import TABLES
from tests.storage.conftest import funnel_parts, write
from tests.storage.conftest import rows as rows_of

COMMITS = 3


def work(store: Store) -> str:
    """Three commits, each of a funnel, draws, a policy with its model, and an annotation; the content hash at the end."""
    for number in range(COMMITS):
        if not store.query("SELECT 1 FROM policies WHERE policy_id = ?", [f"p{number}"]).height:
            model = store.root / f"models/stage-{number}/model"
            model.mkdir(parents=True, exist_ok=True)
            weights = f"weights {number}".encode()
            (model / "model.safetensors").write_bytes(weights)
            (model / "config.json").write_text("{}")
            digest = hashlib.sha256(weights).hexdigest()
            (model.parent / "result.json").write_text(json.dumps({"weights_hash": digest}))
            policy = {"policy_id": f"p{number}", "path": f"models/stage-{number}/model", "weights_hash": digest}
            draws = [{"rollout_id": f"{number}-{draw}", "messages": random.Random(draw).randbytes(300).hex()} for draw in range(40)]
            parts = [write(store, "policies", policy, n=number), write(store, "rollouts", *draws, n=number)]
            store.commit([*parts, *funnel_parts(store, f"run-{number}", n=number)])
    return store.content_hash()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    work(made)
    return made


def part_file(root: Path, table: str = "rollouts") -> Path:
    return sorted((root / "lake" / table).glob("*.parquet"))[0]


def flip(path: Path) -> None:
    """Inverts 200 bytes in the middle, and keeps size and time."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle - 100 : middle + 100] = bytes(255 - byte for byte in content[middle - 100 : middle + 100])
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def exchange_rows(path: Path) -> None:
    """A readable part with other rows."""
    pl.read_parquet(path).with_columns(messages=pl.lit("other")).write_parquet(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def scribble(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


Kind = tuple[str, Callable[[Path], Path], Callable[[Path], None]]
KINDS: list[Kind] = [
    *((f"draws {how.__name__}", part_file, how) for how in (flip, cut, exchange_rows, empty, Path.unlink, as_folder)),
    *((f"verdicts {how.__name__}", lambda root: part_file(root, "verdicts"), how) for how in (flip, cut, Path.unlink)),
    *((f"policies {how.__name__}", lambda root: part_file(root, "policies"), how) for how in (cut, Path.unlink)),
    *((f"catalogue {how.__name__}", lambda root: root / "catalog.duckdb", how) for how in (scribble, cut, empty, Path.unlink)),
    *((f"read copy {how.__name__}", lambda root: root / "catalog.read.duckdb", how) for how in (scribble, cut, empty)),
    *((f"weights {how.__name__}", lambda root: root / "models/stage-1/model/model.safetensors", how) for how in (flip, cut, Path.unlink)),
    ("model's settings", lambda root: root / "models/stage-1/model/config.json", scribble),
]


@pytest.mark.parametrize(("path_of", "how"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_damage_is_found_and_healed(store, path_of, how):
    """Given a damaged file, then the check names it, the repair sets it aside, and the same work ends with the hash of before."""
    expected, path = store.content_hash(), path_of(store.root)
    how(path)
    if path.name == "model.safetensors" and how is flip:
        path.write_bytes(b"weights X")
    found = check(store.root)
    assert len(found) == 1 and (store.root / found[0].path in (path, path.parent) or found[0].kind == "catalogue")
    done = repair(store.root)
    assert done.damages[0] == found[0]
    assert work(Store(store.root)) == expected
    assert check(store.root) == []


@pytest.mark.parametrize("how", [cut, exchange_rows, Path.unlink, empty])
def test_every_flow_sees_it_at_its_start(store, how):
    """Given a part that is cut, altered or gone, then names, sizes and times tell it, and nothing else is told."""
    how(part_file(store.root))
    assert [one.path for one in look(store)] == [part_file(store.root).relative_to(store.root)] or how is Path.unlink
    assert len(look(store)) == 1


def test_a_copied_store_is_read_once(store):
    """Given other times of files with the right rows, then nothing is damaged, and the next look need not read them."""
    for path in store.root.glob("lake/rollouts/*"):
        os.utime(path, (1, 1))
    assert look(store) == []
    assert {one.changed_ns for one in store.log.parts() if one.part.table == "rollouts"} == {10**9}


@pytest.mark.parametrize("how", [cut, scribble, Path.unlink])
def test_a_query_names_the_part_that_it_cannot_read(store, how):
    how(part_file(store.root))
    gone = next(path for path in Store(store.root).query("SELECT path FROM parts WHERE table_name = 'rollouts'")["path"])
    with pytest.raises(DamagedPart, match=r"rollouts-.*parquet (is missing|is damaged).*headrace store repair"):
        Store(store.root).query("SELECT sum(length(messages)) FROM rollouts")
    assert gone


@pytest.mark.parametrize("how", [cut, flip])
def test_a_catalogue_that_opens_but_cannot_be_read_is_named(store, how):
    """Given a read copy whose beginning is whole, so that it opens."""
    many = [{"annotation_id": str(at), "item_id": random.Random(at).randbytes(200).hex()} for at in range(20_000)]
    store.commit([write(store, "by_hand", *many)])
    how(store.root / "catalog.read.duckdb")
    with pytest.raises(BadInput, match=r"catalog\.read\.duckdb cannot be opened as a store's catalogue.*headrace store repair"):
        for table in TABLES:
            Store(store.root).query(f"SELECT * FROM {table}")


def test_a_part_that_cannot_be_read_is_named(store):
    path = part_file(store.root).relative_to(store.root)
    flip(store.root / path)
    with pytest.raises(DamagedPart, match=str(path)):
        read_part(store.root, path)


@pytest.mark.parametrize("with_log", [True, False])
def test_a_catalogue_is_built_from_the_lake(store, with_log):
    """Given no file of the catalogue, and with or without the log, then every table has its rows again."""
    columns = dict.fromkeys(("policies", "rollouts", "queries", "verdicts", "funnel"), "*") | {"parts": "* EXCLUDE (committed_at)"}
    before = {name: store.query(f"SELECT {shown} FROM {name} ORDER BY ALL") for name, shown in columns.items()}
    at = store.query("SELECT part_id, committed_at FROM parts ORDER BY ALL")
    for path in store.root.glob("catalog.*duckdb"):
        path.unlink()
    if not with_log:
        store.log.path.unlink()
        (store.root / "catalog.duckdb").write_bytes(b"no database")
    if with_log:
        assert [one.kind for one in look(Store(store.root))] == ["catalogue"]
    repair(store.root)
    again = Store(store.root)
    for name, rows in before.items():
        assert again.query(f"SELECT {columns[name]} FROM {name} ORDER BY ALL").equals(rows), name
    assert again.query("SELECT part_id, committed_at FROM parts ORDER BY ALL").equals(at) == with_log


def test_a_lake_that_is_gone_with_its_log_is_made_again(store):
    expected = store.content_hash()
    shutil.rmtree(store.root / "lake")
    assert repair(store.root).forgotten["rollouts"] == COMMITS
    assert check(store.root) == []
    assert work(Store(store.root)) == expected and check(store.root) == []


def test_commits_that_stand_by_themselves_stay(store):
    """Given one damaged part, then only what was committed with it is forgotten, and its whole parts are taken again."""
    damaged = part_file(store.root)
    cut(damaged)
    done = repair(store.root)
    assert done.forgotten == {"funnel": 1, "policies": 1, "queries": 1, "rollouts": 1, "verdicts": 1}
    assert done.commands == ("headrace curate", "headrace train", "headrace tag")
    assert Store(store.root).query("FROM policies").height == COMMITS - 1
    assert done.aside is not None and [path.name for path in done.aside.rglob("*.parquet")] == [damaged.name]


def test_rows_of_the_catalogue_are_written_again(store):
    """Given a damaged part of a table whose rows lie in the catalogue, then it is written from them, and nothing is forgotten."""
    store.commit([write(store, "by_hand", {"annotation_id": "a", "item_id": "q-0", "author": "ada", "verdict": "keep"})])
    expected, path = store.content_hash(), part_file(store.root, "by_hand")
    cut(path)
    done = repair(store.root)
    assert (done.forgotten, done.restored) == ({}, (path.relative_to(store.root),))
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_what_people_wrote_is_not_made_again(store):
    """Given that the catalogue is lost too, then the repair says that no command makes the annotations again."""
    store.commit([write(store, "by_hand", {"annotation_id": "a", "item_id": "q-0", "author": "ada", "verdict": "keep"})])
    cut(part_file(store.root, "by_hand"))
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (store.root / name).write_bytes(b"no database")
    assert "no command makes table by_hand again" in repair(store.root).notes[0]


def test_tombstones_are_never_forgotten(store, tmp_path):
    """Given damaged tombstones of a withdrawal and a lost catalogue, then the repair refuses: withdrawn rows would come back."""
    store.commit([write(store, "withdrawn", {"withdrawal_id": "w", "kind": "file", "id": "q-0"})])
    back_up(store, str(tmp_path / "backup"))
    expected = store.content_hash()
    cut(part_file(store.root, "withdrawn"))
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (store.root / name).write_bytes(b"no database")
    with pytest.raises(BadInput, match=r"tombstones of a withdrawal.*give --backup"):
        repair(store.root)
    repair(store.root, backup=str(tmp_path / "backup"))
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_a_kill_between_the_catalogue_and_the_log_costs_nothing(store, monkeypatch):
    """Given a commit whose line in the log was never written, then flows work, and the next commit writes it."""
    with monkeypatch.context() as context:
        context.setattr(CommitLog, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=98)])
    again = Store(store.root)
    assert look(again) == [] and check(store.root) == []
    again.commit([write(again, "rollouts", {"rollout_id": "newer", "messages": "x"}, n=99)])
    assert {one.part.part_id for one in again.log.parts()} == set(again.query("SELECT part_id FROM parts")["part_id"])


def test_an_older_catalogue_is_no_catalogue(store):
    """Given that somebody has put an older catalogue back, then flows are refused, and the repair brings the later commits back."""
    kept = {name: (store.root / name).read_bytes() for name in ("catalog.duckdb", "catalog.read.duckdb")}
    store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=99)])
    expected = store.content_hash()
    for name, content in kept.items():
        (store.root / name).write_bytes(content)
    assert [one.problem.partition(",")[0] for one in look(Store(store.root))] == ["lacks 1 logged parts"]
    repair(store.root)
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_a_check_beside_commits_disturbs_nobody(store):
    """Given a process that commits all the time, then no commit fails, and no check finds damage."""
    stop, failed = threading.Event(), []

    def commit() -> None:
        writer = Store(store.root)
        for number in range(10_000):
            if stop.is_set():
                return
            try:
                writer.commit([write(writer, "rollouts", {"rollout_id": f"late-{number}", "messages": "x"}, n=1000 + number)])
            except HeadraceError as error:
                failed.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        found = [one for _ in range(4) for one in check(store.root)]
    finally:
        stop.set()
        thread.join()
    assert (found, failed) == ([], [])


def test_many_commits_are_built_again_at_once(store):
    """Given many commits, then the catalogue that is built of them has the rows, the hidden repeats and the times of before."""
    for number in range(12):
        rows = [{"rollout_id": f"late-{number}", "messages": "x"}, {"rollout_id": "again and again", "messages": str(number)}]
        store.commit([write(store, "rollouts", *rows, n=1000 + number)])
    queries = ("FROM rollouts ORDER BY ALL", "FROM shadowed ORDER BY ALL", "FROM parts ORDER BY ALL", "FROM policies ORDER BY ALL")
    before = [store.query(sql) for sql in queries]
    (store.root / "catalog.duckdb").unlink()
    (store.root / "catalog.read.duckdb").unlink()
    began = time.process_time()
    repair(store.root)
    assert time.process_time() - began < 60
    for sql, rows in zip(queries, before, strict=True):
        assert Store(store.root).query(sql).equals(rows), sql


def test_a_flipped_page_is_named(store):
    """Given a part whose footer is whole and whose rows are not, then the query that reads it names it."""
    path = part_file(store.root)
    flip(path)
    with pytest.raises(DamagedPart, match=path.name):
        Store(store.root).query("SELECT sum(length(messages)) FROM rollouts")


def test_a_part_that_was_cut_before_its_commit_is_written_again(store):
    part = write(store, "rollouts", {"rollout_id": "new", "messages": "x" * 5_000}, n=99)
    cut(store.root / part.path)
    store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x" * 5_000}, n=99)])
    assert check(store.root) == []


def test_a_model_is_restored_with_its_stage_and_only_with_its_weights(store, tmp_path):
    """Given lost weights, then the stage comes back whole from the backup; a backup with other weights is not taken."""
    back_up(store, str(tmp_path / "backup"))
    stage = store.root / "models/stage-1"
    before = sorted(path.relative_to(stage) for path in stage.rglob("*"))
    (stage / "model/model.safetensors").unlink()
    assert repair(store.root, backup=str(tmp_path / "backup")).restored == (Path("models/stage-1/model"),)
    assert sorted(path.relative_to(stage) for path in stage.rglob("*")) == before and check(store.root) == []
    (kept,) = tmp_path.glob("backup/models/stage-1.*/model/model.safetensors")
    kept.write_bytes(b"other")
    (stage / "model/model.safetensors").unlink()
    assert repair(store.root, backup=str(tmp_path / "backup")).forgotten["policies"] == 1


@pytest.mark.parametrize(("path_of", "how"), [kind[1:] for kind in KINDS[:14]], ids=[kind[0] for kind in KINDS[:14]])
def test_with_a_backup_nothing_is_forgotten(store, tmp_path, path_of, how):
    expected = store.content_hash()
    back_up(store, str(tmp_path / "backup"))
    how(path_of(store.root))
    done = repair(store.root, backup=str(tmp_path / "backup"))
    assert done.forgotten == {}
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_a_damaged_backup_is_not_taken(store, tmp_path):
    back_up(store, str(tmp_path / "backup"))
    path = part_file(store.root)
    cut(path)
    cut(tmp_path / "backup" / path.relative_to(store.root))
    assert repair(store.root, backup=str(tmp_path / "backup")).forgotten["rollouts"] == 1
    with pytest.raises(BadInput, match="has no backup"):
        repair(store.root, backup=str(tmp_path / "other"))


@pytest.mark.parametrize("how", [cut, scribble, Path.unlink])
def test_a_damaged_log_is_written_again(store, how):
    """Given a log that lacks commits, then the check says so, and the repair writes it from the catalogue."""
    expected, committed = store.content_hash(), {one.part.part_id for one in store.log.parts()}
    how(store.log.path)
    if store.log.path.exists():
        assert [one.kind for one in check(store.root)] == ["catalogue"]
        repair(store.root)
    else:
        store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=99)])
        committed |= {one.part.part_id for one in store.log.parts() if one.part.table == "rollouts"}
        expected = store.content_hash()
    assert {one.part.part_id for one in CommitLog(store.root).parts()} == committed
    assert Store(store.root).content_hash() == expected


def test_a_line_that_a_kill_cut_off_costs_only_its_commit(store):
    """Given a log whose last line is incomplete, then the next commit's line can be read."""
    before = len(store.log.parts())
    with store.log.path.open("ab") as file:
        file.write(b'{"at": "2026-01-01", "par')
    store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=99)])
    assert len(store.log.parts()) == before + 1


def test_unreadable_lines_of_a_journal_are_told_and_set_aside(store):
    journal = store.journal("notes")
    journal.append("a", 1)
    journal.close()
    with journal.path.open("ab") as file:
        file.write(b"\xff\xfe broken\n")
    assert [str(one) for one in check(store.root)] == ["lake/_journal/notes.jsonl has 1 unreadable lines, which are skipped"]
    done = repair(store.root)
    assert store.journal("notes").entries() == {"a": 1} and check(store.root) == []
    assert done.aside is not None and (done.aside / "lake/_journal/notes.jsonl").read_bytes().endswith(b"\xff\xfe broken\n")


def test_notes_and_intermediate_rows_are_set_aside(store):
    (store.root / ".headrace").mkdir()
    (store.root / ".headrace/run.json").write_text("[7]")
    (store.root / "lake/_work/run-9").mkdir(parents=True)
    (store.root / "lake/_work/run-9/rules.parquet").write_bytes(b"PAR1")
    (store.root / "lake/_journal/odd.jsonl").mkdir(parents=True)
    assert sorted(one.kind for one in check(store.root)) == ["journal", "note", "work"]
    repair(store.root)
    assert check(store.root) == []
    assert not (store.root / "lake/_work/run-9").exists()


def test_other_weights_are_refused_where_a_policy_is_opened(store):
    folder = store.root / "models/stage-0/model"
    check_stage_weights(folder)
    (folder / "model.safetensors").write_bytes(b"other")
    with pytest.raises(BadInput, match=r"has other weights than its stage wrote.*headrace store repair"):
        check_stage_weights(folder)


def test_no_store_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is no store"):
        check(tmp_path)
    with pytest.raises(HeadraceError):
        repair(tmp_path)


def test_an_altered_line_of_the_log_is_skipped(store):
    """Given lines that are JSON of other shapes, then the other lines count."""
    before = store.log.parts()
    with store.log.path.open("ab") as file:
        file.write(
            b'{"parts": [["a"]]}\n[1]\n{"at_us": "x", "parts": [1]}\n{"forgotten": 7}\n'
            b'{"parts": [["lake/rollouts/x-1.parquet", 1, 2, 3]]}\n'
        )
    assert store.log.parts() == before


def write_older(store: Store) -> Part:
    """A part of draws that lacks a column, as an older version wrote it; it comes before others by its id."""
    frame = rows_of("rollouts", {"rollout_id": "old", "messages": "x"}).drop("failure")
    path = Path(f"lake/rollouts/rollouts-{'0' * 16}-{content_hash(frame, 'rollouts', frame.columns)}.parquet")
    (store.root / path).parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(store.root / path)
    return part_of_path(path, 1)


def test_no_value_is_lost_where_nothing_tells_the_versions_of_before(tmp_path):
    """Given a part of an older version, and a log that does not say so, then a rebuilt catalogue shows the column that the part lacks, of
    the parts of before and of later ones."""
    store = Store(tmp_path / "store")
    store.commit([write_older(store), write(store, "rollouts", {"rollout_id": "new", "failure": "F"}, n=98)])
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (store.root / name).write_bytes(b"no database")
    repair(store.root)
    again = Store(store.root)
    again.commit([write(again, "rollouts", {"rollout_id": "newer", "failure": "G"}, n=99)])
    assert dict(again.query("SELECT rollout_id, failure FROM rollouts").iter_rows()) == {"old": None, "new": "F", "newer": "G"}


def test_a_log_that_is_written_again_has_the_versions_of_the_catalogue(store):
    store.log.note_versions(["of before"])
    Store.rebuild_catalogue(store.root)
    store.log.path.write_bytes(b"")
    assert [one.path.name for one in check(store.root)] == ["_commits.jsonl"]
    repair(store.root)
    assert store.log.versions() == ["of before"]


@pytest.mark.parametrize("how", [empty, Path.unlink])
def test_parts_without_a_line_are_read_once(store, how):
    """Given a log that is gone, then a flow sees a damaged part at its start, also after a look; and a whole store gets its log again."""
    whole = [one.part for one in store.log.parts()]
    path = part_file(store.root)
    content = path.read_bytes()
    how(store.log.path)
    path.write_bytes(content[:100])
    assert [one.path for one in look(store)] == [one.path for one in look(store)] == [path.relative_to(store.root)]
    path.write_bytes(content)
    assert look(store) == []
    assert sorted(one.part.part_id for one in store.log.parts()) == sorted(part.part_id for part in whole)
    assert all(one.size and one.changed_ns for one in store.log.parts())


def test_a_log_that_is_a_folder_is_named_and_set_aside(store):
    expected = store.content_hash()
    as_folder(store.log.path)
    told = ["lake/_commits.jsonl is a folder, not a file"]
    assert [str(one) for one in look(store)] == [str(one) for one in check(store.root)] == told
    with pytest.raises(HeadraceError, match=r"_commits\.jsonl is a folder.*headrace store repair"):
        store.commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=98)])
    repair(store.root)
    assert check(store.root) == look(store) == []
    assert Store(store.root).query("SELECT 1 FROM rollouts WHERE rollout_id = 'new'").height == 1
    assert expected != Store(store.root).content_hash()


def test_a_time_in_the_log_that_is_none_is_an_unreadable_line(store):
    before = store.log.parts(), store.log.last_us()
    with store.log.path.open("ab") as file:
        file.write(b'{"at_us": "x", "parts": []}\n{"at_us": null}\n{"versions": 7}\n{"versions": [7]}\n{"forgotten": [7]}\n')
    assert (store.log.parts(), store.log.last_us()) == before
    assert (store.log.versions(), store.log.forgotten()) == ([], set())
    assert check(store.root) == look(store) == []


def test_a_journal_that_is_a_folder_is_named_and_set_aside(store):
    journal = store.journal("answers")
    journal.path.mkdir(parents=True)
    assert [str(one) for one in look(store)] == ["lake/_journal/answers.jsonl is a folder, not a file"]
    for use in (journal.entries, lambda: journal.append("a", 1)):
        with pytest.raises(HeadraceError, match=r"answers\.jsonl is a folder, not a journal: `headrace store repair`"):
            use()
    repair(store.root)
    assert check(store.root) == look(store) == [] and journal.entries() == {}


def test_answers_of_another_shape_are_unreadable_lines(store):
    """Given lines of JSON that are no answers, then they are skipped, counted and set aside; the answers stay."""
    answer = {"engine": "e", "request": "{}", "answer": {"text": "x"}}
    with store.journal("answers") as journal:
        journal.append("k", answer)
        for value in (7, {"engine": "e"}, answer | {"answer": "x"}):
            journal.append(str(value), value)
    with journal.path.open("ab") as file:
        file.write(b'{"key":[1],"value":7}\n')
    assert journal.entries() == {"k": answer}
    assert [str(one) for one in check(store.root)] == ["lake/_journal/answers.jsonl has 4 unreadable lines, which are skipped"]
    repair(store.root)
    assert check(store.root) == [] and journal.entries() == {"k": answer}


def test_a_backup_that_lacks_files_is_taken_as_far_as_it_goes(store, tmp_path):
    """Given a backup without the part or the weights that are asked of it, then the repair goes on, and forgets."""
    back_up(store, str(tmp_path / "backup"))
    for path in (part_file(store.root), store.root / "models/stage-2/model/model.safetensors"):
        cut(path)
    (tmp_path / "backup" / part_file(store.root).relative_to(store.root)).unlink()
    next(tmp_path.glob("backup/models/stage-2.*/model/model.safetensors")).unlink()
    done = repair(store.root, backup=str(tmp_path / "backup"))
    assert done.forgotten["rollouts"] >= 1 and done.forgotten["policies"] >= 1
    assert check(store.root) == []


def test_a_part_of_a_newer_version_is_not_set_aside(store):
    """Given a line of the log with a table that this version has not, and a lost catalogue, then the repair refuses."""
    newer = Path("lake/future/future-1-2.parquet")
    (store.root / newer).parent.mkdir()
    rows_of("rollouts").write_parquet(store.root / newer)
    store.log.add({1: [part_of_path(newer, 0)]})
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        (store.root / name).write_bytes(b"no database")
    with pytest.raises(BadInput, match="of no table that this Headrace has"):
        repair(store.root)
    assert (store.root / newer).exists()
