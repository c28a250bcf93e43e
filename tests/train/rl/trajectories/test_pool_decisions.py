"""What the pool decides about workers that die, are preempted or tell an error: the workers' messages are scripted, no process runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from storage.records import Message, Outcome
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Trace
from tests.synth.retail_tasks import task_of
from train.rl.rollout_worker import PlayerFailed
from train.rl.trajectories.conversation_worker import Broken, Finished, Play, Progress, Ready, SampledAnswer
from train.rl.trajectories.queue_ledger import Ticket
from train.rl.trajectories.worker_pool import MOST_DEATHS, MOST_MOVES, SUSPECT, Ended, WorkerPool, _Handle

TASK = task_of("price_of_two", 1)
ANSWER = ChatAnswer(Message(role="assistant", content="x"), "stop")


class ScriptedPool(WorkerPool):
    """A pool whose workers are pipes; `ends` has the worker's end of each, by its number."""

    ends: dict[int, Connection]

    def _start(self) -> None:
        ours, theirs = Pipe()
        self.ends = getattr(self, "ends", {}) | {self._started: theirs}
        process = SimpleNamespace(pid=0, join=lambda: None, kill=lambda: None)
        self._workers[self._started] = _Handle(self._started, process, ours)
        self._started += 1
        theirs.send(Ready(4))

    def turn(self) -> list[Ended]:
        """As the queue's thread does."""
        ended = self.receive(self.wait(0.05))
        self.dispatch()
        return ended

    def say(self, worker: int, *messages: Any) -> list[Ended]:
        """The worker sends messages."""
        for message in messages:
            self.ends[worker].send(message)
        return self.turn()

    def kill(self, worker: int) -> list[Ended]:
        """The worker ends. Its successor gets ready."""
        self.ends[worker].close()
        ended = self.turn()
        return ended + self.turn()

    def tickets(self, worker: int) -> set[Ticket]:
        return set(self._workers[worker].tickets)


Pools = Callable[[int], ScriptedPool]


@pytest.fixture
def pools() -> Iterator[Pools]:
    made: list[ScriptedPool] = []

    def make(count: int) -> ScriptedPool:
        nothing: Any = None
        made.append(ScriptedPool(nothing, count, 8))
        made[-1].use_weights(0)
        made[-1].turn()
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def play(group: int) -> Play:
    return Play(Ticket(group, 0), TASK, 0)


def progress(group: int, kept: int, version: int = 0) -> Progress:
    return Progress(Ticket(group, 0), kept, SampledAnswer(ANSWER, (version, version)))


def finished(group: int) -> Finished:
    return Finished(Ticket(group, 0), (), Trace(), (), Outcome.UNFINISHED, 0.0, "", None, ((0, 2),), 1.0, 0.0)


def test_workers_that_are_preempted_after_an_answer_do_not_end_the_stage(pools):
    """Given more deaths than a stage bears in a row, with a new answer between any two."""
    pool = pools(1)
    for number in range(MOST_DEATHS + 2):
        pool.submit([play(number)])
        pool.dispatch()
        pool.say(number, progress(number, 0))
        pool.cancel(Ticket(number, 0))
        pool.kill(number)
    assert pool.size == 1


def test_deaths_between_answers_alone_are_counted(pools):
    pool = pools(1)
    pool.submit([play(0)])
    pool.dispatch()
    for number in range(MOST_MOVES):
        pool.say(number, progress(0, number))
        assert pool._deaths == 0, "an answer was added"
        pool.kill(number)
        assert pool._deaths == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, r": killed, or out of memory;\nfewer workers \(rl.rollout_workers\), or fewer tasks \(rl.tasks_a_step\), need less$"),
        ("OutOfMemoryError: CUDA out of memory", r": OutOfMemoryError: CUDA out of memory;\nfewer workers .*need less$"),
        ("SafetensorError: damaged", ": SafetensorError: damaged$"),
    ],
)
def test_one_worker_that_fails_is_replaced_and_what_all_fail_of_is_told(pools, error, words):
    pool = pools(1)
    with pytest.raises(PlayerFailed, match=f"{MOST_DEATHS + 1} rollout workers died one after the other{words}"):
        for number in range(MOST_DEATHS + 1):
            assert pool.size == 1
            if error:
                pool.say(number, Broken(error))
            pool.kill(number)


def test_others_are_played_while_a_suspect_waits_for_a_worker_of_its_own(pools):
    """Given two workers that play, then the one that has less to do gets nothing new until the suspect has it alone; the other goes on."""
    pool, suspect = pools(2), Ticket(9, 0)
    for group in range(5):
        pool.submit([play(group)])
    pool.dispatch()
    less, more = sorted(pool._workers, key=lambda number: len(pool.tickets(number)))
    assert 0 < len(pool.tickets(less)) < len(pool.tickets(more))
    pool.submit([play(9)])
    pool._open[suspect].deaths = SUSPECT
    pool.submit([play(10)])
    pool.turn()
    assert Ticket(10, 0) in pool.tickets(more), "it does not wait for the suspect"
    pool.say(less, *map(finished, (ticket.group for ticket in pool.tickets(less))))
    assert pool.tickets(less) == {suspect}
    for group in range(11, 16):
        pool.submit([play(group)])
    pool.turn()
    assert pool.tickets(less) == {suspect}
    assert len(pool.tickets(more)) == 4


def test_a_conversation_that_kills_its_workers_ends_with_the_cause(pools):
    pool, ended = pools(1), list[Ended]()
    pool.submit([play(0)])
    pool.dispatch()
    for number in range(MOST_MOVES + 1):
        pool.say(number, Broken("ValueError: planted"))
        ended += pool.kill(number)
    (one,) = ended
    assert (one.ticket, one.finished) == (Ticket(0, 0), None)
    assert one.failure == f"{MOST_MOVES + 1} workers died with it, the last told error: ValueError: planted"


def test_only_what_is_kept_counts_as_played_before(pools):
    """Given a conversation whose worker dies before its first answer, then it is as if it had never begun; one that begins again at another
    worker is that one's alone, as old as its new first token."""
    pool = pools(1)
    pool.submit([play(0)])
    pool.dispatch()
    assert list(pool.first_versions()) == [(Ticket(0, 0), 0)]
    pool.use_weights(3)
    pool.ends[0].close()
    pool.receive(pool.wait(0.05))
    assert list(pool.first_versions()) == []
    pool.turn()
    assert list(pool.first_versions()) == [(Ticket(0, 0), 3)]
    pool.say(1, progress(0, 0, 3), progress(0, 1, 3))
    pool.kill(1)
    assert pool._open[Ticket(0, 0)].workers == [1, 2]
    pool.say(2, progress(0, 0, 5))
    assert list(pool.first_versions()) == [(Ticket(0, 0), 5)]
    assert pool._open[Ticket(0, 0)].workers == [2]
    (one,) = pool.say(2, finished(0))
    assert one.workers == (2,)


def test_the_time_of_a_conversation_at_its_worker_is_known(pools, monkeypatch):
    pool = pools(1)
    now = [100.0]
    monkeypatch.setattr("train.rl.trajectories.worker_pool.time", SimpleNamespace(monotonic=lambda: now[0]))
    for group in range(6):
        pool.submit([play(group)])
    pool.dispatch()
    held = sorted(pool.tickets(0))
    now[0] = 107.0
    assert pool.held() == [(TASK.world, 7.0)] * len(held)
    assert pool.held_for(7.5) == []
    assert pool.held_for(7.0) == held
    assert len(held) == 4, "what waits for a worker is not held"
