"""The marks in shortened results, and reminders after results: how they are written, found, and taken out for the verifier.

A mark says what is left out, how many there are in all, and how to call for the rest: `[read_more id=r1 from=2: 17 of 20 items hidden]`.
The last page of a result ends with `[end of r1: 20 items]`. What a mark tells is true of the result, so its total is a source of a count;
its other numbers are no source of anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from storage.records import JSON

Unit = Literal["items", "characters"]
_MARK = re.compile(
    r"\[(?:read_more id=(?P<id>r\d+) from=(?P<start>\d+): \d+ of (?P<total>\d+)|end of r\d+: (?P<whole>\d+))"
    r" (?:items|characters)(?: hidden)?\]"
)
_OPEN, _CLOSE = "\n<reminder>", "</reminder>"


class OpenMark(NamedTuple):
    """A mark of a result that has more to show: the arguments of the call that shows it."""

    id: str
    start: int


def write_mark(cut: str, start: int, hidden: int, total: int, unit: Unit) -> str:
    """The mark of a result's hidden part; without one, its end."""
    return f"[read_more id={cut} from={start}: {hidden} of {total} {unit} hidden]" if hidden else f"[end of {cut}: {total} {unit}]"


def open_marks(content: str) -> list[OpenMark]:
    """The marks of a result that has more to show, in their order."""
    return [OpenMark(match["id"], int(match["start"])) for match in _MARK.finditer(content) if match["id"]]


def is_mark(value: JSON) -> bool:
    """Whether a value in a result is a mark."""
    return isinstance(value, str) and _MARK.fullmatch(value) is not None


def has_mark(text: str) -> bool:
    return "[" in text and _MARK.search(text) is not None


def without_marks(text: str) -> str:
    """A result as the policy saw it, without marks."""
    return _MARK.sub(" ", text) if "[" in text else text


def full_length(items: Sequence[JSON]) -> int:
    """Length of a list in a result; of a shortened one, that of the whole list."""
    for item in items:
        match = _MARK.fullmatch(item) if isinstance(item, str) else None
        if match is not None:
            return int(match["total"] or match["whole"])
    return len(items)


def add_reminder(content: str, reminder: str) -> str:
    return f"{content}{_OPEN}{reminder}{_CLOSE}"


def without_reminder(content: str) -> str:
    """A result without the reminder at its end."""
    start = content.rfind(_OPEN)
    return content[:start] if start >= 0 and content.endswith(_CLOSE) else content
