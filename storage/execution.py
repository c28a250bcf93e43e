"""Interfaces between long work and its caller: a progress callback, an executor of batches, and subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with a label, the amount done, and the total."""


class Executor(Protocol):
    """Runs batches and returns results in the order of the items, as `concurrent.futures` executors do."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]: ...


RunSubtask = Callable[[str, Callable[[], Any]], Any]
"""Called with the name of a subtask, and its work; returns what the work returns."""
_run_subtask: ContextVar[RunSubtask | None] = ContextVar("run_subtask", default=None)


def subtask(name: str, work: Callable[[], Result]) -> Result:
    """Does a named part of long work: a round, a step, a probe. `subtasks_run_by` says how; without it the work is done at once."""
    run = _run_subtask.get()
    result: Result = work() if run is None else run(name, work)
    return result


@contextmanager
def subtasks_run_by(run: RunSubtask | None) -> Iterator[None]:
    """Inside the block, `run` does every subtask. None: each is done at once."""
    token = _run_subtask.set(run)
    try:
        yield
    finally:
        _run_subtask.reset(token)
