"""Progress of long work: bars on a terminal, plain lines elsewhere.

The library reports through one callback, `progress(label, done, total)`. Flows pass `report` as this callback, and `report` calls the
displays of the process: bars or lines under the `headrace` command, and a line for each finished step in the log of every flow run at work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from flows.runtime.interrupts import raise_noted
from flows.runtime.time_left import Planned, TimeLeft

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class Display(Protocol):
    def __call__(self, label: str, done: int, total: int, note: str = "", /) -> None:
        """note: a current figure, such as a loss."""


LINE_EVERY_S = 10.0


Write = Callable[[str], None]


class LineDisplay:
    """Writes a line for work that takes long: every ten seconds, and at the end if it took `least_s` or more."""

    def __init__(self, write: Write, every_s: float = LINE_EVERY_S, least_s: float = 2.0) -> None:
        self.write, self._every_s, self._least_s = write, every_s, least_s
        self._starts: dict[str, tuple[float, int]] = {}
        """Label -> time of the first report in this process, and `done` at that time (above 0 for resumed work)."""
        self._last_lines: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, label: str, done: int, total: int, note: str = "", /) -> None:
        now = time.monotonic()
        with self._lock:
            start, first_done = self._starts.setdefault(label, (now, done))
            if done < first_done:
                start, first_done = self._starts[label] = now, done
            finished = 0 < total <= done
            due = now - self._last_lines.get(label, start) >= self._every_s
            if due or (finished and now - start >= self._least_s):
                self._last_lines[label] = now
                share = f"{done:,} of {total:,}" if total else f"{done:,}"
                left = f", about {(now - start) * (total - done) / (done - first_done):.0f} s left" if first_done < done < total else ""
                took = f"{now - start:.{int(now - start < 2)}f} s"
                self.write(f"{label}: {share}, {took}{left}{note and f', {note}'}")
            if finished:
                self._starts.pop(label, None)
                self._last_lines.pop(label, None)


def _print_line(line: str) -> None:
    print(line, flush=True)


_displays: list[Display] = [LineDisplay(_print_line)]
_writers: list[Write] = [_print_line]
"""Where `warn` writes: to the current console, if there is one."""
_watchers: list[Display] = []
"""Called beside the display."""
_logs: list[LineDisplay] = []
"""A display for the log of each flow run at work: the run itself, and the runs that it is a part of."""


def report(label: str, done: int, total: int, note: str = "", /) -> None:
    """Report progress to the current display and the logs of flow runs. total: 0 if unknown. note: a current figure, such as a loss.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed before, and a library swallowed it.
    """
    raise_noted()
    if len(_displays) > 1 or not _logs:
        _displays[-1](label, done, total, note)
    for log in (*_logs, *_watchers):
        log(label, done, total, note)


def warn(text: str) -> None:
    """Write a warning at once, to the current console and the logs of flow runs."""
    line = f"warning: {text}"
    if len(_writers) > 1 or not _logs:
        _writers[-1](line)
    for log in tuple(_logs):
        log.write(line)


@contextlib.contextmanager
def log_progress(write: Write) -> Iterator[None]:
    """Write a line for each step that took 0.1 s or more to the log of a flow run, and for a long step every ten seconds."""
    log = LineDisplay(write, least_s=0.1)
    _logs.append(log)
    try:
        yield
    finally:
        _logs.remove(log)


@contextlib.contextmanager
def watch_progress(watcher: Display) -> Iterator[None]:
    """Call `watcher` for every report inside the context, from every thread, beside what shows it."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextlib.contextmanager
def show_with(display: Display, write: Write | None = None) -> Iterator[None]:
    """Show progress on `display` inside the context, from every thread. write: for warnings; None: as outside."""
    _displays.append(display)
    _writers.extend([write] if write is not None else [])
    try:
        yield
    finally:
        _displays.remove(display)
        if write is not None:
            _writers.remove(write)


@contextlib.contextmanager
def show_on_console(console: Console, plan: Sequence[Planned] = ()) -> Iterator[None]:
    """Show progress as bars if `console` is a terminal, else as plain lines; with a plan, after each of its steps the time that is left."""

    def write(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)  # `print` goes to Prefect's log

    time_left = TimeLeft(plan, write)
    if not console.is_terminal:
        lines = LineDisplay(write)

        def show_lines(label: str, done: int, total: int, note: str = "", /) -> None:
            time_left(label, done, total, note)
            lines(label, done, total, note)

        with show_with(show_lines, write):
            yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text_columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    columns = (*text_columns, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as progress:
        bars: dict[str, TaskID] = {}
        starts: dict[str, float] = {}

        def show(label: str, done: int, total: int, note: str = "", /) -> None:
            time_left(label, done, total, note)
            if label not in bars:
                bars[label] = progress.add_task(label, total=total or None)
                starts[label] = time.monotonic()
            progress.update(bars[label], completed=done, total=total or None, description=f"{label} {note}".rstrip())
            if 0 < total <= done:
                progress.remove_task(bars.pop(label))
                if (seconds := time.monotonic() - starts.pop(label)) >= 2.0:
                    progress.console.print(f"  [dim]{label}: {done:,} in {seconds:.0f} s[/dim]", highlight=False)

        with show_with(show, write):
            yield
