"""Many at once: results in order, an end at the first that raises, and no thread left behind."""

import threading
import time
from collections.abc import Callable

import pytest

from synth.engines.thread_map import in_order, is_dead, side_by_side


def quiet(label: str, done: int, total: int) -> None:
    pass


def test_results_come_in_order_from_many_at_once() -> None:
    together = threading.Barrier(4, timeout=5)

    def work(item: int) -> int:
        together.wait()
        return item * item

    assert side_by_side(work, range(8), 4, "squares", quiet) == [item * item for item in range(8)]
    assert list(in_order(work, range(8), 4)) == [item * item for item in range(8)]


Work = Callable[[int], None]


@pytest.mark.parametrize(
    "run",
    [
        lambda work: side_by_side(work, range(100), 2, "x", quiet),
        lambda work: list(in_order(work, range(100), 2)),
    ],
)
def test_the_first_that_raises_ends_it_and_what_is_under_way_ends_before(run: Callable[[Work], object]) -> None:
    begun, ended = list[int](), list[int]()
    both = threading.Barrier(2, timeout=5)

    def work(item: int) -> None:
        begun.append(item)
        if item < 2:
            both.wait()
        if item == 0:
            raise KeyError(item)
        time.sleep(0.05)
        ended.append(item)

    with pytest.raises(KeyError):
        run(work)
    assert 1 in ended and len(begun) == len(ended) + 1 < 100


def test_closing_gives_up_what_has_not_begun() -> None:
    begun = list[int]()

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.01)
        return item

    results = in_order(work, range(100), 2)
    assert next(results) == 0
    results.close()
    assert len(begun) < 100


@pytest.mark.parametrize(
    ("unanswered", "of", "dead"), [(0, 0, False), (0, 1, False), (1, 1, True), (1, 3, False), (2, 4, True), (4, 10, False)]
)
def test_half_without_an_answer_is_dead(unanswered: int, of: int, dead: bool) -> None:
    assert is_dead(unanswered, of) is dead
