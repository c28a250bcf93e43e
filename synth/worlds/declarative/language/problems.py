"""Problems of a spec, for its author: where, what is wrong, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from storage.errors import BadInput


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where (`actions.refund.rules.window.if`), and what to do about it."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class SpecError(BadInput):
    """A spec that cannot be compiled, with all its problems. where: the file."""

    def __init__(self, problems: Iterable[Problem], where: str = "") -> None:
        self.problems = tuple(problems)
        self.where = where
        super().__init__((f"{where}: " if where else "") + "; ".join(map(str, self.problems)))


def nearest(word: str, names: Iterable[str], *, lead: str = "there are") -> str:
    """The end of a message about an unknown word: `did you mean 'x'?`, or all possible names."""
    words = sorted(set(names))
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"{lead} {', '.join(words[:20])}" if words else "there are none"
