"""The player: a process that plays batches of rollouts while the trainer learns from earlier ones.

One idea: the player decides nothing. The trainer names the step and the version of the policy, and writes the version's weights first. So a
batch is the same, token by token, whenever and wherever it is played.
The player holds the task source: it adds a batch to the running tags before it draws the next one, as synchronous RL does.

What it does not do: limit how far it runs ahead (`train/rl/queue.py`), or restart after a crash.
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
"""Prefix of the names of weight files."""


class PlayerFailed(HeadraceError):
    """The process that plays rollouts died or failed with an unexpected error."""


@dataclass(frozen=True)
class PlayerSetup:
    """Arguments of a player: the stage, the policy's architecture, and the folder of weights."""

    spec: StageSpec
    architecture: type[Any]
    config: Any
    tokenizer: Any
    weights: Path


@dataclass(frozen=True, slots=True)
class Played:
    """A batch, and how long the player was idle before it."""

    batch: Batch
    idle_s: float


def weights_file(folder: Path, version: int) -> Path:
    """File of the policy that has learned from `version` batches."""
    return folder / f"{VERSION}{version:09d}.safetensors"


class Player:
    """Client of the player's process, which plays in the order of the requests. The start takes seconds; only `take` waits for it."""

    def __init__(self, setup: PlayerSetup) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=start_worker, initargs=(os.getpid(),))
        self._asked: deque[Future[Played]] = deque()
        with _named_failures():
            self._ready: list[Future[None]] = [self._pool.submit(_load, setup)]

    def begin(self, source: FreshTasks) -> None:
        """Sends a copy of the task source."""
        with _named_failures():
            self._ready.append(self._pool.submit(_begin, source))

    def ask(self, step: int, version: int) -> None:
        """Requests a step's batch by a version whose weight file exists."""
        with _named_failures():
            self._asked.append(self._pool.submit(_play, step, version))

    def take(self) -> Played:
        """Waits for the next batch.

        Raises:
            PlayerFailed: the process died, or no request is open. HeadraceError: an error of the tasks or rollouts.
        """
        if not self._asked:
            raise PlayerFailed("the process that plays rollouts was asked for no further batch")
        with _named_failures():
            for done in self._ready:
                done.result()
            return self._asked.popleft().result()

    def close(self) -> None:
        """Waits for the current batch and ends the process."""
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
    except Exception as error:  # any error of the process
        raise PlayerFailed(f"the process that plays rollouts failed: {type(error).__name__}: {error}") from error


# ---- in the process ------------------------------------------------------------------------------------------------------------------


class _PlayerState:
    """The policy, whose weights are exchanged, and the tasks."""

    def __init__(self, setup: PlayerSetup) -> None:
        import torch

        from synth.engines.local.hf import HFEngine

        assert setup.spec.rl is not None
        register_stored(Store(setup.spec.store))
        self._settings, self._seed, self._weights = setup.spec.rl, setup.spec.seed, setup.weights
        self._model = setup.architecture(setup.config).to("cuda" if torch.cuda.is_available() else "cpu")
        rows = self._settings.tasks_a_step * self._settings.draws
        self._engine = HFEngine(self._model, setup.tokenizer, policy_version=setup.spec.model_out.parent.name, batch_rows=rows)
        self._version = -1
        self.source: FreshTasks
        self._idle_since = time.monotonic()

    def play(self, step: int, version: int) -> Played:
        from safetensors.torch import load_model

        from train.device import autocast

        idle_s = time.monotonic() - self._idle_since
        if version != self._version:
            load_model(self._model, weights_file(self._weights, version))
            self._version = version
        others = partial(self.source, step)
        with autocast(self._settings.precision):
            batch = play_batch(self._engine, self.source(step), self._settings, step=step, updates=version, seed=self._seed, others=others)
        self.source.watch(batch)
        self._idle_since = time.monotonic()
        return Played(replace(batch, parents=self.source.parents), idle_s)


_playing: list[_PlayerState] = []
"""State of this process: one element."""


def _load(setup: PlayerSetup) -> None:
    _playing[:] = [_PlayerState(setup)]


def _begin(source: FreshTasks) -> None:
    _playing[0].source = source


def _play(step: int, version: int) -> Played:
    return _playing[0].play(step, version)
