"""Labelled requests of a user's own: a wrong line refuses the file, and says where it is wrong."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from filters.reading.labels.labelled_file import read_labelled
from storage.errors import BadInput
from tests.filters.reading.worlds import BANK, CINEMA, cinema

GOOD = [
    {"text": "films in Berlin for March 9th", "intent": "FindFilms", "slots": {"city": "Berlin", "show_date": "2019-03-09"}},
    {"text": "what is on my savings account", "world": "bank", "intent": "CheckBalance", "slots": {"account_type": "savings"}},
    {"text": "book seats", "intent": "BookSeats"},
]


def write(folder: Path, *rows: object) -> Path:
    path = folder / "labelled.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_values_have_the_form_of_the_reader(tmp_path: Path) -> None:
    films, balance, seats = read_labelled(write(tmp_path, *GOOD), [BANK, CINEMA])
    assert (films.world, films.values) == ("cinema", {"city": ["Berlin"], "show_date": [date(2019, 3, 9)]})
    assert (balance.world, seats.values) == ("bank", {})


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "labelled.jsonl:4: not JSON"),
        ([1], "labelled.jsonl:4: expected an object with text, intent and slots"),
        ({"text": "x", "intent": "Fly"}, "no world has the intent 'Fly'"),
        ({"text": "x", "intent": "FindFilms", "world": "bank"}, r"no world has the intent 'FindFilms' \(bank\)"),
        ({"text": "x", "intent": "FindFilms", "slots": {"town": "x"}}, "FindFilms has no slot 'town'; there are city, genre"),
        ({"text": "x", "intent": "FindFilms", "slots": {"show_date": "soon"}}, "show_date: expected an ISO date, not 'soon'"),
        ({"text": "x", "intent": "CheckBalance", "slots": {"account_type": "gold"}}, "expected one of checking, savings, not 'gold'"),
        ({"text": "x", "intent": "BookSeats", "slots": {"seats": "two"}}, "seats: expected a number, not 'two'"),
    ],
)
def test_a_wrong_line_refuses_the_file(tmp_path: Path, row: object, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read_labelled(write(tmp_path, *GOOD, row), [BANK, CINEMA])


def test_an_intent_of_two_worlds_needs_the_name_of_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'FindFilms' is an intent of cinema, other; name the world"):
        read_labelled(write(tmp_path, *GOOD), [BANK, CINEMA, cinema("other")])


def test_an_empty_file_says_what_belongs_into_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no labelled request; write one a line"):
        read_labelled(write(tmp_path), [BANK])
    with pytest.raises(BadInput, match="cannot be read"):
        read_labelled(tmp_path / "nowhere.jsonl", [BANK])
