"""What a normalised text mentions: every name, cue word and amount in it as one symbol, and the words that nobody could read.

One idea: all names and cues of all worlds (some thousands, both languages) are replaced in one Aho-Corasick pass, each by a private
character of its own; amounts by one pattern. What is left of a text is a short row of symbols whose *classes* (which kinds of slot,
which cues) repeat: a million texts have some ten thousand distinct rows of classes, so only these are ever parsed (`parser.py`).

English names match as whole words, Chinese ones anywhere, the longest first. Nothing here decides what a text means.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from threading import Lock, local

import numpy as np
import polars as pl
import yaml

from filters import amounts
from filters.amounts import COLON
from filters.compiled import I64, Mask
from filters.personal import MASK
from storage.records import JSON, canonical_json
from synth.surfaces import surfaces
from synth.wording import load_grounding
from synth.worlds import WORLDS
from synth.worlds.base import Identifier, Vocabulary

VERSION = 1

_LOCK, _MAKING = Lock(), Lock()
_FIRST = 0xF0000
_MIN_UNSPACED = 3
"""Shortest Latin name that is looked for inside Chinese text, where nothing marks its ends; and shortest Chinese phrase that goes before
amounts."""
_AMOUNT_SYMBOL = "\ue001"
_FILLER_SYMBOL = "\ue000"
_STOP = "\ue011"
"""Stands for punctuation: nothing is read across it."""
_SYMBOLS = r"[\ue000-\uf8ff\x{F0000}-\x{FFFFD}]"
_EARLY_FILLERS = frozenset({"一下"})
"""Fillers that would else become part of an amount (查一下周五 is no 下周五)."""
_PUNCTUATION = r"[,!?;:()\[\]{}\"“”‘。，！？；：、（）…·~/|<>*_=—–]+|\.(?: |$)| -+ "
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2)
} | {"fifteen": "15", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100"}
_AMOUNT_WORDS = {
    **dict.fromkeys(("an hour and a half", "one and a half hours"), "90 minutes"),
    **dict.fromkeys(("an hour", "one hour"), "60 minutes"),
    **dict.fromkeys(("half a kilometre", "half a kilometer", "half a km"), "500 m"),
    **dict.fromkeys(("a kilometre", "a kilometer", "one kilometre", "one kilometer"), "1000 m"),
    "half an hour": "30 minutes",
    "a quarter of an hour": "15 minutes",
    "three quarters of an hour": "45 minutes",
    "a couple of": "2",
    "a week": "7 days",
    "two things": "things",
}

Kind = tuple[str, str]
"""(world, slot kind)."""
Cue = tuple[str, str]
"""(world, cue)."""


@dataclass(frozen=True, slots=True)
class SymbolClass:
    """What symbols of one class may be. written: kinds of which wordings write such a name; read: kinds for which it is only understood,
    such as mere numbers."""

    written: frozenset[Kind] = frozenset()
    read: frozenset[Kind] = frozenset()
    cues: frozenset[Cue] = frozenset()
    is_idle: bool = False
    """Set for a cue of roles that stands beside no value: it tells nothing about the values around it."""
    kinds: frozenset[Kind] = field(init=False, compare=False)
    """written and read."""

    number: int = field(init=False, compare=False)
    """Its hash, which is asked for all the time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", self.written | self.read)
        object.__setattr__(self, "number", hash((self.written, self.read, self.cues, self.is_idle)))

    def __hash__(self) -> int:
        return self.number


GAP, SKIP = 0, 1
"""Class codes of unread text, and of blanks and fillers; the others index `Lexicon.classes`."""


@dataclass(frozen=True)
class Lexicon:
    """spaced_early, unspaced_early: (what is replaced, by which private characters) before amounts are read, in text with and without
    blanks between words; late: after that. In Chinese text names are read early: 昆明天气 has no 明天 in it.

    codes: class code of every Unicode character, of which the private ones stand for names and cues; meanings: per private character
    from U+F0000 on its canonical value (as JSON text) by kind. classes: by code; those of amounts join as they are met, so codes differ
    from process to process and are never stored.
    """

    spaced_early: tuple[list[str], list[str]]
    unspaced_early: tuple[list[str], list[str]]
    late: tuple[list[str], list[str]]
    codes: I64
    meanings: list[dict[Kind, str]]
    classes: list[SymbolClass]
    numbers: dict[SymbolClass, int]
    idle: dict[int, int]
    """Code of a cue of roles -> its code where it is idle."""


@dataclass(slots=True)
class _Meaning:
    values: dict[Kind, JSON]
    read_only: set[Kind]
    cues: set[Cue]

    @property
    def symbol_class(self) -> SymbolClass:
        written = frozenset(kind for kind in self.values if kind not in self.read_only)
        return SymbolClass(written, frozenset(self.values) - written, frozenset(self.cues))


@lru_cache(maxsize=1)
def fillers() -> frozenset[str]:
    raw = yaml.load((files("filters") / "words.yaml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    worded = {word for world in WORLDS for words in load_grounding(world).fillers.values() for word in words}
    return frozenset(word.lower() for words in raw.values() for word in words) | worded


def phrases() -> frozenset[str]:
    """Every name, cue and filler, in lower case."""
    return frozenset(_phrases()) | fillers()


def lexicon() -> Lexicon:
    """The lexicon of all worlds; made once a process (about 0.1 s), whichever thread asks first: its codes grow, so there is only one."""
    with _MAKING:
        return _lexicon()


@lru_cache(maxsize=1)
def _lexicon() -> Lexicon:
    meanings_of = _phrases()
    classes = [SymbolClass(), SymbolClass()]
    numbers: dict[SymbolClass, int] = {}
    meanings: list[dict[Kind, str]] = []
    codes = np.full(sys.maxunicode + 1, GAP, np.int64)
    codes[[ord(character) for character in (*" -'.¥$%&+@#", _FILLER_SYMBOL, _STOP)]] = SKIP
    spaced_early: dict[str, str] = {}
    unspaced_early: dict[str, str] = {}
    late: dict[str, str] = {}
    patterns = _patterns([*meanings_of, *(filler for filler in fillers() if filler not in meanings_of)])
    for phrase in sorted(patterns, key=lambda phrase: (-len(phrase), phrase)):
        symbol, meaning, pattern = _FILLER_SYMBOL, meanings_of.get(phrase), patterns[phrase]
        if meaning is not None:
            found = meaning.symbol_class
            if found not in numbers:
                numbers[found] = len(classes)
                classes.append(found)
            symbol = chr(_FIRST + len(meanings))
            codes[ord(symbol)] = numbers[found]
            meanings.append({kind: canonical_json(value) for kind, value in meaning.values.items()})
        is_early = _has_digit(phrase) or phrase in _EARLY_FILLERS
        (spaced_early if is_early else late)[pattern] = f" {symbol} " if pattern.startswith(" ") else symbol
        is_name = meaning is not None and bool(meaning.values) and (not phrase.isascii() or len(phrase) >= _MIN_UNSPACED)
        if is_early or is_name or (len(phrase) >= _MIN_UNSPACED and not phrase.isascii()):
            unspaced_early[pattern.strip().replace("  ", " ")] = symbol
    idle = {}
    for number, found in enumerate(tuple(classes)):
        if found.cues & role_cues() and not found.kinds:
            idle[number] = len(classes)
            classes.append(replace(found, is_idle=True))
    return Lexicon(_table(spaced_early), _table(unspaced_early), _table(late), codes, meanings, classes, numbers, idle)


def _table(symbols: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Patterns and symbols, the longest pattern first: of those that begin at one place, the first of the list is taken."""
    patterns = sorted(symbols, key=lambda pattern: (-len(pattern), pattern))
    return patterns, [symbols[pattern] for pattern in patterns]


def _has_digit(phrase: str) -> bool:
    return re.search("[0-9]", phrase) is not None


def _patterns(phrases: Sequence[str]) -> dict[str, str]:
    """What to look for in prepared text, by phrase: whole words for what begins and ends in Latin script."""
    spaced = [phrase[0].isascii() and phrase[-1].isascii() for phrase in phrases]
    rows = pl.DataFrame({"norm": list(phrases), "language": ["en" if is_spaced else "zh" for is_spaced in spaced]})
    texts = [text.strip() for text in prepared(rows)["norm"]]
    return {phrase: f" {text} " if is_spaced else text for phrase, text, is_spaced in zip(phrases, texts, spaced, strict=True) if text}


def _phrases() -> dict[str, _Meaning]:
    """Every phrase in lower case with all that it may mean."""
    found: dict[str, _Meaning] = {}

    def meaning(phrase: str) -> _Meaning:
        plain = phrase.lower().strip()
        return found.setdefault(plain.removesuffix("的") or plain, _Meaning({}, set(), set()))

    for world in WORLDS:
        grounding = load_grounding(world)
        used = {slot.kind for intent in WORLDS[world].intents.values() for slot in intent.slots}
        for cue, by_language in grounding.cues.items():
            for phrase in (phrase for phrases in by_language.values() for phrase in phrases):
                meaning(phrase).cues.add((world, cue))
        for name in sorted(used):
            for phrase, value, is_written in _names(world, name):
                said = meaning(phrase)
                kind = (world, name)
                if kind in said.values and is_written:
                    said.read_only.discard(kind)
                elif kind not in said.values:
                    said.values[kind] = value
                    if not is_written:
                        said.read_only.add(kind)
    _inherit_roles(found)
    return found


def _names(world: str, name: str) -> Iterable[tuple[str, JSON, bool]]:
    """(phrase, canonical value, whether wordings write it) of a slot kind; amounts have patterns instead."""
    kind, grounding = WORLDS[world].kinds[name], load_grounding(world)
    if isinstance(kind, Identifier):
        yield from ((choice, choice, True) for choice in kind.choices)
    if not isinstance(kind, Vocabulary):
        return
    synonyms, readings = grounding.synonyms.get(name, {}), grounding.readings.get(name, {})
    for value in kind.names:
        if amounts.is_clock(value):
            continue
        for language in ("en", "zh"):
            written = surfaces(kind, value, language, synonyms)
            yield from ((phrase, value, True) for phrase in written)
            yield from ((phrase, value, False) for phrase in readings.get(value, {}).get(language, ()))
            if language == "en":
                yield from ((plural, value, False) for phrase in written if (plural := _plural(phrase)) is not None)


def _plural(phrase: str) -> str | None:
    if not phrase.isascii() or not phrase[-1:].isalpha() or phrase.endswith("s"):
        return None
    return f"{phrase[:-1]}ies" if phrase.endswith("y") and phrase[-2:-1] not in "aeo" else f"{phrase}s"


@lru_cache(maxsize=1)
def role_cues() -> frozenset[Cue]:
    """Cues that tell slots apart; beside a value they say nothing about the intent."""
    return frozenset(
        (world, cue)
        for world in WORLDS
        for roles in load_grounding(world).roles.values()
        for side in ("before", "after")
        for cue in roles.get(side, ())
    )


def _inherit_roles(found: dict[str, _Meaning]) -> None:
    """A phrase that ends in a role word plays its role too: "get to" stands before a destination like "to"."""
    for phrase, said in found.items():
        last = found.get(phrase.rsplit(" ", 1)[-1]) if " " in phrase and not said.values else None
        if last is not None and phrase.isascii():
            said.cues |= last.cues & role_cues()


# ---- texts to symbols -------------------------------------------------------------------------------------------------------------


def prepared(rows: pl.DataFrame) -> pl.DataFrame:
    """Normalised texts (columns norm, language) made ready for matching: masks as blanks, punctuation as STOP, COLON between digits; in
    other than Chinese text, two blanks between words, and number words as digits."""
    norm, is_spaced = pl.col("norm"), pl.col("language") != "zh"
    words = [f" {word.replace(' ', '  ')} " for word in (*_AMOUNT_WORDS, *_NUMBER_WORDS)]
    digits = [f" {value.replace(' ', '  ')} " for value in (*_AMOUNT_WORDS.values(), *_NUMBER_WORDS.values())]
    has_mask, has_colon = norm.str.contains("<", literal=True), norm.str.contains(":", literal=True)
    steps = (
        pl.coalesce(pl.when(has_mask).then(norm).str.replace_all(MASK, " "), norm),
        pl.coalesce(pl.when(has_colon).then(norm).str.replace_all("([0-9]):([0-9]{2})", f"${{1}}{COLON}${{2}}"), norm),
        norm.str.replace_all(_PUNCTUATION, f" {_STOP} "),
        norm.str.replace_all("’", "'", literal=True),
        pl.when(is_spaced).then(pl.concat_str(pl.lit("  "), norm.str.replace_all(" ", "  ", literal=True), pl.lit("  "))).otherwise(norm),
        pl.when(is_spaced).then(norm.str.replace_many(words, digits, leftmost=True)).otherwise(norm),
    )
    for step in steps:  # one by one: nested, each would be worked out several times
        rows = rows.with_columns(norm=step)
    return rows


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of a batch of rows.

    offsets [rows + 1]: row i has the entries `offsets[i]:offsets[i + 1]` of codes and tokens. codes: class codes, GAP where text was left
    unread. tokens: index of the name in `Lexicon.meanings`; for an amount -2 - (its index in `stretches`); -1 for a gap.
    stretches: distinct amounts. residue: what could not be read, blanks between; empty if all was.
    """

    offsets: I64
    codes: I64
    tokens: I64
    stretches: list[str]
    residue: pl.Series

    def signatures(self) -> tuple[list[bytes], I64]:
        """The distinct rows of class codes (as bytes of uint16), and each row's number among them."""
        codes = self.codes.astype(np.uint16).tobytes()
        bounds = (self.offsets * 2).tolist()
        numbers: dict[bytes, int] = {}
        rows = (codes[start:end] for start, end in pairwise(bounds))
        which = np.fromiter((numbers.setdefault(row, len(numbers)) for row in rows), np.int64, len(bounds) - 1)
        return list(numbers), which


_LAST = local()


def read(rows: pl.DataFrame) -> Symbols:
    """The symbols of normalised texts (columns norm, language; no nulls). A thread keeps those of its last rows: taxonomy and grounding
    read the same ones in turn."""
    key = (rows.height, rows["norm"].hash().sum(), rows["language"].hash().sum())
    if getattr(_LAST, "key", None) != key:
        _LAST.key, _LAST.symbols = key, _read(rows)
    found: Symbols = _LAST.symbols
    return found


def _read(rows: pl.DataFrame) -> Symbols:
    known, ready = lexicon(), prepared(rows.select("norm", "language"))
    norm = pl.col("norm")
    spaced = norm.str.replace_many(*known.spaced_early, leftmost=True)
    is_zh = pl.col("language") == "zh"
    early = ready.select(pl.coalesce(pl.when(is_zh).then(norm).str.replace_many(*known.unspaced_early, leftmost=True), spaced)).to_series()
    amount = pl.when(early.str.contains("[0-9零〇一二两三四五六七八九十百千半天日周期拜]|day|tomorrow")).then(early)
    said = pl.select(amount).to_series().str.extract_all(amounts.AMOUNT).explode(empty_as_null=False).drop_nulls()
    late = early.str.replace_all(amounts.AMOUNT, f" {_AMOUNT_SYMBOL} ").str.replace_many(*known.late, leftmost=True)
    residue = late.str.replace_all(rf"(?:{_SYMBOLS}| )+", " ").str.strip_chars(" .'-")
    codes, tokens, stretches = _classified(late, said, known)
    return Symbols(*_compressed(late, codes, tokens, known), stretches, residue)


def _amount_code(known: Lexicon, stretch: str) -> int:
    kinds = frozenset((world, kind) for world, kind, _ in amounts.values(stretch))
    found = SymbolClass(read=kinds) if amounts.is_bare(stretch) else SymbolClass(written=kinds)
    with _LOCK:
        if found not in known.numbers:
            known.numbers[found] = len(known.classes)
            known.classes.append(found)
        return known.numbers[found]


def _classified(late: pl.Series, said: pl.Series, known: Lexicon) -> tuple[I64, I64, list[str]]:
    """Class code and token of every character of all texts in a row, and the distinct amounts."""
    characters = np.frombuffer("".join(late.to_list()).encode("utf-32-le"), np.uint32).astype(np.int64)
    codes, tokens = known.codes[characters], characters - _FIRST
    tokens[characters < _FIRST] = -1
    distinct = said.unique().sort().to_list()
    numbers = said.cast(pl.Enum(distinct)).to_physical().to_numpy().astype(np.int64)
    is_amount = characters == ord(_AMOUNT_SYMBOL)
    codes[is_amount] = np.array([_amount_code(known, stretch) for stretch in distinct], np.int64)[numbers]
    tokens[is_amount] = -2 - numbers
    return codes, tokens, distinct


def _compressed(late: pl.Series, codes: I64, tokens: I64, known: Lexicon) -> tuple[I64, I64, I64]:
    """Row offsets, codes and tokens without what is skipped. Of unread text only what parts a value from a cue of roles stays, as a gap;
    cues that stand beside no value come first, once each, in the order of their codes: where they stand says nothing."""
    lengths = late.str.len_chars().cast(pl.Int64).to_numpy()
    row_of = np.repeat(np.arange(lengths.size), lengths)
    keep = codes != SKIP
    row_of, codes, tokens = row_of[keep], codes[keep], tokens[keep]
    is_gap = codes == GAP
    is_repeat = np.zeros(codes.size, bool)
    is_repeat[1:] = is_gap[1:] & is_gap[:-1] & (row_of[1:] == row_of[:-1])
    row_of, codes, tokens = row_of[~is_repeat], codes[~is_repeat], tokens[~is_repeat]
    is_value, is_role, idle = _properties(known)
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


def _properties(known: Lexicon) -> tuple[Mask, Mask, I64]:
    """Whether each class may be a value, whether it plays a role, and its code where it is idle, by class code."""
    with _LOCK:
        classes = list(known.classes)
    idle = np.arange(len(classes))
    for code, other in known.idle.items():
        idle[code] = other
    return np.array([bool(one.kinds) for one in classes]), np.array([bool(one.cues & role_cues()) for one in classes]), idle


def token_value(symbols: Symbols, token: int, kind: Kind) -> str:
    """The canonical value, as JSON text, of a token read as a slot kind.

    Raises:
        KeyError: the token cannot be of that kind.
    """
    if token >= 0:
        return lexicon().meanings[token][kind]
    return _amount_values(symbols.stretches[-2 - token])[kind]


@lru_cache(maxsize=65536)
def _amount_values(stretch: str) -> Mapping[Kind, str]:
    return {(world, kind): canonical_json(value) for world, kind, value in amounts.values(stretch)}
