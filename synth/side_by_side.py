"""Work that mostly waits, such as conversations with a model server: many at once, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int, label: str, progress: Progress) -> list[Result]:
    """One result an item, in their order. The first that raises ends it: those that have not begun are given up, and those under way are
    not waited for."""
    with ThreadPoolExecutor(at_once) as threads:
        running = [threads.submit(work, item) for item in items]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                future.result()
                progress(label, done, len(items))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in running]
