"""Routing of groups to rollout workers: to those that play the world already, heavy worlds apart, and nobody starves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from train.rl.trajectories.world_routing import FEWEST, HEAVY, Load, WorldDurations, choose_worker


def loads(*given: tuple[int, dict[str, int]]) -> list[Load]:
    """(slots, open by world) of workers 0, 1, 2 ..."""
    return [Load(number, slots, Counter(worlds)) for number, (slots, worlds) in enumerate(given)]


def chosen(world: str, needed: int, workers: list[Load], *heavy: str) -> int | None:
    load = choose_worker(world, needed, workers, heavy)
    return None if load is None else load.worker


def test_a_world_goes_where_it_is_played_already_unless_that_worker_is_a_group_fuller():
    workers = loads((12, {"flight": 4}), (12, {"retail": 4}))
    assert [chosen(world, 4, workers) for world in ("flight", "retail", "bank")] == [0, 1, 0]
    assert chosen("retail", 4, loads((12, {"flight": 4}), (12, {"retail": 8}))) == 1
    assert chosen("retail", 4, loads((16, {"flight": 4}), (16, {"retail": 12}))) == 0


def test_a_group_waits_until_a_worker_has_room_for_all_of_it():
    assert chosen("retail", 4, loads((6, {"retail": 3}), (6, {"retail": 4}))) is None
    assert chosen("retail", 4, loads((6, {"retail": 3}), (6, {"retail": 2}))) == 1
    assert chosen("retail", 1, loads((6, {"retail": 6}))) is None
    assert chosen("retail", 1, []) is None


def test_a_worker_with_fewer_slots_than_the_group_takes_it_when_it_is_empty():
    assert chosen("retail", 8, loads((3, {"retail": 1}))) is None
    assert chosen("retail", 8, loads((3, {}))) == 0


def test_a_heavy_world_stays_in_its_lane_and_light_ones_leave_the_lane_as_long_as_they_can():
    """The lane is the first half of the workers."""
    free = loads((8, {}), (8, {}), (8, {}), (8, {}))
    assert chosen("slow", 4, free, "slow") == 0
    assert chosen("retail", 4, free, "slow") == 2
    full = loads((8, {"slow": 8}), (8, {"slow": 8}), (8, {}), (8, {}))
    assert chosen("slow", 4, full, "slow") is None
    assert chosen("retail", 4, loads((8, {}), (8, {}), (8, {"bank": 8}), (8, {"bank": 8})), "slow") == 0


@given(st.lists(st.sampled_from(["a", "b", "slow"]), min_size=1, max_size=12), st.integers(1, 8), st.integers(1, 9), st.integers(1, 5))
def test_nobody_starves(worlds: list[str], needed: int, slots: int, workers: int) -> None:
    """Given any worlds, heavy ones too, when workers become empty again and again, then every group is played, also by one worker."""
    waiting, rounds = list(worlds), 0
    while waiting:
        now = loads(*[(slots, {})] * workers)
        for world in list(waiting):
            load = choose_worker(world, needed, now, ["slow"])
            if load is not None:
                load.open_by_world[world] += min(needed, load.free)
                waiting.remove(world)
        assert all(load.free >= 0 for load in now)
        rounds += 1
        assert rounds <= len(worlds)


def test_a_world_is_heavy_by_its_latest_trajectories_once_there_are_enough():
    durations = WorldDurations()
    assert durations.heavy() == frozenset()
    for _ in range(FEWEST):
        durations.add("retail", 1.0)
        durations.add("bank", 1.2)
    for count in range(FEWEST):
        assert durations.heavy() == frozenset(), count
        durations.add("slow", 1.2 * HEAVY + 0.1)
    assert durations.heavy() == {"slow"}
    for _ in range(30):
        durations.add("slow", 1.0)
    assert durations.heavy() == frozenset(), "it has become faster"


def test_a_lone_world_is_not_heavy():
    durations = WorldDurations()
    for _ in range(9):
        durations.add("slow", 99.0)
    assert durations.heavy() == frozenset()
