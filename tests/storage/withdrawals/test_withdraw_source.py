"""A withdrawn source: its rows are gone for every reader, the rest stays, and what held them says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from storage.errors import BadInput
from storage.explanations.explain import explain
from storage.records import Message
from storage.releases.export import export
from storage.releases.export_queries import export_queries
from storage.releases.lineage import lineage
from storage.releases.release import load_split, manifest_of
from storage.store import Store
from storage.tombstones.withdrawn_rows import list_withdrawals, marked_policies, refuse_sources, successor_of, taught_by, withdrawn_files
from storage.withdrawals.withdraw_source import Withdrawn, withdraw_source
from storage.withdrawals.withdrawal_plan import Kind, find_source, plan_withdrawal
from tests.storage.conftest import Sample, build_sample, funnel_parts, task, task_row, write

ROOT = Path(__file__).parents[3]
TABLES_OF_FILE = {"queries": 6, "rollouts": 8, "tasks": 3, "frames": 2, "query_fields": 2, "trajectories": 1, "contaminated": 1, "focus": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The sample store, groups of unserved requests, and a row of another file that repeats one of log.txt."""
    made = build_sample(tmp_path_factory.mktemp("built") / "store")
    late = {"run": "run-2", "query_id": "q-other", "source": "other.txt", "row": 0, "text": "buy me a lamp", "language": "en"}
    verdict = {"run": "run-2", "query_id": "q-other", "step": "exact", "kept": False, "duplicate_of": "q-0", "similarity": 1.0}
    groups = ({"run": run, "topic": "lamps", "share": 1.0, "rows": 1, "requests": ["a lamp"]} for run in ("run-1", "run-2"))
    made.store.commit(
        [
            write(made.store, "queries", late, n=2),
            write(made.store, "verdicts", verdict, n=2),
            write(made.store, "unserved", *groups),
        ]
    )
    return made


@pytest.fixture
def sample(built: Sample, tmp_path: Path) -> Sample:
    return replace(built, store=Store(shutil.copytree(built.store.root, tmp_path / "store")))


def withdraw(store: Store, name: str = "log.txt", kind: Kind | None = None) -> Withdrawn:
    return withdraw_source(store, find_source(store, name, kind), reason="the customer asked", author="Ada", at="2026-11-29T10:00:00+00:00")


def test_a_plan_counts_what_would_go_and_changes_nothing(sample: Sample) -> None:
    before = sample.store.content_hash()

    planned = plan_withdrawal(sample.store, find_source(sample.store, "some/folder/log.txt"))

    assert {table: planned.rows[table] for table in TABLES_OF_FILE} == TABLES_OF_FILE
    assert planned.rows["unserved"] == 1
    assert planned.releases.rows() == [(sample.first_release, "seed", 1, 1), (sample.second_release, "second", 3, 0)]
    assert planned.stages == ["stage-1", "stage-2"]
    assert planned.policies == ["policy-1", "policy-2"]
    assert planned.orphans == 1
    assert sample.store.content_hash() == before


def test_a_plan_is_what_happens(sample: Sample) -> None:
    """Given the rows of each table before, then a withdrawal hides as many of them as its plan says."""
    store = sample.store
    tables = [*TABLES_OF_FILE, "verdicts", "blueprints", "tags", "unserved", "by_hand", "provenance", "tools"]

    def counts() -> dict[str, int]:
        return {table: store.query(f"SELECT count(*) FROM {table}").item() for table in tables}

    planned, before = plan_withdrawal(store, find_source(store, "log.txt")), counts()
    withdraw(store)
    after = counts()

    assert {table: before[table] - after[table] for table in tables} == {table: planned.rows.get(table, 0) for table in tables}
    assert after["queries"] == 1, "rows of other files stay"
    assert store.query("SELECT task_id FROM tasks")["task_id"].to_list() == ["task-2"]


def test_every_release_that_held_rows_is_replaced_by_one_without(sample: Sample) -> None:
    done = withdraw(sample.store)
    new = done.releases[sample.first_release]

    assert done.releases == {sample.first_release: new, sample.second_release: None}, "nothing is left of the second"
    assert new is not None
    assert [item.item.item_id for item in load_split(sample.store, new, "seed")] == ["trajectory-task-2"]
    manifest = manifest_of(sample.store, new)
    assert manifest["replaces"] == sample.first_release
    assert manifest["without"] == [done.withdrawal.withdrawal_id]
    assert manifest["expert_budget"] == 2, "what decided the selection is kept"
    assert successor_of(sample.store, sample.first_release) == new


def test_an_old_release_is_read_no_more_and_names_the_new_one(sample: Sample, tmp_path: Path) -> None:
    new = withdraw(sample.store).releases[sample.first_release]

    for read in (
        lambda: load_split(sample.store, sample.first_release, "seed"),
        lambda: export(sample.store, sample.first_release, tmp_path),
    ):
        with pytest.raises(BadInput, match=rf"1 item of query file log.txt, withdrawn on 2026-11-29 by Ada.*{new} is the same without"):
            read()
    with pytest.raises(BadInput, match="nothing else was in it"):
        load_split(sample.store, sample.second_release, "rl")


def test_no_withdrawn_text_is_exported(sample: Sample, tmp_path: Path) -> None:
    new = withdraw(sample.store).releases[sample.first_release]
    assert new is not None

    folder = export(sample.store, new, tmp_path / "out")
    texts = {path.name: path.read_text() for path in folder.glob("*") if path.suffix != ".parquet"}

    assert "lamp <b>task-2" in texts["seed.conversations.jsonl"]
    assert not [name for name, text in texts.items() if "task-1" in text]
    assert "## Withdrawn sources" in texts["README.md"]
    assert "query file log.txt, withdrawn on 2026-11-29 by Ada: the customer asked" in texts["README.md"]
    with pytest.raises(BadInput, match="no query was kept"):
        export_queries(sample.store, tmp_path / "queries")


def test_stages_policies_and_releases_are_marked(sample: Sample) -> None:
    withdraw(sample.store)

    def shown(node: str) -> str:
        return " ".join(str(explain(sample.store, node)).split())

    assert "1 of its items: query file log.txt, withdrawn on" in shown("stage-1")
    assert "learned from query file log.txt, withdrawn on" in shown("policy-2")
    assert "withdrawn since 1 item: query file log.txt" in shown(sample.first_release)
    assert f"replaced by {successor_of(sample.store, sample.first_release)}" in shown(sample.first_release)
    assert set(marked_policies(sample.store)) == {"policy-1", "policy-2"}


def test_a_policy_that_began_as_a_marked_one_is_marked(sample: Sample) -> None:
    """Given a policy whose own split has no withdrawn row, then it is marked for what its parent learned."""
    store = sample.store
    stage = {
        "stage_id": "stage-3",
        "name": "more",
        "algorithm": "sft",
        "release_id": "release-x",
        "split": "s",
        "input_policy_id": "policy-1",
    }
    parts = [
        write(store, "stages", stage | {"input_policy_id": "policy-1", "output_policy_id": "policy-3", "spec": "{}", "metrics": "{}"}, n=3),
        write(store, "policies", {"policy_id": "policy-3", "stage_id": "stage-3", "path": "models/3", "weights_hash": "cd" * 16}, n=3),
    ]
    store.commit(parts)
    assert taught_by(store, "policy-3") == []

    withdraw(store)

    assert [one.source for one in taught_by(store, "policy-3")] == ["log.txt"]


@pytest.mark.parametrize("node", ["q-0", "q-5", "task-1", "trajectory-task-1", "rollout-7"])
def test_a_withdrawn_row_says_so_and_shows_no_text(sample: Sample, node: str) -> None:
    withdraw(sample.store)

    shown = str(explain(sample.store, node, full=True))

    assert "query file log.txt, withdrawn on 2026-11-29 by Ada" in " ".join(shown.split())
    assert "lamp" not in shown
    assert "no policy yet" not in shown


def test_lineage_leads_from_a_policy_to_the_withdrawal_and_back(sample: Sample) -> None:
    withdrawal = withdraw(sample.store).withdrawal.withdrawal_id

    assert withdrawal in set(lineage(sample.store, "policy-1").origins.filter(kind="withdrawal")["id"])
    assert {"policy-1", "policy-2"} <= set(lineage(sample.store, withdrawal).uses["id"])
    assert "3 rows are hidden" in str(explain(sample.store, withdrawal))


def test_a_later_commit_does_not_bring_rows_back(sample: Sample) -> None:
    """Given a run that had written its parts before the withdrawal and commits them after it."""
    store = sample.store
    late = [
        write(store, "tasks", task_row(task(1, query_id="q-0")), task_row(task(8, query_id="q-4")), task_row(task(9)), n=7),
        write(store, "frames", {"run": "run-3", "query_id": "q-4", "frame_id": "frame-new"}, n=7),
        *funnel_parts(store, "run-4", n=7)[:2],
    ]
    withdraw(store)

    store.commit(late)

    assert set(store.query("SELECT task_id FROM tasks")["task_id"]) == {"task-2", "task-9"}
    assert store.query("SELECT count(*) FROM queries WHERE source = 'log.txt'").item() == 0
    assert store.query("SELECT count(*) FROM frames").item() == 0


def test_a_second_withdrawal_changes_nothing(sample: Sample) -> None:
    first = withdraw(sample.store)
    before = sample.store.content_hash()

    again = withdraw_source(sample.store, find_source(sample.store, "log.txt"), reason="other words", author="Bob", at="2027-01-01")

    assert sample.store.content_hash() == before
    assert again.withdrawal == first.withdrawal
    assert [one.author for one in list_withdrawals(sample.store)] == ["Ada"]


def test_two_sources_are_withdrawn_one_after_the_other(sample: Sample) -> None:
    """Given a release without one source, when another one goes, then its successor is without both, and stands for the first too."""
    middle = withdraw(sample.store).releases[sample.first_release]
    done = withdraw(sample.store, "retail", "world")

    assert middle is not None
    assert done.releases[middle] is None, "its last conversation was in the world"
    assert sample.first_release not in done.releases, "it has a successor already"
    assert sample.store.query("SELECT count(*) FROM trajectories").item() == 0
    assert sample.store.query("SELECT tool_id FROM tools").is_empty()


def test_a_world_takes_its_rows_and_leaves_raw_queries(sample: Sample) -> None:
    planned = plan_withdrawal(sample.store, find_source(sample.store, "retail"))
    withdraw(sample.store, "retail")

    assert planned.rows["blueprints"] == 2
    assert sample.store.query("SELECT count(*) FROM queries").item() == 7
    assert sample.store.query("SELECT count(*) FROM tasks").item() == 0
    assert "world retail, withdrawn" in " ".join(str(explain(sample.store, "retail")).split())


def test_a_teacher_takes_its_conversations_and_where_it_planned_the_blueprints(sample: Sample) -> None:
    store = sample.store
    blueprint = {"blueprint_id": "blueprint-planned", "world": "retail", "status": "accepted", "spec": "{}"}
    common = {"world": "retail", "messages": json.dumps([Message(role="user", content="hi").to_openai()]), "outcome": "success"}
    store.commit(
        [
            write(store, "blueprints", blueprint, n=2),
            write(store, "tasks", task_row(task(7, blueprint_id="blueprint-planned")), n=2),
            write(
                store,
                "trajectories",
                common | {"trajectory_id": "trajectory-t", "teacher": "openai:big", "blueprint_id": "blueprint-good"},
                common | {"trajectory_id": "trajectory-p", "teacher": "scripted", "blueprint_id": "blueprint-planned"},
                n=2,
            ),
            write(
                store,
                "provenance",
                {"trajectory_id": "trajectory-t", "roles": '{"assistant":"openai:big","planner":"scripted","user":"scripted"}'},
                {"trajectory_id": "trajectory-p", "roles": '{"assistant":"scripted","planner":"openai:big","user":"scripted"}'},
                n=2,
            ),
        ]
    )

    withdraw(store, "openai:big")

    assert not {"trajectory-t", "trajectory-p"} & set(store.query("SELECT trajectory_id FROM trajectories")["trajectory_id"])
    assert set(store.query("SELECT blueprint_id FROM blueprints")["blueprint_id"]) == {"blueprint-good", "blueprint-bad"}
    assert set(store.query("SELECT task_id FROM tasks")["task_id"]) == {"task-1", "task-2", "task-3", "task-4"}, "task-7 held its plan"


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing.txt", "has no rows of 'nothing.txt'; it has rows of: file log.txt, other.txt; world"), ("scripted", "is no source")],
)
def test_a_name_that_is_no_source_is_said_with_those_there_are(sample: Sample, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        find_source(sample.store, name)


def test_a_name_of_two_kinds_asks_which(sample: Sample) -> None:
    sample.store.commit([write(sample.store, "worlds", {"world": "log.txt", "domain": "d", "spec": "{}"}, n=5)])

    with pytest.raises(BadInput, match="a query file and a world; say which with --kind"):
        find_source(sample.store, "log.txt")
    assert find_source(sample.store, "log.txt", "world").kind == "world"


def test_reason_and_author_are_needed(sample: Sample) -> None:
    for reason, author in ((" ", "Ada"), ("why", ""), ("x" * 1001, "Ada")):
        with pytest.raises(BadInput, match="say "):
            withdraw_source(sample.store, find_source(sample.store, "log.txt"), reason=reason, author=author, at="now")
    assert list_withdrawals(sample.store) == []


def test_a_withdrawn_source_is_refused_and_others_are_not(sample: Sample) -> None:
    withdraw(sample.store, "retail")

    refuse_sources(sample.store, "world", ["city"], "train.worlds")
    with pytest.raises(BadInput, match=r"train.worlds names a withdrawn source.*world retail, withdrawn on .* by Ada: the customer asked"):
        refuse_sources(sample.store, "world", ["city", "retail"], "train.worlds")
    assert withdrawn_files(sample.store) == {}


KILLED = """
import os, signal, sys
from storage.store import Store
from storage.withdrawals.withdraw_source import withdraw_source
from storage.withdrawals.withdrawal_plan import find_source
place, root = int(sys.argv[1]), sys.argv[2]
calls = 0
def stop(frame, event, arg):
    global calls
    if event == "call" and frame.f_code.co_name in ("write", "commit", "_register", "_publish", "replace_atomically"):
        calls += 1
        if calls == place:
            os.kill(os.getpid(), signal.SIGKILL)
store = Store(root)
source = find_source(store, "log.txt")
sys.setprofile(stop)
withdraw_source(store, source, reason="the customer asked", author="Ada", at="2026-11-29T10:00:00+00:00")
"""


@pytest.mark.parametrize("place", [1, 3, 5, 6, 8, 10, 13, 16])
def test_killed_anywhere_and_run_again_it_ends_the_same(sample: Sample, tmp_path: Path, place: int) -> None:
    whole = Store(shutil.copytree(sample.store.root, tmp_path / "whole"))
    done = withdraw(whole)

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(place), str(sample.store.root)], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    again = Store(sample.store.root)
    withdraw(again)

    assert again.content_hash() == whole.content_hash()
    assert successor_of(again, sample.first_release) == done.releases[sample.first_release]
    assert again.query("SELECT count(*) FROM tasks").item() == whole.query("SELECT count(*) FROM tasks").item()
