"""A world as the reader compiles it once: facts of its slots, its lexicon, and the vectors of its intents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from filters.reading.declaration import ReadableIntent, ReadableWorld, split_name
from filters.reading.english_words import VERB_FAMILIES, Token, small_talk_stems, stem
from filters.reading.slots import SlotFacts, common_words
from filters.reading.spans import (
    ANY_ID,
    Span,
    SpanFinder,
    SpellingIndex,
    before_noun_spans,
    choice_spans,
    flag_spans,
    id_spans,
    trimmed_spans,
)
from synth.engines.encoder import Encode, Vectors


class CompiledWorld:
    """A world, compiled. id_patterns: forms of identifiers that its users write, beside its own.

    lexicon: stems of all words that describe the world and its intents.
    nouns: of these, what it is about.
    slot_words: stems of the words that describe its slots.
    intent_words: stems of the words that describe its intents, without small talk.
    """

    def __init__(self, world: ReadableWorld, id_patterns: Sequence[str] = ()) -> None:
        self.world = world
        described = _stems(world.about, *(" ".join((*split_name(intent.name), intent.about)) for intent in world.intents.values()))
        self._facts = {slot: SlotFacts(slot, described) for intent in world.intents.values() for slot in intent.slots.values()}
        self._keyed = world.slots
        self._spellings = self._index()
        self.lexicon = described | _stems(" ".join(split_name(world.name)))
        self.nouns = self.lexicon - small_talk_stems()
        forms = sorted({slot.pattern for slot in self._facts if slot.kind == "id"})
        self._ids = [*((form, form) for form in forms), *((pattern, ANY_ID) for pattern in id_patterns)]
        self.intent_words = frozenset(word for intent in world.intents.values() for word in intent_words(intent))
        self.slot_words = frozenset(word for facts in self._facts.values() for word in facts.words)

    def _index(self) -> SpellingIndex:
        """The spellings of all choices, by their first words."""
        index: dict[str, list[tuple[tuple[str, ...], str, str, bool]]] = {}
        for key, slot in self._keyed.items():
            for value, spellings in self._facts[slot].spellings if slot.kind == "choice" else ():
                for number, spelling in enumerate(spellings):
                    index.setdefault(spelling[0], []).append((tuple(spelling), key, value, number == 0))
        return index

    def facts_of(self, intent: ReadableIntent) -> dict[str, SlotFacts]:
        return {name: self._facts[slot] for name, slot in intent.slots.items()}

    def spans(self, text: str, tokens: Sequence[Token], finder: SpanFinder) -> list[Span]:
        """All spans of a text, those of this world among them."""
        ids = [span for pattern, form in self._ids for span in id_spans(text, tokens, pattern, form)]
        spans = [*ids, *(span for span in finder.spans() if not any(span.overlaps(each) for each in ids))]
        spans += choice_spans(text, tokens, self._spellings)
        for key, slot in self._keyed.items():
            if slot.kind == "flag":
                spans += flag_spans(tokens, key, self._facts[slot].keys)
        spans += before_noun_spans(text, tokens, self.nouns, self.lexicon)
        return [*spans, *trimmed_spans(text, tokens, spans, self.nouns, self.slot_words)]


def _stems(*texts: str) -> frozenset[str]:
    return frozenset(stem(word) for text in texts for word in re.findall(r"[a-z]+", text.lower()))


def intent_words(intent: ReadableIntent) -> frozenset[str]:
    """Stems of the words of an intent's name and description, without small talk."""
    every = (*split_name(intent.name), *re.findall(r"[a-z]+", intent.about.lower()))
    return frozenset(stem(word) for word in every) - small_talk_stems()


class CompiledIntent:
    """An intent, compiled. words: stems of its own name and description, without small talk. family: of the verb that it begins with.
    common: `common_words` of its slots."""

    def __init__(self, world: CompiledWorld, intent: ReadableIntent) -> None:
        self.world, self.intent = world, intent
        self.facts = world.facts_of(intent)
        self.common = common_words(self.facts)
        self.required = intent.required
        self.words = intent_words(intent)
        self.family = VERB_FAMILIES.get(split_name(intent.name)[0])

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What its vectors are taken of: description, name, a request, the world's description, and what it needs; then its examples."""
        name = " ".join(split_name(self.intent.name))
        slots = " ".join(" ".join(split_name(slot)) for slot in sorted(self.required))
        return self.intent.about, name, f"I want to {name}", self.world.world.about, f"{self.intent.about} {slots}", *self.intent.examples


def intent_vectors(intents: Sequence[CompiledIntent], encode: Encode) -> tuple[Vectors, list[Vectors]]:
    """Centroid of the first three texts and the examples of each intent, unit length, [n, d]; and the vectors of all texts of each."""
    vectors = encode([text for intent in intents for text in intent.texts])
    ends = np.cumsum([len(intent.texts) for intent in intents])
    of_intents = np.split(vectors, ends[:-1])
    centroids = np.stack([np.concatenate([each[:3], each[5:]]).mean(axis=0) for each in of_intents])
    return centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12), of_intents
