"""How values fall on the rows of a fresh world where chance alone will not do: evenly, or so that rows of one group differ.

One idea: a group is what rows share in a column that stands before (an order's user, a product's category); each group is dealt values of
its own, in the order of its rows.
Where a group has more rows than there are values that differ, some repeat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

_TRIES = 32
"""Values drawn at random for one row, before all are looked through for one that its group does not have."""


def deal_evenly(values: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    """Every value as often as the others, give or take one, in random order."""
    dealt = [values[at % len(values)] for at in range(count)]
    rng.shuffle(dealt)
    return dealt


def deal_differently(
    groups: Sequence[Hashable], values: Sequence[Any], rng: random.Random, kind_of: Callable[[Any], Hashable] = lambda value: value
) -> list[Any]:
    """A value a row: those of one group are of different kinds."""
    used: dict[Hashable, set[Hashable]] = {}
    dealt = []
    for group in groups:
        mine = used.setdefault(group, set())
        value = rng.choice(values)
        for _ in range(_TRIES):
            if kind_of(value) not in mine:
                break
            value = rng.choice(values)
        else:
            value = next((each for each in values if kind_of(each) not in mine), value)
        mine.add(kind_of(value))
        dealt.append(value)
    return dealt


def shuffle_and_deal(groups: Sequence[Hashable], values: Sequence[Any], mix: Sequence[int], rng: random.Random) -> list[Any]:
    """A value a row: each group has as many values as `mix` has numbers, the first of them on so many rows, and so on."""
    left: dict[Hashable, list[Any]] = {}
    dealt = []
    for group in groups:
        hand = left.setdefault(group, [])
        if not hand:
            hand += [value for value, times in zip(rng.sample(values, len(mix)), mix, strict=True) for _ in range(times)]
            rng.shuffle(hand)
        dealt.append(hand.pop())
    return dealt
