"""Rules that drop a text without reading its meaning: its language, its length, or that it is no request.

Most rules are patterns over the normalised text without its greetings ("Hello tehre. hi" is empty, "hi, cancel o17" is not), with ASCII
classes and anchors where possible; the first match gives the reason. Noise inside a good request ("pleaseeeeee find a cafe") is no reason:
most letters must be noise. Grounding drops what the rules do not catch.
"""

from __future__ import annotations

from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.normalised_text import LETTERS_A_HAN
from filters.personal import MASK
from filters.requests.gibberish import is_gibberish
from filters.requests.greetings import is_small_talk, strip_greetings
from filters.requests.keyboard import RUN_OF_KEYS
from filters.requests.patterns import LINK
from filters.step import BatchStep

_REPEATED = "|".join(f"{character}{{6,}}" for character in "abcdefghijklmnopqrstuvwxyz0123456789哈呵嘿嘻啊哦嗯额呃呜")
_MASHED = rf"(?:{RUN_OF_KEYS}|[bcdfghjklmnpqrstvwxz]{{6,}}|{_REPEATED})"
_MASHED_WORD = rf"[a-z0-9;\[\]',./\\]*{_MASHED}[a-z0-9;\[\]',./\\]*"
_NOT_LETTERS = r"[^a-z\u00df-\u024f\u3400-\u4dbf\u4e00-\u9fff]+"


class RulesConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    languages: tuple[Literal["en", "zh"], ...] = Field(
        default=("en", "zh"), min_length=1, description="Languages of the rows that are kept."
    )
    min_letters: int = Field(
        default=6, ge=1, description="Length of the shortest text that is kept, in letters; a Chinese character counts as three."
    )
    max_chars: int = Field(default=2000, ge=10, description="Length of the longest text that is kept, in characters after normalisation.")


def step(rows: pl.DataFrame, config: RulesConfig) -> pl.DataFrame:
    """The batch step (columns norm, language). Reasons: `no_words`, `language`, `too_short`, `too_long`, `only_link`,
    `only_personal_data`, `keyboard_mash`, `chit_chat`."""
    norm, core = pl.col("norm"), pl.col("core")
    stripped = rows.with_columns(core=strip_greetings(norm))
    has_link = norm.str.contains("http", literal=True) | norm.str.contains("www.", literal=True)
    fits: dict[str, pl.Expr | pl.Series] = {
        "keyboard_mash": _is_mostly(stripped, core.str.contains(_MASHED), _MASHED_WORD, config.min_letters)
        | is_gibberish(stripped["core"], config.min_letters),
        "chit_chat": (core == "") & (norm != "") | pl.when(core.str.len_chars() <= 80).then(is_small_talk(core) | is_small_talk(norm)),
        "no_words": ~core.str.contains(r"\p{L}"),
        "language": ~pl.col("language").is_in(config.languages),
        "only_link": _is_mostly(stripped, has_link, LINK, config.min_letters),
        "only_personal_data": _is_mostly(stripped, norm.str.contains("<", literal=True), MASK, config.min_letters),
        "too_short": _length(norm) < config.min_letters,
        "too_long": norm.str.len_chars() > config.max_chars,
    }
    number = pl.coalesce(*(pl.when(rule).then(pl.lit(index, pl.UInt8)) for index, rule in enumerate(fits.values())))
    reasons = stripped.select(number.replace_strict(dict(enumerate(fits)), return_dtype=pl.String).alias("reason"))
    return rows.with_columns(reasons)


def _is_mostly(rows: pl.DataFrame, is_suspect: pl.Expr, pattern: str, min_letters: int) -> pl.Series:
    """Whether matches of the pattern are most of a request (column core): fewer than `min_letters` letters, or a third of them, are left
    without.

    Only the few suspect rows are checked, because counting letters is slow.
    """
    suspects = rows.select("core", is_suspect=is_suspect).with_row_index("index").filter("is_suspect")
    left, letters = _letters(pl.col("core").str.replace_all(pattern, " ")), _letters(pl.col("core"))
    places = suspects.filter((left < min_letters) | (left * 3 < letters))["index"]
    return pl.select(pl.repeat(False, rows.height)).to_series().scatter(places, True)


def _length(text: pl.Expr) -> pl.Expr:
    """Characters of a text, a Chinese one counting as three."""
    chars = text.str.len_chars().cast(pl.Int32)
    return chars + (LETTERS_A_HAN - 1) * ((text.str.len_bytes().cast(pl.Int32) - chars) // 2)


def _letters(text: pl.Expr) -> pl.Expr:
    """How many Latin letters a text has, a Chinese character counting as three."""
    letters = text.str.replace_all(_NOT_LETTERS, "")
    return letters.str.len_chars().cast(pl.Int32) + (LETTERS_A_HAN - 1) * letters.str.count_matches(r"[\u3400-\u9fff]").cast(pl.Int32)


_REASONS = ("keyboard_mash", "no_words", "language", "only_link", "only_personal_data", "chit_chat", "too_short", "too_long")
STEP = BatchStep(
    name="rules",
    needs=("norm", "language"),
    reasons=_REASONS,
    soft=_REASONS,
    config=RulesConfig,
    function=step,
)
