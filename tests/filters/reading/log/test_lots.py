"""Requests in one wording share a lot, and where more are promising than can be read they are read evenly over lots."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl

from filters.reading.log.log_reader import texts_to_read
from filters.reading.log.lots import Lots
from filters.reading.log.student import BUCKETS, Student
from filters.steps.combination_counts import count
from filters.steps.reading.read_requests import READ

REQUESTS = (
    ("please cancel reservation b001", "cancel my reservation b007"),
    ("what is the price of room r01", "tell me the price of room r09"),
    ("请取消订单b001", "取消订单b003"),
    ("extend reservation b001 by 2 nights", "I want to extend reservation b004 by 3 nights"),
)
ALL = Student(np.zeros(BUCKETS, np.float32), 1.0)
"""A gate that lets everything pass with the same score."""
ROWS = {"row": pl.UInt32, "rows": pl.UInt32}
NOTHING = Student(np.zeros(BUCKETS, np.float32), -2.0)


def log(texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"norm": texts, "text": [text.upper() for text in texts]}).with_columns(
        language=pl.lit("en"), ungrounded=pl.lit("x")
    )


def test_values_and_small_talk_do_not_divide_a_lot() -> None:
    lots = Lots(REQUESTS)
    same = ["hello, could you cancel reservation b123 please", "cancel reservation b9", "thanks a lot: cancel reservation b55 today"]
    other = ["the price of room r77 please", "取消订单b88", "", "?!"]
    numbers = lots.of(pl.Series([*same, *other]))
    assert len(set(numbers[:3])) == 1 and len({*numbers[:1], *numbers[3:5]}) == 3
    assert lots.of(pl.Series([], dtype=pl.String)).size == 0


def test_a_rare_request_is_read_as_often_as_a_common_one() -> None:
    """Given 1,000 requests of one wording and 3 of another, then all 3 are among 20 that are read, and the others stand for the rest."""
    common = [f"cancel reservation b{n}" for n in range(1000)]
    rare = [f"the price of room r{n}" for n in range(3)]
    rows = log([*common, *rare])
    read = texts_to_read([rows[:400], rows[400:]], ALL, Lots(REQUESTS), 20)
    assert read.height == 20 and set(rare) <= set(read["norm"])
    assert read["norm"][:2].str.contains("room").sum() == 1, "one of each lot comes first"
    shares = dict(read.select("norm", "stands_for").iter_rows())
    assert all(shares[text] == 1 for text in rare) and round(sum(shares.values())) == len(common) + len(rare)
    assert read.equals(texts_to_read([rows], ALL, Lots(REQUESTS), 20)), "the pieces do not matter"


def test_where_all_can_be_read_the_best_are_read_and_each_stands_for_itself() -> None:
    rows = log([f"cancel reservation b{n}" for n in range(30)])
    few, unpromising = texts_to_read([rows], ALL, Lots(REQUESTS), 50), texts_to_read([rows], NOTHING, Lots(REQUESTS), 10)
    assert few.height == 30 and unpromising.height == 10
    assert set(few["stands_for"]) == set(unpromising["stands_for"]) == {1.0}


def test_what_was_not_read_counts_where_rarity_is_measured() -> None:
    """Given a reading that stands for 50 requests, then its combination is asked for 50 times; a row without a reading counts once."""
    context = SimpleNamespace(
        verdicts=SimpleNamespace(count_represented=lambda: (np.ones(3, np.uint32), pl.DataFrame({"row": [], "rows": []}, schema=ROWS))),
        index=SimpleNamespace(rows=0, combinations=lambda _: pl.DataFrame(schema={"row": pl.UInt32, "key": pl.UInt64})),
        surveys={READ: pl.DataFrame({"norm": ["cancel it"], "stands_for": [50.0]})},
    )
    rows = pl.DataFrame(
        {"row": [0, 1, 2], "norm": ["cancel it", "price of r01", "hello"], "combination": ["a", "b", None]},
        schema_overrides={"row": pl.UInt32},
    )
    asked = dict(count([rows], None, None, context).iter_rows())  # type: ignore[arg-type]
    assert asked == {"a": 50, "b": 1}
