"""Combinations: an intent with a set of slot names. A log consists of common and rare ones."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.tasks.difficulty import rate
from synth.worlds import WORLDS

_MAX_SUBSET = 5
"""Largest number of optional slots of which all subsets are combinations."""


@dataclass(frozen=True, slots=True)
class Combination:
    """An intent of a world with a set of slot names."""

    world: str
    intent: str
    slots: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.world}/{self.intent}({','.join(self.slots)})"

    @property
    def difficulty(self) -> int:
        """The static difficulty of a query that names a tool."""
        return rate(WORLDS[self.world], self.intent, frozenset(self.slots), True).r


def combinations_of(world: str) -> Iterator[Combination]:
    """The combinations of a world: for each intent all subsets of up to five optional slots, smallest first, and the full set."""
    for name, intent in WORLDS[world].intents.items():
        required = [slot.name for slot in intent.slots if slot.is_required]
        optional = [slot.name for slot in intent.slots if not slot.is_required]
        for size in range(len(optional) + 1):
            if size <= _MAX_SUBSET or size == len(optional):
                for combination in itertools.combinations(optional, size):
                    yield Combination(world, name, tuple(sorted((*required, *combination))))


def take_turns(candidates: Sequence[Combination]) -> list[Combination]:
    """The combinations with intents taking turns: each intent gives its combination of most slots first and its plainest one last."""
    candidates = sorted(candidates, key=lambda combination: -len(combination.slots))
    intents = [combination.intent for combination in candidates]
    sizes = Counter(intents)
    turns = zip(count_before(intents), candidates, strict=True)
    return [combination for _, combination in sorted(turns, key=lambda row: (row[0] == sizes[row[1].intent] - 1, row[0]))]


def count_before(names: Sequence[str]) -> list[int]:
    """For each position, how often its name occurs before."""
    counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return [next(counts[name]) for name in names]
