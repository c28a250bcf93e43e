"""Progress is bars on a terminal and few lines elsewhere, and what is shown goes wherever the innermost caller wants it."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from flows.runtime import progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress.time, "monotonic", made.monotonic)
    return made


def test_lines_tell_of_what_takes_long_and_not_of_what_does_not(clock: Clock) -> None:
    told: list[str] = []
    lines = progress.Lines(told.append)
    for second in range(26):
        clock.now = float(second)
        lines("sift", second * 100, 2500)
    assert told == [
        "sift: 1,000 of 2,500, 10 s, about 15 s left",
        "sift: 2,000 of 2,500, 20 s, about 5 s left",
        "sift: 2,500 of 2,500, 25 s",
    ]
    lines("quick", 0, 1)
    lines("quick", 1, 1)
    assert len(told) == 3
    # and the same label begins anew
    lines("sift", 0, 0)
    clock.now += 11
    lines("sift", 5, 0)
    assert told[-1] == "sift: 5, 11 s"


def test_the_time_left_is_told_by_the_pace_of_what_was_seen(clock: Clock) -> None:
    """Given a stage that goes on at step 50 of 100, then its first 50 steps took no time here; begun again at 0, all of them count."""
    told: list[str] = []
    lines = progress.Lines(told.append)
    lines("train", 50, 100)
    clock.now = 10.0
    lines("train", 60, 100)
    clock.now = 15.0
    lines("train", 0, 100)
    clock.now = 25.0
    lines("train", 20, 100)
    assert told == ["train: 60 of 100, 10 s, about 40 s left", "train: 20 of 100, 10 s, about 40 s left"]


def test_a_figure_of_now_stands_beside_how_far_it_is(clock: Clock) -> None:
    told: list[str] = []
    lines = progress.Lines(told.append)
    lines("train", 0, 100)
    clock.now = 10.0
    lines("train", 40, 100, "loss 0.41")
    assert told == ["train: 40 of 100, 10 s, about 15 s left, loss 0.41"]
    screen = io.StringIO()
    with progress.on_console(Console(file=screen, force_terminal=True, width=100, color_system=None)):
        progress.report("train", 40, 100, "loss 0.41")
    assert "train loss 0.41" in screen.getvalue()


def test_off_a_terminal_there_are_lines(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.on_console(Console(file=io.StringIO())):
        progress.report("train", 0, 2)
        clock.now = 3.0
        progress.report("train", 2, 2)
    assert capsys.readouterr().out == "train: 2 of 2, 3 s\n"


def test_on_a_terminal_there_are_bars_that_leave_a_line_where_it_took_long(clock: Clock) -> None:
    screen = io.StringIO()
    with progress.on_console(Console(file=screen, force_terminal=True, width=100, color_system=None)):
        progress.report("train", 0, 2)
        progress.report("quick", 1, 1)
        clock.now = 3.0
        progress.report("train", 2, 2)
    assert "train: 2 in 3 s" in screen.getvalue() and "quick: 1 in" not in screen.getvalue()


def test_the_innermost_showing_is_reported_to_from_every_thread() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with progress.showing(lambda label, *_: outer.append(label)):
        with progress.showing(lambda label, *_: inner.append(label)):
            thread = threading.Thread(target=progress.report, args=("a", 0, 1))
            thread.start()
            thread.join()
        progress.report("b", 0, 1)
    assert (outer, inner) == (["b"], ["a"])
