"""All names, cue words and fillers that texts are searched for, in both languages, with their meanings in the worlds.

One Aho-Corasick pass replaces each phrase by a private character. The characters form some hundred *classes*: the slot kinds that a name
may fill, and the cues that a word gives. English names match as whole words, Chinese names anywhere, the longest first. `tagger.py` reads
texts with the lexicon, and `parser.py` decides their meaning.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from threading import Lock

import numpy as np
import polars as pl
import yaml

from filters.frames.numba_types import I64
from filters.grounding import amounts
from filters.lexicon_worlds import Worlds
from filters.personal import MASK
from storage.records import JSON, canonical_json
from synth.tasks.wording import load_grounding
from synth.text.number_words import NUMERALS, WORDED_MARK, large_numbers_to_digits, words_to_digits
from synth.text.read_values import COLON
from synth.text.slot_kinds import Identifier, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.text.yaml_loader import TEXT_LOADER
from synth.worlds.base import World

LOCK, _BUILDING = Lock(), Lock()
FIRST = 0xF0000
_MIN_UNSPACED = 3
"""Shortest Latin name that is looked for inside Chinese text, where nothing marks its ends; and shortest Chinese phrase that goes before
amounts."""
AMOUNT_SYMBOL = "\ue001"
_FILLER_SYMBOL = "\ue000"
_STOP = "\ue011"
"""Replaces punctuation; no phrase matches across it."""
SYMBOLS = r"[\ue000-\uf8ff\x{F0000}-\x{FFFFD}]"
_EARLY_FILLERS = frozenset({"一下"})
"""Fillers that would otherwise become part of an amount (查一下周五 is not 下周五)."""
_PUNCTUATION = r"[,!?;:()\[\]{}\"“”‘。，！？；：、（）…·~/|<>*_=—–]+|\.(?: |$)| -+ "
_READ_PHRASES = (
    *("an hour and a half", "one and a half hours", "one hour", "half an hour", "a quarter of an hour", "three quarters of an hour"),
    *("half a kilometre", "half a kilometer", "half a km", "one kilometre", "one kilometer", "half a mile", "one mile"),
    *NUMERALS,
)
_DIGITS = {
    **dict.fromkeys(("a kilometre", "a kilometer"), "1 km"),
    **{"an hour": "1 hour", "a mile": "1 mile", "a couple of": "2", "a week": "7 days", "two things": "things"},
    **{phrase: words_to_digits(phrase).replace(WORDED_MARK, "") for phrase in _READ_PHRASES},
}
"""Amounts in English words -> the same in digits."""
Kind = tuple[str, str]
"""(world, slot kind)."""
Cue = tuple[str, str]
"""(world, cue)."""


@dataclass(frozen=True, slots=True)
class SymbolClass:
    """The possible meanings of the symbols of one class.

    written: slot kinds that are written with such a name.
    read: slot kinds for which such a name is only understood, e.g. a number without a unit.
    cues: cues that the symbols give.
    is_idle: set for a cue of roles that stands beside no value; it has no effect on the values around it.
    kinds: written and read.
    number: the hash, computed once.
    """

    written: frozenset[Kind] = frozenset()
    read: frozenset[Kind] = frozenset()
    cues: frozenset[Cue] = frozenset()
    is_idle: bool = False
    kinds: frozenset[Kind] = field(init=False, compare=False)
    number: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", self.written | self.read)
        object.__setattr__(self, "number", hash((self.written, self.read, self.cues, self.is_idle)))

    def __hash__(self) -> int:
        return self.number


GAP, SKIP = 0, 1
"""Class codes of unread text, and of blanks and fillers; the others index `Lexicon.classes`."""


@dataclass(frozen=True)
class Lexicon:
    """The compiled lexicon of some worlds.

    spaced_early, unspaced_early: (phrases, private characters) that are replaced before amounts are read, in text with and without blanks
        between words. In Chinese text names are replaced early: 昆明天气 does not contain 明天.
    late: (phrases, private characters) that are replaced after amounts.
    codes: class code of every Unicode character.
    meanings: for each private character from U+F0000 on, slot kind -> canonical value as JSON text.
    classes: by class code. Classes of amounts are added when they first occur, so codes differ between processes and are never stored.
    numbers: class -> its code.
    idle: code of a cue of roles -> its code where it is idle.
    worlds: the worlds.
    role_cues: `role_cues` of the worlds.
    """

    spaced_early: tuple[list[str], list[str]]
    unspaced_early: tuple[list[str], list[str]]
    late: tuple[list[str], list[str]]
    codes: I64
    meanings: list[dict[Kind, str]]
    classes: list[SymbolClass]
    numbers: dict[SymbolClass, int]
    idle: dict[int, int]
    worlds: Worlds
    role_cues: frozenset[Cue]


@dataclass(slots=True)
class _Meaning:
    values: dict[Kind, JSON]
    read_only: set[Kind]
    cues: set[Cue]

    @property
    def symbol_class(self) -> SymbolClass:
        written = frozenset(kind for kind in self.values if kind not in self.read_only)
        return SymbolClass(written, frozenset(self.values) - written, frozenset(self.cues))


@cache
def fillers(worlds: Worlds) -> frozenset[str]:
    raw: dict[str, list[str]] = yaml.load((files("filters.grounding") / "words.yaml").read_text(encoding="utf-8"), Loader=TEXT_LOADER)
    worded = {word for world in worlds for words in load_grounding(world).fillers.values() for word in words}
    return frozenset(word.lower() for words in raw.values() for word in words) | worded


def phrases(worlds: Worlds) -> frozenset[str]:
    """Every name, cue and filler, in lower case."""
    return frozenset(_phrases(worlds)) | fillers(worlds)


def lexicon(worlds: Worlds) -> Lexicon:
    """The lexicon of these worlds. A process builds it once (about 0.1 s) and all threads share it, because its codes grow."""
    with _BUILDING:
        return _lexicon(worlds)


@cache
def _lexicon(worlds: Worlds) -> Lexicon:
    meanings_of, roles = _phrases(worlds), role_cues(worlds)
    classes = [SymbolClass(), SymbolClass()]
    numbers: dict[SymbolClass, int] = {}
    meanings: list[dict[Kind, str]] = []
    codes = np.full(sys.maxunicode + 1, GAP, np.int64)
    codes[[ord(character) for character in (*" -'.¥$%&+@#", _FILLER_SYMBOL, _STOP)]] = SKIP
    spaced_early: dict[str, str] = {}
    unspaced_early: dict[str, str] = {}
    late: dict[str, str] = {}
    patterns = _patterns([*meanings_of, *(filler for filler in fillers(worlds) if filler not in meanings_of)])
    for phrase in sorted(patterns, key=lambda phrase: (-len(phrase), phrase)):
        symbol, meaning, pattern = _FILLER_SYMBOL, meanings_of.get(phrase), patterns[phrase]
        if meaning is not None:
            symbol_class = meaning.symbol_class
            if symbol_class not in numbers:
                numbers[symbol_class] = len(classes)
                classes.append(symbol_class)
            symbol = chr(FIRST + len(meanings))
            codes[ord(symbol)] = numbers[symbol_class]
            meanings.append({kind: canonical_json(value) for kind, value in meaning.values.items()})
        is_early = _has_digit(phrase) or phrase in _EARLY_FILLERS
        (spaced_early if is_early else late)[pattern] = f" {symbol} " if pattern.startswith(" ") else symbol
        is_name = meaning is not None and bool(meaning.values) and (not phrase.isascii() or len(phrase) >= _MIN_UNSPACED)
        if is_early or is_name or (len(phrase) >= _MIN_UNSPACED and not phrase.isascii()):
            unspaced_early[pattern.strip().replace("  ", " ")] = symbol
    idle = {}
    for number, symbol_class in enumerate(tuple(classes)):
        if symbol_class.cues & roles and not symbol_class.kinds:
            idle[number] = len(classes)
            classes.append(replace(symbol_class, is_idle=True))
    return Lexicon(_table(spaced_early), _table(unspaced_early), _table(late), codes, meanings, classes, numbers, idle, worlds, roles)


def _table(symbols: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Patterns and symbols, the longest pattern first: of patterns that match at one place, the first in the list wins."""
    patterns = sorted(symbols, key=lambda pattern: (-len(pattern), pattern))
    return patterns, [symbols[pattern] for pattern in patterns]


def _has_digit(phrase: str) -> bool:
    return re.search("[0-9]", phrase) is not None


def _patterns(phrases: Sequence[str]) -> dict[str, str]:
    """Phrase -> its pattern in prepared text: a whole word if it begins and ends in Latin script."""
    spaced = [phrase[0].isascii() and phrase[-1].isascii() for phrase in phrases]
    rows = pl.DataFrame({"norm": list(phrases), "language": ["en" if is_spaced else "zh" for is_spaced in spaced]})
    texts = [text.strip() for text in prepare_texts(rows)["norm"]]
    return {phrase: f" {text} " if is_spaced else text for phrase, text, is_spaced in zip(phrases, texts, spaced, strict=True) if text}


def _phrases(worlds: Worlds) -> dict[str, _Meaning]:
    """Every phrase in lower case with its meanings."""
    meanings: dict[str, _Meaning] = {}

    def meaning(phrase: str) -> _Meaning:
        plain = phrase.lower().strip()
        return meanings.setdefault(plain.removesuffix("的") or plain, _Meaning({}, set(), set()))

    for world in worlds:
        grounding = load_grounding(world)
        used = {slot.kind for intent in world.intents.values() for slot in intent.slots}
        for cue, by_language in grounding.cues.items():
            for phrase in (phrase for phrases in by_language.values() for phrase in phrases):
                meaning(phrase).cues.add((world.name, cue))
        for name in sorted(used):
            for phrase, value, is_written in _names(world, name):
                phrase_meaning = meaning(phrase)
                kind = (world.name, name)
                if kind in phrase_meaning.values and is_written:
                    phrase_meaning.read_only.discard(kind)
                elif kind not in phrase_meaning.values:
                    phrase_meaning.values[kind] = value
                    if not is_written:
                        phrase_meaning.read_only.add(kind)
    _inherit_roles(meanings, role_cues(worlds))
    return meanings


def _names(world: type[World], name: str) -> Iterable[tuple[str, JSON, bool]]:
    """(phrase, canonical value, whether wordings write it) of a slot kind; amounts have patterns instead."""
    kind, grounding = world.kinds[name], load_grounding(world)
    if isinstance(kind, Identifier):
        yield from ((choice, choice, True) for choice in kind.choices)
    if not isinstance(kind, Vocabulary):
        return
    synonyms, readings = grounding.synonyms.get(name, {}), grounding.readings.get(name, {})
    for value in kind.names:
        if amounts.is_clock(value):
            continue
        for language in ("en", "zh"):
            written = value_spellings(kind, value, language, synonyms)
            yield from ((phrase, value, True) for phrase in written)
            yield from ((phrase, value, False) for phrase in readings.get(value, {}).get(language, ()))
            if language == "en":
                yield from ((plural, value, False) for phrase in written if (plural := _plural(phrase)) is not None)


def _plural(phrase: str) -> str | None:
    if not phrase.isascii() or not phrase[-1:].isalpha() or phrase.endswith("s"):
        return None
    return f"{phrase[:-1]}ies" if phrase.endswith("y") and phrase[-2:-1] not in "aeo" else f"{phrase}s"


@cache
def role_cues(worlds: Worlds) -> frozenset[Cue]:
    """Cues that distinguish slots; beside a value they say nothing about the intent."""
    return frozenset(
        (world.name, cue)
        for world in worlds
        for roles in load_grounding(world).roles.values()
        for side in ("before", "after")
        for cue in roles.get(side, ())
    )


def _inherit_roles(meanings: dict[str, _Meaning], role_cues: frozenset[Cue]) -> None:
    """Gives a phrase that ends in a role word the same role: "get to" stands before a destination like "to"."""
    for phrase, meaning in meanings.items():
        last = meanings.get(phrase.rsplit(" ", 1)[-1]) if " " in phrase and not meaning.values else None
        if last is not None and phrase.isascii():
            meaning.cues |= last.cues & role_cues


def prepare_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """Prepares normalised texts (columns norm, language) for matching.

    Masks and private characters become blanks, punctuation becomes _STOP, and a colon between digits COLON. Text that is not Chinese gets
    two blanks between words, and digits instead of number words.
    """
    norm, is_spaced = pl.col("norm"), pl.col("language") != "zh"
    phrases = sorted(_DIGITS, key=lambda phrase: (-len(phrase), phrase))
    words = [f" {phrase.replace(' ', '  ')} " for phrase in phrases]
    digits = [f" {_DIGITS[phrase].replace(' ', '  ')} " for phrase in phrases]
    large = rows["norm"].str.contains("hundred|thousand|million").arg_true()
    rows = rows.with_columns(rows["norm"].scatter(large, [large_numbers_to_digits(text) for text in rows["norm"].gather(large)]))
    has_symbol = norm.str.contains(SYMBOLS)
    has_mask, has_colon = norm.str.contains("<", literal=True), norm.str.contains(":", literal=True)
    steps = (
        pl.coalesce(pl.when(has_symbol).then(norm).str.replace_all(SYMBOLS, " "), norm),
        pl.coalesce(pl.when(has_mask).then(norm).str.replace_all(MASK, " "), norm),
        pl.coalesce(pl.when(has_colon).then(norm).str.replace_all("([0-9]):([0-9]{2})", f"${{1}}{COLON}${{2}}"), norm),
        norm.str.replace_all(_PUNCTUATION, f" {_STOP} "),
        norm.str.replace_all("’", "'", literal=True),
        pl.when(is_spaced).then(pl.concat_str(pl.lit("  "), norm.str.replace_all(" ", "  ", literal=True), pl.lit("  "))).otherwise(norm),
        pl.when(is_spaced).then(norm.str.replace_many(words, digits, leftmost=True)).otherwise(norm),
    )
    for step in steps:  # one by one: nested expressions would be computed several times
        rows = rows.with_columns(norm=step)
    return rows
