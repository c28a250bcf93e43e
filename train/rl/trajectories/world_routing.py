"""Routing of groups to rollout workers by their world.

One idea: conversations of one world share their tools and much of their prompt, so they go to a worker that plays that world already, as
long as it is not fuller than the others (prefix affinity). Headrace's engine reads each prompt whole, except equal prompts that join
together; affinity serves engines with a prefix cache. A heavy world, one whose trajectories take several times the usual, goes to its
own lane, up to half of the workers, so that it cannot fill the slots of all.

What it does not do: move an open conversation; a worker that leaves hands its conversations back (`train/rl/trajectories/worker_pool.py`).
Source: RollArt, arXiv 2512.22560 (routing by task domain); ROLL's env-affinity router.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HEAVY = 3.0
"""A world is heavy if its trajectories take more than so many times the median of all worlds."""
FEWEST = 4
"""Trajectories of a world before its duration counts."""


@dataclass(slots=True)
class Load:
    """A worker's open conversations. worker: its number. slots: most that it can hold. open_by_world: how many of each world it plays."""

    worker: int
    slots: int
    open_by_world: Counter[str] = field(default_factory=Counter)

    @property
    def free(self) -> int:
        return self.slots - self.open_by_world.total()


class WorldDurations:
    """Mean duration of a trajectory, by world, of the latest ones."""

    def __init__(self) -> None:
        self._means: defaultdict[str, float] = defaultdict(float)
        self._counts: Counter[str] = Counter()

    def add(self, world: str, seconds: float) -> None:
        """An average that forgets: each new duration has a weight of one in ten, the first ones more."""
        self._counts[world] += 1
        self._means[world] += (seconds - self._means[world]) / min(self._counts[world], 10)

    def heavy(self) -> frozenset[str]:
        """Worlds whose mean exceeds `HEAVY` times the median over worlds."""
        known = {world: mean for world, mean in self._means.items() if self._counts[world] >= FEWEST}
        usual = statistics.median_low(known.values()) if known else 0.0
        return frozenset(world for world, mean in known.items() if mean > HEAVY * usual)


def choose_worker(world: str, needed: int, loads: Sequence[Load], heavy: Iterable[str] = ()) -> Load | None:
    """The worker for a group of a world; None: no suitable worker has room now.

    needed: conversations of the group; a worker with fewer slots in all takes them when it is empty.
    """
    ordered = sorted(loads, key=lambda load: load.worker)
    lane = {load.worker for load in ordered[: len(ordered) // 2]}
    is_heavy = bool(lane) and world in heavy
    with_room = [load for load in ordered if load.free >= min(needed, load.slots) and (load.worker in lane or not is_heavy)]
    if not with_room:
        return None
    has_lane = bool(lane) and bool(frozenset(heavy))
    emptiest = max(load.free for load in with_room)

    def preference(load: Load) -> tuple[bool, bool, int, int]:
        """Light worlds stay out of the lane; then affinity, unless the worker is a group fuller than the emptiest; then room."""
        in_wrong_lane = has_lane and not is_heavy and load.worker in lane
        plays_it = load.open_by_world[world] > 0 and load.free + needed >= emptiest
        return (not in_wrong_lane, plays_it, load.free, -load.worker)

    return max(with_room, key=preference)
