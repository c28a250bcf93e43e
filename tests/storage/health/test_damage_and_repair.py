"""Every kind of damage is found and named; after a repair the same work ends with the content of before."""

from __future__ import annotations

import hashlib
import json
import os
import random
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
from storage.parts import DamagedPart, read_part
from storage.store import Store
from tests.storage.conftest import funnel_parts, write

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


def test_commits_that_stand_by_themselves_stay(store):
    """Given one damaged part, then only what was committed with it is forgotten, and its whole parts are taken again."""
    damaged = part_file(store.root)
    cut(damaged)
    done = repair(store.root)
    assert done.forgotten == {"funnel": 1, "policies": 1, "queries": 1, "rollouts": 1, "verdicts": 1}
    assert done.commands == ("headrace curate", "headrace train", "headrace tag")
    assert Store(store.root).query("FROM policies").height == COMMITS - 1
    assert done.aside is not None and [path.name for path in done.aside.rglob("*.parquet")] == [damaged.name]


def test_what_people_wrote_is_not_made_again(store):
    store.commit([write(store, "by_hand", {"annotation_id": "a", "item_id": "q-0", "author": "ada", "verdict": "keep"})])
    cut(part_file(store.root, "by_hand"))
    assert "no command makes table by_hand again" in repair(store.root).notes[0]


@pytest.mark.parametrize(("path_of", "how"), [kind[1:] for kind in KINDS[:14]], ids=[kind[0] for kind in KINDS[:14]])
def test_with_a_backup_nothing_is_forgotten(store, tmp_path, path_of, how):
    expected = store.content_hash()
    back_up(store, str(tmp_path / "backup"))
    how(path_of(store.root))
    done = repair(store.root, backup=tmp_path / "backup")
    assert done.forgotten == {}
    assert Store(store.root).content_hash() == expected and check(store.root) == []


def test_a_damaged_backup_is_not_taken(store, tmp_path):
    back_up(store, str(tmp_path / "backup"))
    path = part_file(store.root)
    cut(path)
    cut(tmp_path / "backup" / path.relative_to(store.root))
    assert repair(store.root, backup=tmp_path / "backup").forgotten["rollouts"] == 1
    with pytest.raises(BadInput, match="is no backup of a store"):
        repair(store.root, backup=tmp_path / "other")


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


def test_unreadable_lines_of_a_journal_are_told_and_kept(store):
    journal = store.journal("answers")
    journal.append("a", 1)
    journal.close()
    with journal.path.open("ab") as file:
        file.write(b"\xff\xfe broken\n")
    assert [str(one) for one in check(store.root)] == ["lake/_journal/answers.jsonl has 1 unreadable lines, which are skipped"]
    repair(store.root)
    assert store.journal("answers").entries() == {"a": 1}


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
