"""`side_by_side`: results in order, the first exception ends it, no thread remains; `has_failed`."""

import threading
import time

import pytest

from synth.engines.base import has_failed, side_by_side


def quiet(label: str, done: int, total: int) -> None:
    pass


def test_results_come_in_order_from_many_at_once() -> None:
    together = threading.Barrier(4, timeout=5)

    def work(item: int) -> int:
        together.wait()
        return item * item

    assert side_by_side(work, range(8), 4, "squares", quiet) == [item * item for item in range(8)]


def test_the_first_that_raises_ends_it_and_what_is_under_way_ends_before() -> None:
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
        side_by_side(work, range(100), 2, "x", quiet)
    assert 1 in ended and len(begun) == len(ended) + 1 < 100


@pytest.mark.parametrize(
    ("unanswered", "of", "dead"), [(0, 0, False), (0, 1, False), (1, 1, True), (1, 3, False), (2, 4, True), (4, 10, False)]
)
def test_half_without_an_answer_is_dead(unanswered: int, of: int, dead: bool) -> None:
    assert has_failed(unanswered, of) is dead
