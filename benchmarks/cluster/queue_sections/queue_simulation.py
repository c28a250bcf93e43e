"""Simulation of the queue of trajectories from measured parts, for machines that are not here.

One idea: the simulation runs the very ledger and routing of the product (`train/rl/trajectories/`) against a clock of its own. Processes
need CPU seconds, which the machine's cores share evenly, or wait for tools, which need none. Every cost is measured on its own
(`queue_costs.py`). Conversations have the shapes (answers, tokens, tools' results) of recorded ones, drawn anew.

It is believed only where it reproduces a measured stage (`simulated_vs_measured`). Processes slow each other down by one factor, which
depends on how many compute; it is measured on rounds of tokens and applied to all work. Not simulated: the network, the threads of Python
that share an interpreter.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from storage.records import Outcome
from synth.rollouts.episode import Trace
from train.rl.rollout_batches import Row
from train.rl.trajectories.queue_ledger import QueueLedger, Ticket, Trajectory
from train.rl.trajectories.world_routing import Load, WorldDurations, choose_worker


@dataclass(frozen=True)
class Shape:
    """A conversation: tokens of its prompt, of each answer, and of what came after each answer but the last."""

    world: str
    prompt: int
    answers: tuple[int, ...]
    observed: tuple[int, ...]


@dataclass(frozen=True)
class Costs:
    """CPU seconds. round_s + row_s x rows: one token of each row. read_s: a token of a prompt or result. answer_s: an answer besides its
    tokens: parsing, its tools, messages to and from the trainer. swap_s: new weights in a worker. learn_s, draw_s, hand_over_s: of a step.
    verdict_s: of a conversation, in the service and in the trainer. trainer_start_s, worker_start_s, service_start_s: of a process; the
    reward service starts with the first conversation, a worker once the trainer has loaded what a worker does. Measured with no other
    load; slowdown: at index n, CPU time of the same work with n + 1 processes computing, over that of one alone; the last value holds for
    more (`core_sharing.py`)."""

    round_s: float
    row_s: float
    read_s: float
    answer_s: float
    swap_s: float
    learn_s: float
    draw_s: float
    hand_over_s: float
    verdict_s: float
    trainer_start_s: float
    worker_start_s: float
    service_start_s: float
    slowdown: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class QueueShape:
    """What is simulated. call_s: wall seconds of a call, by world."""

    cores: float
    workers: int
    steps: int
    tasks_a_step: int
    draws: int
    bound: int
    call_s: Mapping[str, float]


Process = Generator[tuple[str, float], None, None]
"""Yields ("cpu", seconds), ("sleep", seconds), or ("wait", 0): until somebody calls `Machine.wake`."""


class Machine:
    """A clock, and cores that running processes share evenly, none with more than one. slowdown: as in `Costs`."""

    def __init__(self, cores: float, slowdown: Sequence[float] = (1.0,)) -> None:
        self.now, self._cores, self._numbers, self._slowdown = 0.0, cores, itertools.count(), slowdown
        self._computing: dict[int, tuple[float, Process]] = {}
        self._timers: list[tuple[float, int, Process]] = []
        self._waiting: list[Process] = []
        self.busy_s = 0.0

    def start(self, process: Process) -> None:
        self._advance(process)

    def wake(self) -> None:
        """Lets all waiting processes look again."""
        waiting, self._waiting = self._waiting, []
        for process in waiting:
            self._advance(process)

    def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            share, rate = self._share_and_rate(len(self._computing))
            soonest = min((left for left, _ in self._computing.values()), default=float("inf"))
            to_cpu = soonest / rate if rate else float("inf")
            to_timer = self._timers[0][0] - self.now if self._timers else float("inf")
            step = min(to_cpu, to_timer)
            if step == float("inf"):
                raise RuntimeError("the simulated queue has stopped: every process waits")
            self.now += step
            self.busy_s += step * share * len(self._computing)
            self._computing = {number: (left - step * rate, process) for number, (left, process) in self._computing.items()}
            done = [number for number, (left, _) in self._computing.items() if left <= 1e-12]
            ready = [self._computing.pop(number)[1] for number in done]
            while self._timers and self._timers[0][0] <= self.now + 1e-12:
                ready.append(heapq.heappop(self._timers)[2])
            for process in ready:
                self._advance(process)

    def _share_and_rate(self, processes: int) -> tuple[float, float]:
        """Share of a core that each process gets, and seconds of its cost that it completes in a second."""
        if not processes:
            return 0.0, 0.0
        share = min(1.0, self._cores / processes)
        return share, share / self._slowdown[min(processes, len(self._slowdown)) - 1]

    def _advance(self, process: Process) -> None:
        try:
            what, seconds = next(process)
        except StopIteration:
            return
        if what == "cpu":
            self._computing[next(self._numbers)] = (seconds, process)
        elif what == "sleep":
            heapq.heappush(self._timers, (self.now + seconds, next(self._numbers), process))
        else:
            self._waiting.append(process)


@dataclass
class _Talk:
    """An open conversation of a simulated worker. unread: tokens that are not in the cache. known: all so far."""

    ticket: Ticket
    shape: Shape
    started: float
    answer: int = 0
    left: int = 0
    unread: int = 0
    known: int = 0
    waits: bool = False
    versions: list[int] = field(default_factory=list)

    @property
    def has_begun(self) -> bool:
        """Whether a token of it is sampled."""
        return bool(self.versions)


def tokens_to_read(talks: Sequence[_Talk]) -> int:
    """Of one round. The engine reads equal contexts of a round once: the prompt of a group's conversations that begin together."""
    prompts = {talk.ticket.group: talk.unread for talk in talks if not talk.has_begun}
    return sum(prompts.values()) + sum(talk.unread for talk in talks if talk.has_begun)


class _Simulation:
    def __init__(self, queue: QueueShape, costs: Costs, shapes: Sequence[Shape], seed: int) -> None:
        self.queue, self.costs, self.machine = queue, costs, Machine(queue.cores, costs.slowdown)
        self.ledger = QueueLedger(tasks_a_step=queue.tasks_a_step, draws=queue.draws, bound=queue.bound, max_steps=queue.steps)
        self.durations, self.version, self.is_over = WorldDurations(), -1, False
        self._rng, self._shapes = random.Random(seed), shapes
        self._by_world: dict[str, list[Shape]] = {}
        for shape in shapes:
            self._by_world.setdefault(shape.world, []).append(shape)
        conversations = queue.tasks_a_step * queue.draws * (queue.bound + 1)
        self._slots = -(-3 * conversations // (2 * queue.workers))
        self.talks: list[dict[Ticket, _Talk]] = [{} for _ in range(queue.workers)]
        self.seen_version = [-1] * queue.workers
        self.is_up = [False] * queue.workers
        self.pending: deque[list[Ticket]] = deque()
        self.since: dict[Ticket, int] = {}
        self.verdicts: deque[_Talk] = deque()
        self.dropped = self.resumed = 0

    # ---- processes ---------------------------------------------------------------------------------------------------------------

    def trainer(self) -> Process:
        loading_s = min(self.costs.worker_start_s, self.costs.trainer_start_s)
        yield "cpu", loading_s
        for number in range(self.queue.workers):
            self.machine.start(self.worker(number))
        yield "cpu", self.costs.trainer_start_s - loading_s
        for step in range(self.queue.steps):
            yield "cpu", self.costs.hand_over_s
            self.version = self.ledger.version = step
            yield "cpu", self.costs.draw_s
            self.drop_stale()
            self.open_groups()
            self.machine.wake()
            while (numbers := self.ledger.next_step()) is None:
                yield "wait", 0.0
            self.ledger.take(numbers, [])
            self.open_groups()
            yield "cpu", self.costs.learn_s
        self.is_over = True

    def worker(self, number: int) -> Process:
        yield "cpu", self.costs.worker_start_s
        self.is_up[number] = True
        self.dispatch()
        while True:
            talks = [talk for talk in self.talks[number].values() if not talk.waits]
            if not talks or self.version < 0:
                yield "wait", 0.0
                continue
            seconds = self.costs.round_s + self.costs.row_s * len(talks)
            if self.seen_version[number] != self.version:
                self.seen_version[number] = self.version
                seconds += self.costs.swap_s
                for talk in self.talks[number].values():
                    talk.unread = talk.known
            seconds += self.costs.read_s * tokens_to_read(talks) + self.costs.answer_s * sum(talk.left == 1 for talk in talks)
            for talk in talks:
                talk.unread = 0
            yield "cpu", seconds
            for talk in talks:
                if talk.ticket in self.talks[number]:
                    self.token(number, talk)

    def service(self) -> Process:
        has_started = False
        while True:
            if not self.verdicts:
                yield "wait", 0.0
                continue
            if not has_started:
                has_started = True
                yield "cpu", self.costs.service_start_s
            talk = self.verdicts.popleft()
            yield "cpu", self.costs.verdict_s
            self.arrive(talk)

    def call(self, number: int, talk: _Talk) -> Process:
        """A tool works; then the conversation goes on with its results."""
        yield "sleep", self.queue.call_s[talk.shape.world]
        talk.waits = False
        results = talk.shape.observed[talk.answer - 1]
        talk.unread += results
        talk.known += results
        talk.left = talk.shape.answers[talk.answer]
        self.machine.wake()

    # ---- what they do ------------------------------------------------------------------------------------------------------------

    def token(self, number: int, talk: _Talk) -> None:
        if not talk.versions or talk.versions[-1] != self.seen_version[number]:
            talk.versions.append(self.seen_version[number])
        talk.left -= 1
        talk.known += 1
        if talk.left:
            return
        talk.answer += 1
        if talk.answer < len(talk.shape.answers):
            talk.waits = True
            self.machine.start(self.call(number, talk))
            return
        del self.talks[number][talk.ticket]
        self.durations.add(talk.shape.world, self.machine.now - talk.started)
        self.verdicts.append(talk)
        self.dispatch()
        self.machine.wake()

    def arrive(self, talk: _Talk) -> None:
        self.since.pop(talk.ticket, None)
        row = Row("", Outcome.SUCCESS, 1.0, 1.0, Trace())
        trajectory = Trajectory(talk.ticket, row, tuple((version, 1) for version in talk.versions))
        if self.ledger.arrive(trajectory):
            self.resumed += trajectory.is_resumed
            self.drop_stale()
            self.open_groups()
            self.machine.wake()

    def open_groups(self) -> None:
        while self.ledger.room:
            world = self._rng.choice(self._shapes).world
            self.pending.append(self.ledger.open(SimpleNamespace(world=world), ""))  # type: ignore[arg-type]
        self.dispatch()

    def drop_stale(self) -> None:
        for dropped in self.ledger.drop_stale(list(self.since.items())):
            self.dropped += 1
            of_group = [ticket for ticket in self.since if ticket.group == dropped.ticket.group]
            gone = [ticket for ticket in of_group if dropped.again is None or ticket == dropped.ticket]
            for ticket in gone:
                del self.since[ticket]
                for talks in self.talks:
                    talks.pop(ticket, None)
            if dropped.again:
                self.pending.append([dropped.again])

    def dispatch(self) -> None:
        heavy, still = self.durations.heavy(), deque[list[Ticket]]()
        while self.pending and self.version >= 0:
            tickets = [ticket for ticket in self.pending.popleft() if self.ledger.is_wanted(ticket)]
            if not tickets:
                continue
            world = self.ledger.groups[tickets[0].group].task.world
            loads = [
                Load(number, self._slots, Counter(talk.shape.world for talk in talks.values()))
                for number, talks in enumerate(self.talks)
                if self.is_up[number]
            ]
            load = choose_worker(world, len(tickets), loads, heavy)
            if load is None:
                still.append(tickets)
                continue
            shapes = [self._rng.choice(self._by_world[world]) for _ in tickets]
            prompt = shapes[0].prompt
            for ticket, shape in zip(tickets, shapes, strict=True):
                self.since[ticket] = self.version
                talk = _Talk(ticket, shape, self.machine.now, left=shape.answers[0], unread=prompt, known=prompt)
                self.talks[load.worker][ticket] = talk
        self.pending.extend(still)


def simulate(queue: QueueShape, costs: Costs, shapes: Sequence[Shape], seed: int = 0) -> dict[str, float]:
    """wall_s, dropped, resumed trajectories, and busy_share of the cores, of a whole stage."""
    run = _Simulation(queue, costs, shapes, seed)
    run.machine.start(run.trainer())
    run.machine.start(run.service())
    run.machine.run(lambda: run.is_over)
    busy = run.machine.busy_s / (run.machine.now * queue.cores)
    return {"wall_s": run.machine.now, "dropped": float(run.dropped), "resumed": float(run.resumed), "busy_share": busy}
