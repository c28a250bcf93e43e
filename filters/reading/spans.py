"""Places of a text that may be the value of a slot: typed values, values of choices, flags, and names.

One idea: many candidates, and a score for each pair of a place and a slot (`slots.py`) decides. A name is a run of capitalised words, with
all its parts where a preposition may divide it ("San Jose to Los Angeles"); a quotation; a run of lower-case words behind a cue ("in",
"called"); or the word before a noun of the world ("Italian restaurant").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from filters.reading.english_words import FUNCTION_WORDS, SMALL_TALK, VERB_FAMILIES, Token, singular, stem, words
from synth.text.mentions import Mention, mentions_in

SpanKind = Literal["day", "time", "count", "money", "choice", "flag", "name", "id"]
Shape = Literal[
    "capitals", "part", "extended", "quoted", "address", "lower", "before_noun", "trimmed", "lower_trimmed", "whole", "short", ""
]
_PRONOUNS, _ARTICLES, _PREPOSITIONS = words("pronouns"), words("articles"), words("prepositions")
_INSIDE, _BEFORE, _AFTER = words("inside_names"), words("before_names"), words("after_names")
_NO_NAMES = SMALL_TALK | FUNCTION_WORDS | frozenset(VERB_FAMILIES)
_MOST_LOWER_WORDS = 6
ANY_ID = "*"
"""Form of an identifier that may be of any kind."""
_TITLE_CUES = frozenset({"called", "named", "titled"})
_AFTER_TITLES = frozenset({"please", "thanks", "which", "who", "that", "because"})
_QUOTED = re.compile(r'["“]([^"“”]{2,60})["”]')
_PLAIN_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True, slots=True)
class Span:
    """A place that may be a value.

    start, end: in characters. first, last: numbers of its tokens, last excluded.
    value: as `Mention.value`; of a choice or flag canonical; of a name its text.
    slot: of a choice or flag, the slot that has this value; of an id, the form that its slots have.
    nouns: of a count, the words after it.
    """

    kind: SpanKind
    start: int
    end: int
    text: str
    value: Any
    first: int
    last: int
    shape: Shape = ""
    slot: str = ""
    nouns: tuple[str, ...] = ()

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


class SpanFinder:
    """The spans of one text that do not depend on a world. today: as `mentions_in`."""

    def __init__(self, text: str, tokens: Sequence[Token], today: date) -> None:
        self.text, self.tokens = text, tokens
        self._mentions = mentions_in(text, today)
        self._names: dict[tuple[int, int], Span] = {}
        for mention in self._mentions:
            if mention.kind == "address":
                first, last = self._tokens_of(mention.start, mention.end)
                self._names[first, last] = self._span("name", first, last, "address", start=mention.start, end=mention.end)
        self._add_capitalised()
        self._add_quoted()
        self._add_lower()

    def spans(self) -> list[Span]:
        typed = [self._typed(mention) for mention in self._mentions if mention.kind != "address"]
        return [*typed, *self._names.values()]

    # ---- typed values -----------------------------------------------------------------------------------------------------

    def _typed(self, mention: Mention) -> Span:
        first, last = self._tokens_of(mention.start, mention.end)
        kind: Any = "count" if mention.kind == "number" else mention.kind
        nouns = self._nouns_after(last) if kind == "count" else ()
        text = self.text[mention.start : mention.end]
        return Span(kind, mention.start, mention.end, text, mention.value, first, last, nouns=nouns)

    def _nouns_after(self, place: int) -> tuple[str, ...]:
        """The words that a number may count: `2 double rooms` has double, room."""
        nouns: list[str] = []
        for token in self.tokens[place : place + 5]:
            if token.text == "-":
                continue
            if not token.text[0].isalpha() or len(nouns) == 4:
                break
            nouns.append(singular(token.text))
            if token.lower in words("after_counted"):
                break
        return ("us",) if nouns[:2] == ["of", "us"] else tuple(nouns)

    def _tokens_of(self, start: int, end: int) -> tuple[int, int]:
        first = next((number for number, token in enumerate(self.tokens) if token.end > start), len(self.tokens))
        last = next((number for number, token in enumerate(self.tokens) if token.start >= end), len(self.tokens))
        return first, last

    # ---- names ------------------------------------------------------------------------------------------------------------

    def _span(self, kind: SpanKind, first: int, last: int, shape: Shape, *, start: int | None = None, end: int | None = None) -> Span:
        start = self.tokens[first].start if start is None else start
        end = self.tokens[last - 1].end if end is None else end
        text = self.text[start:end]
        return Span(kind, start, end, text, text, first, last, shape)

    def _add_name(self, first: int, last: int, shape: Shape) -> None:
        while first < last and self.tokens[first].lower in _ARTICLES and shape != "capitals":
            first += 1
        if first < last and (first, last) not in self._names:
            self._names[first, last] = self._span("name", first, last, shape)

    def _is_taken(self, token: Token) -> bool:
        return any(mention.start < token.end and token.start < mention.end for mention in self._mentions)

    def _begins_name(self, token: Token) -> bool:
        if not token.is_capital or token.lower in _PRONOUNS or self._is_taken(token):
            return False
        word = token.lower
        return not (token.is_first and (word in _NO_NAMES or word.endswith("ly")))

    def _add_capitalised(self) -> None:
        place = 0
        while place < len(self.tokens):
            if not self._begins_name(self.tokens[place]):
                place += 1
                continue
            starts, ends = self._run(place)
            last = ends[-1]
            self._add_name(place, last, "capitals")
            for first in starts:
                for end in ends:
                    if first < end:
                        self._add_name(first, end, "part")
            if self.tokens[place].is_first and last - place > 1:
                self._add_name(place + 1, last, "part")
            if last < len(self.tokens) and self._extends(self.tokens[last]):
                self._add_name(place, last + 1, "extended")
            place = last

    def _run(self, place: int) -> tuple[list[int], list[int]]:
        """A run of capitalised words from `place` on: where its parts begin, and where they end."""
        starts, ends, last, place = [place], list[int](), place + 1, place + 1
        while place < len(self.tokens):
            token = self.tokens[place]
            is_number = token.text.isdigit() and place == last
            if self._is_taken(token) and not is_number:
                break
            if token.is_capital and token.lower not in _PRONOUNS and not token.is_first:
                place += 1
                last = place
                continue
            following = self._after_inner(place)
            if following is None:
                last = last + 1 if is_number else last
                break
            starts.append(following)
            ends.append(last)
            place = following + 1
            last = place
        return starts, [*ends, last]

    def _after_inner(self, place: int) -> int | None:
        """The number of the capitalised token that follows inner words; None where none does."""
        end = place
        if self.tokens[place].text == ",":
            end += 1
        else:
            while end < len(self.tokens) and end - place < 3 and self.tokens[end].text != ",":
                if self.tokens[end].lower not in _INSIDE and not self.tokens[end].text.isdigit():
                    break
                end += 1
        if end == place or end >= len(self.tokens):
            return None
        token = self.tokens[end]
        goes_on = token.is_capital and not token.is_first and token.lower not in _PRONOUNS and not self._is_taken(token)
        return end if goes_on else None

    def _extends(self, token: Token) -> bool:
        """Whether a lower-case word may end a name that begins with capitals: `San jose`."""
        word = token.text
        return bool(_PLAIN_WORD.fullmatch(word)) and word not in _NO_NAMES and word not in _PREPOSITIONS and not self._is_taken(token)

    def _add_quoted(self) -> None:
        for match in _QUOTED.finditer(self.text):
            first, last = self._tokens_of(*match.span(1))
            self._names[first, last] = self._span("name", first, last, "quoted", start=match.start(1), end=match.end(1))

    def _add_lower(self) -> None:
        for place, token in enumerate(self.tokens[:-1]):
            if token.lower not in _BEFORE:
                continue
            first = place + 1
            while first < len(self.tokens) and self.tokens[first].lower in (*_ARTICLES, "some", "any"):
                first += 1
            last = self._end_of_lower(first, is_title=token.lower in _TITLE_CUES)
            if not any(each.text[0].islower() for each in self.tokens[first:last]):
                continue
            for end in range(first + 1, last + 1):
                if any(each.lower not in SMALL_TALK for each in self.tokens[first:end]):
                    self._add_name(first, end, "lower")

    def _end_of_lower(self, first: int, *, is_title: bool) -> int:
        """Where a lower-case name ends at the latest. is_title: whether prepositions may be part of it."""
        place = first
        while place < min(len(self.tokens), first + _MOST_LOWER_WORDS):
            token = self.tokens[place]
            ends = _AFTER_TITLES if is_title else _AFTER
            if self._is_taken(token) or not re.match(r"[\w&]", token.text) or token.lower in ends:
                break
            is_end = token.lower in ("on", "in", "at", "for", "from") or (token.lower in _PREPOSITIONS and place > first)
            if is_end and not is_title:
                break
            place += 1
        return place


# ---- spans of a world -----------------------------------------------------------------------------------------------------------


SpellingIndex = Mapping[str, Sequence[tuple[tuple[str, ...], str, str, bool]]]
"""First word -> (words of a spelling, slot, canonical value, whether it is the whole of the value)."""


def choice_spans(text: str, tokens: Sequence[Token], spellings: SpellingIndex) -> Iterator[Span]:
    """Where a text has a value of a choice as whole words."""
    forms = tuple(singular(token.text) for token in tokens)
    for first, form in enumerate(forms):
        for spelling, slot, value, is_whole in spellings.get(form, ()):
            last = first + len(spelling)
            if forms[first:last] == spelling:
                start, end = tokens[first].start, tokens[last - 1].end
                yield Span("choice", start, end, text[start:end], value, first, last, "whole" if is_whole else "short", slot)


def flag_spans(tokens: Sequence[Token], slot: str, keys: frozenset[str]) -> Iterator[Span]:
    """Where a text has a word of a flag: true, or false behind a negation."""
    for place, token in enumerate(tokens):
        if any(stem(part) in keys for part in token.lower.split("-")):
            before = {each.lower for each in tokens[max(0, place - 3) : place]}
            is_true = not (before & words("negations")) and not token.lower.startswith("non")
            yield Span("flag", token.start, token.end, token.text, is_true, place, place + 1, slot=slot)


def id_spans(text: str, tokens: Sequence[Token], pattern: str, form: str) -> Iterator[Span]:
    """Where a text has an identifier. pattern: of whole identifiers. form: that its slots have, or `ANY_ID`."""
    for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.IGNORECASE):
        first = next((number for number, token in enumerate(tokens) if token.end > match.start()), len(tokens))
        last = next((number for number, token in enumerate(tokens) if token.start >= match.end()), len(tokens))
        yield Span("id", match.start(), match.end(), match[0], match[0].lower(), first, last, slot=form)


def before_noun_spans(text: str, tokens: Sequence[Token], nouns: frozenset[str], lexicon: frozenset[str]) -> Iterator[Span]:
    """The one or two words before a noun of the world. lexicon: stems of all words that describe the world."""

    def may_name(token: Token) -> bool:
        word = token.lower
        return word[0].isalpha() and word not in _NO_NAMES

    for place, token in enumerate(tokens):
        if place == 0 or stem(token.text) not in nouns or not may_name(tokens[place - 1]) or stem(tokens[place - 1].text) in lexicon:
            continue
        for first in (place - 1, place - 2):
            if first == place - 1 or (first >= 0 and may_name(tokens[first]) and tokens[first].lower not in _PREPOSITIONS):
                start, end = tokens[first].start, tokens[place - 1].end
                yield Span("name", start, end, text[start:end], text[start:end], first, place, "before_noun")


def trimmed_spans(
    text: str, tokens: Sequence[Token], spans: Sequence[Span], nouns: frozenset[str], slot_words: frozenset[str]
) -> Iterator[Span]:
    """Names without words of the world at their ends: `Blues` of `Blues Concert`. slot_words: stems of all words of its slots."""

    def is_own(token: Token) -> bool:
        return stem(token.text) in nouns or (not token.is_capital and (token.lower in SMALL_TALK or stem(token.text) in slot_words))

    seen = {(span.first, span.last) for span in spans if span.kind == "name"}
    for span in spans:
        if span.kind != "name" or span.shape in ("quoted", "address"):
            continue
        first, last = span.first, span.last
        while last - 1 > first and is_own(tokens[last - 1]):
            last -= 1
        while first < last - 1 and is_own(tokens[first]):
            first += 1
        for ends in ((span.first, last), (first, span.last), (first, last)):
            if ends not in seen:
                seen.add(ends)
                start, end = tokens[ends[0]].start, tokens[ends[1] - 1].end
                shape: Shape = "lower_trimmed" if span.shape == "lower" else "trimmed"
                yield Span("name", start, end, text[start:end], text[start:end], *ends, shape)
