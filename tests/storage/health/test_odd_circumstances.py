"""Left-over locks and flags, odd paths and odd clocks change nothing: the store has the hash that it has elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.health.backups import back_up, restore
from storage.health.damage import check, look
from storage.store import Store
from tests.storage.conftest import write
from tests.storage.health.test_damage_and_repair import work


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return work(Store(tmp_path_factory.mktemp("plain") / "store"))


@pytest.mark.parametrize("name", ['it\'s "a" store', "$HOME `x` & ;", "line\nbreak", "-rf", "%s {} #", "仓库", " spaces "])
def test_an_odd_path_is_a_path(tmp_path: Path, expected: str, name: str) -> None:
    """Given such a folder, then the store works there, and so do check, backup and restore."""
    store = Store(tmp_path / name / "store")
    assert work(store) == expected
    assert check(store.root) == []
    back_up(store, str(tmp_path / name / "backup"))
    restore(str(tmp_path / name / "backup"), tmp_path / name / "new")
    assert Store(tmp_path / name / "new").content_hash() == expected


@pytest.mark.parametrize("name", ["catalog.lock", "catalog.stale", ".headrace/flow.lock", "models/.stage-0.lock"])
def test_a_left_over_lock_or_flag_stops_nobody(tmp_path: Path, expected: str, name: str) -> None:
    """Given the file of a process that has ended, then the next one works."""
    store = Store(tmp_path / "store")
    work(store)
    left = store.root / name
    left.parent.mkdir(exist_ok=True)
    left.write_text("synthesize (process 1 on another machine)\n")
    assert Store(store.root).content_hash() == expected
    Store(store.root, lock_wait_s=1.0).commit([write(store, "rollouts", {"rollout_id": "new", "messages": "x"}, n=99)])
    assert Store(store.root).query("SELECT 1 FROM rollouts WHERE rollout_id = 'new'").height == 1
    assert check(store.root) == []


@pytest.mark.parametrize("at", [1, 4_102_444_800], ids=["1970", "2100"])
def test_a_clock_in_the_past_or_the_future_damages_nothing(tmp_path: Path, expected: str, at: int) -> None:
    """Given files that are dated so, then nothing counts as damaged, and the next commit comes behind the others."""
    store = Store(tmp_path / "store")
    work(store)
    for path in store.root.rglob("*"):
        os.utime(path, (at, at))
    again = Store(store.root)
    assert look(again) == [] and again.content_hash() == expected
    again.commit([write(again, "rollouts", {"rollout_id": "new", "messages": "x"}, n=99)])
    times = again.query("SELECT committed_at FROM parts ORDER BY committed_at, rowid")["committed_at"].to_list()
    assert times == sorted(times)
    assert look(Store(store.root)) == []
