"""Interfaces that a caller passes to long work: a progress callback, and an executor of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with a label, the amount done, and the total."""


class Executor(Protocol):
    """Runs batches and returns results in the order of the items, as `concurrent.futures` executors do."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]: ...
