"""A pattern is what is asked, not for which id, date, amount or name."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.requests.patterns import mask_values, name_words, patterns


def masked(text: str) -> str:
    return str(pl.select(mask_values(pl.lit(text))).item())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello, move booking k7q2zp from 3 june to friday", "move booking from to"),
        ("is flight lx 1704 on time", "is flight lx on time"),
        ("refund $120.50 or 300 eur of ticket 220-1234567890 by 2026-11-23", "refund or of ticket by"),
        ("call me at <phone> before 5 pm, thanks", "call me at before"),
        ("你好，把订单o17改到下周三下午三点，谢谢", "把订单 改到 下午"),
        ("三天后退房可以吗", "后退房可以吗"),
        ("一下子要一个靠窗的座位", "一下子要一个靠窗的座位"),
        ("123456", ""),
    ],
)
def test_values_are_masked(text: str, expected: str) -> None:
    assert masked(text) == expected


@given(
    st.from_regex(r"[a-z]{0,3}[0-9]{2,8}[a-z]{0,2}", fullmatch=True), st.integers(1, 28), st.sampled_from(["monday", "3 may", "2026-01-02"])
)
def test_other_values_give_the_same_pattern(code: str, number: int, day: str) -> None:
    assert masked(f"change seat {code} on {day} for {number} people") == masked("change seat ab12 on friday for 3 people")


def test_names_are_words_that_stand_capitalised_inside_sentences() -> None:
    cities = ("Boston", "Oslo", "Lima")
    texts = (
        [f"I fly to {city} next week" for city in cities * 2] + ["Can I see Boston today"] + ["Please Cancel My Flight To Lima Today"] * 4
    )
    assert name_words(pl.Series([*texts, *(f"fly to {city.lower()}" for city in cities)])) == ["boston"]
    assert set(name_words(pl.Series([*texts, *(f"a trip to {city}" for city in cities)]))) == {"boston", "oslo", "lima"}


def test_a_piece_of_a_word_is_no_name() -> None:
    assert name_words(pl.Series(["pay me by PayPal", "a PayPal refund", "my PayPal is locked", "can my pal pay"])) == []


def test_names_are_left_out_in_lower_case_too_but_never_all_words() -> None:
    texts = pl.Series(["I fly to Boston", "we fly to Boston", "you fly to Boston", "i fly to boston", "boston"])
    lower = texts.str.to_lowercase()
    assert patterns(lower, texts).to_list() == ["i fly to", "we fly to", "you fly to", "i fly to", "boston"]
