"""Normalised text: what differs only in how it is typed is equal; personal data are gone; language is the script's."""

import unicodedata

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filters.normalised_text import languages, normalise_text, step


def norm(texts: list[str]) -> list[str]:
    return pl.DataFrame({"text": texts}).select(normalise_text(pl.col("text"))).to_series().to_list()


@pytest.mark.parametrize(
    "variant",
    [
        "Find a CAFE near o17",
        " find  a\tcafe near o17!! ",
        "find a cafe near o17。",
        "ｆｉｎｄ a cafe near o１７",
        "fi\u200bnd a ca\ufefffe near o17",
        "find\u00a0a\u3000cafe near\no17",
    ],
)
def test_ways_of_typing_are_one_text(variant: str) -> None:
    assert norm([variant]) == ["find a cafe near o17"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=30))
def test_only_rows_that_nfkc_could_change_go_through_it_and_none_is_missed(texts: list[str]) -> None:
    """The mask is sound: any text equals what NFKC of every row gives."""
    everything = pl.DataFrame({"text": [unicodedata.normalize("NFKC", text) for text in texts]})
    assert norm(texts) == everything.select(normalise_text(pl.col("text"))).to_series().to_list()


@settings(max_examples=200, deadline=None)
@given(st.text("abc xyz019 ,附近咖啡", min_size=1, max_size=30), st.data())
def test_case_width_blanks_and_edges_do_not_matter(text: str, data: st.DataObject) -> None:
    wide = "".join(
        chr(ord(letter) + 0xFEE0) if letter.isascii() and letter.isalnum() and data.draw(st.booleans()) else letter for letter in text
    )
    assert norm([f"  {wide.upper().replace(' ', '  ')} ?!"]) == norm([text])


def test_language_is_decided_by_script() -> None:
    cases = {
        "find a cafe": "en",
        "帮我找咖啡馆": "zh",
        "取消订单o17": "zh",
        "帮我找附近的 starbucks": "zh",
        "find 海底捞 hotpot near me please": "en",
        "où est la gare la plus proche": "en",
        "привет как дела": "other",
        "近くのカフェを教えて": "other",
        "어디에 카페가 있나요": "other",
        "12345": "other",
        "": "other",
    }
    assert languages(pl.Series(list(cases))).to_list() == list(cases.values())


def test_rows_keep_their_order_and_undecodable_ones_a_reason() -> None:
    rows = step(pl.DataFrame({"row": [7, 8, 9], "text": ["Hi there", None, "取消 o17"]}, schema={"row": pl.UInt32, "text": pl.String}))
    assert rows["row"].to_list() == [7, 8, 9]
    assert rows["reason"].to_list() == [None, "undecodable", None]
    assert rows["language"].to_list() == ["en", None, "zh"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["Find A cafe", "find a cafe", "find a café", "cafe", "咖啡", "咖啡。"]), min_size=2, max_size=12))
def test_keys_are_equal_just_where_texts_are(texts: list[str]) -> None:
    rows = step(pl.DataFrame({"row": range(len(texts)), "text": texts}))
    by_key = rows.group_by("key_high", "key_low").agg(pl.col("norm").n_unique())["norm"]
    assert by_key.max() == 1 and by_key.len() == rows["norm"].n_unique()


def masked(text: str) -> tuple[str, str]:
    rows = step(pl.DataFrame({"row": [0], "text": [text]}))
    return rows["text"][0], rows["norm"][0]


@pytest.mark.parametrize(
    ("said", "mask"),
    [
        ("Bob.Smith+x@Example.co.uk", "<email>"),
        ("13812345678", "<phone>"),
        ("138 1234 5678", "<phone>"),
        ("010-12345678", "<phone>"),
        ("021 5555 1234", "<phone>"),
        ("0571 8765 4321", "<phone>"),
        ("(010) 12345678", "<phone>"),
        ("010-1234-5678", "<phone>"),
        ("+44 20 7946 0958", "<phone>"),
        ("+8613812345678", "<phone>"),
        ("0044 20 7946 0958", "<phone>"),
        ("(555) 123-4567", "<phone>"),
        ("555-123-4567", "<phone>"),
        ("110101199003071234", "<identity>"),
        ("11010119900307123X", "<identity>"),
        ("078-05-1120", "<identity>"),
        ("4111 1111 1111 1111", "<card>"),
        ("6222021234567890123", "<card>"),
    ],
)
def test_personal_data_are_masked_in_both_texts(said: str, mask: str) -> None:
    for sentence in (f"my data is {said} for order o17", f"我的是{said}，订单o17"):
        text, normal = masked(sentence)
        assert mask in text and mask in normal
        assert not any(part in text.lower() + normal for part in (said.lower(), said[-4:].lower()))
        assert "o17" in text and "o17" in normal


def test_full_width_digits_hide_nothing() -> None:
    text, normal = masked("call me at １３８１２３４５６７８ tomorrow")
    assert text == normal == "call me at <phone> tomorrow"


@pytest.mark.parametrize(
    "text",
    [
        "a table for 2 on 2026-05-13 at 19:30",
        "order o17 for 1500 yuan",
        "within 1000 m, 2000 m or 3000 m",
        "3.5 stars, 120 reviews, 40 dollars",
        "bus 138 to gate 12",
        "31.2304, 121.4737",
        "an inductance of 0.0000001 henries",
        "account 00125648, reference 0001067983",
        "orders 5551234567 and 95558888",
        "open from 0800 to 1200, or 0800-1200",
    ],
)
def test_ordinary_numbers_are_left_alone(text: str) -> None:
    assert masked(text)[0] == text
