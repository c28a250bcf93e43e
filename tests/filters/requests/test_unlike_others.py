"""A short request is unlike others if no word of it is in another; a log of few requests has no others."""

import polars as pl
import pytest

from filters.requests.unlike_others import is_unlike_others

CITIES = [f"{first}{second}port" for first in "abcdefghij" for second in "abcdefghijklmn"]
LOG = [f"please change my flight to {city}" for city in CITIES[:118]] + ["退票要多少钱", "我想退票"]


def unlike(*texts: str) -> list[bool]:
    return is_unlike_others(pl.Series([*LOG, *texts])).to_list()[len(LOG) :]


def test_what_shares_no_word_with_a_log_is_unlike() -> None:
    assert unlike("good monriing", "god monring", "wlzoj drispgx", "asdf", "asdf asdf", "往宿辰月") == [True] * 6


def test_a_word_of_another_request_is_enough_however_short_both_are() -> None:
    """Given wordings of two words only, as users type into a search box, then those that share a word are like each other."""
    assert unlike("forgot password", "reset password", "flight", "change seat", "办退票", "") == [False] * 5 + [True]


def test_a_long_request_is_never_unlike() -> None:
    assert unlike("xylophone quartets perform nightly beside several unheated greenhouse pavilions") == [False]


@pytest.mark.parametrize("rows", [0, 18])
def test_a_short_log_makes_nothing_unlike(rows: int) -> None:
    assert not is_unlike_others(pl.Series([*LOG[:rows], "wlzoj drispgx"])).any()
