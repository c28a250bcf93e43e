"""Ledger of asynchronous RL: which trajectories are open, which wait, which are learned from, and which were dropped.

One idea: the ledger is a function of its events and knows no process and no clock. The trainer's queue feeds it, a resumed stage feeds it
from the journal, and a simulation feeds it with measured times; all three decide alike.

A group is a task with `draws` trajectories; a step learns from the `tasks_a_step` groups that were complete first, whatever their order of
opening, so a slow world holds up its own groups alone. Version v of the policy has learned from v batches. A trajectory is as old as its
oldest token. If it is older than the bound when it would be learned from, it is dropped and played again, under another attempt; after
`ATTEMPTS` of one draw the group is given up. No more groups are open than can be learned from within the bound if all are played now
(AReaL's admission rule, arXiv 2505.24298), so only trajectories that take longer than usual are dropped.

What it does not do: choose the worker (`train/rl/trajectories/world_routing.py`).
Sources: RollArt, arXiv 2512.22560 (staleness bound a trajectory); ROLL, arXiv 2506.06122 (scheduler by sample).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storage.errors import HeadraceError
from storage.records import Outcome, Task
from train.rl.rewards import hardly_differ
from train.rl.rollout_batches import Row

ATTEMPTS = 3
"""Most attempts of one draw; if the last is dropped too, its group is given up."""


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """One attempt to play one draw of a group."""

    group: int
    draw: int
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.group}-{self.draw}-{self.attempt}"

    @staticmethod
    def parse(text: str) -> Ticket:
        return Ticket(*map(int, text.split("-")))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished trajectory.

    row: what RL learns from.
    versions: runs of equal weights over the policy's tokens: (version, tokens).
    workers: of those that played a part of it, in order.
    seconds: of the worker that ended it, tools and waiting included.
    failure: why it could not be rated; empty if it was.
    """

    ticket: Ticket
    row: Row
    versions: tuple[tuple[int, int], ...]
    workers: tuple[int, ...] = ()
    seconds: float = 0.0
    failure: str = ""

    @property
    def oldest(self) -> int:
        """Version of its oldest token."""
        return min(version for version, _ in self.versions)

    @property
    def is_lost(self) -> bool:
        """Whether the infrastructure or the judge failed, so that it may be played again."""
        return self.row.learned is None and self.row.outcome in (Outcome.INFRA_FAILURE, Outcome.JUDGE_FAILURE)

    @property
    def is_resumed(self) -> bool:
        """Whether a part was sampled, and the rest later by newer weights or another worker."""
        return len(self.versions) > 1 or len(self.workers) > 1


@dataclass(slots=True)
class Group:
    """A task and its draws. parent: id of the split's task whose sibling it is. arrived: by draw. completed: number in the order
    of completion; -1 before."""

    number: int
    task: Task
    parent: str
    attempts: list[int]
    arrived: dict[int, Trajectory] = field(default_factory=dict)
    completed: int = -1

    @property
    def is_complete(self) -> bool:
        return len(self.arrived) == len(self.attempts)

    @property
    def oldest(self) -> int:
        return min(one.oldest for one in self.arrived.values())

    def rows(self) -> Iterator[Row]:
        """By draw."""
        return (self.arrived[draw].row for draw in sorted(self.arrived))


@dataclass(frozen=True, slots=True)
class Dropped:
    """A trajectory that no step learns from. again: the ticket to play instead; None if the group is given up."""

    ticket: Ticket
    again: Ticket | None


class QueueLedger:
    """All groups of a stage that are not learned from yet.

    Args:
        tasks_a_step, draws, bound: as `RLSettings.tasks_a_step`, `draws` and `staleness`.
        max_steps: of the stage; no more groups are opened than these need.
    """

    def __init__(self, *, tasks_a_step: int, draws: int, bound: int, max_steps: int) -> None:
        self._tasks_a_step, self._draws, self._bound, self._max_steps = tasks_a_step, draws, bound, max_steps
        self.groups: dict[int, Group] = {}
        self.left_out: dict[int, Group] = {}
        """Groups that the next step leaves out."""
        self.step = 0
        """The step that is learned from next."""
        self.version = 0
        """Version of the newest weights that workers can play with: `step`, or `step - 1` while the trainer learns."""
        self._opened = self._completed = 0

    @property
    def room(self) -> int:
        """Number of groups that may be opened now, so that each can be learned from within the bound."""
        steps_ahead = min(self.version + self._bound + 1, self._max_steps) - self.step
        return max(0, steps_ahead * self._tasks_a_step - len(self.groups))

    def open(self, task: Task, parent: str) -> list[Ticket]:
        """Opens a group; the tickets of its draws."""
        number = self._opened
        self._opened += 1
        self.groups[number] = Group(number, task, parent, [0] * self._draws)
        return [Ticket(number, draw) for draw in range(self._draws)]

    def is_wanted(self, ticket: Ticket) -> bool:
        """Whether this attempt is still the one that its draw waits for."""
        group = self.groups.get(ticket.group)
        return group is not None and group.attempts[ticket.draw] == ticket.attempt and ticket.draw not in group.arrived

    def arrive(self, trajectory: Trajectory) -> bool:
        """Adds a trajectory. False: the ledger does not expect this attempt (its group was given up, or it was dropped meanwhile)."""
        ticket = trajectory.ticket
        if not self.is_wanted(ticket):
            return False
        group = self.groups[ticket.group]
        group.arrived[ticket.draw] = trajectory
        if group.is_complete:
            group.completed = self._completed
            self._completed += 1
        return True

    def drop_stale(self, started: Iterable[tuple[Ticket, int]] = ()) -> list[Dropped]:
        """Drops what is older than the bound at the next step: trajectories that wait, and open ones by the version of their first token.

        started: open tickets that have a first token, with its version.
        """
        stale = [
            trajectory.ticket
            for group in self.groups.values()
            for trajectory in group.arrived.values()
            if self.step - trajectory.oldest > self._bound
        ]
        stale += [ticket for ticket, version in started if self.step - version > self._bound and self.is_wanted(ticket)]
        return [self.drop(ticket) for ticket in sorted(stale)]

    def drop(self, ticket: Ticket) -> Dropped:
        """Drops one attempt, open or arrived."""
        group = self.groups.get(ticket.group)
        if group is None:
            return Dropped(ticket, None)
        group.arrived.pop(ticket.draw, None)
        group.completed = -1
        group.attempts[ticket.draw] += 1
        if group.attempts[ticket.draw] >= ATTEMPTS:
            del self.groups[ticket.group]
            return Dropped(ticket, None)
        return Dropped(ticket, Ticket(ticket.group, ticket.draw, group.attempts[ticket.draw]))

    def complete_groups(self) -> list[Group]:
        """Complete groups, in the order in which they should be learned from: the oldest tokens first, then the first complete."""
        complete = [group for group in self.groups.values() if group.is_complete]
        return sorted(complete, key=lambda group: (group.oldest, group.completed))

    def set_aside(self, min_std: float, resample_rounds: int) -> None:
        """Leaves complete groups out whose rewards hardly differ; others are opened instead.

        min_std: as `Loss.min_std`. resample_rounds: at most so many times `tasks_a_step` groups are left out a step.
        """
        for group in self.complete_groups() if resample_rounds else ():
            if len(self.left_out) >= resample_rounds * self._tasks_a_step:
                return
            if hardly_differ([row.learned for row in group.rows()], min_std):
                self.left_out[group.number] = self.groups.pop(group.number)

    def next_step(self) -> list[int] | None:
        """Numbers of the groups to learn from next; None: too few are complete."""
        ready = [group.number for group in self.complete_groups()][: self._tasks_a_step]
        return ready if len(ready) == self._tasks_a_step else None

    def take(self, numbers: Sequence[int], left_out: Sequence[int]) -> tuple[list[Group], list[Group]]:
        """Ends a step: removes and returns the groups that it learns from, and those that it leaves out.

        Raises:
            HeadraceError: a group is not there, or not complete.
        """
        every = self.groups | self.left_out
        if missing := [number for number in (*numbers, *left_out) if number not in every or not every[number].is_complete]:
            raise HeadraceError(f"step {self.step} takes group {missing[0]}, which is not complete")
        for number in (*numbers, *left_out):
            self.groups.pop(number, None)
        self.left_out.clear()
        self.step += 1
        return [every[number] for number in numbers], [every[number] for number in left_out]
