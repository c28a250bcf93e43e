"""What the queue does with failures, slow conversations and a resumed journal: workers and verdicts are scripted, no process runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from storage.errors import HeadraceError
from storage.records import Outcome, Task
from synth.rollouts.episode import Trace
from tests.synth.retail_tasks import task_of
from tests.waiting import eventually
from train.rl.rollout_batches import Row
from train.rl.trajectories import trajectory_queue
from train.rl.trajectories.conversation_worker import Finished, Play
from train.rl.trajectories.queue_journal import JOURNAL, DroppedRecord, OpenedRecord, QueueJournal, StepRecord, read_journal
from train.rl.trajectories.queue_ledger import ATTEMPTS, Ticket, Trajectory
from train.rl.trajectories.reward_client import Judged
from train.rl.trajectories.trajectory_queue import WORKERS_FILE, TrajectoryQueue
from train.rl.trajectories.worker_pool import Ended
from train.spec import RLSettings, StageSpec

TASK = task_of("price_of_two", 1)
Script = Callable[[Play], Any]
"""What becomes of a play: a `Judged`, or None while its tool does not return."""


class ScriptedPool:
    """Plays by a script; what it holds is open for 7 s."""

    def __init__(self, script: Script) -> None:
        self.script, self.size, self.idle_s = script, 2, 0.0
        self.open: dict[Ticket, Play] = {}
        self.played: Counter[Ticket] = Counter()

    def submit(self, plays: Sequence[Play]) -> None:
        self.open |= {play.ticket: play for play in plays}

    def receive(self, _: object) -> list[Ended]:
        verdicts = {ticket: verdict for ticket, play in self.open.items() if (verdict := self.script(play)) is not None}
        for ticket in verdicts:
            del self.open[ticket]
            self.played[ticket] += 1
        return [Ended(ticket, finished(ticket, verdict), (0,)) for ticket, verdict in verdicts.items()]

    def held(self) -> list[tuple[str, float]]:
        return [(play.task.world, 7.0) for play in self.open.values()]

    def held_for(self, seconds: float) -> list[Ticket]:
        return sorted(self.open) if seconds <= 7.0 else []

    def cancel(self, ticket: Ticket) -> None:
        self.open.pop(ticket, None)

    def tickets_of(self, group: int) -> list[Ticket]:
        return [ticket for ticket in self.open if ticket.group == group]

    def first_versions(self) -> Iterable[tuple[Ticket, int]]:
        return ()

    def wait(self, _: float) -> list[Any]:
        time.sleep(0.002)
        return []

    def resize(self, count: int) -> None:
        self.size = count

    def use_weights(self, version: int) -> None:
        """Nothing to load."""

    def dispatch(self) -> None:
        """All that is submitted is open."""

    def close(self) -> None:
        """No process runs."""


class ScriptedRewards:
    """Gives the verdict of the script, which the conversation carries as its outcome."""

    def __init__(self, on_verdict: Callable[[str, Judged], None], script: Script) -> None:
        self._on_verdict, self._script = on_verdict, script
        self.failure, self.bill = None, SimpleNamespace(retries=0, seconds=0.0)

    def ask(self, key: str, conversation: dict[str, Any]) -> None:
        ticket = Ticket.parse(key)
        self._on_verdict(key, self._script(Play(ticket, Task.model_validate(conversation["task"]), 0)))

    def close(self) -> None:
        """No process runs."""


def finished(ticket: Ticket, verdict: Judged) -> Finished:
    is_lost = verdict.outcome is Outcome.INFRA_FAILURE
    outcome, failure = (verdict.outcome, verdict.failure) if is_lost else (None, "")
    return Finished(ticket, (), Trace([1], [2], [1], [0.0]), (), outcome, None, failure, {}, ((0, 1),), 1.0, 0.0)


def rated(reward: float) -> Judged:
    return Judged(Outcome.SUCCESS if reward else Outcome.POLICY_FAILURE, reward, reward)


def mixed(play: Play) -> Judged:
    return rated(float(play.ticket.draw))


class Source:
    """Draws tasks without end."""

    parents: dict[str, str]

    def __call__(self, step: int, again: int = 0) -> list[Task]:
        tasks = [TASK.model_copy(update={"id": f"{step}-{number}"}) for number in range(2)]
        self.parents = {task.id: "parent" for task in tasks}
        return tasks


Queues = Callable[..., TrajectoryQueue]


@pytest.fixture
def queues(tmp_path, monkeypatch) -> Iterator[Queues]:
    """Makes queues of one stage: one after the other, as a command that is given again."""
    made: list[TrajectoryQueue] = []

    def make(script: Script, **settings: Any) -> TrajectoryQueue:
        end(made)
        monkeypatch.setattr(trajectory_queue, "WorkerPool", lambda *_: ScriptedPool(script))
        monkeypatch.setattr(trajectory_queue, "RewardClient", lambda *_, on_verdict, **__: ScriptedRewards(on_verdict, script))
        rl = RLSettings(**{"max_steps": 3, "tasks_a_step": 2, "draws": 2, "staleness": 1, "rollout_workers": 2, **settings})
        common: dict[str, Any] = {"store": tmp_path, "release_id": "r", "split": "rl", "model_out": tmp_path / "model"}
        spec = StageSpec(name="rl", algorithm="rl", rl=rl, **common)
        model, source, scratch = torch.nn.Linear(1, 1), Source(), tmp_path / f"scratch-{len(made)}"
        model.config = None  # type: ignore[assignment]
        scratch.mkdir()
        made.append(TrajectoryQueue(spec, source, model, None, scratch, "hash"))  # type: ignore[arg-type]
        made[-1].__enter__()
        made[-1].begin(None)
        return made[-1]

    yield make
    end(made)


def end(queues: Sequence[TrajectoryQueue]) -> None:
    for queue in queues[-1:]:
        queue.__exit__()


def records(folder: Path, kind: type[Any]) -> list[Any]:
    return [one for one in read_journal(folder / JOURNAL) if isinstance(one, kind)]


LOST = Judged(Outcome.INFRA_FAILURE, None, None, "ConnectionError: away")
UNJUDGED = Judged(Outcome.JUDGE_FAILURE, None, None, "ZeroDivisionError: scorer")


@pytest.mark.parametrize("failed", [LOST, UNJUDGED], ids=["played", "judged"])
def test_what_failed_is_played_again_and_its_cause_is_kept(queues, tmp_path, failed):
    """Given a draw that fails at its first attempt, and one that always fails, then the first is learned from, and the other has no reward
    after its last attempt; the journal says why."""

    def script(play: Play) -> Judged:
        group, draw = play.ticket.group, play.ticket.draw
        return failed if (group, draw) == (0, 0) or ((group, draw) == (1, 0) and play.ticket.attempt == 0) else mixed(play)

    batch = queues(script, max_steps=1).batch(0)
    assert [row.reward for row in batch.rows] == [0.0, 1.0, None, 1.0]
    dropped = records(tmp_path, DroppedRecord)
    assert {one.ticket for one in dropped} == {Ticket(0, 0, 0), Ticket(0, 0, 1), Ticket(1, 0, 0)}
    assert {(one.reason, one.failure) for one in dropped} == {("failed", failed.failure)}
    assert [one.failure for one in records(tmp_path, Trajectory) if one.ticket == Ticket(0, 0, ATTEMPTS - 1)] == [failed.failure]


def test_a_step_that_cannot_be_rated_names_the_cause_and_the_same_command_goes_on_once_it_is_gone(queues, tmp_path):
    with pytest.raises(HeadraceError, match=r"no rollout of step 0 could be rated: .*ConnectionError: away.*\n.*the same command goes on"):
        queues(lambda _: LOST).batch(0)
    assert records(tmp_path, StepRecord) == []
    with pytest.raises(HeadraceError, match="no rollout of step 0 could be rated"):
        queues(lambda _: LOST).batch(0)
    queue = queues(mixed)
    assert [row.reward for row in queue.batch(0).rows] == [0.0, 1.0, 0.0, 1.0]
    (step,) = records(tmp_path, StepRecord)
    assert not set(step.groups) & {0, 1}, "the groups that failed are given up"
    assert queues(mixed).batch(0) == queue._batch(0, *queues(mixed)._repeated[0][1:])


def test_a_resumed_stage_leaves_equal_rewards_out_too(queues, tmp_path):
    """Given a journal whose complete groups are uniform, and no arrival before the first step."""
    journal = QueueJournal(tmp_path / JOURNAL, "hash")
    for number in range(4):
        journal.add(OpenedRecord(number, number // 2, TASK.model_copy(update={"id": str(number)}), "parent"))
        for draw in range(2):
            row = Row(str(number), Outcome.SUCCESS, 1.0, float(draw) if number > 1 else 1.0, Trace([1], [2], [1], [0.0]))
            journal.add(Trajectory(Ticket(number, draw), row, ((0, 1),)))
    journal.close()
    batch = queues(mixed, loss="dapo", resample_rounds=1).batch(0)
    assert [row.task_id for row in batch.rows] == ["2", "2", "3", "3"]
    assert {row.task_id for row in batch.left_out} == {"0", "1"}


@pytest.mark.parametrize("timeout_s", [7.0, 8.0])
def test_a_tool_that_never_returns_costs_its_own_attempt(queues, tmp_path, monkeypatch, timeout_s):
    """Given the last step, and conversations that have been open for 7 s, then they are dropped and played again after the limit, and not
    before."""
    queue = queues(lambda play: mixed(play) if play.ticket.attempt else None, max_steps=1, rollout_timeout_s=timeout_s)
    if timeout_s > 7:
        assert not eventually(lambda: queue._dropped, 0.3, 0.02)
        return
    assert len(queue.batch(0).rows) == 4
    assert {(one.ticket.attempt, one.reason) for one in records(tmp_path, DroppedRecord)} == {(0, "slow")}


def test_a_stage_says_what_it_waits_for(queues, monkeypatch, capsys):
    monkeypatch.setattr(trajectory_queue, "_TELL_S", 0.0)
    monkeypatch.setattr(trajectory_queue, "_LOOK_S", 0.01)
    said = list[str]()

    def script(play: Play) -> Judged | None:
        said.append(capsys.readouterr().err)
        return mixed(play) if any(said) or play.ticket.draw else None

    queues(script, max_steps=1).batch(0)
    assert f"step 0 waits for 2 conversations of world {TASK.world}, open for 7 s\n" in "".join(said)


@pytest.mark.parametrize("content", ["800", "0", "-1", "many"])
def test_a_number_of_workers_that_cannot_be_is_told_once(queues, tmp_path, capsys, content):
    queue = queues(mixed)
    file = tmp_path / WORKERS_FILE
    for given in (f"{content}\n", f"{content}\n", "8"):
        file.write_text(given)
        queue._resize()
        assert queue.pool.size == (8 if given == "8" else 2)
    assert capsys.readouterr().err == f"rollout_workers must hold a number from 1 to 8, and holds '{content}'\n"


def test_a_draw_of_a_group_that_is_given_up_meanwhile_is_not_played_again(queues):
    """Given two draws of a group that are too old at once, one of them for the last time."""
    queue = queues(lambda _: None)
    ledger, last = queue._ledger, Ticket(0, 1, ATTEMPTS - 1)
    queue._submit(ledger.open(TASK, "parent"))
    ledger.groups[0].attempts[1] = last.attempt
    for dropped in [ledger.drop(Ticket(0, 0)), ledger.drop(last)]:
        queue._count_dropped(dropped, "stale")
    assert queue.pool.open == {}
