"""Quality: a fixed score, misspelt and odd words, and what is dropped."""

import polars as pl
import pytest

from filters import normalised_text
from filters.grounding import ground
from filters.lexicon_worlds import lexicon_worlds
from filters.steps import quality
from filters.steps.quality import QualityConfig


def scored(texts: list[str], **config: float) -> pl.DataFrame:
    rows = normalised_text.step(pl.DataFrame({"row": range(len(texts)), "text": texts}, schema={"row": pl.UInt32, "text": pl.String})).drop(
        "reason"
    )
    return quality.step(ground.step(rows, lexicon_worlds(), ungrounded=True).drop("reason"), QualityConfig(**config))


def test_better_text_scores_higher() -> None:
    texts = [
        "close order o17 please",
        "close order o17 pleease!!!! ok",
        "zorg blat close order o17 frumious bandersnatch snark",
        "zorg blat frumious bandersnatch",
    ]
    clean, misspelt, unread, nothing = scored(texts)["quality"]
    assert clean > misspelt > nothing
    assert clean > unread > nothing
    assert nothing >= 0
    assert clean <= 1


def test_only_the_worst_are_dropped_by_the_threshold() -> None:
    # given a good text and one of which nothing is read
    texts = ["close order o17 please", "zorgblat"]
    good, bad = scored(texts)["quality"]
    # when the threshold lies between them, above both, below both, then
    assert scored(texts, min_quality=(good + bad) / 2)["reason"].to_list() == [None, "low_quality"]
    assert scored(texts, min_quality=1.0)["reason"].to_list()[1] == "low_quality"
    assert scored(texts, min_quality=0.0)["reason"].to_list() == [None, None]


@pytest.mark.parametrize("word", ["cncel", "excahnge", "resturant", "附l近", "o1", "近附"])
def test_one_slip_away_from_a_known_word_is_misspelt(word: str) -> None:
    assert quality.is_misspelt(word)


@pytest.mark.parametrize("word", ["zorgblat", "grandmother", "老婆", "wonderful"])
def test_words_that_are_just_unknown_are_not_misspelt(word: str) -> None:
    assert not quality.is_misspelt(word)


def test_odd_words_are_those_that_hardly_any_other_row_has() -> None:
    # given a thousand rows that share a word, and one that has another
    rows = pl.DataFrame({"language": ["en"] * 1000, "residue": ["colleague"] * 998 + ["colleague custmer", ""]})
    # when / then
    odd = quality.is_odd(rows)
    assert odd.arg_true().to_list() == [998]
    # and in a language of its own, what is rare there counts
    mixed = pl.concat([rows, pl.DataFrame({"language": ["zh"] * 10, "residue": ["老婆"] * 10})])
    assert quality.is_odd(mixed).arg_true().to_list() == [998]


def test_scores_do_not_depend_on_the_other_rows() -> None:
    texts = ["close order o17 please", "find a cofee shop near Willow Park", "明天昆明天气怎么样"]
    alone = [scored([text])["quality"][0] for text in texts]
    assert scored(texts)["quality"].to_list() == alone
