"""How good a query's text is: a fixed score in 0..1 without a model, which orders rows and drops only the worst (definition P6).

    quality = language * (0.35 completeness + 0.25 reading + 0.2 length + 0.2 cleanness)
    language      1 if Chinese or English, else 0
    completeness  1 where the request is grounded and everything in it has its place; 0.25 less for each name or cue that has none;
                  0 where it is not grounded
    reading       share of the text's words that were read, a misspelt word counting as five unread ones
    length        1 from 12 letters to 240 (a Chinese character counts as three), falling to 0 at 0 and at 960
    cleanness     1 less 0.25 for each of: masked personal data, a run of one character, a run of punctuation

A misspelt word is an unread word that is one edit (a letter lost, added, or swapped with the next) away from a word that the parser knows;
a single Latin letter and a Latin word with other characters ("o1") count too. `is_odd` compares rows: it finds words that hardly any other
executable row has. A typo can destroy a slot, and then a common combination looks rare; so `coverage.py` ignores the rarity of odd rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.grounding.lexicon import phrases
from filters.lexicon_worlds import lexicon_worlds
from filters.normalised_text import LETTERS_A_HAN
from filters.personal import MASK
from filters.step import BatchStep

ODD_SHARE = 0.002
"""A word is odd that fewer than this share of the rows of its language have."""


class QualityConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    min_quality: float = Field(default=0.3, ge=0, le=1, description="Quality score (0 to 1) below which a row is dropped.")


_COMPLETENESS, _READING, _LENGTH, _CLEANNESS = 0.35, 0.25, 0.2, 0.2
_MISSPELT_WEIGHT = 5
_SHORTEST, _LONGEST, _ENDLESS = 12, 240, 960
_RUN = "|".join(f"{character}{{4,}}" for character in "abcdefghijklmnopqrstuvwxyz啊哈呵嘿哦嗯")
_MARKS = r"[!?,.;:~！？，。；：]{3,}"


def step(rows: pl.DataFrame, config: QualityConfig) -> pl.DataFrame:
    """The batch step (columns norm, language, frame_id, residue, unexplained): adds quality; `low_quality` below the threshold."""
    norm = pl.col("norm")
    words, unread = _words(norm), _words(pl.col("residue"))
    letters = norm.str.len_chars().cast(pl.Float64) + (LETTERS_A_HAN - 1) / 2 * (
        norm.str.len_bytes().cast(pl.Float64) - norm.str.len_chars()
    )
    lost = pl.min_horizontal(
        pl.lit(1.0), (unread + (_MISSPELT_WEIGHT - 1) * _count_misspelt(rows["residue"])) / pl.max_horizontal(words, 1.0)
    )
    length = pl.min_horizontal(pl.lit(1.0), letters / _SHORTEST, (_ENDLESS - letters) / (_ENDLESS - _LONGEST)).clip(0.0, 1.0)
    dirt = sum((norm.str.contains(pattern).cast(pl.Float64) for pattern in (MASK, _RUN, _MARKS)), pl.lit(0.0))
    completeness = pl.when(pl.col("frame_id").is_null()).then(0.0).otherwise((1 - 0.25 * pl.col("unexplained").fill_null(0)).clip(0.0, 1.0))
    quality = _COMPLETENESS * completeness + _READING * (1 - lost) + _LENGTH * length + _CLEANNESS * (1 - 0.25 * dirt)
    scored = rows.with_columns(quality=pl.when(pl.col("language").is_in(["en", "zh"])).then(quality.round(4)).otherwise(0.0))
    return scored.with_columns(reason=pl.when(pl.col("quality") < config.min_quality).then(pl.lit("low_quality")))


def _words(text: pl.Expr) -> pl.Expr:
    """About how many words a text has: blanks and one, and one for every two Chinese characters."""
    wide = (text.str.len_bytes().cast(pl.Float64) - text.str.len_chars()) / 2
    return pl.when(text == "").then(0.0).otherwise(text.str.count_matches(" ", literal=True).cast(pl.Float64) + 1 + wide / 2)


def _count_misspelt(residue: pl.Series) -> pl.Series:
    """How many unread words of each row are misspelt (`is_misspelt`)."""
    words = (
        pl.DataFrame({"residue": residue})
        .with_row_index("at")
        .select("at", word=pl.col("residue").str.split(" "))
        .explode("word")
        .filter(pl.col("word") != "")
    )
    distinct = words["word"].unique().drop_nulls()
    wrong = pl.Series([word for word in distinct.to_list() if is_misspelt(word)], dtype=pl.String)
    counts = words.filter(pl.col("word").is_in(wrong.implode())).group_by("at").len()
    return (
        pl.DataFrame({"at": pl.int_range(len(residue), dtype=pl.UInt32, eager=True)})
        .join(counts, on="at", how="left", maintain_order="left")["len"]
        .fill_null(0)
        .cast(pl.Float64)
    )


@cache
def _known_words() -> tuple[frozenset[str], frozenset[str]]:
    """The words of all names, cues and fillers, and what losing a letter makes of them."""
    words = frozenset(word for phrase in phrases(lexicon_worlds()) for word in phrase.split(" ") if len(word) > 1)
    return words, frozenset(shorter for word in words if len(word) > 2 or not word.isascii() for shorter in _shorter(word))


def _shorter(word: str) -> Iterable[str]:
    return (word[:at] + word[at + 1 :] for at in range(len(word)))


@lru_cache(maxsize=1 << 17)
def is_misspelt(word: str) -> bool:
    """Whether an unread word is one slip away from a known one, or is no whole word: one Latin letter, Latin letters mixed with digits or
    marks, Latin letters or digits inside a Chinese word."""
    known_words, shortened = _known_words()
    if word.isascii():
        if not word.isalpha() or len(word) < 2:
            return True
        swapped = (word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1))
        return word in shortened or any(other in known_words for other in _shorter(word)) or any(other in known_words for other in swapped)
    if any(character.isascii() and character.isalnum() for character in word):
        return True
    return len(word) == 2 and word[::-1] in known_words


def is_odd(rows: pl.DataFrame) -> pl.Series:
    """Whether a row has an unread word that hardly any other of these rows has (columns residue, language; all executable rows
    of a run that are left)."""
    words = (
        rows.select("language", "residue")
        .with_row_index("at")
        .with_columns(word=pl.col("residue").str.split(" "))
        .explode("word")
        .filter(pl.col("word") != "")
        .select("at", "language", "word")
        .unique()
    )
    sizes = rows.group_by("language").len("rows")
    common = words.group_by("language", "word").len().join(sizes, on="language").filter(pl.col("len") >= ODD_SHARE * pl.col("rows"))
    odd = words.join(common, on=["language", "word"], how="anti")["at"].unique()
    return pl.select(pl.int_range(rows.height, dtype=pl.UInt32).is_in(odd.implode())).to_series()


STEP = BatchStep(
    name="quality",
    needs=("norm", "language", "frame_id", "residue", "unexplained"),
    adds=("quality",),
    reasons=("low_quality",),
    soft=("low_quality",),
    config=QualityConfig,
    function=step,
    explains=("quality",),
)
