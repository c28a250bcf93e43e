"""The time that a run still takes: planned at first, corrected by every step that ends.

One idea: the plan is a list of steps in their order with planned seconds, and progress labels tell which step is at work. What finished
steps took, over what was planned for them, scales the plan of those to come.

What it does not do: plan (`flows/dry_run.py`), or show the progress inside a step (`progress.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PRIOR_S = 5.0
"""Weight of the plan against the measurement: seconds of a finished step that took as long as planned."""
LEAST_S = 2.0


@dataclass(frozen=True)
class Planned:
    """One step.

    name: for the user. labels: what its progress labels begin with; empty: it has the labels that no other step has.
    seconds: planned wall time. is_last: its labels are those of earlier steps too, so it can only follow the step before it.
    """

    name: str
    labels: tuple[str, ...]
    seconds: float
    is_last: bool = False


class TimeLeft:
    """A display of progress: writes a line when a step ends that took two seconds or more, with the time that the later ones will take."""

    def __init__(self, plan: Sequence[Planned], write: Callable[[str], None]) -> None:
        self._plan, self._write = plan, write
        self._at: int | None = None
        self._began = time.monotonic()
        self._took, self._planned = PRIOR_S, PRIOR_S

    def __call__(self, label: str, done: int, total: int, note: str = "", /) -> None:
        at = self._find(label)
        if at is None or at == self._at:
            return
        now = time.monotonic()
        if self._at is not None:
            self._end_step(self._plan[self._at], now - self._began, self._plan[at:])
        self._at, self._began = at, now

    def _find(self, label: str) -> int | None:
        """Number of the step of this label, the present one or a later one; None: an earlier one, whose result is read again."""
        first = 0 if self._at is None else self._at
        later = [(number, step) for number, step in enumerate(self._plan) if number >= first]
        named = (n for n, step in later if step.labels and not step.is_last and label.startswith(step.labels))
        if (found := next(named, None)) is not None:
            return found
        last = len(self._plan) - 1
        if self._plan and self._plan[last].is_last and last - first <= 1 and any(one in label for one in self._plan[last].labels):
            return last
        return next((number for number, step in later if not step.labels), None)

    def _end_step(self, step: Planned, seconds: float, later: Sequence[Planned]) -> None:
        self._took, self._planned = self._took + seconds, self._planned + step.seconds
        left = sum(one.seconds for one in later) * self._took / self._planned
        if seconds >= LEAST_S:
            self._write(f"{step.name}: done in {duration(seconds)} (planned {duration(step.seconds)}); then about {duration(left)}")


def duration(seconds: float) -> str:
    """`40 s` or `6 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
