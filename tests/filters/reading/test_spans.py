"""Places of a text that may be values: names with all their parts, and nothing in the place of a day or number."""

from __future__ import annotations

import pytest

from filters.reading.english_words import stem, tokenise
from filters.reading.spans import SpanFinder, before_noun_spans, choice_spans, flag_spans, id_spans, trimmed_spans
from tests.filters.reading.worlds import TODAY


def names(text: str) -> set[str]:
    return {span.text for span in SpanFinder(text, tokenise(text), TODAY).spans() if span.kind == "name"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I need a bus from San Jose to Los Angeles", {"San Jose", "Los Angeles"}),
        ("the weather in Portland, OR please", {"Portland, OR", "Portland"}),
        ('Play "let it be" for me', {"let it be"}),
        ("a song called shape of you", {"shape of you"}),
        ("Find films in san jose", {"san jose"}),
        ("I am in San jose now", {"San jose"}),
        ("Please find Ben Platt's song", {"Ben Platt"}),
        ("a cab to 1920 Irving Street please", {"1920 Irving Street"}),
        ("a table at Sino for two", {"Sino"}),
    ],
)
def test_names_are_among_the_candidates(text: str, found: set[str]) -> None:
    assert found <= names(text)


@pytest.mark.parametrize("text", ["Please help me", "Yes, that is fine.", "I'd like to go", "Particularly on March 9th", "Hello there"])
def test_a_capital_at_the_start_of_a_sentence_names_nothing(text: str) -> None:
    assert not names(text)


def test_a_day_is_no_part_of_a_name() -> None:
    assert names("see Blue Moon March 9th") == {"Blue Moon"}


def test_a_choice_is_a_whole_word() -> None:
    text = "I am checking my savings accounts"
    spans = list(
        choice_spans(
            text, tokenise(text), {"check": [(("check",), "kind", "checking", True)], "saving": [(("saving",), "kind", "savings", True)]}
        )
    )
    assert [span.value for span in spans] == ["savings"]


def test_a_flag_is_negated_by_a_word_before_it() -> None:
    keys = frozenset({stem("smoking")})
    for text, value in (("a smoking room", True), ("no smoking please", False), ("a non-smoking room", False)):
        (span,) = flag_spans(tokenise(text), "smoking", keys)
        assert span.value is value


def test_the_word_before_a_noun_of_the_world_may_be_a_name() -> None:
    text = "find me a comedy film in Berlin"
    nouns = frozenset({stem("film")})
    assert "comedy" in {span.text for span in before_noun_spans(text, tokenise(text), nouns, nouns)}


def test_words_of_the_world_are_cut_off_a_name() -> None:
    text = "Find Blues Concert for us"
    tokens = tokenise(text)
    spans = SpanFinder(text, tokens, TODAY).spans()
    assert "Blues" in {span.text for span in trimmed_spans(text, tokens, spans, frozenset({stem("concert")}), frozenset())}


def test_an_identifier_is_found_however_it_is_written() -> None:
    text = "İptal: cancel order ORD-12 and ord-7, not word-3"
    spans = list(id_spans(text, tokenise(text), r"Ord-\d+", "form"))
    assert [(span.text, span.value, text[span.start : span.end]) for span in spans] == [
        ("ORD-12", "ord-12", "ORD-12"),
        ("ord-7", "ord-7", "ord-7"),
    ]
