"""Numbers, days and times as people write them, read back."""

import re
from datetime import date

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filters.grounding.amounts import is_bare, pattern, values
from filters.lexicon_worlds import lexicon_worlds
from synth.text.number_words import chinese_value
from synth.text.read_values import COLON, day_offset, read_amount
from synth.text.slot_kinds import Date, Quantity
from synth.text.value_spellings import chinese_number, value_spellings
from synth.worlds import WITH_LEXICON, WORLDS

WEDNESDAY = date(2026, 5, 13)
WORLDS_READ = lexicon_worlds()


def said(raw: str) -> dict[tuple[str, str], object]:
    return {(world, kind): value for world, kind, value in values(raw, WORLDS_READ)}


@pytest.mark.parametrize(
    ("raw", "unit", "value"),
    [
        ("1.5  km", "m", 1500),
        ("一公里半", "m", 1500),
        ("半公里", "m", 500),
        ("一个半小时", "minutes", 90),
        ("2.5小时", "minutes", 150),
        ("¥80", "yuan", 80),
        ("80块钱", "yuan", 80),
        ("$20", "dollars", 20),
        ("4.5 stars", "stars", 4.5),
        (f"14{COLON}30", "clock", 870),
        (f"2{COLON}30  pm", "clock", 870),
        ("12 am", "clock", 0),
        ("12 pm", "clock", 720),
        ("下午两点半", "clock", 870),
        ("3 days", "count", 3),
        ("三个人", "count", 3),
    ],
)
def test_a_stretch_has_a_unit_and_a_value(raw: str, unit: str, value: float) -> None:
    amount = read_amount(raw)
    assert amount is not None
    assert amount[:2] == (unit, value)


@pytest.mark.parametrize(
    ("raw", "unit", "value"),
    [
        *(("晚上12点", "clock", 0), ("中午1点", "clock", 780), ("中午11点半", "clock", 690), ("凌晨两点", "clock", 120)),
        *(("九点一刻", "clock", 555), ("三点二十分", "clock", 200), ("一刻钟", "minutes", 15)),
        *(("一小时二十分钟", "minutes", 80), ("1  hour  and  20  mins", "minutes", 80)),
        *(("2  miles", "m", 3219), ("3英里", "m", 4828), ("5里路", "m", 2500), ("一百五十块", "yuan", 150)),
    ],
)
def test_grounding_reads_what_answers_may_say(raw: str, unit: str, value: float) -> None:
    # given a phrase that columns are searched for, then it is found whole, and read
    found = pl.Series([f"  {raw}  "]).str.extract_all(pattern(WORLDS_READ))[0].to_list()
    amount = read_amount(found[0])
    assert amount is not None
    assert len(found) == 1 and found[0].strip() == raw
    assert amount[:2] == (unit, value)


@pytest.mark.parametrize("raw", ["三四公里", "三四天后"])
def test_two_numbers_are_no_amount(raw: str) -> None:
    assert values(raw, WORLDS_READ) == ()


def test_ten_parts_means_very() -> None:
    assert values("十分", WORLDS_READ) == ()


def test_what_a_number_may_be_depends_on_its_noun() -> None:
    assert said("3 days") == {("city", "days"): 3}
    assert said("三个人") == {("city", "people"): 3}
    assert ("retail", "quantity") in said("2 pieces")
    assert is_bare("3") and not is_bare("3 days") and not is_bare("3 km")


def test_out_of_range_is_no_value() -> None:
    assert said("900 km") == {}
    assert said("in 30 days") == {("city", "far_days"): 30}
    assert said("in 200 days") == {}


@pytest.mark.parametrize(
    ("text", "days"),
    [
        *(("today", 0), ("on may 16", 3), ("16 may", 3), ("in 3 days", 3), ("this friday", 2), ("on wednesday", 7), ("next friday", 9)),
        *(("大后天", 3), ("5月16日", 3), ("三天后", 3), ("周五", 2), ("下周五", 9), ("on february 30", -1), ("on march 1", -1)),
    ],
)
def test_days_are_counted_from_today(text: str, days: int) -> None:
    assert day_offset(text, WEDNESDAY) == days


@given(st.integers(0, 9999))
def test_chinese_numerals_are_read_as_they_are_written(value: int) -> None:
    assert chinese_value(chinese_number(value)) == value


@pytest.mark.parametrize("world", WITH_LEXICON)
def test_every_spelling_of_an_amount_is_read_back(world: str) -> None:
    # given every usual value of every kind that is a number or a day
    missed = []
    for name, kind in WORLDS[world].kinds.items():
        if not isinstance(kind, (Quantity, Date)):
            continue
        usual = kind.choices if isinstance(kind, Quantity) else range(kind.horizon_days + 1)
        for value in usual:
            for language in ("en", "zh"):
                for text in value_spellings(kind, value, language):
                    if not re.search("[0-9]|[一二两三四五六七八九十]", text):
                        continue
                    # when its spelling is found in a sentence, then it may be that value
                    found = pl.Series([f"  {text.lower()}  "]).str.extract_all(pattern(WORLDS_READ))[0].to_list()
                    wanted = kind.canonical(value) if isinstance(kind, Quantity) else value
                    is_counted = isinstance(kind, Quantity) and kind.unit == "count" and not text.isdigit()
                    if not is_counted and not any(said(stretch).get((world, name)) == wanted for stretch in found):
                        missed.append((name, value, text, found))
    assert not missed
