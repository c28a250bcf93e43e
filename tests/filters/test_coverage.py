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


def listed(rows: pl.DataFrame, config: CoverageConfig, encode=vectors_of) -> pl.DataFrame:
    """The shortlist in its order."""
    return step(rows, config, encode).drop_nulls("stratum_rank").sort("stratum_rank")


def test_rows_of_one_tier_and_intent_come_as_k_center_takes_them():
    """Given one common combination whose texts are of six kinds, 90 % of them of the first, then the first six rows are one of each kind,
    and the same each time."""
    rows = haystack(common=600, rare=1).filter(pl.col("combination") == "common")
    kinds = [max(0, index % 50 - 44) for index in range(rows.height)]
    points = np.eye(8)[kinds] + np.random.default_rng(1).normal(0, 0.01, (rows.height, 8))
    vectors = dict(zip(rows["norm"], (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), strict=True))

    def encode(texts):
        return np.stack([vectors[text] for text in texts])

    kind_of = dict(zip(rows["row"], kinds, strict=True))
    config = CoverageConfig(keep=20, outliers=0)
    spread, as_read = listed(rows, config, encode)["row"], listed(rows, config.model_copy(update={"max_encoded": 0}))["row"]
    assert {kind_of[row] for row in spread[:6]} == set(range(6))
    assert {kind_of[row] for row in as_read[:6]} == {0} and as_read.to_list() == sorted(as_read)
    assert listed(rows, config, encode)["row"].to_list() == spread.to_list()


@pytest.mark.parametrize("max_encoded", [0, 3000])
def test_intents_of_one_tier_take_turns_by_the_square_root_of_their_size(max_encoded):
    """Given 900 rows of one intent and 100 of another, all of one combination's rarity, then the shortlist has three of the one for one of
    the other, from its beginning, whether only the shortlist is ordered or all rows are encoded."""
    rows = haystack(common=1000, rare=1).filter(pl.col("combination") == "common").head(1000)
    rows = rows.with_columns(intent=pl.when(pl.int_range(pl.len()) % 10 == 0).then(pl.lit("swap")).otherwise(pl.lit("buy")))
    intents = listed(rows, CoverageConfig(keep=20, shortlist=4, max_encoded=max_encoded))["intent"]
    assert [(intents[:size] == "swap").sum() / size for size in (20, 40, 80)] == pytest.approx([0.25] * 3, abs=0.05)


def test_a_row_with_an_odd_word_has_no_merit_of_rarity():
    """Given rare rows, half of them with a word that no other row has, then the sound ones come first, the odd ones among the common."""
    rows = haystack(common=1000, rare=40)
    is_rare = pl.col("combination").str.starts_with("rare")
    is_spoilt = is_rare & (pl.col("row") % 4 == 0)
    rows = rows.with_columns(residue=pl.when(is_spoilt).then(pl.format("xq{}", "row")).otherwise(pl.lit("")))
    spoilt, sound = rows.filter(is_spoilt), rows.filter(is_rare & ~is_spoilt)
    assert min(spoilt.height, sound.height) >= 10
    first = listed(rows, CoverageConfig(keep=20, shortlist=4)).head(sound.height)
    assert set(first["row"]) == set(sound["row"])


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
