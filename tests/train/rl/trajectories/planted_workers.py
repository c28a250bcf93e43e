"""Rollout workers with a planted fault: functions that replace `start_worker`, called in the worker's process before it begins."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synth.engines.base import ChatAnswer
from synth.rollouts.episode import Episode
from tests.train.warm_processes import start_player

_step, _call = Episode.step, Episode._call


def start_held(release: Path, parent: int) -> None:
    """Every answer but a conversation's first waits for its results until the file exists."""
    start_player(parent)

    def step(self: Episode, answer: ChatAnswer) -> Any:
        while self.turns and not release.exists():
            time.sleep(0.01)
        return _step(self, answer)

    _plant(step=step)


def start_closed(release: Path, parent: int) -> None:
    """Every answer waits for its results until the file exists."""
    start_held_worlds(release, None, (), parent)


def start_held_worlds(release: Path, held: Sequence[str] | None, broken: Sequence[str], parent: int) -> None:
    """Answers in tasks with a held intent (None: in all) wait for their results until the file exists; the world of a broken intent raises
    at every answer."""
    start_player(parent)

    def step(self: Episode, answer: ChatAnswer) -> Any:
        while (held is None or self.task.intent in held) and not release.exists():
            time.sleep(0.01)
        if self.task.intent in broken:
            self._add_turn(answer)
            return self._broken_world(ConnectionError("the server is away (planted)"))
        return _step(self, answer)

    _plant(step=step)


def start_poisoned(task_id: str, parent: int) -> None:
    """A conversation of this task kills the process that plays it."""
    start_player(parent)

    def step(self: Episode, answer: ChatAnswer) -> Any:
        if self.task.id == task_id:
            os.kill(os.getpid(), signal.SIGKILL)
        return _step(self, answer)

    _plant(step=step)


def start_forgetful(release: Path, parent: int) -> None:
    """As `start_held`, and no two processes have tools that answer alike."""
    start_held(release, parent)

    def call(self: Episode, message: Any) -> Any:
        results = [one.model_copy(update={"content": f"{one.content} {os.getpid()}"}) for one in _call(self, message)]
        self.messages[-len(results) :] = results
        return results

    _plant(_call=call)


def start_failing(parent: int) -> None:
    """Our own code fails at every answer."""
    start_player(parent)

    def step(self: Episode, answer: ChatAnswer) -> Any:
        raise ZeroDivisionError("planted")

    _plant(step=step)


def start_dead(parent: int) -> None:
    """The process ends at its start."""
    os._exit(1)


def _plant(**methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        setattr(Episode, name, method)
