"""Asynchronous RL by single trajectories: any number of workers play while the trainer learns from what is complete.

One idea: the trainer takes the groups that are complete first, within the bound of staleness; no step waits for the slowest conversation,
except the last. A thread brings together the parts: workers play (`worker_pool.py`), the reward service judges (`reward_client.py`), the
ledger decides what is open, taken and dropped (`queue_ledger.py`), the journal keeps it (`queue_journal.py`). Which groups a step takes
depends on the speed of workers and tools; a stage that finds a journal repeats it, to the same weights.

    trainer       step 0        step 1        step 2            a conversation that is open when new weights come goes on with them; its
    weights    v0            v1            v2            v3     tokens keep the log-probabilities of the weights that sampled them
    worker 1   |--a--|---b---|----c--------|--d--|
    worker 2   |---------------e (slow tool)----------|         e holds up its own group alone

A file `rollout_workers` beside the model folder, with a number in it, changes the number of workers while the stage runs.
What it does not do: several trainers; a lag that is the same on every machine (`train/rl/queue.py` has that).
Sources: RollArt, arXiv 2512.22560; AReaL, arXiv 2505.24298 (interruptible rollouts, staleness-aware admission).
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors.torch import save_model

from storage.errors import HeadraceError
from storage.files import disk_errors
from storage.records import Outcome, Task
from synth.rollouts.episode import Trace, request_seed
from train.rl.losses import LOSSES
from train.rl.queue import METRICS as QUEUE_METRICS
from train.rl.rewards import scoring_of, shuffle_rewards
from train.rl.rollout_batches import Batch, Row
from train.rl.rollout_worker import PlayerSetup, weights_file
from train.rl.task_sampler import FreshTasks
from train.rl.trajectories.conversation_worker import Finished, Play
from train.rl.trajectories.queue_journal import JOURNAL, DroppedRecord, OpenedRecord, QueueJournal, Reason, StepRecord
from train.rl.trajectories.queue_ledger import ATTEMPTS, Dropped, Group, QueueLedger, Ticket, Trajectory
from train.rl.trajectories.reward_client import Judged, RewardClient
from train.rl.trajectories.worker_pool import Ended, WorkerPool
from train.spec import CHECKPOINTS, StageSpec

METRICS = (*QUEUE_METRICS, "resumed", "workers", "reward_retries", "reward_billed_s")
"""Metrics of a step. staleness: mean of the versions between a trajectory's oldest token and the trained policy. stale_share: as
`train.rl.queue.METRICS`. dropped: trajectories that were too stale, failed, or were open for too long. wait_for_rollouts_s: seconds that
the trainer waited for a batch, and drew tasks. wait_for_updates_s: seconds that a worker had nothing to compute, waiting for tools
included; mean of the workers. resumed: trajectories of the batch that were sampled by several versions or workers. workers: that run.
reward_retries, reward_billed_s: requests that were sent again to the reward service, and seconds that it computed, since the step
before."""
WORKERS_FILE = "rollout_workers"
_LOOK_S = 0.2
_TELL_S = 60.0
"""Seconds of waiting for a step after which the stage says what it waits for, and says it again."""


class TrajectoryQueue:
    """The batches of a stage whose `RLSettings.rollout_workers` is set. A context manager that ends its processes on exit.

    Args:
        source: tasks, drawn here, in the trainer's thread.
        model: the model in training. scratch: folder for the folder of weights.
        made_by: hash of spec and code; only a journal with the same hash is continued.
    """

    names = METRICS

    def __init__(self, spec: StageSpec, source: FreshTasks, model: Any, tokenizer: Any, scratch: Path, made_by: str) -> None:
        assert spec.rl is not None
        assert spec.rl.rollout_workers is not None
        self._spec, self._settings, self._source, self._model, self._weights = spec, spec.rl, source, model, scratch / "weights"
        self._weights.mkdir()
        self._folder = spec.model_out.parent
        self._journal = QueueJournal(self._folder / JOURNAL, made_by)
        settings, setup = spec.rl, PlayerSetup(spec, type(model), model.config, tokenizer, self._weights)
        conversations = settings.tasks_a_step * settings.draws * (settings.staleness + 1)
        is_over = sum(isinstance(record, StepRecord) for record in self._journal.records) >= settings.max_steps
        self._changed = threading.Condition()
        self.pool = WorkerPool(setup, 0 if is_over else spec.rl.rollout_workers, conversations)
        scoring = {"weights": scoring_of(settings), "collapse": settings.collapse}
        self.rewards = RewardClient(settings.reward_url, store=spec.store, scoring=scoring, on_verdict=self._on_verdict)
        self._ledger = QueueLedger(
            tasks_a_step=settings.tasks_a_step, draws=settings.draws, bound=settings.staleness, max_steps=settings.max_steps
        )
        self._repeated: dict[int, tuple[StepRecord, list[Group], list[Group]]] = {}
        self._judged: dict[str, Ended] = {}
        loss, rounds = LOSSES[settings.loss], settings.resample_rounds
        self._set_aside = partial(self._ledger.set_aside, loss.min_std, loss.resample_rounds if rounds is None else rounds)
        self._backlog: deque[tuple[int, Task, str]] = deque()
        self._blocks = self._dropped = 0
        self._billed = (0, 0.0)
        self._failure: BaseException | None = None
        self._told = ""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self.metrics: Mapping[str, float] = {}
        """`METRICS` of the last batch."""

    def begin(self, checkpoint: Path | None) -> None:
        """Reads what an earlier run of the stage has played. checkpoint: where the trainer resumes; its weights need not be kept apart."""
        for record in self._journal.records:
            match record:
                case OpenedRecord():
                    self._ledger.open(record.task, record.parent)
                    self._blocks = max(self._blocks, record.block + 1)
                case Trajectory():
                    self._ledger.arrive(record)
                case DroppedRecord():
                    self._ledger.drop(record.ticket)
                case StepRecord():
                    self._repeated[record.step] = (record, *self._ledger.take(record.groups, record.left_out))
        for group in self._ledger.groups.values():
            self._submit([Ticket(group.number, draw, attempt) for draw, attempt in enumerate(group.attempts) if draw not in group.arrived])
        self._thread.start()

    def batch(self, step: int) -> Batch:
        """The batch of a step. The model must have learned from the batches of all earlier steps.

        Raises:
            PlayerFailed: the workers died. OutOfReach: the reward service did. HeadraceError: there are no tasks, no rollout could be
                rated, or the journal lacks steps that the checkpoint has learned from.
        """
        if step in self._repeated:
            record, *repeated = self._repeated.pop(step)
            self.metrics = record.metrics
            return self._batch(step, *repeated)
        if step != self._ledger.step:
            raise HeadraceError(
                f"{self._folder / JOURNAL} ends before step {self._ledger.step}, the last checkpoint at step {step}: lines of the journal "
                f"were lost. Remove the folder {CHECKPOINTS} beside it; the stage then repeats the journal and goes on from its end"
            )
        self._hand_over(step)
        started = time.monotonic()
        with self._changed:
            self._drop_stale()
        taken, told = None, started
        while taken is None:
            self._resize()
            self._draw_tasks()
            taken = self._take(step, started)
            if taken is None and time.monotonic() - told >= _TELL_S:
                told = time.monotonic()
                print(self._waited_for(step), file=sys.stderr, flush=True)
        return self._batch(step, *taken)

    def save(self, checkpoint: Path) -> None:
        """Nothing: what the queue needs is in the journal, and workers follow the newest weights."""

    # ---- the trainer's side ------------------------------------------------------------------------------------------------------

    def _hand_over(self, version: int) -> None:
        """Writes the current weights and tells the workers; the file of the version before stays until the next."""
        file = weights_file(self._weights, version)
        draft = file.with_suffix(".draft")
        with disk_errors("handing weights to the rollout workers", self._weights):
            save_model(self._model, str(draft))
            draft.rename(file)
        with self._changed:
            self._ledger.version = version
            self.pool.use_weights(version)
        weights_file(self._weights, version - 2).unlink(missing_ok=True)

    def _resize(self) -> None:
        """Follows the file `rollout_workers`, if there is one."""
        try:
            content = (self._folder / WORKERS_FILE).read_text(errors="replace").strip()
        except OSError:
            return
        if not content:  # it is being written
            return
        most = self._settings.tasks_a_step * self._settings.draws * (self._settings.staleness + 1)
        if not content.isdecimal() or not 1 <= int(content) <= most:
            if content != self._told:
                print(f"{WORKERS_FILE} must hold a number from 1 to {most}, and holds '{content[:20]}'", file=sys.stderr, flush=True)
            self._told = content
            return
        with self._changed:
            if int(content) != self.pool.size:
                self.pool.resize(int(content))

    def _draw_tasks(self) -> None:
        """Draws tasks for a step more than there is room for now."""
        while len(self._backlog) < self._ledger.room + self._settings.tasks_a_step:
            tasks = self._source(self._blocks)
            parents = self._source.parents
            self._backlog.extend((self._blocks, task, parents[task.id]) for task in tasks)
            self._blocks += 1

    def _take(self, step: int, started: float) -> tuple[list[Group], list[Group]] | None:
        """The groups of a step, and those that it leaves out; None: too few are complete, after a moment for one to become so."""
        with self._changed:
            self._set_aside()
            self._open_groups()
            if (numbers := self._ledger.next_step()) is None:
                self._check()
                self._changed.wait(_LOOK_S)
                return None
            groups, left_out = [self._ledger.groups[number] for number in numbers], sorted(self._ledger.left_out)
            self._check_rated(step, groups)
            self.metrics = self._measure(step, groups, time.monotonic() - started)
            self._journal.add(StepRecord(step, tuple(numbers), tuple(left_out), self.metrics))
            taken = self._ledger.take(numbers, left_out)
            self._open_groups()
        return taken

    def _waited_for(self, step: int) -> str:
        """What the step waits for: the world of the conversation that has been open for the longest."""
        with self._changed:
            held = self.pool.held()
        if not held:
            return f"step {step} waits for rollout workers or verdicts: no conversation is open at a worker"
        world, _ = max(held, key=lambda one: one[1])
        seconds = [open_s for name, open_s in held if name == world]
        return f"step {step} waits for {len(seconds)} conversations of world {world}, open for {max(seconds):.0f} s"

    def _measure(self, step: int, groups: Sequence[Group], waited_s: float) -> dict[str, float]:
        """`METRICS` of the step that takes these groups."""
        trajectories = [trajectory for group in groups for trajectory in group.arrived.values()]
        lags = [step - trajectory.oldest for trajectory in trajectories]
        (retries, billed_s), bill = self._billed, self.rewards.bill
        self._billed = (bill.retries, bill.seconds)
        figures = {
            "staleness": sum(lags) / len(lags),
            "stale_share": sum(lag > 0 for lag in lags) / len(lags),
            "dropped": self._dropped,
            "wait_for_rollouts_s": waited_s,
            "wait_for_updates_s": self.pool.idle_s / max(1, self.pool.size),
            "resumed": sum(trajectory.is_resumed for trajectory in trajectories),
            "workers": self.pool.size,
            "reward_retries": bill.retries - retries,
            "reward_billed_s": bill.seconds - billed_s,
        }
        self._dropped, self.pool.idle_s = 0, 0.0
        return {name: float(figures[name]) for name in METRICS}

    def _batch(self, step: int, groups: Sequence[Group], left_out: Sequence[Group]) -> Batch:
        rows = [row for group in groups for row in group.rows()]
        if self._settings.reward == "shuffled":
            learned = shuffle_rewards([row.learned for row in rows], f"{self._spec.seed}/{step}")
            rows = [replace(row, learned=number) for row, number in zip(rows, learned, strict=True)]
        parents = {group.task.id: group.parent for group in (*groups, *left_out)}
        oldest = min(group.oldest for group in groups)
        return Batch(step, oldest, tuple(rows), tuple(row for group in left_out for row in group.rows()), parents)

    def _check_rated(self, step: int, groups: Sequence[Group]) -> None:
        """Gives the groups up if none of their trajectories could be rated, so that the same command goes on with other tasks."""
        every = [trajectory for group in groups for trajectory in group.arrived.values()]
        if any(trajectory.row.reward is not None for trajectory in every):
            return
        for trajectory in every:
            if trajectory.ticket.group in self._ledger.groups:
                self._count_dropped(self._ledger.drop(trajectory.ticket), "failed", trajectory.failure)
        failure = next((trajectory.failure for trajectory in every if trajectory.failure), "the cause is unknown")
        raise HeadraceError(
            f"no rollout of step {step} could be rated: the infrastructure failed ({failure}).\n"
            "Once that is mended, the same command goes on from the journal with other tasks"
        )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.rewards.failure is not None:
            raise self.rewards.failure

    # ---- under the lock ------------------------------------------------------------------------------------------------------------

    def _open_groups(self) -> None:
        while self._backlog and self._ledger.room:
            block, task, parent = self._backlog.popleft()
            tickets = self._ledger.open(task, parent)
            self._journal.add(OpenedRecord(tickets[0].group, block, task, parent))
            self._submit(tickets)
        self.pool.dispatch()

    def _submit(self, tickets: Sequence[Ticket]) -> None:
        seed, groups = self._spec.seed, self._ledger.groups
        self.pool.submit([Play(one, groups[one.group].task, request_seed(seed, one.group, one.attempt)) for one in tickets])

    def _drop_stale(self) -> None:
        """Drops what is too old, journals it, and plays it again."""
        for dropped in self._ledger.drop_stale(self.pool.first_versions()):
            self._count_dropped(dropped, "stale")

    def _drop_slow(self) -> None:
        """Drops what a worker has held for too long, as a call of a tool that never returns, and plays it again."""
        if slow := self.pool.held_for(self._settings.rollout_timeout_s):
            for ticket in slow:
                if self._ledger.is_wanted(ticket):
                    self._count_dropped(self._ledger.drop(ticket), "slow")
            self._open_groups()

    def _count_dropped(self, dropped: Dropped, reason: Reason, failure: str = "") -> None:
        self._dropped += 1
        self._journal.add(DroppedRecord(dropped.ticket, self._ledger.step, reason, failure))
        self.pool.cancel(dropped.ticket)
        if dropped.again is not None and self._ledger.is_wanted(dropped.again):
            self._submit([dropped.again])
        elif dropped.ticket.group not in self._ledger.groups:  # given up, perhaps by another of its draws that was dropped with this one
            for ticket in self.pool.tickets_of(dropped.ticket.group):
                self.pool.cancel(ticket)

    def _on_ended(self, ended: Ended) -> None:
        """A conversation without a verdict goes to the reward service, a failure of the infrastructure into the ledger at once."""
        task = self._ledger.groups[ended.ticket.group].task if self._ledger.is_wanted(ended.ticket) else None
        if task is None:
            return
        finished = ended.finished
        if finished is None or finished.outcome in (Outcome.INFRA_FAILURE, Outcome.JUDGE_FAILURE):
            outcome = finished.outcome if finished and finished.outcome else Outcome.INFRA_FAILURE
            self._arrive(ended, Judged(outcome, None, None, finished.failure if finished else ended.failure))
            return
        self._judged[str(ended.ticket)] = ended
        self.rewards.ask(str(ended.ticket), reward_request(task, finished))

    def _arrive(self, ended: Ended, judged: Judged) -> None:
        if not self._ledger.is_wanted(ended.ticket):
            return
        trajectory = trajectory_of(self._ledger.groups[ended.ticket.group].task, ended, judged, self._ledger.step)
        if trajectory.is_lost and ended.ticket.attempt + 1 < ATTEMPTS:
            self._count_dropped(self._ledger.drop(ended.ticket), "failed", judged.failure)
        else:
            self._journal.add(trajectory)
            self._ledger.arrive(trajectory)
        self._drop_stale()
        self._set_aside()
        self._open_groups()
        self._changed.notify_all()

    # ---- other threads -----------------------------------------------------------------------------------------------------------

    def _on_verdict(self, key: str, judged: Judged) -> None:
        with self._changed:
            self._arrive(self._judged.pop(key), judged)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                connections = self.pool.wait(_LOOK_S)
                with self._changed:
                    for ended in [] if self._is_closing else self.pool.receive(connections):
                        self._on_ended(ended)
                    self._drop_slow()
                    self.pool.dispatch()
        except BaseException as error:  # told by the trainer's thread
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def __enter__(self) -> TrajectoryQueue:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
        if self._thread.is_alive():
            self._thread.join()
        self.pool.close()
        self.rewards.close()
        self._journal.close()


def reward_request(task: Task, finished: Finished) -> dict[str, Any]:
    """A conversation in the form that the reward service takes."""
    return {
        "task": task.model_dump(mode="json"),
        "messages": [message.model_dump(mode="json") for message in finished.messages],
        "changes": finished.changes,
        "outcome": finished.outcome,
        "reward": finished.reward,
    }


def trajectory_of(task: Task, ended: Ended, judged: Judged, version: int) -> Trajectory:
    """A conversation with its verdict. version: of the policy, for one whose workers died before it finished."""
    finished = ended.finished
    trace = finished.trace if finished else Trace()
    row = Row(task.id, judged.outcome, judged.reward, judged.learned, trace, finished.erred if finished else ())
    versions = finished.versions if finished else ((version, 0),)
    return Trajectory(ended.ticket, row, versions, ended.workers, finished.seconds if finished else 0.0, judged.failure)
