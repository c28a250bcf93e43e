"""Coverage prefers the rare, spreads what is common, and its quotas add up."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.coverage import QUOTAS, CoverageConfig, k_center, quotas, step


def vectors_of(texts) -> np.ndarray:
    """Unit vectors that are the same for equal texts and unrelated otherwise."""
    rows = [np.random.default_rng(abs(hash_of(text))).normal(size=8) for text in texts]
    return np.array([row / np.linalg.norm(row) for row in rows], dtype=np.float32)


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[-8:].rjust(8, b"\0"), "big")


def haystack(common: int = 400, rare: int = 40) -> pl.DataFrame:
    """Retail rows of difficulty 2: a common combination and several rare ones, in mixed order."""
    total = common + rare
    is_rare = [index % (total // rare) == 0 for index in range(total)]
    return pl.DataFrame(
        {
            "row": pl.Series(range(total), dtype=pl.UInt32),
            "norm": [f"query {index}" for index in range(total)],
            "language": "en",
            "residue": "",
            "world": "retail",
            "intent": ["swap" if flag else "buy" for flag in is_rare],
            "combination": [f"rare{index // 30}" if flag else "common" for index, flag in enumerate(is_rare)],
            "asked": [rare // 8 if flag else 3 * common for flag in is_rare],
            "quality": 0.9,
            "difficulty": pl.Series([2] * total, dtype=pl.Int8),
        }
    )


def test_rare_combinations_come_first():
    rows = haystack()
    ranked = step(rows, CoverageConfig(keep=20, shortlist=4), vectors_of)
    first = ranked.filter(pl.col("stratum_rank") < 20)
    assert first["combination"].str.starts_with("rare").all()
    share = rows["combination"].str.starts_with("rare").mean()
    assert share < 0.1, "a random draw would hold few of them"


def test_shortlist_is_bounded_and_all_else_has_its_reason():
    ranked = step(haystack(), CoverageConfig(keep=10, shortlist=3), vectors_of)
    assert ranked["stratum_rank"].drop_nulls().sort().to_list() == list(range(30))
    assert ranked.filter(pl.col("stratum_rank").is_null())["reason"].unique().to_list() == ["not_shortlisted"]
    assert ranked.filter(pl.col("stratum_rank").is_not_null())["reason"].null_count() == 30


def test_the_order_of_rows_of_one_tier_does_not_follow_their_order_in_the_file():
    ranked = step(haystack(), CoverageConfig(keep=20), vectors_of).filter(pl.col("stratum_rank").is_not_null()).sort("stratum_rank")
    assert ranked["row"].to_list() != sorted(ranked["row"].to_list())
    again = step(haystack(), CoverageConfig(keep=20), vectors_of)
    assert again.filter(pl.col("stratum_rank").is_not_null()).sort("stratum_rank")["row"].to_list() == ranked["row"].to_list()


@given(st.dictionaries(st.tuples(st.sampled_from(sorted(QUOTAS)), st.booleans()), st.integers(0, 200)), st.integers(1, 150))
def test_quotas_add_up_and_never_exceed_what_there_is(available, keep):
    granted = quotas(available, CoverageConfig(keep=keep))
    reachable = sum(available.values())
    assert sum(granted.values()) == min(keep, reachable)
    assert all(count <= available.get(stratum, 0) for stratum, count in granted.items())


def test_quotas_follow_the_definition_where_there_is_enough():
    everything = {(level, learnable): 1000 for level in QUOTAS for learnable in (True, False)}
    granted = quotas(everything, CoverageConfig(keep=100))
    by_level = {level: granted.get((level, True), 0) + granted.get((level, False), 0) for level in QUOTAS}
    assert by_level == {-1: 5, 0: 5, 1: 10, 2: 20, 3: 25, 4: 20, 5: 15}
    assert sum(count for (_, learnable), count in granted.items() if learnable) >= 44


def test_k_center_covers_better_than_the_first_rows_and_puts_outliers_last():
    rng = np.random.default_rng(0)
    clusters = [rng.normal(centre, 0.05, (50, 16)) for centre in rng.normal(0, 1, (6, 16))]
    points = np.concatenate(clusters).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    order = k_center(points)
    assert sorted(order) == list(range(300))
    radius = [max(1 - (points @ points[chosen].T).max(axis=1)) for chosen in (order[:6], list(range(6)))]
    assert radius[0] < 0.2 * radius[1]
    assert k_center(points, outliers=0.01)[-3:] == list(np.argsort(points @ points.mean(axis=0), kind="stable")[:3][::-1])
    assert k_center(points[:0]) == []


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_learnable_share_may_be_nothing_or_everything(share):
    everything = {(level, learnable): 1000 for level in QUOTAS for learnable in (True, False)}
    granted = quotas(everything, CoverageConfig(keep=100, learnable_share=share))
    easy = {learnable: sum(granted.get((level, learnable), 0) for level in (1, 2, 3)) for learnable in (True, False)}
    assert easy == ({True: 0, False: 55} if share == 0 else {True: 55, False: 0})


@pytest.mark.parametrize("max_encoded", [0, 50, 119])
def test_no_more_rows_are_encoded_than_may_be_and_the_shortlist_is_filled_all_the_same(max_encoded):
    """Given a shortlist of 160 rows over two strata, and fewer that may be encoded, then all 160 are on it, rare ones first."""
    rows = haystack()
    rows = rows.with_columns(difficulty=pl.when(pl.col("row") % 2 == 0).then(2).otherwise(4).cast(pl.Int8))
    encoded: list[str] = []

    def counted(texts):
        encoded.extend(texts)
        return vectors_of(texts)

    ranked = step(rows, CoverageConfig(keep=40, shortlist=4, max_encoded=max_encoded), counted)
    assert len(set(encoded)) == len(encoded) <= max_encoded
    assert len(encoded) >= max_encoded - 2
    assert ranked["stratum_rank"].drop_nulls().len() == 160
    for level in (2, 4):
        listed = ranked.filter(pl.col("difficulty") == level).drop_nulls("stratum_rank").sort("stratum_rank")
        assert listed["stratum_rank"].to_list() == list(range(listed.height))
        is_rare = listed["combination"].str.starts_with("rare")
        assert is_rare.to_list() == sorted(is_rare.to_list(), reverse=True)
