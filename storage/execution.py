"""Interfaces between long work and its caller: a progress callback, an executor of batches, and pieces that have a name."""

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


RunPiece = Callable[[str, Callable[[], Any]], Any]
"""Called with the name of a piece of long work, and the work; returns what the work returns."""
_run_piece: ContextVar[RunPiece | None] = ContextVar("run_piece", default=None)


def piece(name: str, work: Callable[[], Result]) -> Result:
    """Does a piece of long work that has a name of its own: a round, a step, a probe. How, says `pieces_run_by`; else at once."""
    run = _run_piece.get()
    result: Result = work() if run is None else run(name, work)
    return result


@contextmanager
def pieces_run_by(run: RunPiece | None) -> Iterator[None]:
    """Inside the block, pieces of work are done by `run`. None: at once."""
    token = _run_piece.set(run)
    try:
        yield
    finally:
        _run_piece.reset(token)
