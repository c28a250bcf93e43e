"""Days, times, amounts and numbers are found in English text, each in its place and once."""

from __future__ import annotations

import itertools
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.text.mentions import Mention, mentions_in

FRIDAY = date(2019, 3, 1)


def only(text: str, today: date = FRIDAY) -> Mention:
    (mention,) = mentions_in(text, today)
    return mention


@pytest.mark.parametrize(
    ("words", "day"),
    [
        ("2019-03-09", date(2019, 3, 9)),
        ("3/9", date(2019, 3, 9)),
        ("3/9/2020", date(2020, 3, 9)),
        ("March 9th", date(2019, 3, 9)),
        ("the 9th of March", date(2019, 3, 9)),
        ("9 March", date(2019, 3, 9)),
        ("the 13th of this month", date(2019, 3, 13)),
        ("the second of next month", date(2019, 4, 2)),
        ("the 9th", date(2019, 3, 9)),
        ("January 5th", date(2019, 1, 5)),
        ("tomorrow", date(2019, 3, 2)),
        ("the day after tomorrow", date(2019, 3, 3)),
        ("later today", FRIDAY),
        ("next Friday", date(2019, 3, 8)),
        ("this Sunday", date(2019, 3, 3)),
        ("Sunday this week", date(2019, 3, 3)),
        ("Thursday next week", date(2019, 3, 7)),
        ("in three days", date(2019, 3, 4)),
        ("two weeks from now", date(2019, 3, 15)),
    ],
)
def test_a_day_is_resolved_against_today(words: str, day: date) -> None:
    mention = only(f"Please book it for {words}, thanks.")
    assert (mention.kind, mention.value) == ("day", day)


def test_the_ninth_is_in_the_next_month_where_this_months_is_over() -> None:
    assert only("on the 9th please", date(2019, 12, 20)).value == date(2020, 1, 9)
    assert only("on the 9th please", date(2019, 5, 20)).value == date(2019, 6, 9)


@pytest.mark.parametrize(
    ("words", "minutes"),
    [
        ("11:15", 675),
        ("5:30 pm", 1050),
        ("half past 11 in the morning", 690),
        ("a quarter to 7 in the evening", 1125),
        ("quarter past 1 in the afternoon", 795),
        ("afternoon 2:15", 855),
        ("evening, 6", 1080),
        ("eight in the night", 1200),
        ("twelve pm", 720),
        ("12 am", 0),
        ("noon", 720),
        ("midnight", 0),
        ('3 o"clock in the afternoon', 900),
        ("at 5", 1020),
    ],
)
def test_a_time_is_in_minutes_after_midnight(words: str, minutes: int) -> None:
    mention = only(f"Make it {words} please" if not words.startswith("at") else f"Make it {words}.")
    assert (mention.kind, mention.value) == ("time", minutes)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("send $1,320.50 now", "money", 1320.5),
        ("send one thousand three hundred and twenty bucks", "money", 1320),
        ("two tickets", "number", 2),
        ("twenty-five pages", "number", 25),
        ("a rating of 4.5", "number", 4.5),
        ("a cab to 1920 Irving Street", "address", "1920 Irving Street"),
    ],
)
def test_amounts_numbers_and_addresses(text: str, kind: str, value: object) -> None:
    mention = only(text)
    assert (mention.kind, mention.value) == (kind, value)


@pytest.mark.parametrize("text", ["the 5th avenue", "on the first floor", "it's the third time", "Mondays are fine", "25:99", "13/45"])
def test_what_is_no_day_or_time_is_none(text: str) -> None:
    assert not [mention for mention in mentions_in(text, FRIDAY) if mention.kind in ("day", "time")]


def test_two_numbers_in_a_row_are_two() -> None:
    assert [mention.value for mention in mentions_in("two one way tickets", FRIDAY)] == [2, 1]


@given(day=st.dates(date(2019, 1, 1), date(2030, 12, 31)), ahead=st.integers(0, 300))
def test_every_iso_day_is_read_back(day: date, ahead: int) -> None:
    """Given any today, then an ISO date is itself."""
    assert only(f"by {day.isoformat()}.", day - timedelta(days=ahead)).value == day


@settings(max_examples=300)
@given(st.text(alphabet="0123456789:/.,-$ aphmtofnexMrchsatundy'", max_size=40))
def test_no_text_breaks_it_and_no_two_mentions_share_a_place(text: str) -> None:
    mentions = sorted(mentions_in(text, FRIDAY), key=lambda mention: mention.start)
    assert all(first.end <= second.start for first, second in itertools.pairwise(mentions))
    assert all(0 <= mention.start < mention.end <= len(text) for mention in mentions)
