"""Exact and equal-frame duplicates: the first of each stays, all others name it."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from filters import normalised_text
from filters.frames.hash_join import firsts, key_of
from filters.steps import exact, same_frame


def frame(column: str, values: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"row": range(10, 10 + len(values)), column: values}, schema={"row": pl.UInt32, column: pl.String})


def joined(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    return firsts(rows.drop_nulls(column).select("row", *key_of(column)))


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_the_first_stays_and_all_others_name_it(values: list[str]) -> None:
    named = frame("key", values)
    rows = named.join(exact.step(joined(named, "key")), on="row", maintain_order="left")
    assert rows.height == len(values)
    first_of = {value: 10 + values.index(value) for value in values}
    for row, value, reason, first, similarity in rows.select("row", "key", "reason", "duplicate_of", "similarity").iter_rows():
        if row == first_of[value]:
            assert (reason, first, similarity) == (None, None, None)
        else:
            assert (reason, first, similarity) == ("exact_duplicate", first_of[value], 1.0)


def test_texts_that_differ_only_in_typing_are_exact_duplicates() -> None:
    texts = ["Find a cafe", "find  a cafe!!", "ＦＩＮＤ a cafe", "find a caf", "find a cafe\u200b"]
    rows = exact.step(joined(normalised_text.step(frame("text", texts)), "norm"))
    assert rows["duplicate_of"].to_list() == [None, 10, 10, None, 10]


@given(st.lists(st.sampled_from(["f1", "f2", "f3", None]), max_size=30))
def test_equal_frames_name_the_first_and_rows_without_a_frame_stay(frames: list[str | None]) -> None:
    named = frame("frame_id", frames)
    rows = named.join(same_frame.step(joined(named, "frame_id")), on="row", how="left", maintain_order="left")
    for row, value, reason, first in rows.select("row", "frame_id", "reason", "duplicate_of").iter_rows():
        is_first = value is None or row == 10 + frames.index(value)
        assert (reason is None) == is_first
        assert first is None if is_first else first == 10 + frames.index(value)
