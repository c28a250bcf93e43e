"""Spellings of slot values and Chinese numerals."""

import pytest

from storage.records import Language
from synth.text.slot_kinds import Date, Quantity, SlotKind
from synth.text.value_spellings import chinese_number, value_spellings
from synth.worlds import WORLDS


@pytest.mark.parametrize(
    ("value", "text"), [(0, "零"), (2, "两"), (10, "十"), (15, "十五"), (20, "二十"), (105, "一百零五"), (1000, "一千")]
)
def test_chinese_numerals(value: int, text: str) -> None:
    assert chinese_number(value) == text


def test_two_has_another_numeral_without_a_measure_word() -> None:
    assert chinese_number(2, before_measure=False) == "二"


@pytest.mark.parametrize(
    ("kind", "value", "language", "expected"),
    [
        ("distance_m", 1500, "en", {"1500 m", "1.5 km"}),
        ("distance_m", 1500, "zh", {"1500米", "1.5公里", "一公里半"}),
        ("minutes", 90, "en", {"90 minutes", "an hour and a half"}),
        ("minutes", 30, "zh", {"30分钟", "半小时"}),
        ("date", 1, "en", {"tomorrow", "on Thursday"}),
        ("date", 2, "zh", {"后天", "5月15日"}),
        ("clock", "14:30", "en", {"14:30", "2:30 pm"}),
        ("clock", "14:30", "zh", {"14点半", "下午2点半"}),
        ("price", 80, "zh", {"80元", "¥80"}),
    ],
)
def test_a_value_has_many_spellings(kind: str, value: object, language: str, expected: set[str]) -> None:
    assert expected <= set(value_spellings(WORLDS["city"].kinds[kind], value, language))


@pytest.mark.parametrize(
    ("kind", "value", "language", "expected"),
    [
        (Quantity("nights", 1, 14, ()), 1, "en", ["1 night"]),
        (Quantity("nights", 1, 14, ()), 3, "en", ["3 nights"]),
        (Quantity("months", 1, 14, ()), 3, "zh", ["3个月"]),
        (Quantity("percent", 0, 9, ()), 2.5, "zh", ["2.5%"]),
        (Date(30), 1, "en", ["on May 14", "on 14 May", "on May 14th", "tomorrow", "on Thursday", "this Thursday"]),
        (Date(30, is_bare=True), 1, "en", ["May 14", "14 May", "May 14th", "tomorrow", "Thursday", "this Thursday"]),
        (Date(30, is_bare=True), 9, "en", ["May 22", "22 May", "May 22nd"]),
    ],
)
def test_units_and_days_after_a_preposition(kind: SlotKind, value: float, language: Language, expected: list[str]) -> None:
    assert value_spellings(kind, value, language) == expected


def test_more_than_ten_hours_have_digits() -> None:
    assert "12 hours" in value_spellings(Quantity("minutes", 0, 900, ()), 720, "en")
