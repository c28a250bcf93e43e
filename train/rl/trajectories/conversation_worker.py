"""A rollout worker: a process that plays single conversations and follows the policy in training.

One idea: the worker decides nothing. It gets tickets and versions of the weights, and sends what happened: every answer after which
a conversation goes on (so that another worker can go on from there), and every finished conversation. Tools run in threads, so a slow
world holds up its own conversations alone. New weights are used from the next token on (`synth/engines/local/continuous.py`).

A conversation that began elsewhere is restored by executing its calls again in a fresh world, in a thread too. If the world answers
otherwise than before, the conversation begins again.
What it does not do: judge (`train/rl/trajectories/reward_service.py`), restart, or choose what it plays
(`train/rl/trajectories/worker_pool.py`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from storage.records import Message, Outcome, Task
from synth.engines.base import ChatAnswer, ChatRequest
from synth.rollouts.episode import Episode, Trace, request_of, trace, with_tools
from train.rl.rollout_worker import PlayerSetup, weights_file
from train.rl.trajectories.queue_ledger import Ticket

Result = TypeVar("Result")

# ---- messages ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """An answer. versions: of the weights that sampled each token."""

    answer: ChatAnswer
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """Plays a ticket. seed: of its noise. parts: what another worker played of it."""

    ticket: Ticket
    task: Task
    seed: int
    parts: tuple[SampledAnswer, ...] = ()


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
    part: SampledAnswer


@dataclass(frozen=True, slots=True)
class Finished:
    """A conversation that is over.

    outcome, reward: None where the reward service is to judge, by `changes`.
    versions: runs of equal weights over the policy's tokens in the trace.
    seconds: since this worker began it. idle_s: how long this worker has had nothing to compute since the last one.
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


def run_lengths(versions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Runs of equal numbers: (number, length)."""
    return tuple((version, len(list(equal))) for version, equal in groupby(versions))


# ---- in the process ------------------------------------------------------------------------------------------------------------------


@dataclass
class _Open:
    """A conversation in progress. parts: its answers, also those of other workers. is_joined: whether it has a slot; not before it is
    restored."""

    play: Play
    episode: Episode
    started: float
    parts: list[SampledAnswer] = field(default_factory=list)
    is_joined: bool = False


class _Outbox:
    """Sends messages in a thread of its own. The trainer may be sending to this worker and read only afterwards, so the receiving thread
    must never block on sending."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: SimpleQueue[Ready | Broken | Progress | Finished | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: Ready | Broken | Progress | Finished) -> None:
        """Queues a message."""
        self._messages.put(message)

    def close(self) -> None:
        """Waits until all messages are sent."""
        self._messages.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._connection.send(message)
        except OSError:
            pass  # the trainer has ended, which the worker learns when it receives
        except BaseException as error:  # a message that cannot be sent is lost, so the trainer must see this process end
            print(f"a rollout worker cannot send a message: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)


class _Worker:
    def __init__(self, connection: Connection, outbox: _Outbox, setup: PlayerSetup, slots: int) -> None:
        import torch

        from storage.store import Store
        from synth.engines.local.continuous import ContinuousBatch
        from synth.engines.local.hf import HFEngine
        from synth.worlds.stored_worlds import register_stored

        assert setup.spec.rl is not None
        register_stored(Store(setup.spec.store))
        self._connection, self._outbox, self._settings, self._weights = connection, outbox, setup.spec.rl, setup.weights
        self._model = setup.architecture(setup.config).to("cuda" if torch.cuda.is_available() else "cpu")
        engine = HFEngine(self._model, setup.tokenizer, policy_version=setup.spec.model_out.parent.name, batch_rows=slots)
        self._batch = ContinuousBatch(engine, slots)
        self._open: dict[str, _Open] = {}
        self._results: SimpleQueue[tuple[_Open, Callable[[], None]]] = SimpleQueue()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._idle_s, self._version = 0.0, -1

    def run(self) -> None:
        from train.device import autocast

        self._outbox.put(Ready(self._batch.slots))
        with autocast(self._settings.precision):
            while self._receive():
                self._take_results()
                for answered in self._batch.step():
                    self._on_answer(self._open[answered.key], SampledAnswer(answered.answer, answered.versions))

    def _receive(self) -> bool:
        """Handles what the trainer has sent; waits for it, or for a tool, if nothing is to be computed. False: the worker retires."""
        while self._batch.is_idle and self._results.empty() and not self._connection.poll():
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
                opened = self._open.pop(str(ticket), None)
                if opened is not None and opened.is_joined:
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
        """Opens a conversation; one with parts that were played elsewhere joins the batch when its world is restored."""
        episode = Episode(play.task, play.ticket.draw, self._settings.max_turns, is_judged_elsewhere=True)
        opened = _Open(play, episode, time.monotonic())
        held = with_tools([episode])
        if not held:
            self._finish(opened)
            return
        request = request_of(
            episode, held[0][1], temperature=self._settings.temperature, seed=play.seed, max_tokens=self._settings.max_tokens
        )
        self._open[str(play.ticket)] = opened
        if not play.parts:
            self._join(opened, request, [])
            return
        self._call_tools(
            opened,
            lambda: [episode.step(part.answer) for part in play.parts],
            lambda results: self._on_restored(opened, request, results or ()),
        )

    def _on_restored(self, opened: _Open, request: ChatRequest, results: Sequence[list[Message] | None]) -> None:
        """Joins after the parts; from the beginning, if the world has answered otherwise than at the other worker."""
        play, after = opened.play, list[tuple[ChatAnswer, list[Message]]]()
        for index, part in enumerate(play.parts):
            more = results[index] if index < len(results) else None
            begins = play.parts[index + 1].answer.prompt_ids if index + 1 < len(play.parts) else None
            if more is None or (begins is not None and not self._continues(part.answer, more, begins)):
                self._begin(Play(play.ticket, play.task, play.seed))
                return
            after.append((part.answer, more))
        opened.parts.extend(play.parts)
        self._join(opened, request, after)

    def _continues(self, answer: ChatAnswer, results: Sequence[Message], prompt: Sequence[int]) -> bool:
        """Whether the results of restored calls give the prompt that the next answer was sampled after."""
        suffix = self._batch.suffix_ids(answer.message, results)
        return (*answer.prompt_ids, *answer.token_ids, *suffix) == tuple(prompt)

    def _join(self, opened: _Open, request: ChatRequest, after: Sequence[tuple[ChatAnswer, list[Message]]]) -> None:
        opened.is_joined = self._batch.join(str(opened.play.ticket), request, after)
        if not opened.is_joined:
            opened.episode.close()
            self._finish(opened)

    def _on_answer(self, opened: _Open, part: SampledAnswer) -> None:
        """Runs the calls of an answer, or ends the conversation."""
        opened.parts.append(part)
        self._call_tools(opened, lambda: opened.episode.step(part.answer), lambda more: self._on_results(opened, more))

    def _call_tools(self, opened: _Open, call: Callable[[], Result], then: Callable[[Result | None], None]) -> None:
        """Runs `call` in a thread of its own, because one that never returns must hold up no other, and `then` with its result in the main
        thread, unless the conversation is cancelled meanwhile."""

        def run() -> None:
            result = None
            try:
                result = call()
            except Exception as error:  # a fault of ours is no failure of the policy
                opened.episode.end_lost(f"{type(error).__name__}: {error}")
            self._results.put((opened, lambda: then(result)))
            with suppress(BlockingIOError):  # the pipe is full of wake-ups already
                os.write(self._wake, b"\0")

        Thread(target=run, name="tools", daemon=True).start()

    def _take_results(self) -> None:
        with suppress(Empty):
            while True:
                opened, then = self._results.get_nowait()
                if self._open.get(str(opened.play.ticket)) is opened:
                    then()

    def _on_results(self, opened: _Open, more: list[Message] | None) -> None:
        """Goes on after the results of an answer's calls, or ends the conversation."""
        key = str(opened.play.ticket)
        if more is None:
            self._batch.leave(key)
        elif self._batch.reply(key, opened.parts[-1].answer, more):
            self._outbox.put(Progress(opened.play.ticket, len(opened.parts) - 1, opened.parts[-1]))
            return
        else:
            opened.episode.close()
        self._finish(opened)

    def _finish(self, opened: _Open) -> None:
        from train.rl.rollout_batches import erred_turns

        episode = opened.episode
        self._open.pop(str(opened.play.ticket), None)
        exact = [turn.is_exact for turn in episode.turns]
        versions = [version for part, keep in zip(opened.parts, exact, strict=False) if keep for version in part.versions]
        self._outbox.put(
            Finished(
                ticket=opened.play.ticket,
                messages=tuple(episode.messages),
                trace=trace(episode.turns),
                erred=erred_turns(episode),
                outcome=episode.outcome,
                reward=episode.reward,
                failure=episode.failure,
                changes=episode.changes,
                versions=run_lengths(versions) or ((self._version, 0),),
                seconds=time.monotonic() - opened.started,
                idle_s=self._idle_s,
            )
        )
        self._idle_s = 0.0


def work(connection: Connection, setup: PlayerSetup, slots: int, start: Callable[[int], None], parent: int) -> None:
    """The process: plays until it is retired, or until its parent ends. slots: most conversations at once. start: `start_worker`."""
    start(parent)
    outbox = _Outbox(connection)
    try:
        _Worker(connection, outbox, setup, slots).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the trainer has ended
    except Exception as error:  # for the trainer to tell
        outbox.put(Broken(f"{type(error).__name__}: {error}"))
        outbox.close()
    os._exit(0)  # threads may still wait for tools
