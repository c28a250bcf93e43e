"""Rows fit into 80 columns, in any script, and lose nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.releases.text_layout import WIDTH, columns, cut, layout_rows, wrap

texts = st.text(st.sampled_from("ab ,.{}\n退货订单é\x1b"), max_size=300)


@given(st.lists(st.tuples(st.text(st.sampled_from("lab el单"), max_size=40), texts), max_size=8))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str]]) -> None:
    assert all(columns(line) <= WIDTH and line.isprintable() for line in layout_rows(rows))


@given(texts, st.integers(min_value=10, max_value=80))
def test_wrapping_loses_no_letter(text: str, width: int) -> None:
    assert "".join("".join(wrap(text, width)).split()) == "".join(text.replace("\x1b", "\N{REPLACEMENT CHARACTER}").split())


def test_wide_letters_take_two_columns() -> None:
    assert columns("退货ab") == 6
    assert wrap("退货订单", 4) == ["退货", "订单"]


def test_words_stay_whole_and_lists_break_after_commas() -> None:
    assert wrap("cancel the order", 10) == ["cancel the", "order"]
    assert wrap('{"a":1,"b":22}', 8) == ['{"a":1,', '"b":22}']


def test_labels_stand_once_for_equal_neighbours_if_asked() -> None:
    rows = [("call", "a"), ("call", "b")]
    assert layout_rows(rows) == ["  call  a", "  call  b"]
    assert layout_rows(rows, repeat_labels=False) == ["  call  a", "        b"]


def test_a_long_label_has_its_own_line() -> None:
    assert layout_rows([("short", "a"), ("a label that is far too long", "b")]) == [
        "  short  a",
        "  a label that is far too long",
        "         b",
    ]


def test_a_cut_text_says_how_much_is_missing() -> None:
    assert cut("x" * 100, 20) == "x" * 20 + " ... 80 more characters"
    assert cut("x" * 100, None) == "x" * 100
    assert cut("x" * 25, 20) == "x" * 25, "the note would be longer than what it replaces"
