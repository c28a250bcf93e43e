"""What a reader reads: a frame with the places of its values, and a confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value of a slot.

    value: a date, minutes after midnight, a number, a canonical value of a choice, a flag, or a name as it is said.
    start, end: its place in the text.
    probability: that it belongs to the slot.
    """

    slot: str
    value: Any
    said: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text asks for.

    confidence: the probability that world, intent and every value are right, 0 to 1.
    foreign: words that nothing explains.
    unread: number of values that no slot takes.
    twins: (world, intent) of other worlds that do the same; either may be taken.
    """

    world: str
    intent: str
    values: tuple[ReadValue, ...]
    confidence: float
    foreign: tuple[str, ...]
    unread: int
    twins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PossibleFrame:
    """An intent that a text may ask for.

    values: each place that may fill a slot, the likeliest first; they overlap.
    foreign: words that nothing explains.
    places: (start, end) of all values of the text that a slot of the intent might have, names aside, and of all days, times and numbers.
    """

    world: str
    intent: str
    values: tuple[ReadValue, ...]
    foreign: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
