"""From text to symbols: what counts as a name, a cue, an amount, and what is left unread."""

import polars as pl
import pytest

from filters import normalised_text
from filters.grounding.lexicon import GAP, prepare_texts
from filters.grounding.tagger import Symbols, token_value
from filters.grounding.tagger import read as read_in
from filters.lexicon_worlds import lexicon_worlds


def read(rows: pl.DataFrame) -> Symbols:
    return read_in(rows, lexicon_worlds())


def rows_of(*texts: str) -> pl.DataFrame:
    return normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String}))


def values(text: str, world: str, kind: str) -> list[str]:
    """The canonical values of that kind that a text mentions, in order."""
    found: Symbols = read(rows_of(text))
    classes = found.lexicon.classes
    return [
        token_value(found, token, (world, kind))
        for code, token in zip(found.codes.tolist(), found.tokens.tolist(), strict=True)
        if (world, kind) in classes[code].kinds
    ]


@pytest.mark.parametrize(
    ("text", "world", "kind", "expected"),
    [
        ("from Willow Park to the crane museum", "city", "place", ['"willow_park"', '"crane_museum"']),
        ("a park near Willow Park", "city", "category", ['"park"']),
        ("smuggle a mugshot", "retail", "category", []),
        ("the red mug and the RED coffee mug", "retail", "colour", ['"red"', '"red"']),
        ("most expensive, dearest, priciest", "retail", "pick", ['"dearest"'] * 3),
        ("昆明天气", "city", "date", []),
        ("昆明明天天气", "city", "date", ["1"]),
        ("查一下周五昆明天气", "city", "date", ["2"]),
        ("给u07买o17旁边的椅子", "retail", "user", ['"u07"']),
        ("take metro line 3, then bus 11", "city", "line", ['"metro_3"', '"bus_11"']),
        ("within 1.5 km, or two kilometres", "city", "distance_m", ["1500", "2000"]),
        ("at 14:30 or at 2:30 pm", "city", "clock", ['"14:30"', '"14:30"']),
        ("my number is 13812345678", "city", "price", []),
    ],
)
def test_names_and_amounts_are_found_as_whole_words_the_longest_first(text: str, world: str, kind: str, expected: list[str]) -> None:
    assert values(text, world, kind) == expected


def test_what_is_unread_is_residue_and_parts_a_value_from_its_cue() -> None:
    plain, apart = read(rows_of("from Willow Park")), read(rows_of("from zorgblat Willow Park"))
    assert (plain.residue[0], apart.residue[0]) == ("", "zorgblat")
    assert GAP not in plain.codes.tolist()
    assert apart.codes.tolist().count(GAP) == 1


@pytest.mark.parametrize("private", ["\ue000", "\ue001", "\ue010", "\ue011", "\U000f0005"])
def test_a_private_character_in_a_text_is_a_blank_and_no_symbol(private: str) -> None:
    for text in ("cancel order o17 {} please", "hotel within {} 2 km of Willow Park at 14{}30", "明天昆明{}天气"):
        strange, plain = read(rows_of(text.replace("{}", private))), read(rows_of(text.replace("{}", " ")))
        assert strange.codes.tolist() == plain.codes.tolist() and strange.tokens.tolist() == plain.tokens.tolist()
        assert (strange.residue[0], strange.stretches) == (plain.residue[0], plain.stretches)


def test_wording_around_the_symbols_does_not_make_other_signatures() -> None:
    # given the same request in other dress
    found = read(rows_of("please close order o17", "Could you just close my order o42, thank you so much"))
    # then it is one row of classes
    assert len(found.signatures()[0]) == 1


def test_rows_in_another_order_have_their_own_symbols() -> None:
    rows = rows_of("close order o17", "明天昆明天气怎么样")
    assert [read(one).signatures()[0] for one in (rows, rows.reverse())] == [found := read(rows).signatures()[0], found[::-1]]


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("one thousand five hundred bucks", "1500 bucks"),
        ("two hundred and seventy bucks", "270 bucks"),
        ("in twenty five minutes", "in 25 minutes"),
        ("the one near me", "the one near me"),
    ],
)
def test_numbers_in_words_become_digits(text: str, digits: str) -> None:
    rows = pl.DataFrame({"norm": [text], "language": ["en"]})
    assert " ".join(prepare_texts(rows)["norm"].item().split()) == digits
