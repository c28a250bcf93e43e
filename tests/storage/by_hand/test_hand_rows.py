"""Annotations by hand: which verdict counts, what is refused, and that none is lost, doubled, or half written."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from storage import tables
from storage.by_hand.hand_files import COLUMNS, to_csv, to_jsonl, write_files
from storage.by_hand.hand_rows import DECISIONS, Annotation, admissible, annotate, read_annotations, withheld
from storage.errors import BadInput, HeadraceError
from storage.files import file_lock
from storage.records import Frame
from storage.releases.release import ReleaseItem, load_split, make_release
from storage.store import Store
from tests.storage.conftest import TASKS, Sample, funnel_parts, task_row, write

LABEL = Frame(world="retail", intent="buy_cheapest", slots={"category": "lamp"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    frame = {"run": "run-1", "query_id": "q-0", "frame_id": "frame-lamp", "world": "retail", "intent": "buy", "slots": "{}"}
    common = {"world": "retail", "messages": "[]", "checks": "{}"}
    made.commit(
        [
            *funnel_parts(made),
            write(made, "frames", frame),
            write(made, "tasks", *map(task_row, TASKS)),
            write(
                made,
                "trajectories",
                common | {"trajectory_id": "trajectory-good", "accepted": True},
                common | {"trajectory_id": "trajectory-judged", "accepted": False, "reason": "judge"},
                common | {"trajectory_id": "trajectory-wrong", "accepted": False, "reason": "end_state"},
            ),
            write(made, "rollouts", {"rollout_id": "rollout-1", "task_id": "task-1", "outcome": "success"}),
        ]
    )
    return made


def said(store: Store, item: str, verdict: Any, author: str = "ada", **more: Any) -> str:
    return annotate(store, Annotation(items=(item,), author=author, verdict=verdict, **more))


def decisions(store: Store) -> dict[str, str]:
    return dict(store.query(f"SELECT item_id, verdict FROM {DECISIONS}").iter_rows())


# ---- which verdict counts ----------------------------------------------------------------------------------------------------------


def test_the_last_verdict_of_an_author_counts_and_a_comment_stands_beside_it(store: Store) -> None:
    said(store, "q-0", "drop")
    said(store, "q-0", "keep")
    said(store, "q-0", "comment", comment="looks fine")

    assert decisions(store) == {"q-0": "keep"}
    rows = read_annotations(store, "q-0")
    assert rows["verdict"].to_list() == ["comment", "keep", "drop"]
    assert rows["counts"].to_list() == [True, True, False]
    assert rows["kind"].unique().to_list() == ["request"]


def test_where_authors_differ_a_drop_counts_until_it_is_withdrawn(store: Store) -> None:
    said(store, "q-0", "drop", "bo")
    said(store, "q-0", "keep", "ada")
    assert decisions(store) == {"q-0": "drop"}

    said(store, "q-0", "withdraw", "bo")
    assert decisions(store) == {"q-0": "keep"}


def test_order_is_that_of_commits_whatever_the_clock_says(store: Store) -> None:
    late, early = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
    annotate(store, Annotation(items=("q-0",), author="ada", verdict="keep"), now=late)
    annotate(store, Annotation(items=("q-0",), author="ada", verdict="drop"), now=early)

    assert decisions(store) == {"q-0": "drop"}


def test_the_same_form_sent_twice_is_one_row_and_another_form_is_another(store: Store) -> None:
    first = said(store, "q-0", "drop", nonce="form-1")
    assert said(store, "q-0", "drop", nonce="form-1") == first
    assert said(store, "q-0", "drop", nonce="form-2") != first
    assert read_annotations(store).height == 2


# ---- what is refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"verdict": "maybe"}, "is no verdict by hand"),
        ({"items": ("q-0", "q-77")}, "q-77 is not in"),
        ({"items": ("policy-1",)}, "is no request, frame, trajectory or rollout"),
        ({"items": ()}, "name 1 to"),
        ({"items": ("q-0", "q-0")}, "named twice"),
        ({"author": " "}, "an author needs a name"),
        ({"author": "a\nb"}, "an author needs a name"),
        ({"author": "x" * 101}, "an author needs a name"),
        ({"comment": "x" * 10_001}, "at most 10,000 characters"),
        ({"comment": "\ud800"}, "is text"),
        ({"comment": "\0"}, "is text"),
        ({"verdict": "comment", "comment": " "}, "the comment is empty"),
        ({"verdict": "relabel"}, "needs a world and an intent"),
        ({"label": LABEL}, "nothing else has one"),
        ({"items": ("trajectory-good",), "verdict": "relabel", "label": LABEL}, "only requests and frames"),
    ],
)
def test_bad_input_is_refused_whole(store: Store, about: dict[str, Any], message: str) -> None:
    before = store.content_hash()
    with pytest.raises(BadInput, match=message):
        annotate(store, Annotation(**({"items": ("q-0",), "author": "ada", "verdict": "drop"} | about)))
    assert store.content_hash() == before
    assert read_annotations(store).is_empty()


# ---- the store -----------------------------------------------------------------------------------------------------------------------


def test_a_kill_before_the_commit_loses_the_annotation_and_nothing_else(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Store, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        said(store, "q-0", "drop", nonce="form-1")
    assert read_annotations(store).is_empty()

    said(store, "q-0", "drop", nonce="form-1")
    assert decisions(Store(store.root)) == {"q-0": "drop"}


def test_while_another_process_commits_it_waits_and_then_says_who(store: Store) -> None:
    impatient = Store(store.root, lock_wait_s=0.1)
    with file_lock(store.root / "catalog.lock", wait_s=1), pytest.raises(HeadraceError, match="is being written by process"):
        said(impatient, "q-0", "drop")
    assert read_annotations(store).is_empty()


def test_people_annotate_at_once_and_no_row_is_lost(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: said(Store(store.root), "q-0", "comment", f"author-{n}", comment=str(n)), range(8)))
    assert sorted(read_annotations(store)["author"]) == [f"author-{n}" for n in range(8)]


def test_a_store_from_before_the_table_reads_as_one_without_annotations_and_gets_it_with_the_first(store: Store, tmp_path: Path) -> None:
    root = shutil.copytree(store.root, tmp_path / "old")
    for name in ("catalog.duckdb", "catalog.read.duckdb"):
        with duckdb.connect(str(root / name)) as connection:
            for table, schema in tables.TABLES.items():
                if schema.is_late:
                    connection.execute(f"DROP TABLE {table}")
    old = Store(root)

    assert read_annotations(old).is_empty()
    assert withheld(old) == (frozenset(), frozenset())
    assert old.query("SELECT count(*) FROM queries").item() == 6
    said(old, "q-0", "drop")
    assert decisions(Store(root)) == {"q-0": "drop"}


def test_a_late_table_does_not_change_the_schema_version(monkeypatch: pytest.MonkeyPatch) -> None:
    version = tables.schema_version()
    others = {name: schema for name, schema in tables.TABLES.items() if name != "by_hand"}
    monkeypatch.setattr(tables, "TABLES", others)
    tables.schema_version.cache_clear()
    try:
        assert tables.schema_version() == version
        monkeypatch.setattr(tables, "TABLES", {name: schema for name, schema in others.items() if name != "tasks"})
        tables.schema_version.cache_clear()
        assert tables.schema_version() != version, "negative control: a table of all stores does"
    finally:
        tables.schema_version.cache_clear()


# ---- what follows ------------------------------------------------------------------------------------------------------------------


def test_a_judges_rejection_alone_yields_to_a_person(store: Store) -> None:
    def found() -> set[str]:
        return set(store.query(f"SELECT trajectory_id FROM trajectories t WHERE {admissible('t')}")["trajectory_id"])

    assert found() == {"trajectory-good"}
    said(store, "trajectory-judged", "keep")
    said(store, "trajectory-wrong", "keep")
    assert found() == {"trajectory-good", "trajectory-judged"}
    said(store, "trajectory-good", "drop")
    assert found() == {"trajectory-judged"}
    said(store, "trajectory-judged", "drop", "bo")
    assert found() == set()


def test_tasks_of_a_dropped_or_relabelled_request_are_withheld(store: Store) -> None:
    assert withheld(store) == (frozenset(), frozenset())
    said(store, "q-4", "drop")
    said(store, "trajectory-good", "drop")
    assert withheld(store) == (frozenset({"q-4", "trajectory-good"}), frozenset({"task-3"}))

    said(store, "q-0", "relabel", label=LABEL)
    assert withheld(store)[1] == {"task-1", "task-3", "task-4"}
    said(store, "q-0", "withdraw")
    said(store, "frame-lamp", "drop")
    assert withheld(store)[1] == {"task-1", "task-3", "task-4"}, "task-2 has another frame and no query"


def test_what_was_dropped_is_in_no_release_made_afterwards(build: Callable[[Path], Sample], tmp_path: Path) -> None:
    store = build(tmp_path / "store").store
    items = [ReleaseItem("trajectory", f"trajectory-task-{n}", f"task-{n}") for n in (1, 2)]
    before = make_release(store, "mine", {"sft": items}, {})
    said(store, "trajectory-task-2", "drop")

    after = make_release(store, "mine", {"sft": items}, {})

    assert after != before
    assert [one.item.item_id for one in load_split(store, before, "sft")] == ["trajectory-task-1", "trajectory-task-2"]
    assert [one.item.item_id for one in load_split(store, after, "sft")] == ["trajectory-task-1"]
    with pytest.raises(HeadraceError, match="all 1 items of split sft were dropped by hand"):
        make_release(store, "mine", {"sft": items[1:]}, {})
    said(store, "trajectory-task-2", "withdraw")
    assert make_release(store, "mine", {"sft": items}, {}) == before


# ---- files -------------------------------------------------------------------------------------------------------------------------


def test_files_have_every_row_and_no_formula(store: Store, tmp_path: Path) -> None:
    said(store, "q-0", "comment", comment='=HYPERLINK("http://x")\nsecond line, "quoted"')
    said(store, "q-0", "relabel", label=LABEL)
    rows = read_annotations(store)

    lines = [json.loads(line) for line in to_jsonl(rows).splitlines()]
    table = pl.read_csv(to_csv(rows).encode())

    assert list(lines[0]) == table.columns == list(COLUMNS)
    assert lines[1]["comment"].startswith("=HYPERLINK") and table["comment"][1] == "'" + lines[1]["comment"]
    assert (lines[0]["world"], json.loads(lines[0]["slots"])) == ("retail", {"category": "lamp"})
    assert write_files(rows, tmp_path) == ["by_hand.jsonl", "by_hand.csv"]
