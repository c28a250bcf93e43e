"""The ledger of asynchronous RL: whatever the order of arrivals, drops and steps, every ticket ends once and nothing stale is learned."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import HeadraceError
from storage.records import Outcome
from synth.rollouts.episode import Trace
from tests.synth.retail_tasks import task_of
from train.rl.rewards import hardly_differ
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_ledger import ATTEMPTS, Dropped, QueueLedger, Ticket, Trajectory
from train.rl.trajectories.reward_client import Judged
from train.rl.trajectories.trajectory_queue import trajectory_of
from train.rl.trajectories.worker_pool import Ended

TASK = task_of("price_of_two", 1)


def trajectory(ticket: Ticket, *versions: int, learned: float | None = 1.0) -> Trajectory:
    outcome = Outcome.INFRA_FAILURE if learned is None else Outcome.SUCCESS if learned else Outcome.POLICY_FAILURE
    return Trajectory(ticket, Row(TASK.id, outcome, learned, learned, Trace()), tuple((version, 1) for version in versions))


@dataclass
class Driven:
    """A ledger among random events, what became of every ticket, and the events as a journal has them."""

    ledger: QueueLedger
    make: Any
    rounds: int
    open: dict[Ticket, int] = field(default_factory=dict)
    """Open tickets with the version of their first token; -1: none yet."""
    waiting: set[Ticket] = field(default_factory=set)
    ended: list[tuple[Ticket, str]] = field(default_factory=list)
    events: list[tuple[str, Any]] = field(default_factory=list)

    def open_groups(self, most: int = 99) -> None:
        while self.ledger.room and most:
            most -= 1
            for ticket in self.ledger.open(TASK, "parent"):
                self.open[ticket] = -1
            self.events.append(("open", None))

    def begin(self, ticket: Ticket) -> None:
        self.open[ticket] = self.ledger.version

    def arrive(self, ticket: Ticket, rng: random.Random) -> None:
        first = self.open.pop(ticket)
        first = self.ledger.version if first < 0 else first
        one = trajectory(ticket, *range(first, self.ledger.version + 1), learned=rng.choice((0.0, 0.0, 1.0, None)))
        self.events.append(("arrive", one))
        assert self.ledger.arrive(one)
        assert not self.ledger.arrive(one), "twice"
        self.waiting.add(ticket)
        self.drop_stale()
        self.ledger.set_aside(1e-6, self.rounds)

    def drop_stale(self) -> None:
        for dropped in self.ledger.drop_stale([(ticket, first) for ticket, first in self.open.items() if first >= 0]):
            self.on_dropped(dropped)

    def on_dropped(self, dropped: Dropped) -> None:
        self.events.append(("drop", dropped.ticket))
        gone = [dropped.ticket]
        if dropped.again is not None:
            assert dropped.again.attempt == dropped.ticket.attempt + 1 < ATTEMPTS
            self.open[dropped.again] = -1
        else:
            gone = [one for one in (*self.open, *self.waiting) if one.group == dropped.ticket.group]
        for ticket in gone:
            self.open.pop(ticket, None)
            self.waiting.discard(ticket)
            self.ended.append((ticket, "dropped"))

    def learn(self) -> bool:
        """A step, if there are enough groups."""
        self.ledger.set_aside(1e-6, self.rounds)
        numbers = self.ledger.next_step()
        if numbers is None:
            return False
        left_out = sorted(self.ledger.left_out)
        if len(left_out) < self.rounds * self.ledger._tasks_a_step:
            assert not any(hardly_differ([row.learned for row in self.ledger.groups[one].rows()], 1e-6) for one in numbers)
        step, bound = self.ledger.step, self.ledger._bound
        self.events.append(("step", (numbers, left_out)))
        learned, others = self.ledger.take(numbers, left_out)
        assert len(learned) == self.ledger._tasks_a_step
        for what, groups in (("learned", learned), ("left out", others)):
            for group in groups:
                assert len(list(group.rows())) == len(group.attempts)
                for one in group.arrived.values():
                    assert what == "left out" or step - one.oldest <= bound
                    self.waiting.remove(one.ticket)
                    self.ended.append((one.ticket, what))
        return True

    def check(self) -> None:
        """Every ticket is in one place; no more groups are open than can be learned from in time."""
        ledger = self.ledger
        every = ledger.groups | ledger.left_out
        current = {Ticket(group.number, draw, attempt) for group in every.values() for draw, attempt in enumerate(group.attempts)}
        assert current == set(self.open) | self.waiting
        assert not set(self.open) & self.waiting
        assert all(ledger.is_wanted(ticket) for ticket in self.open)
        assert {one.ticket for group in every.values() for one in group.arrived.values()} == self.waiting
        assert set(Counter(ticket for ticket, _ in self.ended).values()) <= {1}
        assert not {ticket for ticket, _ in self.ended} & current
        assert len(ledger.groups) <= (min(ledger.version + ledger._bound + 1, ledger._max_steps) - ledger.step) * ledger._tasks_a_step
        assert len(ledger.left_out) <= self.rounds * ledger._tasks_a_step

    def folded(self) -> QueueLedger:
        """A ledger that reads the events, as a resumed stage does."""
        other: QueueLedger = self.make()
        for kind, what in self.events:
            match kind:
                case "open":
                    other.open(TASK, "parent")
                case "arrive":
                    assert other.arrive(what)
                case "drop":
                    other.drop(what)
                case "step":
                    other.take(*what)
        return other


@settings(max_examples=120)
@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2))
def test_every_ticket_ends_once_and_nothing_stale_is_learned(rng, tasks, draws, bound, max_steps, rounds):
    """Given a trainer and workers at any speed, then the invariants hold after each event, the fold of the events is the same state, and
    from wherever it stands the stage can be ended."""

    def make() -> QueueLedger:
        return QueueLedger(tasks_a_step=tasks, draws=draws, bound=bound, max_steps=max_steps)

    driven = Driven(make(), make, rounds)
    ledger = driven.ledger
    for _ in range(rng.randrange(90)):
        match rng.choice(("open", "begin", "arrive", "arrive", "arrive", "learn", "hand over")):
            case "open":
                driven.open_groups(rng.randrange(4))
            case "begin" if driven.open:
                driven.begin(rng.choice(sorted(driven.open)))
            case "arrive" if driven.open:
                driven.arrive(rng.choice(sorted(driven.open)), rng)
            case "learn" if ledger.step < max_steps and ledger.version == ledger.step:
                driven.learn()
            case "hand over" if ledger.version < ledger.step < max_steps:
                ledger.version = ledger.step
                driven.drop_stale()
        driven.check()
    assert state(driven.folded()) == state(ledger)
    finish(driven, rng)
    assert state(driven.folded()) == state(ledger)


def state(ledger: QueueLedger) -> Any:
    """What is decided; groups that the next step leaves out are among the others, as a resumed stage has them."""
    every = ledger.groups | ledger.left_out
    groups = {number: (group.attempts, group.arrived, group.task, group.parent) for number, group in sorted(every.items())}
    return ledger.step, ledger._opened, groups


def finish(driven: Driven, rng: random.Random) -> None:
    """All that is open arrives, until the last step: each round of arrivals gives a step, or leaves groups out for at most `rounds`."""
    ledger, idle = driven.ledger, 0
    while ledger.step < ledger._max_steps:
        ledger.version = ledger.step
        driven.drop_stale()
        driven.open_groups()
        for ticket in sorted(driven.open):
            if ticket in driven.open:  # not of a group that was given up meanwhile
                driven.arrive(ticket, rng)
        driven.check()
        idle = 0 if driven.learn() else idle + 1
        assert idle <= driven.rounds * ledger._tasks_a_step + 1, "no step, although everything has arrived"
    assert ledger.room == 0


def test_equal_rewards_are_left_out_at_most_so_often_and_then_learned_from():
    """Given groups that are all uniform, then a step leaves out two rounds of them, and takes the next."""
    ledger = QueueLedger(tasks_a_step=2, draws=2, bound=1, max_steps=1)
    opened = 0
    while ledger.next_step() is None:
        assert ledger.room, "a stage must be able to go on"
        for ticket in ledger.open(TASK, "parent"):
            ledger.arrive(trajectory(ticket, 0))
        opened += 1
        ledger.set_aside(1e-6, 2)
    assert (ledger.next_step(), sorted(ledger.left_out), opened) == ([4, 5], [0, 1, 2, 3], 6)
    learned, left_out = ledger.take([4, 5], [0, 1, 2, 3])
    assert [[group.number for group in groups] for groups in (learned, left_out)] == [[4, 5], [0, 1, 2, 3]]


def test_groups_with_the_oldest_tokens_are_learned_from_first():
    ledger = QueueLedger(tasks_a_step=1, draws=2, bound=2, max_steps=9)
    first, second, third = (ledger.open(TASK, "parent") for _ in range(3))
    ledger.version = 1
    for tickets, versions in ((third, (1,)), (second, (1,)), (first, (0, 1))):
        for ticket in tickets:
            ledger.arrive(trajectory(ticket, *versions))
    assert [group.number for group in ledger.complete_groups()] == [0, 2, 1]


def test_an_attempt_that_was_dropped_is_not_taken_in_and_after_the_last_the_group_is_given_up():
    ledger = QueueLedger(tasks_a_step=1, draws=2, bound=1, max_steps=9)
    ticket, other = ledger.open(TASK, "parent")
    ledger.arrive(trajectory(other, 0))
    for attempt in range(1, ATTEMPTS):
        again = ledger.drop(ticket).again
        assert again == Ticket(0, 0, attempt)
        assert not ledger.arrive(trajectory(ticket, 0))
        ticket = again
    assert ledger.drop(ticket) == Dropped(ticket, None)
    assert not ledger.groups
    assert not ledger.is_wanted(other)


def test_a_step_takes_only_what_is_complete():
    ledger = QueueLedger(tasks_a_step=1, draws=2, bound=1, max_steps=9)
    ledger.arrive(trajectory(ledger.open(TASK, "parent")[0], 0))
    with pytest.raises(HeadraceError, match="step 0 takes group 0, which is not complete"):
        ledger.take([0], [])


@given(st.integers(0, 10**6), st.integers(0, 99), st.integers(0, 9))
def test_a_ticket_is_read_as_it_is_written(group: int, draw: int, attempt: int) -> None:
    assert Ticket.parse(str(Ticket(group, draw, attempt))) == Ticket(group, draw, attempt)


def test_a_waiting_trajectory_is_as_old_as_the_bound_allows_and_no_older():
    """Given one of version 0 that waits for its group, while steps learn from others."""
    ledger = QueueLedger(tasks_a_step=1, draws=2, bound=2, max_steps=9)
    waits, _ = ledger.open(TASK, "parent")
    assert ledger.arrive(trajectory(waits, 0))
    for step in range(3):
        assert ledger.drop_stale() == [], step
        for ticket in (group := ledger.open(TASK, "parent")):
            ledger.arrive(trajectory(ticket, step))
        ledger.take([group[0].group], [])
        ledger.version = step + 1
    assert ledger.drop_stale() == [Dropped(waits, Ticket(waits.group, waits.draw, 1))]


def test_a_conversation_whose_workers_died_is_of_the_version_at_that_time_and_teaches_nothing():
    """Otherwise it would be dropped as stale."""
    lost = trajectory_of(TASK, Ended(Ticket(3, 1), None, (0, 2), "killed"), Judged(Outcome.INFRA_FAILURE, None, None, "killed"), 7)
    assert (lost.oldest, lost.row.learned, lost.row.trace.ids, lost.workers, lost.failure) == (7, None, [], (0, 2), "killed")
