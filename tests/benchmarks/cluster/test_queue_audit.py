"""The audit of a journal finds each trajectory that is lost or doubled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cluster.queue_sections.queue_audit import audit
from storage.records import Outcome, Task
from synth.rollouts.episode import Trace
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_journal import DroppedRecord, OpenedRecord, Record, StepRecord
from train.rl.trajectories.queue_ledger import ATTEMPTS, Ticket, Trajectory

DRAWS = 2


def arrival(*ticket: int) -> Trajectory:
    return Trajectory(Ticket(*ticket), Row("", Outcome.SUCCESS, 1.0, 1.0, Trace()), ((0, 5),))


def journal() -> list[Record]:
    """Two steps of a group each; one draw arrived twice, because its first attempt was dropped; group 2 was given up, group 3 left out."""
    opened = [OpenedRecord(number, 0, Task.model_construct(), "") for number in range(4)]
    drops = [DroppedRecord(Ticket(2, 1, attempt), 1) for attempt in range(ATTEMPTS)]
    again = [DroppedRecord(Ticket(1, 0), 1), arrival(1, 0, 1)]
    first = [arrival(number, draw) for number in (0, 1, 3) for draw in range(DRAWS)]
    return [*opened, *first, StepRecord(0, (0,), (3,), {}), *again, *drops, StepRecord(1, (1,), (), {})]


def test_a_whole_journal_has_nothing_lost_or_doubled() -> None:
    assert audit(journal(), DRAWS) == (0, 0)


@pytest.mark.parametrize(
    ("gone", "lost"),
    [
        (arrival(0, 1), 1),
        (arrival(1, 0, 1), 1),
        (OpenedRecord(1, 0, Task.model_construct(), ""), DRAWS),
        (OpenedRecord(2, 0, Task.model_construct(), ""), DRAWS),
        (StepRecord(1, (1,), (), {}), DRAWS),
        (StepRecord(0, (0,), (3,), {}), 2 * DRAWS),
        (DroppedRecord(Ticket(2, 1, ATTEMPTS - 1), 1), DRAWS),
    ],
    ids=str,
)
def test_a_record_that_is_missing_is_lost(gone: Record, lost: int) -> None:
    records = journal()
    records.remove(gone)
    assert audit(records, DRAWS) == (lost, 0)


def test_a_conversation_that_deaths_alone_ended_is_lost_and_one_whose_tool_failed_is_not() -> None:
    records = journal()
    place = records.index(arrival(0, 1))
    failed = replace(arrival(0, 1), row=replace(arrival(0, 1).row, outcome=Outcome.INFRA_FAILURE, reward=None, learned=None))
    records[place] = failed
    assert audit(records, DRAWS) == (0, 0)
    records[place] = replace(failed, versions=((0, 0),))
    assert audit(records, DRAWS) == (1, 0)


@pytest.mark.parametrize(("again", "doubled"), [(arrival(0, 1), 1), (StepRecord(1, (1,), (), {}), 2), (StepRecord(2, (1,), (), {}), 1)])
def test_what_is_there_twice_is_doubled(again: Record, doubled: int) -> None:
    assert audit([*journal(), again], DRAWS) == (0, doubled)
