"""Reproducible chance without a generator object: numbers that depend on a seed and a few integers only (splitmix64).

For facts of which there are too many to draw all at once (a train's price on a day, a district's weather), and so cheap that none is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_START = 0x9E3779B97F4A7C15


def bits(*keys: int, start: int = _START) -> int:
    """64 well mixed bits. `bits(a, b, c)` is `bits(c, start=bits(a, b))`: what many draws have in common is mixed once."""
    state = start
    for key in keys:
        state = (state + (key & _MASK) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def mix(key: int) -> int:
    """64 well mixed bits of one 64-bit number: `bits` for a hot loop over consecutive numbers."""
    state = (key * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return state ^ (state >> 29)


def unit(*keys: int, start: int = _START) -> float:
    """In [0, 1)."""
    return (bits(*keys, start=start) >> 11) / (1 << 53)


def integer(low: int, high: int, *keys: int, start: int = _START) -> int:
    """In low .. high, both included."""
    return low + bits(*keys, start=start) % (high - low + 1)


def pick(choices: Sequence[T], *keys: int) -> T:
    return choices[bits(*keys) % len(choices)]
