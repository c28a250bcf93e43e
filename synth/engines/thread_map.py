"""Work that mostly waits, such as conversations with a model server: many at once, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]

_DEAD = 0.5
"""Share of conversations without an answer from which on an engine counts as gone."""


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int, label: str, progress: Progress) -> list[Result]:
    """One result an item, in their order.

    The first that raises ends it: those that have not begun are given up, and it is raised when those under way have ended on their own,
    which is soon where the budget is spent or the engine is closed.
    """
    with _threads(at_once) as threads:
        running = [threads.submit(work, item) for item in items]
        for done, future in enumerate(as_completed(running), start=1):
            future.result()
            progress(label, done, len(items))
        return [future.result() for future in running]


def in_order(work: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> Generator[Result]:
    """One result an item, in their order, each as soon as it and all before it are there.

    It begins when the first is asked for, and works on whether more are asked for or not. One that raises does so in its turn, and ends
    it as in `side_by_side`; so does closing the generator, which whoever may leave early has to do.
    """
    with _threads(at_once) as threads:
        yield from threads.map(work, items)


def is_dead(unanswered: int, of: int) -> bool:
    """Whether so many conversations without an answer say that an engine is gone: half of them, and one at least."""
    return unanswered >= max(1, _DEAD * of)


@contextmanager
def _threads(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """So many; in the end those at work are waited for, and what has not begun is given up."""
    threads = ThreadPoolExecutor(at_once)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)
