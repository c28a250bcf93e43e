"""Work that mostly waits, such as conversations with a model server: many at once, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from storage.execution import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")

_DEAD = 0.5
"""Share of conversations without an answer from which on an engine counts as gone."""


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int, label: str, progress: Progress) -> list[Result]:
    """One result an item, in their order.

    The first that raises ends it: those that have not begun are given up, and it is raised when those under way have ended on their own,
    which is soon where the budget is spent or the engine is closed.
    """
    threads = ThreadPoolExecutor(at_once)
    try:
        running = [threads.submit(work, item) for item in items]
        for done, future in enumerate(as_completed(running), start=1):
            future.result()
            progress(label, done, len(items))
        return [future.result() for future in running]
    finally:
        threads.shutdown(cancel_futures=True)


def is_dead(unanswered: int, of: int) -> bool:
    """Whether so many conversations without an answer say that an engine is gone: half of them, and one at least."""
    return unanswered >= max(1, _DEAD * of)
