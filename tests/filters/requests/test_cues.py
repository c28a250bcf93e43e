"""Difficulty by cues: more conditions, limits, steps and tools are never easier, and the scale is that of plans."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.requests.cues import rate_by_cues


def rate(text: str, tools: int | None = None) -> dict[str, int]:
    return rate_by_cues(pl.Series([text]), pl.Series([tools], dtype=pl.Int64)).to_dicts()[0]


@pytest.mark.parametrize(
    ("easy", "hard"),
    [
        ("change my flight", "change my flight if it is free, otherwise cancel it and refund me"),
        ("which seats are free", "compare the seats in rows 3 and 4, which of them is better"),
        ("book a hotel", "book a hotel for 2 nights under 100 eur, at most 3 km from the station"),
        ("改签", "如果明天有票就改签，否则帮我退票，然后把钱退到卡里"),
        ("订酒店", "订一家不超过300元的酒店，至少住两晚，之后再叫一辆车"),
    ],
)
def test_conditions_comparisons_and_limits_are_harder(easy: str, hard: str) -> None:
    assert rate(easy)["difficulty"] == 1 < rate(hard)["difficulty"]


PARTS = st.lists(
    st.sampled_from(["if it rains", "before 5 pm", "then call me", "compare both", "with a view", "at most 20 eur", "如果下雨"]), max_size=8
)


@given(PARTS, st.sampled_from(["unless it is late", "between 3 and 5", "and then tell me why"]), st.integers(0, 6))
def test_a_part_more_is_never_easier_and_all_are_on_the_scale(parts: list[str], more: str, tools: int) -> None:
    text = ", ".join(["book a table", *parts])
    before, after = rate(text, tools), rate(f"{text}, {more}", tools)
    assert all(after[name] >= before[name] for name in before)
    assert all(1 <= score <= 5 for score in (*before.values(), *after.values()))


@pytest.mark.parametrize(
    "text",
    [
        *("hello. good morning. refund $120.50, thanks", "a hotel in st. louis", "open https://a.example/b?c=d. now", "how much is it"),
        *("更改订单", "是否可以更换座位", "退票，再见"),
    ],
)
def test_what_only_looks_like_a_step_or_a_comparison_counts_for_nothing(text: str) -> None:
    assert rate(text)["s_chain"] == rate("cancel")["s_chain"]


def test_tools_in_reach_count_as_tool_load() -> None:
    assert [rate("change my flight", tools)["s_tool"] for tools in (None, 0, 1, 3, 9)] == [1, 1, 1, 3, 4]


def test_no_rows_have_no_ratings() -> None:
    assert rate_by_cues(pl.Series("norm", [], pl.String)).shape == (0, 4)
