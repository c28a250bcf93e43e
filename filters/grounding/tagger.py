"""Turns normalised texts into rows of symbols (names, cue words, amounts), and returns the words that no rule reads.

A million texts have some ten thousand distinct rows of symbol classes, and only these are parsed (`parser.py`). All work here is on columns
and arrays of characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import polars as pl

from filters.frames.numba_types import I64, Mask
from filters.grounding import amounts
from filters.grounding.lexicon import (
    AMOUNT_SYMBOL,
    FIRST,
    GAP,
    LOCK,
    SKIP,
    SYMBOLS,
    Kind,
    Lexicon,
    SymbolClass,
    lexicon,
    prepare_texts,
)
from filters.lexicon_worlds import Worlds
from storage.records import canonical_json


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of a batch of rows.

    offsets [rows + 1]: row i has the entries `offsets[i]:offsets[i + 1]` of codes and tokens.
    codes: class codes; GAP for unread text.
    tokens: index of the name in `Lexicon.meanings`; for an amount -2 - (its index in `stretches`); -1 for a gap.
    stretches: distinct amounts.
    residue: the unread words, separated by blanks; empty if all words were read.
    lexicon: with which the texts were read.
    """

    offsets: I64
    codes: I64
    tokens: I64
    stretches: list[str]
    residue: pl.Series
    lexicon: Lexicon

    def signatures(self) -> tuple[list[bytes], I64]:
        """The distinct rows of class codes (as bytes of uint16), and each row's number among them."""
        codes = self.codes.astype(np.uint16).tobytes()
        bounds = (self.offsets * 2).tolist()
        numbers: dict[bytes, int] = {}
        rows = (codes[start:end] for start, end in pairwise(bounds))
        numbers_of_rows = np.fromiter((numbers.setdefault(row, len(numbers)) for row in rows), np.int64, len(bounds) - 1)
        return list(numbers), numbers_of_rows


def read(rows: pl.DataFrame, worlds: Worlds) -> Symbols:
    """The symbols of normalised texts (columns norm, language; no nulls)."""
    words, ready = lexicon(worlds), prepare_texts(rows.select("norm", "language"))
    norm = pl.col("norm")
    spaced = norm.str.replace_many(*words.spaced_early, leftmost=True)
    is_zh = pl.col("language") == "zh"
    early = ready.select(pl.coalesce(pl.when(is_zh).then(norm).str.replace_many(*words.unspaced_early, leftmost=True), spaced)).to_series()
    amount = pl.when(early.str.contains("[0-9零〇一二两三四五六七八九十百千半天日周期拜]|day|tomorrow")).then(early)
    amounts_found = pl.select(amount).to_series().str.extract_all(amounts.pattern(worlds)).explode(empty_as_null=False).drop_nulls()
    late = early.str.replace_all(amounts.pattern(worlds), f" {AMOUNT_SYMBOL} ").str.replace_many(*words.late, leftmost=True)
    residue = late.str.replace_all(rf"(?:{SYMBOLS}| )+", " ").str.strip_chars(" .'-")
    codes, tokens, stretches = _classify(late, amounts_found, words)
    return Symbols(*_compress(late, codes, tokens, words), stretches, residue, words)


def _amount_code(words: Lexicon, stretch: str) -> int:
    kinds = frozenset((world, kind) for world, kind, _ in amounts.values(stretch, words.worlds))
    symbol = SymbolClass(read=kinds) if amounts.is_bare(stretch) else SymbolClass(written=kinds)
    with LOCK:
        if symbol not in words.numbers:
            words.numbers[symbol] = len(words.classes)
            words.classes.append(symbol)
        return words.numbers[symbol]


def _classify(late: pl.Series, amounts_found: pl.Series, words: Lexicon) -> tuple[I64, I64, list[str]]:
    """Class code and token of every character of all texts in a row, and the distinct amounts."""
    characters = np.frombuffer("".join(late.to_list()).encode("utf-32-le"), np.uint32).astype(np.int64)
    codes, tokens = words.codes[characters], characters - FIRST
    tokens[characters < FIRST] = -1
    distinct = amounts_found.unique().sort().to_list()
    numbers = amounts_found.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64)
    is_amount = characters == ord(AMOUNT_SYMBOL)
    codes[is_amount] = np.array([_amount_code(words, stretch) for stretch in distinct], np.int64)[numbers]
    tokens[is_amount] = -2 - numbers
    return codes, tokens, distinct


def _compress(late: pl.Series, codes: I64, tokens: I64, words: Lexicon) -> tuple[I64, I64, I64]:
    """Row offsets, codes and tokens without skipped symbols.

    Unread text stays, as a gap, only between a value and a cue of roles. Cues beside no value come first, once each, in the order of their
    codes, because their position has no meaning.
    """
    lengths = late.str.len_chars().cast(pl.Int64).to_numpy()
    row_of = np.repeat(np.arange(lengths.size), lengths)
    keep = codes != SKIP
    row_of, codes, tokens = row_of[keep], codes[keep], tokens[keep]
    is_gap = codes == GAP
    is_repeat = np.zeros(codes.size, bool)
    is_repeat[1:] = is_gap[1:] & is_gap[:-1] & (row_of[1:] == row_of[:-1])
    row_of, codes, tokens = row_of[~is_repeat], codes[~is_repeat], tokens[~is_repeat]
    is_value, is_role, idle = _properties(words)
    parts, plays = _roles(codes, row_of, is_value[codes], is_role[codes])
    codes = np.where(is_role[codes] & ~is_value[codes] & ~plays, idle[codes], codes)
    is_cue = ~is_value[codes] & ~plays & (codes != GAP)
    keep = np.flatnonzero((codes != GAP) | parts)
    order = keep[np.lexsort((np.where(is_cue, codes, np.arange(codes.size))[keep], ~is_cue[keep], row_of[keep]))]
    row_of, codes, tokens, is_cue = row_of[order], codes[order], tokens[order], is_cue[order]
    is_again = np.zeros(codes.size, bool)
    is_again[1:] = is_cue[1:] & (codes[1:] == codes[:-1]) & (row_of[1:] == row_of[:-1])
    row_of, codes, tokens = row_of[~is_again], codes[~is_again], tokens[~is_again]
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(np.bincount(row_of, minlength=lengths.size), out=offsets[1:])
    return offsets, codes, tokens


def _roles(codes: I64, row_of: I64, is_value: Mask, is_role: Mask) -> tuple[Mask, Mask]:
    """Which gaps part a value from a cue of roles, and which cues of roles stand beside a value, or across such a gap from one."""
    parts, plays = np.zeros(codes.size, bool), np.zeros(codes.size, bool)
    if codes.size > 1:
        same = row_of[:-1] == row_of[1:]
        plays[:-1] |= same & is_role[:-1] & is_value[1:]
        plays[1:] |= same & is_role[1:] & is_value[:-1]
    if codes.size > 2:
        same = (row_of[:-2] == row_of[2:]) & (codes[1:-1] == GAP)
        forth, back = same & is_role[:-2] & is_value[2:], same & is_value[:-2] & is_role[2:]
        parts[1:-1] = forth | back
        plays[:-2] |= forth
        plays[2:] |= back
    return parts, plays & ~is_value


def _properties(words: Lexicon) -> tuple[Mask, Mask, I64]:
    """Whether each class may be a value, whether it plays a role, and its code where it is idle, by class code."""
    with LOCK:
        classes = list(words.classes)
    idle = np.arange(len(classes))
    for code, other in words.idle.items():
        idle[code] = other
    return np.array([bool(one.kinds) for one in classes]), np.array([bool(one.cues & words.role_cues) for one in classes]), idle


def token_value(symbols: Symbols, token: int, kind: Kind) -> str:
    """The canonical value, as JSON text, of a token read as a slot kind.

    Raises:
        KeyError: the token cannot be of that kind.
    """
    return token_values(symbols, token)[kind]


def token_values(symbols: Symbols, token: int) -> Mapping[Kind, str]:
    """Every canonical value, as JSON text, that a token which is no gap may be, by slot kind; empty for a mere cue."""
    words = symbols.lexicon
    return words.meanings[token] if token >= 0 else _amount_values(symbols.stretches[-2 - token], words.worlds)


@lru_cache(maxsize=65536)
def _amount_values(stretch: str, worlds: Worlds) -> Mapping[Kind, str]:
    return {(world, kind): canonical_json(value) for world, kind, value in amounts.values(stretch, worlds)}
