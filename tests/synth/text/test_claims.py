"""Claims in English and Chinese texts: numbers, times, dates, identifiers, names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.text.claims import NameIndex, has_word, is_near, minutes_in, normalise, numbers_in, read_claims
from synth.text.datetimes import datetimes_in
from synth.text.number_words import words_to_digits


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("27 dollars", {27}),
        ("costs $1,299.50 now", {1299.5}),
        ("1.5 km away", {1.5, 1500}),
        ("全程1.5公里", {1.5, 1500}),
        ("２０分钟", {20, 1200}),
        ("it is -5 degrees", {-5}),
        ("3-5 stars", {3, 5}),
        ("order o17 of u07", set()),
        ("1 h 20 min", {80, 4800}),
        ("需要1小时20分钟", {80, 4800}),
        ("1. first\n2. second", set()),
    ],
)
def test_numbers(text: str, readings: set[float]) -> None:
    assert {reading for number in read_claims(normalise(text)).numbers for reading in number.readings} == readings


def test_a_comma_in_a_json_list_both_joins_and_splits_numbers() -> None:
    assert {number.value for number in numbers_in("[100,200]", also_parts=True)} == {100200, 100, 200}


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("at 09:30", {570}),
        ("9:30 pm", {1290}),
        ("9 am", {540}),
        ("12 am", {0}),
        ("上午9点半", {570}),
        ("下午3点20分", {920}),
        ("2026-03-02T18:05:00", {1085}),
        ("营业时间：07:00至24:00。", {420, 1440}),
        ("3小时", set()),
    ],
)
def test_times(text: str, minutes: set[int]) -> None:
    assert minutes_in(normalise(text)) == minutes


def test_dates_and_identifiers() -> None:
    claims = read_claims(normalise("o17 on 2026年3月2日 with flight CA1234"))
    assert (claims.dates, claims.ids, claims.numbers) == ({"2026-03-02"}, {"o17", "ca1234"}, [])


@given(st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    read_claims(normalise(text))


def test_a_word_is_whole_in_english_and_a_substring_in_chinese() -> None:
    assert has_word("the red mug", "red")
    assert not has_word("bored", "red")
    assert not has_word("o170", "o17")
    assert has_word("o170 and o17", "o17")
    assert has_word("红色的马克杯", "马克杯")
    assert not has_word("anything", "")


def test_numbers_are_near_within_one_percent_or_less_than_one_apart() -> None:
    assert is_near(13, 12.6)
    assert is_near(1500, 1490)
    assert not is_near(34, 35)
    assert not is_near(86372568, 86372569)


def names_in(index: NameIndex, text: str) -> list[tuple[str, ...]]:
    return [spellings for _, _, spellings in index.spans(text)]


def test_the_longest_name_is_found() -> None:
    names = {
        "Willow Park": ("Willow Park", "垂柳公园"),
        "Willow Park Hotel": ("Willow Park Hotel",),
        "垂柳公园": ("Willow Park", "垂柳公园"),
        "垂柳": ("垂柳",),
    }
    index = NameIndex(names)
    assert list(names_in(index, "near willow park hotel")) == [("willow park hotel",)]
    assert list(names_in(index, "near willow park.")) == [("willow park", "垂柳公园")]
    assert list(names_in(index, "在垂柳公园")) == [("willow park", "垂柳公园")]
    assert list(names_in(index, "willow parkway")) == []


def test_a_day_without_a_year_is_no_date() -> None:
    assert not read_claims("on may 17").dates
    assert not read_claims("5月17日").dates
    assert read_claims("2026年5月17日").dates == {"2026-05-17"}


def test_a_name_with_a_digit_is_found_in_unspaced_text() -> None:
    lines = {f"地铁{number}号线": (f"Metro Line {number}", f"地铁{number}号线") for number in (3, 5)}
    index = NameIndex({**lines, "11路公交": ("Bus 11", "11路公交")})
    assert set(names_in(index, "乘坐地铁3号线，再换乘11路公交到2号口")) == {("metro line 3", "地铁3号线"), ("bus 11", "11路公交")}
    assert not list(names_in(index, "共3站，票价5元"))


@pytest.mark.parametrize("digit", ["9", "٣"])
def test_hours_of_hundreds_of_digits_are_no_duration(digit: str) -> None:
    for count in (400, 5_000):
        assert all(number.value > 1e18 or number.value == 20 for number in read_claims(f"{digit * count} h 20 min").numbers)


@pytest.mark.parametrize(
    ("text", "minute"),
    [("晚上12点", 0), ("中午1点", 780), ("中午11点半", 690), ("中午12点", 720), ("下午3点", 900), ("12 am", 0), ("14:00 pm", 840)],
)
def test_an_hour_is_read_by_its_part_of_the_day(text: str, minute: int) -> None:
    assert minutes_in(text) == {minute}
    assert minute in datetimes_in(words_to_digits(text)).minutes()


def test_a_mile_is_also_its_metres() -> None:
    assert numbers_in("2 miles")[0].readings == pytest.approx((2, 3218.68))
