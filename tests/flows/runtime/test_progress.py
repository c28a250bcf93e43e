"""Progress is shown as bars on a terminal and as few lines elsewhere; the innermost display gets the reports."""

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
    fake = Clock()
    monkeypatch.setattr(progress.time, "monotonic", fake.monotonic)
    return fake


def test_lines_are_written_only_for_work_that_takes_long(clock: Clock) -> None:
    written: list[str] = []
    lines = progress.LineDisplay(written.append)
    for second in range(26):
        clock.now = float(second)
        lines("sift", second * 100, 2500)
    assert written == [
        "sift: 1,000 of 2,500, 10 s, about 15 s left",
        "sift: 2,000 of 2,500, 20 s, about 5 s left",
        "sift: 2,500 of 2,500, 25 s",
    ]
    lines("quick", 0, 1)
    lines("quick", 1, 1)
    assert len(written) == 3
    # and the same label can start again
    lines("sift", 0, 0)
    clock.now += 11
    lines("sift", 5, 0)
    assert written[-1] == "sift: 5, 11 s"


def test_the_time_left_follows_from_the_steps_seen_in_this_process(clock: Clock) -> None:
    """Given a stage resumed at step 50 of 100, then its first 50 steps do not count; restarted at 0, all steps count."""
    written: list[str] = []
    lines = progress.LineDisplay(written.append)
    lines("train", 50, 100)
    clock.now = 10.0
    lines("train", 60, 100)
    clock.now = 15.0
    lines("train", 0, 100)
    clock.now = 25.0
    lines("train", 20, 100)
    assert written == ["train: 60 of 100, 10 s, about 40 s left", "train: 20 of 100, 10 s, about 40 s left"]


def test_a_warning_is_written_at_once_to_the_console_and_to_logs() -> None:
    screen, log = io.StringIO(), list[str]()
    with progress.show_on_console(Console(file=screen, width=40)), progress.log_progress(log.append):
        progress.warn("nothing was accepted, and this line is longer than the screen")
    line = "warning: nothing was accepted, and this line is longer than the screen"
    assert screen.getvalue() == f"{line}\n" and log == [line]


def test_a_warning_without_a_console_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress.warn("alone")
    with progress.log_progress(lambda line: None):
        progress.warn("in a flow of a deployment")
    assert capsys.readouterr().out == "warning: alone\n"


def test_a_note_is_shown_beside_the_progress(clock: Clock) -> None:
    written: list[str] = []
    lines = progress.LineDisplay(written.append)
    lines("train", 0, 100)
    clock.now = 10.0
    lines("train", 40, 100, "loss 0.41")
    assert written == ["train: 40 of 100, 10 s, about 15 s left, loss 0.41"]
    screen = io.StringIO()
    with progress.show_on_console(Console(file=screen, force_terminal=True, width=100, color_system=None)):
        progress.report("train", 40, 100, "loss 0.41")
    assert "train loss 0.41" in screen.getvalue()


def test_lines_are_printed_without_a_terminal(clock: Clock) -> None:
    screen = io.StringIO()
    with progress.show_on_console(Console(file=screen)):
        progress.report("train", 0, 2)
        clock.now = 3.0
        progress.report("train", 2, 2)
    assert screen.getvalue() == "train: 2 of 2, 3 s\n"


def test_the_log_of_a_flow_run_gets_a_line_for_each_step_beside_the_display(clock: Clock) -> None:
    """Given a flow inside a flow, then both logs have the line; a step under 0.1 s has none."""
    shown: list[str] = []
    whole: list[str] = []
    part: list[str] = []
    with progress.show_with(lambda label, *_: shown.append(label)), progress.log_progress(whole.append):
        with progress.log_progress(part.append):
            progress.report("exact", 0, 10)
            progress.report("quick", 1, 1)
            clock.now = 0.4
            progress.report("exact", 10, 10)
        progress.report("rules", 0, 5)
        clock.now = 1.4
        progress.report("rules", 5, 5)
    assert (whole, part) == (["exact: 10 of 10, 0.4 s", "rules: 5 of 5, 1.0 s"], ["exact: 10 of 10, 0.4 s"])
    assert shown == ["exact", "quick", "exact", "rules", "rules"]


def test_bars_on_a_terminal_leave_a_line_for_long_work(clock: Clock) -> None:
    screen = io.StringIO()
    with progress.show_on_console(Console(file=screen, force_terminal=True, width=100, color_system=None)):
        progress.report("train", 0, 2)
        progress.report("quick", 1, 1)
        clock.now = 3.0
        progress.report("train", 2, 2)
    assert "train: 2 in 3 s" in screen.getvalue() and "quick: 1 in" not in screen.getvalue()


def test_the_innermost_display_gets_the_reports_of_every_thread() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with progress.show_with(lambda label, *_: outer.append(label)):
        with progress.show_with(lambda label, *_: inner.append(label)):
            thread = threading.Thread(target=progress.report, args=("a", 0, 1))
            thread.start()
            thread.join()
        progress.report("b", 0, 1)
    assert (outer, inner) == (["b"], ["a"])
