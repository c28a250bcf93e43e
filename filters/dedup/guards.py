"""The numbers and terms that two texts must have in common to be near duplicates, however similar their wording is.

Long queries from one pattern differ in a word or a digit but share 80 % of their shingles: "a table for 2" is not "a table for 3", the red
mug is not the blue one, and "from A to B" is not "from B to A". Numbers must be equal, in the same order. Terms (names that worlds declare
for slot values) must also be equal in order. A term may be missing on one side if a typo destroyed it; then the texts have about the same
length. A text that is longer by a whole term asks for more.

Limit: words that no world declares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import numpy as np
import polars as pl

from filters.frames.numba_types import I64, U8, U32, compile_kernel, text_buffer
from filters.lexicon_worlds import Worlds
from filters.normalised_text import normalise_text
from synth.tasks.wording import load_grounding
from synth.text.slot_kinds import Date, Vocabulary
from synth.text.value_spellings import value_spellings

NUMBER_WORDS = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "fifteen", "twenty", "thirty", "half", "dozen"),
    *"一二三四五六七八九十两半百千",
)


@cache
def world_terms(worlds: Worlds) -> tuple[str, ...]:
    """The normalised terms of the worlds (some 1,700): names of slot values in both languages, days, and number words."""
    spelt = set(NUMBER_WORDS)
    for world in worlds:
        grounding = load_grounding(world)
        for kind, declared in world.kinds.items():
            synonyms = grounding.synonyms.get(kind, {})
            if isinstance(declared, Vocabulary):
                spelt |= {name for names in declared.names.values() for name in names.values()}
                spelt |= {name for names in synonyms.values() for spellings in names.values() for name in spellings}
            elif isinstance(declared, Date):
                days = range(declared.horizon_days + 1)
                spelt |= {
                    text.removeprefix("on ")
                    for day in days
                    for language in ("en", "zh")
                    for text in value_spellings(declared, day, language)
                }
    texts = pl.Series("text", sorted(spelt)).to_frame()
    return tuple(texts.select(normalise_text(pl.col("text")).unique().sort()).to_series())


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of a batch of rows.

    digits: hash of each row's digit runs [rows].
    terms: numbers of the terms of all rows; row i has `terms[offsets[i]:offsets[i + 1]]`, in the order of the text.
    offsets: [rows + 1].
    term_bytes: length of each term in UTF-8 [terms].
    """

    digits: U32
    terms: U32
    offsets: I64
    term_bytes: I64

    def kinds(self) -> U32:
        """A hash of each row's terms in order [rows]."""
        out = np.empty(self.digits.size, np.uint32)
        _fill_kinds(self.terms, self.offsets, out)
        return out


def guards(texts: pl.Series, terms: Sequence[str], *, digits: bool = True) -> Guards:
    """The guards of normalised texts (no nulls); `terms` are normalised and distinct."""
    runs = np.zeros(len(texts), np.uint32)
    if digits:
        _fill_digits(*text_buffer(texts), runs)
    term_bytes = np.array([len(term.encode()) for term in terms], np.int64)
    if not terms:
        return Guards(runs, np.empty(0, np.uint32), np.zeros(len(texts) + 1, np.int64), term_bytes)
    spaced = [f" {term}" if term.isascii() else term for term in terms]  # a Latin term begins a word: `red` is not in `delivered`
    matches = (" " + texts).str.extract_many(spaced, overlapping=True)
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(matches.list.len().cast(pl.Int64).to_numpy(), out=offsets[1:])
    numbers = matches.explode(empty_as_null=False).cast(pl.Enum(spaced)).to_physical().cast(pl.UInt32).to_numpy()
    return Guards(runs, np.ascontiguousarray(numbers), offsets, term_bytes)


def join_guards(batches: Sequence[Guards]) -> Guards:
    """The guards of several batches of rows as one."""
    ends = np.cumsum([0, *(batch.offsets[-1] for batch in batches)])
    offsets = [batch.offsets[1:] + begin for batch, begin in zip(batches, ends, strict=False)]
    return Guards(
        np.concatenate([batch.digits for batch in batches]),
        np.concatenate([batch.terms for batch in batches]),
        cast(I64, np.concatenate([np.zeros(1, np.int64), *offsets])),
        batches[0].term_bytes,
    )


@compile_kernel
def _fill_digits(data: U8, offsets: I64, out: U32) -> None:
    for row in range(offsets.size - 1):
        value, in_run = np.uint32(0), False
        for index in range(offsets[row], offsets[row + 1]):
            byte = data[index]
            is_digit = np.uint8(48) <= byte <= np.uint8(57)
            if is_digit and not in_run:
                value = np.uint32((value ^ np.uint32(0x9E37)) * np.uint32(0x85EBCA6B))
            if is_digit:
                value = np.uint32((value ^ np.uint32(byte)) * np.uint32(0x01000193))
            in_run = is_digit
        out[row] = value


@compile_kernel
def _fill_kinds(terms: U32, offsets: I64, out: U32) -> None:
    for row in range(offsets.size - 1):
        value = np.uint32(0)
        for index in range(offsets[row], offsets[row + 1]):
            value = np.uint32((value ^ terms[index] ^ np.uint32(0x9E3779B9)) * np.uint32(0x85EBCA6B))
            value ^= value >> np.uint32(15)
        out[row] = value
