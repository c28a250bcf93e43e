"""Problems of a spec, for its author: where, what is wrong, what to do.

One idea: problems with the same text are one cause at several places. Causes are ordered, first what most likely makes the others.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.errors import BadInput

ROOT, USUAL, FOLLOWS = 0, 1, 2
"""Ranks of problems: those that make others (a misspelled key), all others, and those that others make (too few rows)."""
_SHOWN_PLACES = 8
_ONE_LINE = 230
"""Most characters of a cause in a message of one line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where (`actions.refund.rules.window.if`), and what to do about it. rank: ROOT, USUAL or FOLLOWS."""

    path: str
    text: str
    rank: int = USUAL

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


@dataclass(frozen=True, slots=True)
class Cause:
    """A problem, and the places where it is. places: at least one; the first stands for all."""

    text: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        others = len(self.places) - 1
        more = f" and {others} more place{'s' if others > 1 else ''}" if others else ""
        return f"{self.places[0]}{more}: {self.text}" if self.places[0] else self.text

    def lines(self) -> list[str]:
        """The cause, and a line with its other places."""
        others = self.places[1 : _SHOWN_PLACES + 1]
        rest = "" if len(self.places) <= _SHOWN_PLACES + 1 else f" and {len(self.places) - _SHOWN_PLACES - 1} more"
        return [str(self)] + ([f"    the other places: {', '.join(others)}{rest}"] if others else [])


def causes_of(problems: Sequence[Problem]) -> list[Cause]:
    """The causes of problems: equal texts together; first those of rank ROOT and those at the most places."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.text, []).append(problem)
    order = sorted(groups.values(), key=lambda group: (group[0].rank, -len(group) if len(group) > 2 else 0))
    return [Cause(group[0].text, tuple(dict.fromkeys(each.path for each in group))) for group in order]


class SpecError(BadInput):
    """A spec that cannot be compiled, with all its problems; the message is the first cause alone. where: the file."""

    def __init__(self, problems: Iterable[Problem], where: str = "") -> None:
        self.problems = tuple(problems)
        self.where = where
        first, *others = causes_of(self.problems)
        text = str(first) if len(str(first)) <= _ONE_LINE else f"{str(first)[: _ONE_LINE - 4].rstrip()} ..."
        parts = [f"{where}: {text}" if where else text]
        parts += [f"{len(others)} more problem{'s' if len(others) > 1 else ''}"] if others else []
        parts += [f"for more: headrace worlds check {where}"] if where.endswith((".yaml", ".yml")) and first.places[0] else []
        super().__init__("; ".join(parts))


def nearest(word: str, names: Iterable[str], *, lead: str = "there are") -> str:
    """The end of a message about an unknown word: `did you mean 'x'?`, or all possible names."""
    words = sorted(set(names))
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"{lead} {', '.join(words[:20])}" if words else "there are none"
