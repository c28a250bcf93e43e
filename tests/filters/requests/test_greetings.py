"""Greetings are taken off a request, never a part of it; texts of greetings alone are recognised with a slip or two."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.requests.greetings import is_small_talk, strip_greetings

OPENERS = ("hi", "hello", "helo", "hello there", "hello tehre", "hey team", "good morning", "dear all", "hope you are well", "你好", "请问")
CLOSERS = ("thanks", "thank you so much", "thnaks", "thx", "best regards", "kind regards", "bye", "谢谢", "麻烦您了")
NO_GREETINGS = (
    *("how are you going to compensate me", "good evening dress under 50 eur", "greeting cards for my mom", "hi-fi speakers", "hi-fi"),
    "how late are you today",
)
REQUESTS = (
    *("change my flight to friday", "where is my suitcase", "is there a seat left for me", "a hotel with a good view", "refund o17"),
    *("can i thank the crew by mail", "帮我改签到周五", "退票要多少钱"),
)


def stripped(text: str) -> str:
    return str(pl.select(strip_greetings(pl.lit(text))).item())


@given(st.sampled_from(OPENERS), st.sampled_from(REQUESTS), st.sampled_from(CLOSERS), st.sampled_from([", ", " ", "! ", ". "]))
def test_what_is_left_is_the_request(opener: str, request: str, closer: str, between: str) -> None:
    for text in (request, f"{opener}{between}{request}", f"{request}{between}{closer}", f"{opener}{between}{request}{between}{closer}"):
        assert stripped(text) == request, text


@given(st.lists(st.sampled_from(OPENERS), max_size=3), st.lists(st.sampled_from(CLOSERS), max_size=3))
def test_greetings_alone_leave_nothing(openers: list[str], closers: list[str]) -> None:
    assert stripped(", ".join([*openers, *closers])) == ""


@given(st.text(max_size=60))
def test_stripping_only_shortens(text: str) -> None:
    once = stripped(text)
    assert once in text and stripped(once) in once


@pytest.mark.parametrize("text", NO_GREETINGS)
def test_requests_that_begin_like_a_greeting_keep_their_beginning(text: str) -> None:
    assert stripped(text) == text


def test_a_sentence_may_follow_a_greeting_without_a_mark() -> None:
    assert stripped("good evening can you change my flight") == "can you change my flight"


@pytest.mark.parametrize(
    "text",
    [
        *("hello tehre hi", "good monring", "thanky ou so much", "how are you doing today", "ok thx bye", "thanls bye", "hwo are yuo"),
        *("你好，在吗", "nothing else"),
    ],
)
def test_small_talk(text: str) -> None:
    assert pl.select(is_small_talk(pl.lit(text))).item()


@pytest.mark.parametrize(
    "text", ["how late are you today?", "how many are there today", "have you any ice today", "how much today", "hello kitty", "say thanks"]
)
def test_requests_made_of_greeting_words_are_no_small_talk(text: str) -> None:
    assert not pl.select(is_small_talk(pl.lit(text))).item()
    assert stripped(text)


@pytest.mark.parametrize(
    "text", ["seat map", "is there a doctor", "how much is wifi", "good hotel", "see my orders", "退票", "test drive", "food day"]
)
def test_no_small_talk(text: str) -> None:
    assert not pl.select(is_small_talk(pl.lit(text))).item()
