"""Topics of planted groups, whatever their sizes; the order of rows in a topic."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from filters.requests.topics import find_topics, order_rows
from filters.steps.selection.rank_topics import rank_topics
from synth.engines.encoder import encode

GROUPS = {
    "refund": ["where is my refund", "my refund has not arrived", "how long does a refund take", "status of my refund please"],
    "pets": [
        "can i take my dog on board",
        "may my cat fly in the cabin",
        "what does it cost to fly with a dog",
        "rules for pets in the cabin",
    ],
    "wifi": [
        "is there wifi on board",
        "how fast is the internet on the plane",
        "the wifi on my flight does not work",
        "price of the onboard wifi",
    ],
    "座位": ["我想要靠窗的座位", "可以选靠过道的座位吗", "帮我换一个前排座位", "这个座位有多宽"],
}


def test_each_planted_group_is_a_topic_of_its_own() -> None:
    texts = [text for group in GROUPS.values() for text in group]
    topics, vectors = find_topics(texts, encode)
    truth = [name for name, group in GROUPS.items() for _ in group]
    assert vectors.shape == (16, 512)
    pairs = [(topics[a] == topics[b], truth[a] == truth[b]) for a in range(16) for b in range(a)]
    assert sum(same and not planted for same, planted in pairs) == 0
    assert sum(same and planted for same, planted in pairs) >= 0.5 * sum(planted for _, planted in pairs)


def test_near_duplicates_share_topic_and_vector() -> None:
    topics, vectors = find_topics(
        ["please give me a seat at the window of the plane", "please give me a seat at the window of the plane now", "x", "y"], encode
    )
    assert topics[0] == topics[1] and np.array_equal(vectors[0], vectors[1])
    assert all(topics)


def test_a_name_leaves_out_words_that_say_nothing() -> None:
    texts = [text for group in GROUPS.values() for text in group]
    names = set(find_topics(texts, encode)[0]) - set(texts)
    words = {word for name in names for word in name.split()}
    assert {"wifi", "refund"} <= words and not words & {"where", "has", "not", "does", "with", "how"}


def test_nothing_has_no_topic() -> None:
    topics, vectors = find_topics([], encode)
    assert topics == [] and len(vectors) == 0


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 5))
def test_the_order_has_every_row_once_and_the_most_demanding_of_each_part_first(count: int, parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    demand = rng.integers(1, 5, count).tolist()
    centres = np.arange(min(parts, count))
    order = order_rows(vectors, demand, centres)
    assert sorted(order.tolist()) == list(range(count))
    if parts == 1:
        assert [demand[place] for place in order] == sorted(demand, reverse=True)


def rows_of(texts: list[str], difficulty: list[int], counts: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "row": pl.Series(range(len(texts)), dtype=pl.UInt32),
            "norm": texts,
            "difficulty": pl.Series(difficulty, dtype=pl.Int8),
            "pattern": texts,
            "pattern_rows": pl.Series(counts, dtype=pl.UInt32),
        }
    )


def test_the_long_and_demanding_row_of_a_topic_is_first_and_a_topic_counts_the_log() -> None:
    same = ["please give me a seat at the window of the plane", "please give me a seat at the window of the plane ok"]
    ranked = rank_topics(rows_of([*same, "my dog"], [1, 3, 1], [7, 2, 1]), encode, 1)
    first = ranked.filter(topic_rank=0)
    assert first.filter(topic=ranked["topic"][0])["row"].to_list() == [1]
    assert dict(ranked.select("row", "topic_rows").iter_rows()) == {0: 9, 1: 9, 2: 1}
