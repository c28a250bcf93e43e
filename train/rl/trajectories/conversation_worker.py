"""A rollout worker: a process that plays single conversations and follows the policy in training.

One idea: the worker decides nothing. It gets tickets and versions of the weights, and sends what happened: every answer after which
a conversation goes on (so that another worker can go on from there), and every finished conversation. Tools run in threads, so a slow
world holds up its own conversations alone. New weights are used from the next token on (`synth/engines/local/continuous.py`).

A conversation that began elsewhere is restored by executing its calls again in a fresh world. If the world answers otherwise than before,
the conversation begins again.
What it does not do: judge (`train/rl/trajectories/reward_service.py`), restart, or choose what it plays
(`train/rl/trajectories/worker_pool.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any

from storage.records import Message, Outcome, Task
from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode, Trace, request_of, trace, with_tools
from train.rl.rollout_worker import PlayerSetup, weights_file
from train.rl.trajectories.ledger import Ticket

# ---- messages ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """An answer. versions: of the weights that sampled each token."""

    answer: ChatAnswer
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """Plays a ticket. seed: of its noise. parts: what another worker played of it."""

    ticket: Ticket
    task: Task
    seed: int
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class UseWeights:
    """The weights of this version are in the folder of weights."""

    version: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ends the conversation of a ticket; nothing is sent of it any more."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Retire:
    """Ends the process; the conversations that are open go on elsewhere."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has loaded the policy. slots: most conversations that it holds."""

    slots: int


@dataclass(frozen=True, slots=True)
class Broken:
    """The worker ends with an error."""

    error: str


@dataclass(frozen=True, slots=True)
class Progress:
    """An answer after which the conversation goes on. kept: number of the ticket's parts before it; fewer than were sent if the
    conversation began again."""

    ticket: Ticket
    kept: int
    part: Part


@dataclass(frozen=True, slots=True)
class Finished:
    """A conversation that is over.

    outcome, reward: None where the reward service is to judge, by `changes`.
    versions: runs of equal weights over the policy's tokens in the trace.
    seconds: since its first token, also at other workers. idle_s: how long this worker has had nothing to compute since the last one.
    """

    ticket: Ticket
    messages: tuple[Message, ...]
    trace: Trace
    erred: tuple[bool, ...]
    outcome: Outcome | None
    reward: float | None
    failure: str
    changes: dict[str, Any] | None
    versions: tuple[tuple[int, int], ...]
    seconds: float
    idle_s: float


def runs(versions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Runs of equal numbers: (number, length)."""
    return tuple((version, len(list(equal))) for version, equal in groupby(versions))


# ---- in the process ------------------------------------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A conversation in progress. parts: its answers, also those of other workers."""

    play: Play
    episode: Episode
    started: float
    parts: list[Part] = field(default_factory=list)


class _Worker:
    def __init__(self, connection: Connection, setup: PlayerSetup, slots: int) -> None:
        import torch

        from storage.store import Store
        from synth.engines.local.continuous import ContinuousBatch
        from synth.engines.local.hf import HFEngine
        from synth.worlds.stored_worlds import register_stored

        assert setup.spec.rl is not None
        register_stored(Store(setup.spec.store))
        self._connection, self._settings, self._weights = connection, setup.spec.rl, setup.weights
        self._model = setup.architecture(setup.config).to("cuda" if torch.cuda.is_available() else "cpu")
        engine = HFEngine(self._model, setup.tokenizer, policy_version=setup.spec.model_out.parent.name, batch_rows=slots)
        self._batch = ContinuousBatch(engine, slots)
        self._open: dict[str, _Open] = {}
        self._tools = ThreadPoolExecutor(self._batch.slots, thread_name_prefix="tools")
        self._replies: SimpleQueue[tuple[str, _Open, list[Message] | None]] = SimpleQueue()
        self._woken, self._wake = os.pipe()
        self._idle_s, self._version = 0.0, -1

    def run(self) -> None:
        from train.device import autocast

        self._connection.send(Ready(self._batch.slots))
        with autocast(self._settings.precision):
            while self._receive():
                self._take_replies()
                for answered in self._batch.step():
                    self._on_answer(self._open[answered.key], Part(answered.answer, answered.versions))

    def _receive(self) -> bool:
        """Handles what the trainer has sent; waits for it, or for a tool, if nothing is to be computed. False: the worker retires."""
        while self._batch.is_idle and self._replies.empty() and not self._connection.poll():
            started = time.monotonic()
            if self._woken in wait([self._connection, self._woken]):
                os.read(self._woken, 65536)
            self._idle_s += time.monotonic() - started
        while self._connection.poll():
            message = self._connection.recv()
            if isinstance(message, Retire):
                return False
            self._handle(message)
        return True

    def _handle(self, message: Play | UseWeights | Cancel) -> None:
        match message:
            case Play():
                self._begin(message)
            case Cancel(ticket):
                if self._open.pop(str(ticket), None) is not None:
                    self._batch.leave(str(ticket))
            case UseWeights(version):
                self._use(version)

    def _use(self, version: int) -> None:
        from safetensors.torch import load_model

        with suppress(FileNotFoundError):  # a newer version has replaced it, whose message follows
            load_model(self._model, weights_file(self._weights, version))
            self._version = version
            self._batch.use_weights(version)

    def _begin(self, play: Play) -> None:
        """Opens a conversation, after the parts that were played elsewhere."""
        episode = Episode(play.task, play.ticket.draw, self._settings.max_turns, is_judged_elsewhere=True)
        opened = _Open(play, episode, time.monotonic())
        held = with_tools([episode])
        if not held:
            self._finish(opened)
            return
        request = request_of(
            episode, held[0][1], temperature=self._settings.temperature, seed=play.seed, max_tokens=self._settings.max_tokens
        )
        after: list[tuple[ChatAnswer, list[Message]]] = []
        for index, part in enumerate(play.parts):
            results = episode.step(part.answer)
            begins = play.parts[index + 1].answer.prompt_ids if index + 1 < len(play.parts) else None
            if results is None or (begins is not None and not self._continues(part.answer, results, begins)):
                self._begin(Play(play.ticket, play.task, play.seed))
                return
            after.append((part.answer, results))
            opened.parts.append(part)
        self._open[str(play.ticket)] = opened
        if not self._batch.join(str(play.ticket), request, after):
            episode.close()
            self._finish(opened)

    def _continues(self, answer: ChatAnswer, results: Sequence[Message], prompt: Sequence[int]) -> bool:
        """Whether the results of restored calls give the prompt that the next answer was sampled after."""
        suffix = self._batch.suffix_ids(answer.message, results)
        return (*answer.prompt_ids, *answer.token_ids, *suffix) == tuple(prompt)

    def _on_answer(self, opened: _Open, part: Part) -> None:
        """Runs the calls of an answer, or ends the conversation, in a thread."""
        key = str(opened.play.ticket)
        opened.parts.append(part)

        def run() -> None:
            more = None
            try:
                more = opened.episode.step(part.answer)
            except Exception as error:  # a fault of ours is no failure of the policy
                opened.episode.end_lost(f"{type(error).__name__}: {error}")
            self._replies.put((key, opened, more))
            os.write(self._wake, b"\0")

        self._tools.submit(run)

    def _take_replies(self) -> None:
        while True:
            try:
                key, opened, more = self._replies.get_nowait()
            except Empty:
                return
            if self._open.get(key) is not opened:
                continue  # cancelled meanwhile
            if more is None:
                self._batch.leave(key)
            elif self._batch.reply(key, opened.parts[-1].answer, more):
                self._connection.send(Progress(opened.play.ticket, len(opened.parts) - 1, opened.parts[-1]))
                continue
            else:
                opened.episode.close()
            self._finish(opened)

    def _finish(self, opened: _Open) -> None:
        from train.rl.rollout_batches import erred_turns

        episode = opened.episode
        self._open.pop(str(opened.play.ticket), None)
        exact = [turn.is_exact for turn in episode.turns]
        versions = [version for part, keep in zip(opened.parts, exact, strict=False) if keep for version in part.versions]
        self._connection.send(
            Finished(
                ticket=opened.play.ticket,
                messages=tuple(episode.messages),
                trace=trace(episode.turns),
                erred=erred_turns(episode),
                outcome=episode.outcome,
                reward=episode.reward,
                failure=episode.failure,
                changes=episode.changes,
                versions=runs(versions) or ((self._version, 0),),
                seconds=time.monotonic() - opened.started,
                idle_s=self._idle_s,
            )
        )
        self._idle_s = 0.0


def work(connection: Connection, setup: PlayerSetup, slots: int, start: Callable[[int], None], parent: int) -> None:
    """The process: plays until it is retired, or until its parent ends. slots: most conversations at once. start: `start_worker`."""
    start(parent)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _Worker(connection, setup, slots).run()
        except (EOFError, OSError):
            raise
        except Exception as error:  # for the trainer to tell
            connection.send(Broken(f"{type(error).__name__}: {error}"))
    os._exit(0)  # threads may still wait for tools
