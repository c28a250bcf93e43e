"""How values fall on rows: evenly, or so that rows of one group differ."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from synth.worlds.declarative.rows import deal_values

GROUPS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=60)


@given(values=st.lists(st.integers(), min_size=1, max_size=12, unique=True), count=st.integers(0, 60), seed=st.integers(0, 99))
def test_every_value_falls_as_often_as_the_others(values: list[int], count: int, seed: int) -> None:
    times = Counter(deal_values.deal_evenly(values, count, random.Random(seed)))
    assert sum(times.values()) == count
    assert max(times[value] for value in values) - min(times[value] for value in values) <= 1


@given(groups=GROUPS, many=st.integers(1, 30), seed=st.integers(0, 99))
def test_rows_of_a_group_differ_as_long_as_there_are_enough_values(groups: list[str], many: int, seed: int) -> None:
    found = defaultdict(list)
    for group, value in zip(
        groups, deal_values.deal_differently(groups, range(many), random.Random(seed), lambda value: value // 2), strict=True
    ):
        found[group].append(value // 2)
    for kinds in found.values():
        assert len(set(kinds)) == min(len(kinds), (many + 1) // 2)


@given(groups=GROUPS, mix=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_group_has_its_values_as_often_as_the_mix_says(groups: list[str], mix: list[int], seed: int) -> None:
    found = deal_values.shuffle_and_deal(groups, "uvwxyz", mix, random.Random(seed))
    for group in set(groups):
        mine = [value for of, value in zip(groups, found, strict=True) if of == group][: sum(mix)]
        if len(mine) == sum(mix):
            assert sorted(Counter(mine).values()) == sorted(mix)
