"""Draws the values of a field for the rows of a fresh world: evenly, or different within a group of rows.

One idea: the rows of a group have the same value in an earlier column (an order's user, a product's category). Each group is dealt values
in the order of its rows. If a group has more rows than there are different values, some values repeat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

_TRIES = 32
"""Random draws for a row before the first unused value is taken."""


def deal_evenly(values: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    """`count` values in random order; the numbers of times that two values occur differ by at most one."""
    dealt = [values[at % len(values)] for at in range(count)]
    rng.shuffle(dealt)
    return dealt


def deal_differently(
    groups: Sequence[Hashable], values: Sequence[Any], rng: random.Random, kind_of: Callable[[Any], Hashable] = lambda value: value
) -> list[Any]:
    """A value per row, of different kinds within a group. groups: the group of each row. kind_of: the kind of a value."""
    used: dict[Hashable, set[Hashable]] = {}
    dealt = []
    for group in groups:
        used_kinds = used.setdefault(group, set())
        value = rng.choice(values)
        for _ in range(_TRIES):
            if kind_of(value) not in used_kinds:
                break
            value = rng.choice(values)
        else:
            value = next((each for each in values if kind_of(each) not in used_kinds), value)
        used_kinds.add(kind_of(value))
        dealt.append(value)
    return dealt


def shuffle_and_deal(groups: Sequence[Hashable], values: Sequence[Any], mix: Sequence[int], rng: random.Random) -> list[Any]:
    """A value per row: each group gets `len(mix)` different values, the first one on `mix[0]` of its rows, and so on."""
    hands: dict[Hashable, list[Any]] = {}
    dealt = []
    for group in groups:
        hand = hands.setdefault(group, [])
        if not hand:
            hand += [value for value, times in zip(rng.sample(values, len(mix)), mix, strict=True) for _ in range(times)]
            rng.shuffle(hand)
        dealt.append(hand.pop())
    return dealt
