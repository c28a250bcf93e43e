"""The rollout workers of a stage: started, fed by affinity, replaced when they die, and retired when fewer are wanted.

One idea: the pool knows every open ticket, with the answers that were played of it. So when a worker dies or retires, its conversations
go on at another one from their last answer, and none is lost or played twice: a message of a ticket that a worker does not hold any more
is ignored. Workers come and go at any time; tickets without a worker wait.

What it does not do: decide what is opened or dropped (`train/rl/trajectories/queue_ledger.py`).
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from train.child_process import start_worker
from train.rl.rollout_worker import PlayerFailed, PlayerSetup
from train.rl.trajectories.conversation_worker import (
    Broken,
    Cancel,
    Finished,
    Play,
    Progress,
    Ready,
    Retire,
    SampledAnswer,
    UseWeights,
    work,
)
from train.rl.trajectories.queue_ledger import Ticket
from train.rl.trajectories.world_routing import Load, WorldDurations, choose_worker

MOST_DEATHS = 6
"""Workers that may die one after the other without a new answer between them."""
MOST_MOVES = 3
"""Workers that may die with one ticket; then it counts as a failure of the infrastructure."""
SUSPECT = 2
"""Workers that may die with a ticket before it is played alone: the others that they died with are innocent."""


@dataclass(slots=True)
class _Open:
    """A ticket that is played or waits for a worker.

    since: version of its first token, or of the weights when it was first sent to a worker; -1 before.
    workers: that had it. deaths: of workers that held it. sent: when the last worker got it, by the monotonic clock.
    """

    play: Play
    parts: list[SampledAnswer] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    since: int = -1
    deaths: int = 0
    sent: float = 0.0


@dataclass(slots=True)
class _Handle:
    """A worker. slots: 0 until it is ready."""

    number: int
    process: Any
    connection: Connection
    slots: int = 0
    tickets: set[Ticket] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished conversation, or one that its workers died with (`finished` is None; `failure` says it). workers: that played it, in
    order."""

    ticket: Ticket
    finished: Finished | None
    workers: tuple[int, ...]
    failure: str = ""


class WorkerPool:
    """The workers of one stage. All methods but `wait` are called under the queue's lock.

    Args:
        count: of workers. conversations: most that are open in the whole stage; each worker has slots for one and a half times its share.
    """

    def __init__(self, setup: PlayerSetup, count: int, conversations: int) -> None:
        self._setup, self._count, self._conversations = setup, count, conversations
        self._workers: dict[int, _Handle] = {}
        self._retired: list[Any] = []
        self._open: dict[Ticket, _Open] = {}
        self._waiting: deque[list[Ticket]] = deque()
        self._durations = WorldDurations()
        self._started = self._deaths = 0
        self._version = -1
        self._error = ""
        self.idle_s = 0.0
        """Seconds that workers had nothing to compute, summed over workers, since it was last set to 0."""
        self.resize(count)

    @property
    def size(self) -> int:
        """Workers that run, those that still load the policy included."""
        return len(self._workers)

    def resize(self, count: int) -> None:
        """Starts workers, or retires the newest; what they play goes on at the others."""
        self._count = count
        while len(self._workers) < count:
            self._start()
        for handle in sorted(self._workers.values(), key=lambda one: -one.number)[: len(self._workers) - count]:
            with suppress(OSError):
                handle.connection.send(Retire())
            self._release(handle, has_died=False)

    def submit(self, plays: Sequence[Play]) -> None:
        """Queues the plays of a group, which are of one world."""
        for play in plays:
            self._open[play.ticket] = _Open(play)
        self._waiting.append([play.ticket for play in plays])

    def first_versions(self) -> Iterator[tuple[Ticket, int]]:
        """Open tickets that a worker has or had, with the version of their first token, or an earlier one."""
        return ((ticket, one.since) for ticket, one in self._open.items() if one.since >= 0)

    def held(self) -> list[tuple[str, float]]:
        """World of each conversation that a worker holds, and seconds since the worker got it."""
        now = time.monotonic()
        each = [self._open[ticket] for handle in self._workers.values() for ticket in handle.tickets]
        return [(one.play.task.world, now - one.sent) for one in each]

    def held_for(self, seconds: float) -> list[Ticket]:
        """Tickets that their worker has held for so long, or longer."""
        now = time.monotonic()
        tickets = [ticket for handle in self._workers.values() for ticket in handle.tickets]
        return sorted(ticket for ticket in tickets if now - self._open[ticket].sent >= seconds)

    def tickets_of(self, group: int) -> list[Ticket]:
        """Open tickets of a group."""
        return [ticket for ticket in self._open if ticket.group == group]

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a ticket, if it is open."""
        self._open.pop(ticket, None)
        for handle in self._workers.values():
            if ticket in handle.tickets:
                handle.tickets.discard(ticket)
                with suppress(OSError):
                    handle.connection.send(Cancel(ticket))

    def use_weights(self, version: int) -> None:
        """Tells the workers of new weights, whose file exists."""
        self._version = version
        for handle in self._workers.values():
            if handle.slots:
                with suppress(OSError):
                    handle.connection.send(UseWeights(version))

    def dispatch(self) -> None:
        """Sends waiting groups to workers with room; a group that no worker can take now does not hold up the ones behind it. While
        suspects wait, one worker gets no other conversation, until it is empty."""
        if self._version < 0:
            return
        heavy = self._durations.heavy()
        still: deque[list[Ticket]] = deque()
        has_suspects = any(self._is_suspect(ticket) for tickets in self._waiting for ticket in tickets)
        reserved = self._emptiest() if has_suspects else None
        while self._waiting:
            tickets = [ticket for ticket in self._waiting.popleft() if ticket in self._open]
            if tickets and not self._send(tickets, heavy, reserved):
                still.append(tickets)
        self._waiting = still

    def wait(self, timeout_s: float) -> list[Connection]:
        """Connections with a message, or of a worker that has ended. Called without the lock."""
        connections = [handle.connection for handle in list(self._workers.values())]
        if not connections:
            time.sleep(timeout_s)
        return [one for one in wait(connections, timeout_s) if isinstance(one, Connection)] if connections else []

    def receive(self, connections: Sequence[Connection]) -> list[Ended]:
        """Handles the messages; the conversations that have ended. Replaces workers that died.

        Raises:
            PlayerFailed: one worker after the other has died; with the last error that one told.
        """
        ended: list[Ended] = []
        for handle in [one for one in self._workers.values() if one.connection in connections]:
            try:
                while handle.connection.poll():
                    ended += self._handle(handle, handle.connection.recv())
            except (EOFError, OSError):
                ended += self._release(handle, has_died=True)
                self._deaths += 1
                if self._deaths > MOST_DEATHS:
                    raise PlayerFailed(f"{self._deaths} rollout workers died one after the other: {self._why_they_died()}") from None
        self.resize(self._count)
        return ended

    @property
    def has_ready(self) -> bool:
        """Whether a worker has loaded the policy."""
        return any(handle.slots for handle in self._workers.values())

    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [handle.process.pid for handle in self._workers.values()]

    def close(self) -> None:
        """Ends all workers at once."""
        processes = [*self._retired, *(handle.process for handle in self._workers.values())]
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for handle in self._workers.values():
            handle.connection.close()
        self._workers.clear()

    def _why_they_died(self) -> str:
        if self._error and "memory" not in self._error:
            return self._error
        return (
            f"{self._error or 'killed, or out of memory'};\nfewer workers (rl.rollout_workers), or fewer tasks (rl.tasks_a_step), need less"
        )

    def _start(self) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        slots = max(1, -(-3 * self._conversations // (2 * max(1, self._count))))
        process = context.Process(target=work, args=(theirs, self._setup, slots, start_worker, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        self._workers[self._started] = _Handle(self._started, process, ours)
        self._started += 1

    def _handle(self, handle: _Handle, message: Ready | Broken | Progress | Finished) -> list[Ended]:
        match message:
            case Ready(slots):
                handle.slots = slots
                if self._version >= 0:
                    handle.connection.send(UseWeights(self._version))
            case Broken(error):
                self._error = error  # it ends, and counts as one that died
            case Progress(ticket, kept, part) if ticket in handle.tickets:
                self._add_part(self._open[ticket], kept, part, handle.number)
            case Finished() if message.ticket in handle.tickets:
                handle.tickets.discard(message.ticket)
                one = self._open.pop(message.ticket)
                self.idle_s += message.idle_s
                self._deaths, self._error = 0, ""
                self._durations.add(one.play.task.world, message.seconds)
                return [Ended(message.ticket, message, tuple(one.workers))]
        return []

    def _add_part(self, one: _Open, kept: int, part: SampledAnswer, worker: int) -> None:
        """Adds an answer; the first of a conversation that began again replaces what other workers played."""
        if kept >= len(one.parts):
            self._deaths, self._error = 0, ""
        if kept == 0:
            one.workers[:] = [worker]
            one.since = min(part.versions, default=one.since)
        one.parts[kept:] = [part]

    def _release(self, handle: _Handle, *, has_died: bool) -> list[Ended]:
        """Forgets a worker and queues its tickets again; those that too many workers died with have ended."""
        self._workers.pop(handle.number, None)
        if has_died:
            handle.process.join()
            handle.connection.close()
        else:
            self._retired.append(handle.process)
        ended = []
        for ticket in sorted(handle.tickets):
            one = self._open[ticket]
            one.deaths += has_died
            if one.deaths > MOST_MOVES:
                del self._open[ticket]
                why = f"{one.deaths} workers died with it" + f", the last told error: {self._error}" * bool(self._error)
                ended.append(Ended(ticket, None, tuple(one.workers), why))
            else:
                if not one.parts:  # no token of it is kept
                    one.workers.clear()
                    one.since = -1
                self._waiting.appendleft([ticket])
        return ended

    def _is_suspect(self, ticket: Ticket) -> bool:
        """Whether it may be what its workers died of."""
        return ticket in self._open and self._open[ticket].deaths >= SUSPECT

    def _emptiest(self) -> _Handle | None:
        """The worker that plays a suspect, or else the one that will be free for one first."""
        ready = [handle for handle in self._workers.values() if handle.slots]
        return min(ready, key=lambda one: (not any(map(self._is_suspect, one.tickets)), len(one.tickets), one.number), default=None)

    def _send(self, tickets: list[Ticket], heavy: frozenset[str], reserved: _Handle | None) -> bool:
        is_suspect = self._is_suspect(tickets[0])
        loads = [
            Load(
                handle.number,
                1 if any(map(self._is_suspect, handle.tickets)) else handle.slots,
                Counter(self._open[ticket].play.task.world for ticket in handle.tickets),
            )
            for handle in self._workers.values()
            if handle.slots and (is_suspect or handle is not reserved)
        ]
        needed = self._conversations if is_suspect else len(tickets)  # a suspect needs a whole worker
        load = choose_worker(self._open[tickets[0]].play.task.world, needed, loads, heavy)
        if load is None:
            return False
        handle = self._workers[load.worker]
        now, later = tickets[: load.free], tickets[load.free :]
        for ticket in now:
            one = self._open[ticket]
            one.since = self._version if one.since < 0 else one.since
            one.workers.append(load.worker)
            one.sent = time.monotonic()
            handle.tickets.add(ticket)
            with suppress(OSError):  # it has died; its tickets go on elsewhere
                handle.connection.send(replace(one.play, parts=tuple(one.parts)))
        if later:
            self._waiting.append(later)
        return True
