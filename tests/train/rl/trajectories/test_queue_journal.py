"""The journal of asynchronous RL: what is written is read again, whatever happened to its last line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import Outcome
from synth.rollouts.episode import Trace
from tests.synth.retail_tasks import task_of
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_journal import (
    DroppedRecord,
    OpenedRecord,
    QueueJournal,
    Record,
    StepRecord,
    life_of,
    main,
    read_journal,
)
from train.rl.trajectories.queue_ledger import Ticket, Trajectory

TASK = task_of("price_of_two", 1)
ROW = Row(TASK.id, Outcome.SUCCESS, 0.7, 1 / 3, Trace([1, 2], [3, 4, 5], [1, 0, 1], [-0.1, 0.0, -1e-7]), (False, True))
FAILED = Row(TASK.id, Outcome.INFRA_FAILURE, None, None, Trace(), ())
RECORDS: list[Record] = [
    OpenedRecord(0, 0, TASK, "parent"),
    Trajectory(Ticket(0, 0), ROW, ((0, 2), (1, 1)), (0, 3), 1.25),
    Trajectory(Ticket(0, 1), FAILED, ((0, 0),), (), 0.0, "2 workers died with it"),
    DroppedRecord(Ticket(0, 0), 2),
    Trajectory(Ticket(0, 0, 1), ROW, ((2, 3),), (1,), 0.5),
    StepRecord(0, (0,), (), {"staleness": 0.1, "dropped": 1.0}),
    OpenedRecord(1, 1, TASK.model_copy(update={"id": "ü"}), "父"),
]


def write(path: Path, records: list[Record], made_by: str = "hash") -> None:
    journal = QueueJournal(path, made_by)
    for record in records:
        journal.add(record)
    journal.close()


def reopened(path: Path, made_by: str = "hash") -> list[Record]:
    journal = QueueJournal(path, made_by)
    journal.close()
    return journal.records


def test_what_is_written_is_read_again_to_the_last_bit(tmp_path):
    path = tmp_path / "queue.jsonl"
    write(path, RECORDS)
    assert reopened(path) == read_journal(path) == RECORDS
    write(path, RECORDS[-1:])
    assert reopened(path) == [*RECORDS, RECORDS[-1]]


@settings(max_examples=40)
@given(st.integers(0, 200))
def test_a_torn_last_line_is_cut_off_and_written_again(tmp_path_factory, cut: int) -> None:
    """Given a process that was killed after any byte of its last line, then the journal goes on after the line before."""
    path = tmp_path_factory.mktemp("torn") / "queue.jsonl"
    write(path, RECORDS[:5])
    whole = path.read_bytes()
    write(path, RECORDS[5:6])
    last = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + last[: min(cut, len(last) - 1)])
    assert reopened(path) == RECORDS[:5]
    assert path.read_bytes() == whole
    write(path, RECORDS[5:])
    assert reopened(path) == RECORDS


@pytest.mark.parametrize("damage", [b"\x00", b"{{", b"[]\n", b" \n"])
def test_a_damaged_line_ends_what_can_be_read(tmp_path, capsys, damage):
    """Given a damaged line in the middle, then nothing after it is used: it may depend on what was lost."""
    path = tmp_path / "queue.jsonl"
    write(path, RECORDS)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], damage + lines[4][len(damage) :], *lines[5:]]))
    assert reopened(path) == RECORDS[:3]
    assert path.read_bytes() == b"".join(lines[:4])
    damaged = b"".join([*lines[:4], damage + lines[4][len(damage) :], *lines[5:]])
    assert path.with_name("queue.jsonl.old").read_bytes() == damaged, "it is kept"
    assert capsys.readouterr().err == "queue.jsonl is damaged at line 5: 4 lines are kept; the old one is queue.jsonl.old\n"


def test_a_journal_of_another_spec_or_code_is_begun_anew(tmp_path, capsys):
    path = tmp_path / "queue.jsonl"
    write(path, RECORDS)
    assert capsys.readouterr().err == ""
    assert reopened(path, "other") == []
    assert read_journal(path.with_name("queue.jsonl.old")) == RECORDS
    assert capsys.readouterr().err == "queue.jsonl is of another spec or code: begun anew; the old one is queue.jsonl.old\n"
    assert reopened(path, "hash") == []
    for content in (b"", b"\n", b"nonsense"):
        path.write_bytes(content)
        assert reopened(path) == []


def test_an_empty_or_missing_file_has_no_records(tmp_path):
    assert read_journal(tmp_path / "none.jsonl") == []
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert read_journal(tmp_path / "empty.jsonl") == []


def test_a_step_is_on_the_disk_before_it_is_learned_from(tmp_path, monkeypatch):
    """Then every record has left the process, so that a killed one loses none, and a step is synced, for a machine that loses power."""
    synced: list[int] = []
    path = tmp_path / "queue.jsonl"
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.stat().st_size))
    journal = QueueJournal(path, "hash")
    for count, record in enumerate(RECORDS, 1):
        journal.add(record)
        assert read_journal(path) == RECORDS[:count]
        assert bool(synced) == (count > 5)
    assert len(synced) == 1
    journal.close()


def test_a_life_is_told_in_its_order():
    assert life_of(RECORDS, 0) == [
        f"before step 0: opened, a task of world {TASK.world}",
        "before step 0: draw 0: 2 tokens by version 0 + 1 tokens by version 1; worker 0, then worker 3; 1.2 s; success",
        "before step 0: draw 1: no tokens; no worker finished it; 0.0 s; infra_failure (2 workers died with it)",
        "before step 0: draw 0 is too old, and is dropped",
        "before step 0: draw 0, attempt 2: 3 tokens by version 2; worker 1; 0.5 s; success",
        "step 0: learned from",
    ]


def test_a_drop_is_told_with_its_reason_and_what_follows():
    dropped = [
        DroppedRecord(Ticket(0, 1), 2, "failed", "ConnectionError: away"),
        DroppedRecord(Ticket(0, 1, 1), 2, "slow"),
        DroppedRecord(Ticket(0, 1, 2), 2),
    ]
    assert life_of([RECORDS[0], *dropped], 0)[1:] == [
        "before step 0: draw 1 has failed (ConnectionError: away), and is dropped",
        "before step 0: draw 1 is open for too long, and is dropped",
        "before step 0: draw 1 is too old, at attempt 3: the group is given up",
    ]


def test_a_file_that_is_no_journal_and_a_group_that_is_not_there_are_named(tmp_path, capsys):
    path, other = tmp_path / "queue.jsonl", tmp_path / "metrics.jsonl"
    write(path, RECORDS)
    other.write_text('{"step": 0}\n')
    assert main([str(path), "1"]) == 0
    assert capsys.readouterr().out == f"group 1\n  {life_of(RECORDS, 1)[0]}\n"
    for file in (other, tmp_path / "none.jsonl", tmp_path):
        assert main([str(file)]) == 2
        assert capsys.readouterr().err == f"{file} is no journal: give the queue.jsonl beside a model folder\n"
    for group in ("12", "many"):
        assert main([str(path), "0", group]) == 2
        assert capsys.readouterr() == ("", f"{path} has no group {group}\n")
