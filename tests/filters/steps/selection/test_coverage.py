"""Coverage prefers the rare, spreads what is common, its quotas add up, and rows without a frame have their share of what is left."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.requests.unlike_others import UNLIKE_OTHERS
from filters.step import alive
from filters.steps.selection import coverage
from filters.steps.selection.coverage import QUOTAS, CoverageConfig, fill, k_center, leaf_quotas, pool, quotas, shortlist, topic_quotas


def vectors_of(texts) -> np.ndarray:
    """Unit vectors that are the same for equal texts and unrelated otherwise."""
    rows = [np.random.default_rng(abs(hash_of(text))).normal(size=8) for text in texts]
    return np.array([row / np.linalg.norm(row) for row in rows], dtype=np.float32)


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[-8:].rjust(8, b"\0"), "big")


def haystack(common: int = 400, rare: int = 40) -> pl.DataFrame:
    """Retail rows of level 2: a common combination and several rare ones, in mixed order."""
    total = common + rare
    is_rare = [index % (total // rare) == 0 for index in range(total)]
    return pl.DataFrame(
        {
            "row": pl.Series(range(total), dtype=pl.UInt32),
            "frame_id": [f"frame{index}" for index in range(total)],
            "leaf": "retail.shopping",
            "norm": [f"query {index}" for index in range(total)],
            "text": "query",
            "masked": pl.Series([None] * total, dtype=pl.String),
            "represented": 1,
            "language": "en",
            "residue": "",
            "world": "retail",
            "intent": ["swap" if flag else "buy" for flag in is_rare],
            "combination": [f"rare{index // 30}" if flag else "common" for index, flag in enumerate(is_rare)],
            "asked": [rare // 8 if flag else 3 * common for flag in is_rare],
            "quality": 0.9,
            "level": pl.Series([2] * total, dtype=pl.Int8),
        }
    )


def shuffled_vectors(sizes: dict[str, int]) -> pl.DataFrame:
    """Rows that no world can execute, of these leaves, mixed."""
    leaves = [leaf for leaf, size in sizes.items() for _ in range(size)]
    order = np.random.default_rng(3).permutation(len(leaves))
    none = pl.lit(None, pl.String)
    return pl.DataFrame(
        {
            "row": pl.Series(range(10_000, 10_000 + len(leaves)), dtype=pl.UInt32),
            "norm": [f"stranger {index}" for index in range(len(leaves))],
            "text": "stranger",
            "masked": [leaves[index] for index in order],
            "represented": 1,
            "leaf": [leaves[index] for index in order],
            "language": "en",
            "quality": 0.5,
        }
    ).with_columns(frame_id=none, world=none, intent=none, combination=none, residue=pl.lit(""), asked=None, level=pl.lit(None, pl.Int8))


def test_topics_of_a_few_rows_share_what_others_leave_and_rows_unlike_others_come_last() -> None:
    rows = pl.DataFrame({"topic": ["large"] * 4 + ["small"] * 2 + [UNLIKE_OTHERS] * 3, "topic_rows": [40] * 4 + [2] * 2 + [90] * 3})
    assert [topic_quotas(rows, total) for total in (3, 6, 8)] == [
        {"large": 3, "small": 0, UNLIKE_OTHERS: 0},
        {"large": 4, "small": 2, UNLIKE_OTHERS: 0},
        {"large": 4, "small": 2, UNLIKE_OTHERS: 2},
    ]


def test_a_pattern_counts_its_rows_and_their_duplicates() -> None:
    rows = shuffled_vectors({"a": 3}).with_columns(masked=pl.Series(["lost bag", "lost bag", "wifi"]), represented=pl.Series([1, 6, 2]))
    assert pool(rows, CoverageConfig())["pattern_rows"].to_list() == [7, 7, 2]


def step(rows: pl.DataFrame, config: CoverageConfig, encode=vectors_of) -> pl.DataFrame:
    """The pool, and the shortlist that is drawn from it."""
    chosen = with_topics(alive(pool(rows, config)))
    return shortlist(chosen, encode(chosen["norm"].to_list()), config)


def with_topics(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, their pattern as topic where they have no frame."""
    rank = pl.int_range(pl.len(), dtype=pl.Int32).over("pattern")
    return rows.with_columns(topic="pattern", topic_rows="pattern_rows", topic_rank=rank)


def test_strata_without_a_quota_hold_rows_in_reserve():
    """Given one task wanted, whose stratum may turn out to hold none, then every other stratum has rows on the shortlist too."""
    rows = pl.concat([haystack(), haystack().with_columns(pl.col("row") + 1000, level=pl.lit(4, pl.Int8))])
    listed = alive(step(rows, CoverageConfig(keep=1)))
    assert set(listed["level"]) == {2, 4}
    assert listed.height < 40


def test_rare_combinations_come_first():
    rows = haystack()
    first = step(rows, CoverageConfig(keep=20, shortlist=4)).filter(pl.col("stratum_rank") < 20)
    assert first["combination"].str.starts_with("rare").all()
    share = rows["combination"].str.starts_with("rare").mean()
    assert share < 0.1, "a random draw would hold few of them"


def test_shortlist_is_bounded_and_all_else_has_its_reason():
    ranked = step(haystack(), CoverageConfig(keep=10, shortlist=3))
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
    spread = listed(rows, config, encode)["row"]
    assert {kind_of[row] for row in spread[:6]} == set(range(6))
    assert {kind_of[row] for row in rows["row"][:6]} == {0}, "in their own order they are of one kind"
    assert listed(rows, config, encode)["row"].to_list() == spread.to_list()


@pytest.mark.parametrize("max_encoded", [80, 3000])
def test_intents_of_one_tier_take_turns_by_the_square_root_of_their_size(max_encoded):
    """Given 900 rows of one intent and 100 of another, all of one combination's rarity, then the shortlist has three of the one for one of
    the other, from its beginning, whether the pool is just the shortlist or all rows."""
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


@pytest.mark.parametrize("learnable", [0, 3])
def test_levels_keep_their_shares_where_no_world_is_learnable(learnable):
    """Given hardly a row of learnable worlds, then their places go to the other rows of the same level, not to other levels."""
    available = {(level, False): 1000 for level in QUOTAS} | {(2, True): learnable}
    granted = quotas(available, CoverageConfig(keep=100))
    assert granted.get((2, True), 0) == learnable
    by_level = {level: granted.get((level, True), 0) + granted[level, False] for level in QUOTAS}
    assert by_level == {-1: 5, 0: 5, 1: 10, 2: 20, 3: 25, 4: 20, 5: 15}


def clustered(clusters: int, rows: int) -> np.ndarray:
    """Unit vectors in clusters, cluster by cluster."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(centre, 0.05, (rows, 16)) for centre in rng.normal(0, 1, (clusters, 16))]).astype(np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_k_center_covers_better_than_the_first_rows():
    points = clustered(6, 50)
    order = k_center(points)
    assert sorted(order) == list(range(300))
    assert k_center(points, 6).tolist() == order[:6].tolist()
    radius = [max(1 - (points @ points[chosen].T).max(axis=1)) for chosen in (order[:6], list(range(6)))]
    assert radius[0] < 0.2 * radius[1]
    assert k_center(points[:0]).tolist() == []


def test_k_center_of_many_rows_goes_in_parts_and_still_covers(monkeypatch):
    """Given 40 clusters and parts of an eighth of the rows, then twice as many rows as clusters reach all of them."""
    points = clustered(40, 50)
    monkeypatch.setattr(coverage, "PART", 250)
    order = k_center(points, 80)
    assert len(set(order.tolist())) == 80 and sorted(k_center(points).tolist()) == list(range(2000))
    assert {index // 50 for index in order.tolist()} == set(range(40))


def test_the_rows_farthest_from_their_intent_come_last_in_it():
    """Given 200 rows of one intent, two of them far from all others, then k-center without the guard takes these at once, with it last."""
    rows = haystack(common=200, rare=1).filter(pl.col("combination") == "common")
    near = np.random.default_rng(0).normal([1, 0, 0, 0], 0.05, (rows.height, 4))
    near[[17, 80]] = [[-1, 0.2, 0, 0], [-1, -0.2, 0, 0]]
    vectors = dict(zip(rows["norm"], (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32), strict=True))
    far = set(rows["row"].gather([17, 80]))
    for outliers, place in ((0.0, slice(1, 3)), (0.011, slice(-2, None))):
        config = CoverageConfig(keep=200, shortlist=1, outliers=outliers)
        order = listed(rows, config, lambda texts: np.stack([vectors[text] for text in texts]))["row"].to_list()
        assert set(order[place]) == far


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_learnable_share_may_be_nothing_or_everything(share):
    everything = {(level, learnable): 1000 for level in QUOTAS for learnable in (True, False)}
    granted = quotas(everything, CoverageConfig(keep=100, learnable_share=share))
    easy = {learnable: sum(granted.get((level, learnable), 0) for level in (1, 2, 3)) for learnable in (True, False)}
    assert easy == ({True: 0, False: 55} if share == 0 else {True: 55, False: 0})


@pytest.mark.parametrize("max_encoded", [50, 119])
def test_the_pool_has_as_many_rows_as_it_may_the_rarest_first(max_encoded):
    """Given two strata, and fewer rows that may be encoded than there are, then the pool is full, in proportion to the strata's quotas, and
    the shortlist is drawn from it, rare ones first."""
    rows = haystack().with_columns(level=pl.when(pl.col("row") % 2 == 0).then(2).otherwise(4).cast(pl.Int8))
    config = CoverageConfig(keep=40, shortlist=2, max_encoded=max_encoded)
    pooled = pool(rows, config)
    assert pooled["row"].to_list() == rows["row"].to_list()
    assert pooled["reason"].drop_nulls().unique().to_list() == ["not_pooled"]
    chosen = alive(pooled)
    assert chosen.height == max_encoded
    is_rare = pl.col("combination").str.starts_with("rare")
    assert chosen.filter(is_rare).height == min(rows.filter(is_rare).height, max_encoded)
    wanted = quotas({(2, True): 220, (4, False): 220}, config)
    assert chosen.filter(level=2).height == pytest.approx(max_encoded * wanted[2, True] / config.keep, abs=1)
    ranked = step(rows, config)
    for level in (2, 4):
        order = ranked.filter(pl.col("level") == level).drop_nulls("stratum_rank").sort("stratum_rank")
        assert order["stratum_rank"].to_list() == list(range(order.height))
        is_rare_row = order["combination"].str.starts_with("rare")
        assert is_rare_row.to_list() == sorted(is_rare_row.to_list(), reverse=True)


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(1, 500), st.integers(0, 500))),
    st.integers(0, 600),
    st.integers(0, 9),
)
def test_leaf_quotas_add_up_and_keep_the_floor(leaves, total, floor):
    sizes = {leaf: size for leaf, (size, _) in leaves.items()}
    available = {leaf: min(size, some) for leaf, (size, some) in leaves.items()}
    granted = leaf_quotas(sizes, available, total, floor)
    assert sum(granted.values()) == min(total, sum(available.values()))
    lowest = min(floor, total // max(len(sizes), 1))
    assert all(min(lowest, count) <= granted.get(leaf, 0) <= count for leaf, count in available.items())


def test_leaf_quotas_are_square_roots():
    assert leaf_quotas({"a": 900, "b": 100, "c": 1}, {"a": 900, "b": 100, "c": 1}, 41, 0) == {"a": 30, "b": 10, "c": 1}
    assert leaf_quotas({"a": 900, "b": 4}, {"a": 900, "b": 4}, 20, 3) == {"a": 17, "b": 3}


def test_rows_without_a_frame_are_kept_to_the_target():
    """Given 900, 100, 3 and 1 rows of four topics, then the pool has rows of each, the shortlist is as long as the target and even over
    topics with three rows or more, and what admission leaves open is filled by the same rule."""
    rows = shuffled_vectors({"big": 900, "small": 100, "tiny": 3, "stray": 1})
    config = CoverageConfig(keep=40, max_encoded=200)
    chosen = with_topics(alive(pool(rows, config)))
    assert chosen.height == 200 and chosen["leaf"].n_unique() == 4
    ranked = alive(shortlist(chosen, vectors_of(chosen["norm"]), config))
    counts = dict(ranked.group_by("topic").len().iter_rows())
    assert counts.pop("tiny") == 3 and "stray" not in counts and sorted(counts.values()) == [18, 19]
    for wanted in (0, 10, 40, 100):
        assert alive(fill(ranked, wanted)).height == min(wanted, 40)
    ten = alive(fill(ranked, 10))
    assert sorted(dict(ten.group_by("topic").len().iter_rows()).values()) == [3, 3, 4]
    assert all(sorted(group["stratum_rank"]) == list(range(group.height)) for _, group in ten.group_by("topic"))


@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=9), st.integers(0, 60))
def test_topics_get_equal_shares_and_strays_what_is_left(topics, total):
    rows = pl.DataFrame(
        [(topic, max(size, rows)) for topic, (rows, size) in topics.items() for _ in range(rows)],
        schema={"topic": pl.String, "topic_rows": pl.Int64},
        orient="row",
    )
    granted = topic_quotas(rows, total)
    assert sum(granted.values()) == min(total, rows.height)
    large = {topic: rows for topic, (rows, size) in topics.items() if max(size, rows) >= 3}
    full = max((granted.get(topic, 0) for topic in large), default=0)
    assert all(granted.get(topic, 0) in (full, full - 1) or granted.get(topic, 0) == count for topic, count in large.items())
    if any(granted.get(topic, 0) for topic in topics if topic not in large):
        assert all(granted[topic] == count for topic, count in large.items())


def test_rows_with_and_without_a_frame_share_the_pool():
    """Given few rows with a frame and many without, then the pool is full, and each has half of it or all that it has."""
    rows = pl.concat([haystack(60, 1), shuffled_vectors({"big": 500})], how="diagonal_relaxed")
    chosen = with_topics(alive(pool(rows, CoverageConfig(keep=10, max_encoded=200))))
    assert chosen["frame_id"].is_not_null().sum() == 61 and chosen.height == 200
    ranked = shortlist(chosen, vectors_of(chosen["norm"]), CoverageConfig(keep=10))
    assert ranked.filter(pl.col("frame_id").is_null())["stratum_rank"].drop_nulls().len() == 10


def test_nothing_left_is_covered_by_nothing():
    rows = haystack().clear()
    assert step(rows, CoverageConfig()).height == 0


# ---- focus ------------------------------------------------------------------------------------------------------------


def of_intents(sizes: dict[str, int], *, has_own_leaves: bool) -> pl.DataFrame:
    """Rows of one tier and stratum, so many of each intent, mixed; each intent is a leaf, or all are of one."""
    rows = haystack(common=sum(sizes.values()), rare=1).filter(combination="common").head(sum(sizes.values()))
    intents = [intent for intent, size in sizes.items() for _ in range(size)]
    order = np.random.default_rng(5).permutation(len(intents))
    rows = rows.with_columns(intent=pl.Series([intents[index] for index in order]))
    return rows.with_columns(leaf=pl.col("intent")) if has_own_leaves else rows


def drawn(rows: pl.DataFrame, config: CoverageConfig, urgency: dict[str, float]) -> pl.DataFrame:
    chosen = with_topics(alive(pool(rows, config, 0, {("retail", intent): value for intent, value in urgency.items()})))
    return alive(shortlist(chosen, vectors_of(chosen["norm"]), config)).sort("stratum_rank")


def counts(listed: pl.DataFrame, first: int) -> dict[str, int]:
    return dict(listed.head(first).group_by("intent").len().iter_rows())


@pytest.mark.parametrize("has_own_leaves", [True, False])
def test_what_the_last_policy_fails_at_has_up_to_twice_its_quota(has_own_leaves):
    """Given four intents of equal size, one of which always fails, then the first twenty rows hold eight of it instead of five."""
    rows = of_intents(dict.fromkeys("abcd", 150), has_own_leaves=has_own_leaves)
    plain, focused = (CoverageConfig(keep=20, shortlist=4, leaf_floor=0, focus=focus) for focus in (0.0, 1.0))

    assert counts(drawn(rows, plain, {"a": 1.0}), 20) == pytest.approx(dict.fromkeys("abcd", 5), abs=1)
    assert counts(drawn(rows, focused, {"a": 1.0}), 20) == pytest.approx({"a": 8, "b": 4, "c": 4, "d": 4}, abs=1)
    assert counts(drawn(rows, focused, dict.fromkeys("abcd", 0.7)), 20) == pytest.approx(dict.fromkeys("abcd", 5), abs=1)


@pytest.mark.parametrize("has_own_leaves", [True, False])
def test_without_focus_what_fails_changes_nothing(has_own_leaves):
    rows = of_intents({"a": 90, "b": 40, "c": 10, "d": 3}, has_own_leaves=has_own_leaves)
    config = CoverageConfig(keep=20, shortlist=4, max_encoded=100)
    assert drawn(rows, config, {"a": 1.0, "c": 0.5}).equals(drawn(rows, config, {}))


@settings(deadline=None, max_examples=25)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(100, 400), min_size=2),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1)),
    st.booleans(),
)
def test_no_quota_grows_beyond_twofold(sizes, urgency, has_own_leaves):
    rows = of_intents(sizes, has_own_leaves=has_own_leaves)
    plain, focused = (
        counts(drawn(rows, CoverageConfig(keep=40, shortlist=2, leaf_floor=0, focus=focus), urgency), 40) for focus in (0.0, 1.0)
    )
    assert sum(focused.values()) == sum(plain.values()) == 40
    assert all(count <= 2 * plain.get(intent, 0) + 2 for intent, count in focused.items())
    assert all(2 * count + 2 >= plain[intent] for intent, count in focused.items())
