"""How far the work is: bars on a terminal, plain lines elsewhere.

The library reports through one callback, `progress(label, done, total)`; flows hand in `report`, which passes on to whatever the
process shows progress with: `bars` or `lines` under the `headrace` command, lines in the run's log under a worker.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class Show(Protocol):
    def __call__(self, label: str, done: int, total: int, note: str = "", /) -> None:
        """note: a figure of now, such as a loss."""


LINE_EVERY_S = 10.0


class Lines:
    """A line when something begins to take long, every ten seconds after that, and when that is done."""

    def __init__(self, write: Callable[[str], None], every_s: float = LINE_EVERY_S) -> None:
        self._write, self._every_s = write, every_s
        self._begun: dict[str, tuple[float, int]] = {}
        """When something began, as far as this process has seen, and how much of it was done by then: what goes on had done that before."""
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, label: str, done: int, total: int, note: str = "", /) -> None:
        now = time.monotonic()
        with self._lock:
            begun, first = self._begun.setdefault(label, (now, done))
            if done < first:
                begun, first = self._begun[label] = now, done
            finished = 0 < total <= done
            due = now - self._told.get(label, begun) >= self._every_s
            if due or (finished and now - begun >= 2.0):
                self._told[label] = now
                share = f"{done:,} of {total:,}" if total else f"{done:,}"
                left = f", about {(now - begun) * (total - done) / (done - first):.0f} s left" if first < done < total else ""
                self._write(f"{label}: {share}, {now - begun:.0f} s{left}{note and f', {note}'}")
            if finished:
                self._begun.pop(label, None)
                self._told.pop(label, None)


_shown: list[Show] = [Lines(lambda line: print(line, flush=True))]


def report(label: str, done: int, total: int, note: str = "", /) -> None:
    """Say that `done` of `total` (0 = unknown) of what `label` names is done, and a figure of now."""
    _shown[-1](label, done, total, note)


@contextlib.contextmanager
def showing(show: Show) -> Iterator[None]:
    """Show progress with `show` meanwhile, in every thread."""
    _shown.append(show)
    try:
        yield
    finally:
        _shown.remove(show)


@contextlib.contextmanager
def on_console(console: Console) -> Iterator[None]:
    """Bars where `console` is a terminal, plain lines where it is not."""
    if not console.is_terminal:
        with showing(Lines(lambda line: print(line, flush=True))):
            yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    described = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn())
    columns = (*described, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as progress:
        bars: dict[str, TaskID] = {}
        begun: dict[str, float] = {}

        def show(label: str, done: int, total: int, note: str = "", /) -> None:
            if label not in bars:
                bars[label] = progress.add_task(label, total=total or None)
                begun[label] = time.monotonic()
            progress.update(bars[label], completed=done, total=total or None, description=f"{label} {note}".rstrip())
            if 0 < total <= done:
                progress.remove_task(bars.pop(label))
                if (seconds := time.monotonic() - begun.pop(label)) >= 2.0:
                    progress.console.print(f"  [dim]{label}: {done:,} in {seconds:.0f} s[/dim]", highlight=False)

        with showing(show):
            yield
