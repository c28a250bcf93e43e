"""Machines that share a store: each is a folder with a copy, and all see the same commits in the same order."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from storage.errors import BadInput, HeadraceError
from storage.files import replace_atomically
from storage.object_store import shared_log
from storage.object_store.shared_log import STATE, SharedLog
from storage.object_store.url_files import UrlFiles
from storage.store import Store
from tests.storage.conftest import funnel_parts, write

COMMITS = "SELECT part_id, epoch_us(committed_at) AS us FROM parts ORDER BY us, part_id"
numbers = itertools.count()


@pytest.fixture
def url() -> Iterator[str]:
    yield f"memory://bucket/{next(numbers)}"
    fsspec.filesystem("memory").store.clear()


def commit(store: Store, n: int, path: str | None = None) -> None:
    store.commit([write(store, "policies", {"policy_id": f"p{n}", "weights_hash": "h", "path": path}, n=n)])


def copy_of(url: str, folder: Path) -> Store:
    store = Store(folder)
    store.share(url)
    return store


def test_a_commit_of_one_machine_is_pulled_by_another_and_both_tell_the_same_order(url: str, tmp_path: Path) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    assert not here.exists()
    here.commit([*funnel_parts(here, "run-1"), write(here, "rollouts", {"rollout_id": "r1", "messages": "first"}, n=1)])
    assert there.query("FROM queries").is_empty()
    there.commit([write(there, "rollouts", {"rollout_id": "r1", "messages": "second"}, n=2)])
    here.pull()
    assert here.query("FROM queries").height == there.query("FROM queries").height > 0
    assert here.query(COMMITS).equals(there.query(COMMITS))
    assert here.content_hash() == there.content_hash()
    # the row committed first stays, on all machines
    assert [store.query("SELECT messages FROM rollouts").item() for store in (here, there)] == ["first", "first"]


def test_the_part_of_the_machine_that_was_first_counts_and_the_other_file_goes(url: str, tmp_path: Path) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    first = write(here, "rollouts", {"rollout_id": "r1", "messages": "first"})
    second = write(there, "rollouts", {"rollout_id": "r1", "messages": "second"})
    here.commit([first])
    there.commit([second])
    assert there.query("SELECT messages FROM rollouts").item() == "first"
    assert not (there.root / second.path).exists() and (there.root / first.path).exists()


def test_a_store_that_has_commits_becomes_the_shared_one_in_their_order_also_if_it_was_killed_on_the_way(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "grown")
    for n in range(3):
        commit(store, n)
    with monkeypatch.context() as patched:
        patched.setattr(shared_log, "replace_atomically", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.share(url)
    store.share(url)
    other = copy_of(url, tmp_path / "other")
    assert other.query(COMMITS).equals(store.query(COMMITS))
    assert other.query("SELECT DISTINCT committed_at FROM parts").height == 3


def test_the_folder_of_a_stage_comes_with_its_policy_and_a_stage_that_was_not_first_replaces_nothing(url: str, tmp_path: Path) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    for store in (here, there):
        for name in ("model/weights", "metrics.jsonl", "checkpoints/step-1/weights"):
            file = store.root / "models/stage-1" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(store.root.name)
    commit(here, 1, "models/stage-1/model")
    commit(there, 1, "models/stage-1/model")
    third = copy_of(url, tmp_path / "third")
    for store in (there, third):
        folder = store.root / "models/stage-1"
        assert {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()} == {
            "model/weights": "here",
            "metrics.jsonl": "here",
        }


def test_a_machine_whose_clock_is_behind_still_commits_after_the_others(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = copy_of(url, tmp_path / "here"), copy_of(url, tmp_path / "there")
    future_us = 4_000_000_000_000_000
    with monkeypatch.context() as patched:
        patched.setattr("storage.duckdb_catalog.next_commit_us", lambda _: future_us)
        commit(here, 1)
    commit(there, 2)
    assert there.query("SELECT epoch_us(committed_at) AS us FROM parts ORDER BY us")["us"].to_list() == [future_us, future_us + 1]


def test_an_answer_that_was_lost_on_the_way_is_no_other_machines_commit(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a driver that asks twice, so that the second answer is that the name is taken, then the commit counts once."""
    store, create = copy_of(url, tmp_path / "here"), UrlFiles.create
    monkeypatch.setattr(UrlFiles, "create", lambda *given: create(*given) and create(*given))
    commit(store, 1)
    assert store.query("FROM parts").height == 1
    log = SharedLog.of(store.root)
    assert log is not None and log.applied == 1 and log.read(1) is None


def test_out_of_reach_nothing_is_committed_and_afterwards_the_same_call_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_of(url, tmp_path / "here")
    commit(store, 1)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "pipe_file", fail)
        with pytest.raises(HeadraceError, match="cannot be reached: no route"):
            commit(store, 2)
        assert store.query("FROM parts").height == 1
    commit(store, 2)
    assert store.query("FROM parts").height == 2


def test_what_cannot_be_shared_is_refused_in_a_line(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    for bad in (f"file://{tmp_path}/there", str(tmp_path), "s3://KEY:SECRET@bucket/path"):
        with pytest.raises(BadInput, match="object_store"):
            store.share(bad)
    with pytest.raises(BadInput, match="strange"):
        store.share("strange://bucket")
    with pytest.raises(BadInput, match="object_store in the configuration"):
        Store("s3://bucket/store")
    with monkeypatch.context() as patched:
        patched.setattr(UrlFiles, "create", lambda *_: True)
        with pytest.raises(BadInput, match="needs conditional writes"):
            store.share(url)
    assert not (tmp_path / "store").exists()

    commit(copy_of(url, tmp_path / "first"), 1)
    commit(store, 2)
    with pytest.raises(BadInput, match="hold different stores"):
        store.share(url)
    with pytest.raises(BadInput, match="is a copy of"):
        Store(tmp_path / "first").share(f"{url}/other")


# ---- with processes and S3 ---------------------------------------------------------------------------------------------

WORK = """
import sys
from pathlib import Path
from storage.store import Store
from tests.storage.object_store.test_shared_log import commit
url, folder, first, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = Store(folder)
store.share(url)
print("ready", flush=True)
sys.stdin.readline()
for n in range(first, first + count):
    commit(store, n)
"""
KILLED = """
import os
from storage.object_store.url_files import UrlFiles
create = UrlFiles.create
def killed(files, name, content):
    if name.startswith("log/") and {when!r} == "before":
        os.kill(os.getpid(), 9)
    answer = create(files, name, content)
    if name.startswith("log/"):
        os.kill(os.getpid(), 9)
    return answer
UrlFiles.create = killed
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(*children: subprocess.Popen[str]) -> list[int]:
    """Lets children work once all are ready; their exit codes."""
    for child in children:
        assert child.stdout and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.close()
    return [child.wait(120) for child in children]


@pytest.mark.slow
def test_two_processes_that_commit_at_the_same_time_lose_and_double_nothing(s3: str, tmp_path: Path) -> None:
    url, count = f"{s3}/both", 4
    assert go(*(start(WORK, url, tmp_path / name, first, count) for name, first in (("a", 0), ("b", count)))) == [0, 0]
    alone = Store(tmp_path / "alone")
    for n in range(2 * count):
        commit(alone, n)
    copies = [copy_of(url, tmp_path / name) for name in ("a", "b", "c")]
    assert {copy.content_hash() for copy in copies} == {alone.content_hash()}
    assert all(copy.query(COMMITS).equals(copies[0].query(COMMITS)) for copy in copies)
    assert copies[0].query("SELECT DISTINCT committed_at FROM parts").height == 2 * count


@pytest.mark.slow
def test_a_machine_that_is_killed_around_its_entry_leaves_all_of_the_commit_or_none_and_goes_on(s3: str, tmp_path: Path) -> None:
    """Given kill -9 before the entry is there, or right after, then another machine commits at once, and the killed one ends the same."""
    cases = {"before": 0, "after": 1}
    killed = {when: tmp_path / when / "killed" for when in cases}
    codes = go(*(start(KILLED.format(when=when) + WORK, f"{s3}/{when}", killed[when], 0, 2) for when in cases))
    assert codes == [-signal.SIGKILL] * 2
    others = {when: copy_of(f"{s3}/{when}", tmp_path / when / "other") for when in cases}
    assert {when: other.query("FROM policies").height for when, other in others.items()} == cases
    for other in others.values():
        commit(other, 7)
    assert go(*(start(WORK, f"{s3}/{when}", killed[when], 0, 2) for when in cases)) == [0, 0]
    alone = Store(tmp_path / "alone")
    for n in (0, 1, 7):
        commit(alone, n)
    for when, other in others.items():
        other.pull()
        assert alone.content_hash() == other.content_hash() == Store(killed[when]).content_hash()


def test_a_state_file_that_lags_behind_the_catalogue_applies_nothing_twice(url: str, tmp_path: Path) -> None:
    store = copy_of(url, tmp_path / "here")
    state = (store.root / STATE).read_text()
    commit(store, 1)
    replace_atomically(store.root / STATE, lambda draft: draft.write_text(state))
    store.pull()
    assert store.query("FROM policies").height == 1
