"""What a caller hands to long work: somebody to tell how far it is, and somebody to run its pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

Progress = Callable[[str, int, int], None]
"""Called with a label, how much is done, and how much there is."""


class Executor(Protocol):
    """Runs batches; results come in the order of the items. `concurrent.futures` executors are of this form."""

    def map(self, fn: Callable[..., Result], *iterables: Iterable[Any]) -> Iterator[Result]: ...
