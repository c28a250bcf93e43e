"""A deployment that an event starts does nothing while the store has grown too little since its last run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.runtime import events
from flows.runtime.deployed import new_rows
from storage.store import Store
from tests.storage.conftest import task, task_row, write


def commit(store: Store, number: int, count: int) -> None:
    given = [task_row(task(1_000 * number + position)) for position in range(count)]
    store.commit([write(store, "tasks", *given, n=number)])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with five tasks, in a run of a deployment."""
    monkeypatch.setattr(events, "is_root_of_a_deployment", lambda: True)
    made = Store(tmp_path / "store")
    commit(made, 1, 5)
    return made


def test_a_flow_works_again_once_enough_is_new(store: Store) -> None:
    # given a store that no run has worked on: everything is new
    assert new_rows.too_few_new("tag", store.root, 5) == ""
    assert "5 new tasks and accepted conversations since the last run, fewer than 6" in new_rows.too_few_new("tag", store.root, 6)
    # when a run has worked on it, then nothing is new, for this flow alone
    new_rows.note_seen("tag", store.root)
    assert "nothing to do: 0 new" in new_rows.too_few_new("tag", store.root, 1)
    assert new_rows.too_few_new("train", store.root, 1) == ""
    # and without a threshold it always works
    assert new_rows.too_few_new("tag", store.root, 0) == ""
    # and with three rows more there is enough for a threshold of three
    commit(store, 2, 3)
    assert new_rows.too_few_new("tag", store.root, 3) == ""
    assert "3 new" in new_rows.too_few_new("tag", store.root, 4)


def test_what_was_withdrawn_takes_nothing_from_what_is_new(store: Store) -> None:
    """Given five tasks that a run has seen, of which a withdrawal hides all, then three new ones are three."""
    new_rows.note_seen("tag", store.root)
    store.commit([write(store, "withdrawn", {"withdrawal_id": "w", "kind": "task", "id": f"task-{1_000 + n}"}, n=9) for n in range(1)])
    commit(store, 2, 3)
    assert "3 new" in new_rows.too_few_new("tag", store.root, 4)


def test_conversations_that_were_not_accepted_are_not_new(store: Store) -> None:
    """Given five tasks, two accepted conversations and three rejected ones, then seven are new."""
    given = [{"trajectory_id": f"trajectory-{n}", "accepted": n < 2} for n in range(5)]
    store.commit([write(store, "trajectories", *given, n=2)])
    assert "7 new" in new_rows.too_few_new("train", store.root, 8)


def test_rounds_are_told_once(store: Store) -> None:
    """Given a round with two accepted and one rejected proposal, then it is new until it is noted, and so is the run's next round."""
    assert new_rows.new_rounds(store.root) is None
    for number, told in enumerate([(3, 2, {"facts": 1}, 2), (6, 4, {"facts": 2}, 2)]):
        reasons = [None, None, "facts"]
        rows = [{"run": "synthesis-1", "round": number, "position": at, "reason": reason} for at, reason in enumerate(reasons)]
        store.commit([write(store, "decisions", *rows, n=10 + number)])
        new = new_rows.new_rounds(store.root)
        assert new is not None and new.run == "synthesis-1"
        assert (new.proposals, new.accepted, new.rejected, new.newly_accepted) == told
        new_rows.note_seen("synthesize", store.root)
        assert new_rows.new_rounds(store.root) is None


def test_a_run_by_hand_notes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a run that starts no later one, then what it has seen is new for the run of the deployment."""
    monkeypatch.setattr(events, "is_root_of_a_deployment", lambda: False)
    new_rows.note_seen("tag", store.root)
    assert new_rows.too_few_new("tag", store.root, 5) == ""


def test_a_folder_that_is_no_store_yet_has_no_rows(tmp_path: Path) -> None:
    assert "0 new" in new_rows.too_few_new("tag", tmp_path / "store", 1)
