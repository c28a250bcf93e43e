"""Random keys are told from words by their letters, and from a log's requests by their words."""

import random
import string

import polars as pl
import pytest

from filters.requests.gibberish import is_gibberish, is_random_word, is_unfamiliar

WORDS = ("refund", "suitcase", "wheelchair", "property", "business", "compensation", "upgrade", "strength", "booking", "liberty")


def gibberish(*texts: str) -> list[bool]:
    return is_gibberish(pl.Series(texts, dtype=pl.String), 6).to_list()


def test_words_are_no_gibberish() -> None:
    assert [word for word in WORDS if is_random_word(word)] == []


def test_most_random_keys_are() -> None:
    rng = random.Random(0)
    keys = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(5, 11))) for _ in range(300)]
    assert sum(map(is_random_word, keys)) >= 0.9 * len(keys)


def test_a_text_is_gibberish_if_hardly_anything_else_is_in_it() -> None:
    assert gibberish("asdfgh", "dfkgj slkdf", "xkcdq ok", "qwer") == [True] * 4
    assert (
        gibberish("i want pizza", "cancel order zxqvw", "see dr xqzvk and pay", "退票 asdfgh 怎么办", "", "find kqzxw on the map now")
        == [False] * 6
    )


def test_a_null_is_none() -> None:
    assert is_gibberish(pl.Series(["asdfgh", None], dtype=pl.String), 6).to_list() == [True, False]


def log(rows: int) -> list[str]:
    return [
        f"please change my flight to {city}" for city in (f"{first}{second}port" for first in "abcdefghij" for second in "abcdefghijklmn")
    ][:rows]


def test_what_shares_no_word_with_a_log_is_unfamiliar() -> None:
    texts = [*log(120), "good monriing", "wlzoj drispgx", "flight", "change seat", "改签", ""]
    assert is_unfamiliar(pl.Series(texts)).to_list() == [False] * 120 + [True, True, False, False, False, False]


@pytest.mark.parametrize("rows", [0, 99])
def test_a_short_log_makes_nothing_unfamiliar(rows: int) -> None:
    assert not is_unfamiliar(pl.Series([*log(rows), "wlzoj drispgx"])).any()
