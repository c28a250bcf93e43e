"""A world as the Chinese reader compiles it once: what its slots may hold and what stands beside them, and the words of its intents.

One idea: the world's own wording says where a slot stands (到货站{target}, {max_price}以内), so its words lead to the slot in any request;
synonyms make them lead to it in other words too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from filters.reading.chinese.chinese_spans import (
    ChineseSpan,
    NamePattern,
    amount_key,
    choice_spans,
    id_spans,
    mark_spans,
    quoted_spans,
    typed_spans,
)
from filters.reading.chinese.chinese_words import NAMES, any_of, cues, longest_first, loosely, pairs, plain, synonyms, with_synonyms, words
from filters.reading.declaration import ReadableIntent, ReadableSlot, ReadableWorld
from filters.reading.spans import ANY_ID

_BOUNDS = re.compile(f"(?:{any_of((*cues('at_most', 'before'), *cues('at_least', 'before')))})$")
_HEADS = re.compile(f"^(?:{any_of(words('flag_heads'))})")
_LONGEST_LEAD = 4


class ChineseSlot:
    """What the reader needs to know of a slot.

    labels: plain words that name what it holds, with their synonyms.
    names_row: whether it names what the request is about, and no part of it such as a dish or a place.
    asked: of a mark, how people ask for it.
    amounts: of values that are amounts ("1小时 - 2小时"), what they come to -> canonical value.
    spellings: (spelling, canonical value) of what it may hold, the longest first.
    leads, ends: words before and after a name in it, the longest first. kind_leads: those of all names of its kind.
    """

    def __init__(self, slot: ReadableSlot) -> None:
        self.slot = slot
        self.before = tuple(dict.fromkeys(plain(before) for before, _ in slot.beside if before))
        self.after = tuple(dict.fromkeys(plain(after) for _, after in slot.beside if after))
        named = [plain(slot.about), *(_BOUNDS.sub("", before) for before in self.before)]
        self.labels = _labels(named)
        forms = {(form, value) for value, texts in slot.values.items() for text in texts for form in _forms(plain(text))}
        comes_to = {pair: amount_key(pair[0]) for pair in sorted(forms, key=lambda pair: (-len(pair[0]), pair))}
        self.amounts = {key: value for (_, value), key in comes_to.items() if key is not None}
        self.spellings = [pair for pair, key in comes_to.items() if key is None]
        self.names_row = slot.kind == "name" and not any(
            word in self.labels for kind, each in NAMES.items() if kind != "name" for word in each["slots"]
        )
        self.asked = _asked(plain(slot.about)) if slot.kind == "mark" else None
        of_kind = [lead for each in NAMES.values() if any(word in self.labels for word in each["slots"]) for lead in each["before"]]
        own = [before[-_LONGEST_LEAD:] for before in self.before] + [label for label in self.labels if len(label) > 1]
        self.kind_leads = longest_first(of_kind)
        self.leads = longest_first([*own, *of_kind]) if slot.kind == "name" else ()
        self.ends = longest_first([*(after[:3] for after in self.after), *words("name_ends")])
        self.names = NamePattern(self.leads, self.ends)


def _asked(label: str) -> re.Pattern[str]:
    """How people ask for what a label names: in its words, in those of `synonyms`, and part by part (周边景点: 附近有什么景点)."""
    every = {label, *synonyms().get(label, ())}
    forms = [re.escape(each) for each in longest_first(every) if len(each) > 1]
    for place in range(2, len(label) - 1):
        first, second = synonyms().get(label[:place]), synonyms().get(label[place:])
        if first and second:
            forms.append(f"(?:{any_of(first)}).{{0,6}}?(?:{any_of(second)})")
    return re.compile("|".join(forms))


def _labels(named: list[str]) -> frozenset[str]:
    """The words that name a slot: those of `synonyms` in the texts, and the texts' own last characters."""
    found = set[str]()
    for text in named:
        found |= with_synonyms(text)
        found |= {loose for word in with_synonyms(text) for loose in loosely().get(word, ())}
        tail = re.split(r"[^\w]", text)[-1]
        if 2 <= len(tail) <= 6:
            found.add(tail)
    return frozenset(found)


def _forms(text: str) -> set[str]:
    """A value as people write it: 带海景的 also as 海景, 最便宜的 as 最便宜."""
    forms = {text, text.removesuffix("的")}
    bare = _HEADS.sub("", text.removesuffix("的"))
    if len(bare) > 1:
        forms.add(bare)
    return {form for form in forms if form}


class ChineseIntent:
    """An intent, compiled. key: its world and its name. texts: what its vectors are taken of. words: pairs of characters and groups of
    synonyms of these."""

    def __init__(self, world: ChineseWorld, intent: ReadableIntent) -> None:
        self.world, self.intent = world, intent
        self.key = (world.world.name, intent.name)
        self.slots: Mapping[str, ChineseSlot] = {name: world.slot(slot) for name, slot in intent.slots.items()}
        self.texts = tuple(dict.fromkeys((intent.about, *intent.examples)))
        labels = " ".join(label for facts in self.slots.values() for label in sorted(facts.labels))
        self.words = frozenset().union(*(word_set(plain(text)) for text in self.texts))
        self.slot_words = word_set(plain(labels))
        self.partners = {name: self._partner(name) for name in self.slots}

    def _partner(self, name: str) -> str:
        """The slot that bounds the same from the other side; empty where there is none."""
        mine = self.slots[name].slot
        for other, facts in self.slots.items():
            if mine.bound and facts.slot.bound == -mine.bound and facts.slot.about == mine.about:
                return other
        return ""


class ChineseWorld:
    """A world, compiled. id_patterns: forms of identifiers that its users write, beside its own. nouns: pattern of words of `known`."""

    def __init__(self, world: ReadableWorld, id_patterns: tuple[str, ...] = ()) -> None:
        self.world = world
        self._slots: dict[ReadableSlot, ChineseSlot] = {}
        self.intents = [ChineseIntent(self, intent) for intent in world.intents.values()]
        every = list(self._slots.values())
        forms = sorted({each.slot.pattern for each in every if each.slot.kind == "id"})
        self._ids = [*((form, form) for form in forms), *((pattern, ANY_ID) for pattern in id_patterns)]
        self._by_key = {each.slot.key: each for each in every if each.spellings and each.slot.kind != "mark"}
        self._units = frozenset(unit for each in every for unit in each.slot.units)
        marks = {each.slot.key: (each.slot.key, each.asked, next(iter(each.slot.values))) for each in every if each.asked is not None}
        self._marks = list(marks.values())
        self._named = {(each.leads, each.ends): each.names for each in every if each.slot.kind == "name"}
        self.words = frozenset().union(*(intent.words | intent.slot_words for intent in self.intents))
        self.nouns = re.compile(f"(?:{any_of(word for word in self.known if len(word) > 1) or '(?!)'})+")

    def slot(self, slot: ReadableSlot) -> ChineseSlot:
        if slot not in self._slots:
            self._slots[slot] = ChineseSlot(slot)
        return self._slots[slot]

    @cached_property
    def known(self) -> frozenset[str]:
        """Words of synonyms that mean something here."""
        groups = {word for word in self.words if word.startswith("#")}
        return frozenset(word for word, group in synonyms().items() if _group(group) in groups)

    def known_characters(self, text: str) -> list[bool]:
        """Which characters of a plain text belong to words of the world."""
        known = [False] * len(text)
        for place in range(len(text) - 1):
            if text[place : place + 2] in self.words:
                known[place] = known[place + 1] = True
        for word in self.known:
            start = text.find(word)
            while start >= 0:
                known[start : start + len(word)] = [True] * len(word)
                start = text.find(word, start + 1)
        return known

    def spans(self, text: str, original: str) -> list[ChineseSpan]:
        """All places of a plain text that may be a value. original: the same text as it was written."""
        found = [span for pattern, form in self._ids for span in id_spans(text, original, pattern, form)]
        found += [
            span for span in typed_spans(text, original, self.world.today, self._units) if not any(span.overlaps(each) for each in found)
        ]
        for key, slot in self._by_key.items():
            found += choice_spans(text, original, key, slot.spellings)
        for key, asked, value in self._marks:
            found += mark_spans(text, original, key, asked, value)
        typed = [span for span in found if span.kind in ("id", "day", "time", "amount")]
        named = {(span.start, span.end): span for span in quoted_spans(original)}
        for pattern in self._named.values():
            for span in pattern.spans(text, original):
                if not any(span.overlaps(each) for each in typed):
                    named.setdefault((span.start, span.end), span)
        return [*found, *named.values()]


def word_set(text: str) -> frozenset[str]:
    """Pairs of characters of a plain text, and the groups of synonyms that it has a word of (`#word`)."""
    return frozenset(pairs(text)) | {_group(group) for word, group in synonyms().items() if word in text}


def _group(group: frozenset[str]) -> str:
    return f"#{min(group)}"
