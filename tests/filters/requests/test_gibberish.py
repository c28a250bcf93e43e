"""Random keys are told from words by their letters."""

import random
import string

import polars as pl

from filters.requests.gibberish import is_gibberish, is_random_word

WORDS = ("refund", "suitcase", "wheelchair", "property", "business", "compensation", "upgrade", "strength", "booking", "liberty")
REQUESTS = (
    "buy data",
    "my data",
    "apply visa",
    "file claims",
    "reset mfa",
    "sqlite",
    "xbox",
    "kyiv",
    "qatar visa",
    "sushi menu",
    "nycfc tickets",
)


def gibberish(*texts: str) -> list[bool]:
    return is_gibberish(pl.Series(texts, dtype=pl.String), 6).to_list()


def test_words_are_no_gibberish() -> None:
    assert [word for word in WORDS if is_random_word(word)] == []


def test_most_random_keys_are() -> None:
    rng = random.Random(0)
    keys = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(6, 11))) for _ in range(300)]
    assert sum(map(is_random_word, keys)) >= 0.7 * len(keys)


def test_a_text_is_gibberish_if_hardly_anything_else_is_in_it() -> None:
    assert gibberish("asdfgh", "dfkgjs slkdfj", "xkcdq ok", "kjfdg lsdkf sdfjk wlekr xcmvb sdkfj") == [True] * 4
    assert (
        gibberish("i want pizza", "cancel order zxqvw", "see dr xqzvk and pay", "退票 asdfgh 怎么办", "", "find kqzxw on the map now")
        == [False] * 6
    )


def test_a_null_is_none() -> None:
    assert is_gibberish(pl.Series(["asdfgh", None], dtype=pl.String), 6).to_list() == [True, False]


def test_short_requests_of_rare_words_are_none() -> None:
    assert [text for text, found in zip(REQUESTS, gibberish(*REQUESTS), strict=True) if found] == []
