"""A process that plays: the rollouts of one batch after another, while the process that asks for them learns from those before.

One idea: it decides nothing. It is told which step's batch to play and which version of the policy plays it, and the file with those
weights is whole before it is told; so a batch is the same, token by token, whenever and wherever it is played.
It owns the task source: what it has played counts to its running tags before it draws again, as where playing and learning take turns.

What it does not do: say how far it may run ahead (`train/rl/queue.py`), or begin again when it died.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from storage.errors import HeadraceError
from storage.store import Store
from synth.worlds.stored_worlds import register_stored
from train.child_process import start_worker
from train.rl.rollout_batches import Batch, play_batch
from train.rl.task_sampler import FreshTasks
from train.spec import StageSpec

VERSION = "version-"
"""How names of files of weights begin."""


class PlayerFailed(HeadraceError):
    """The process that plays rollouts died, or failed by a fault of ours."""


@dataclass(frozen=True)
class Told:
    """What a player must know: the stage, the policy's architecture, and where weights are handed over."""

    spec: StageSpec
    architecture: type[Any]
    config: Any
    tokenizer: Any
    weights: Path


@dataclass(frozen=True, slots=True)
class Played:
    """A batch, and how long the player had nothing to do before it."""

    batch: Batch
    idle_s: float


def weights_file(folder: Path, version: int) -> Path:
    """Of the policy that has learned from so many batches."""
    return folder / f"{VERSION}{version:09d}.safetensors"


class Player:
    """The process, for who asks; it plays in the order in which it is asked. Its start takes seconds, and nobody waits before `take`."""

    def __init__(self, job: Told) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=start_worker, initargs=(os.getpid(),))
        self._asked: deque[Future[Played]] = deque()
        with _named_failures():
            self._ready: list[Future[None]] = [self._pool.submit(_load, job)]

    def begin(self, source: FreshTasks) -> None:
        """Gives it the tasks to draw; it works on a copy, as it is now."""
        with _named_failures():
            self._ready.append(self._pool.submit(_begin, source))

    def ask(self, step: int, version: int) -> None:
        """To play a step's batch by a version whose weights are there."""
        with _named_failures():
            self._asked.append(self._pool.submit(_play, step, version))

    def take(self) -> Played:
        """Waits for the next batch.

        Raises:
            PlayerFailed: the process died, or nothing is left that it was asked for. HeadraceError: what it says of the tasks or rollouts.
        """
        if not self._asked:
            raise PlayerFailed("the process that plays rollouts was asked for no further batch")
        with _named_failures():
            for done in self._ready:
                done.result()
            return self._asked.popleft().result()

    def close(self) -> None:
        """Waits for the batch that is being played, and ends the process."""
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _named_failures() -> Iterator[None]:
    try:
        yield
    except HeadraceError:
        raise
    except BrokenProcessPool as error:
        raise PlayerFailed(
            "the process that plays rollouts died without a word: killed, or out of memory; "
            "start the stage again, and it goes on from its last checkpoint"
        ) from error
    except Exception as error:  # whatever was raised over there
        raise PlayerFailed(f"the process that plays rollouts failed: {type(error).__name__}: {error}") from error


# ---- in the process itself -----------------------------------------------------------------------------------------------------------


class _Playing:
    """A policy whose weights are exchanged, and its tasks."""

    def __init__(self, job: Told) -> None:
        import torch

        from synth.engines.local.hf import HFEngine

        assert job.spec.rl is not None
        register_stored(Store(job.spec.store))
        self._settings, self._seed, self._weights = job.spec.rl, job.spec.seed, job.weights
        self._model = job.architecture(job.config).to("cuda" if torch.cuda.is_available() else "cpu")
        rows = self._settings.tasks_a_step * self._settings.draws
        self._engine = HFEngine(self._model, job.tokenizer, policy_version=job.spec.model_out.parent.name, batch_rows=rows)
        self._version = -1
        self.source: FreshTasks
        self._idle_since = time.monotonic()

    def play(self, step: int, version: int) -> Played:
        from safetensors.torch import load_model

        idle_s = time.monotonic() - self._idle_since
        if version != self._version:
            load_model(self._model, weights_file(self._weights, version))
            self._version = version
        others = partial(self.source, step)
        batch = play_batch(self._engine, self.source(step), self._settings, step=step, updates=version, seed=self._seed, others=others)
        self.source.watch(batch)
        self._idle_since = time.monotonic()
        return Played(replace(batch, parents=self.source.parents), idle_s)


_playing: list[_Playing] = []
"""The one of this process."""


def _load(job: Told) -> None:
    _playing[:] = [_Playing(job)]


def _begin(source: FreshTasks) -> None:
    _playing[0].source = source


def _play(step: int, version: int) -> Played:
    return _playing[0].play(step, version)
