"""From a text to its most likely frame, with a confidence: intents are ranked, the slots of the likeliest are filled, and what the frame
leaves unread says how far to trust it.

One idea: precision before recall. A reader of a funnel that keeps one row in 10,000 may pass over most rows, but not misread one; so words
and values that no slot takes, a close rival and a doubtful slot all lower the confidence. Three scores, each linear in its features:
a slot's (`slots.py`), a frame's among its rivals (softmax), and the confidence that the best frame is right in every value (logistic).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from filters.reading.compiled import CompiledIntent, CompiledWorld, intent_vectors
from filters.reading.english_words import FUNCTION_WORDS, SMALL_TALK, VERB_FAMILIES, Token, phrases, stem, tokenise, words
from filters.reading.name_kinds import Distribution
from filters.reading.slots import Features, neighbours_of, pairs, probability
from filters.reading.spans import Span, SpanFinder
from filters.reading.twins import Correspondence, Twins, find_twins
from synth.engines.encoder import Encode, Vectors
from synth.text.datetimes import WEEKDAYS

_TRIED = 6
"""Intents whose slots are filled."""
_LEAST_PROBABILITY = 0.5
_MOST_LEXICAL, _MOST_MARGIN, _MOST_FOREIGN, _MOST_TOKENS = 6.0, 6.0, 6, 60
_GAP_WORDS = sorted({*words("label_gap"), *phrases("at_most"), *phrases("at_least")}, key=len, reverse=True)
_LABEL_GAP = re.compile(rf"(?:[\s$€£:]|\b(?:{'|'.join(_GAP_WORDS)})\b)*")
"""What may stand between a value and its label."""
_ASKED = re.compile(r"\b(?:what|what's|which|how|tell me|know)\b[^,.;?!]*$", re.IGNORECASE)
"""A question, up to the word that it asks for."""
_WEEKDAYS = frozenset(day.lower() for day in WEEKDAYS)

Weights = Mapping[str, Mapping[str, float]]
"""Group of features (`when`, `count`, `choice`, `flag`, `name`, `frame`, `confidence`) -> feature -> weight."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A slot with the span that fills it, and the probability that it does."""

    slot: str
    span: Span
    probability: float


@dataclass(frozen=True, eq=False)
class FrameCandidate:
    """A possible frame of a text.

    filled: its slots.
    features: of its rank.
    unread: kinds of values that no slot takes -> how many there are.
    foreign: words that neither the world nor small talk explains.
    rival: highest probability of another filling of one of its places or slots.
    near_miss: highest probability of a slot that was left out.
    scored: every slot with every place that may fill it.
    """

    intent: CompiledIntent
    filled: tuple[Filled, ...]
    features: Features
    unread: Counter[str]
    foreign: tuple[str, ...]
    rival: float
    near_miss: float
    scored: tuple[Filled, ...]


class Text:
    """A text with its tokens and spans; the spans of each world are found once."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, tokenise(text)
        self._finders: dict[object, SpanFinder] = {}
        self._spans: dict[CompiledWorld, list[Span]] = {}

    def spans(self, world: CompiledWorld) -> list[Span]:
        if world not in self._spans:
            today = world.world.today
            if today not in self._finders:
                self._finders[today] = SpanFinder(self.text, self.tokens, today)
            self._spans[world] = world.spans(self.text, self.tokens, self._finders[today])
        return self._spans[world]

    @cached_property
    def sentences(self) -> list[str]:
        """The text by sentences; the text itself where it has none."""
        starts = [0, *(token.start for token in self.tokens[1:] if token.is_first and token.text[0].isalnum())]
        parts = [self.text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(self.text)], strict=True)]
        return [part for part in parts if len(part) > 2] or [self.text]

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(stem(token.text) for token in self.tokens)

    @cached_property
    def families(self) -> frozenset[str]:
        return frozenset(VERB_FAMILIES[token.lower] for token in self.tokens if token.lower in VERB_FAMILIES)


class FrameFinder:
    """The candidates of texts among the intents of some worlds."""

    def __init__(self, worlds: Sequence[CompiledWorld], encode: Encode) -> None:
        self.worlds = tuple(worlds)
        self.intents = [CompiledIntent(world, intent) for world in worlds for intent in world.world.intents.values()]
        self._centroids, vectors = intent_vectors(self.intents, encode)
        self._vectors = np.concatenate(vectors)
        self._places = _places([len(each) for each in vectors])
        self.twins = find_twins(self.intents, self._centroids)
        documents = Counter(word for world in worlds for word in world.lexicon)
        self._idf = {word: log((len(worlds) + 1) / (count + 0.5)) for word, count in documents.items()}
        self._having_word = _having(intent.words for intent in self.intents)
        self._having_noun = _having(intent.world.nouns for intent in self.intents)
        self._families = [intent.family for intent in self.intents]

    def candidates(
        self, text: Text, vectors: Vectors, kinds_of_names: Mapping[str, Distribution], weights: Weights
    ) -> list[FrameCandidate]:
        """The frames of the likeliest intents, in the order of a first guess.

        vectors: of the whole text, then of its sentences.
        """
        columns = self._intent_features(text, vectors)
        guesses = (
            0.5 * columns["whole"]
            + 0.5 * columns["sentence"]
            + 0.3 * columns["closest"]
            + 0.08 * (columns["words"] + columns["lexicon"])
            + 0.04 * columns["verb"]
        )
        order = np.argsort(-guesses, kind="stable")[:_TRIED]
        likeliest = [{name: float(column[number]) for name, column in columns.items()} for number in order]
        return [
            self._candidate(text, self.intents[number], features, kinds_of_names, weights)
            for number, features in zip(order, likeliest, strict=True)
        ]

    def _intent_features(self, text: Text, vectors: Vectors) -> Mapping[str, NDArray[np.float64]]:
        """Features of every intent, in columns."""
        cosines = np.append((vectors @ self._vectors.T).max(axis=0), -np.inf)[self._places]
        verb = np.array([family in text.families for family in self._families], float)
        acts = text.families - {"find"}
        return {
            "whole": (vectors[0] @ self._centroids.T).astype(float),
            "sentence": (vectors[1:] @ self._centroids.T).max(axis=0).astype(float),
            "closest": np.sort(cosines, axis=1)[:, -3:].mean(axis=1).astype(float),
            "world": cosines[:, 3].astype(float),
            "words": self._overlap(text.stems, self._having_word),
            "lexicon": self._overlap(text.stems, self._having_noun),
            "verb": verb,
            "other_verb": np.array([bool(acts and family) for family in self._families]) * (1 - verb),
        }

    def _overlap(self, stems: frozenset[str], having: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """For each intent the sum of the inverse document frequencies, over worlds, of those stems that it has; at most `_MOST_LEXICAL`."""
        total = np.zeros(len(self.intents))
        for word in sorted(stems):
            if word in having and word in self._idf:
                total[having[word]] += self._idf[word]
        return np.minimum(total, _MOST_LEXICAL)

    def _candidate(
        self, text: Text, intent: CompiledIntent, features: Features, kinds_of_names: Mapping[str, Distribution], weights: Weights
    ) -> FrameCandidate:
        near = neighbours_of(text.tokens, intent.facts, intent.common, text.spans(intent.world))
        scored = [
            Filled(slot, span, probability(pair, weights[group])) for span, slot, group, pair in pairs(intent.intent, near, kinds_of_names)
        ]
        filled = fill(scored)
        spans = near.spans
        if labels := _labels(text.text, filled, intent):
            scored = [each for each in scored if each.span not in labels]
            spans, filled = [span for span in spans if span not in labels], fill(scored)
        unread, foreign = _unread(spans, filled, intent, text.tokens), _foreign(text.tokens, filled, intent)
        required = sum(any(each.slot == name for each in filled) for name in intent.required) / max(len(intent.required), 1)
        share = required if intent.required else 1.0
        odds = sum(log(each.probability / (1 - each.probability + 1e-6)) for each in filled)
        ranked = {
            **features,
            "slots": min(odds, 15.0) / 5,
            "unread": float(sum(unread.values())),
            "required_share": share,
            "filled": float(len(filled)),
            "act": float(intent.intent.is_act),
            "foreign": float(len(foreign)),
        }
        return FrameCandidate(intent, filled, ranked, unread, foreign, _rival(scored, filled), _near_miss(scored, filled), tuple(scored))


def _places(counts: Sequence[int]) -> NDArray[np.int64]:
    """Of rows that lie one after the other, the numbers of each group's rows, filled up with the number of all rows."""
    starts = np.cumsum([0, *counts])
    places = np.full((len(counts), max(counts)), starts[-1])
    for number, count in enumerate(counts):
        places[number, :count] = np.arange(starts[number], starts[number + 1])
    return places


def _having(sets: Iterable[frozenset[str]]) -> Mapping[str, NDArray[np.int64]]:
    """Word -> numbers of the sets that have it."""
    having: dict[str, list[int]] = {}
    for number, words_of_one in enumerate(sets):
        for word in words_of_one:
            having.setdefault(word, []).append(number)
    return {word: np.array(numbers) for word, numbers in having.items()}


def fill(scored: Sequence[Filled]) -> tuple[Filled, ...]:
    """The best filling, greedily: the most probable pair first, each slot once, no place twice."""
    filled: list[Filled] = []
    for each in sorted(scored, key=lambda pair: -pair.probability):
        if each.probability < _LEAST_PROBABILITY:
            break
        if not any(each.slot == other.slot or each.span.overlaps(other.span) for other in filled):
            filled.append(each)
    return tuple(filled)


def _labels(text: str, filled: Sequence[Filled], intent: CompiledIntent) -> set[Span]:
    """Spans of marks that ask for nothing, as they are but the label of another slot's value: `town` of "with town Oak Bay"."""
    labels = set[Span]()
    for mark in (each for each in filled if intent.facts[each.slot].is_mark):
        said = frozenset(stem(word) for word in mark.span.text.lower().split())
        for other in (each for each in filled if each is not mark and said & intent.facts[each.slot].own_words):
            first, second = sorted((mark.span, other.span), key=lambda span: span.start)
            if _LABEL_GAP.fullmatch(text[first.end : second.start]) and not _ASKED.search(text[: first.start]):
                labels.add(mark.span)
    return labels


def _is_free(span: Span, filled: Sequence[Filled]) -> bool:
    return not any(span.overlaps(each.span) for each in filled)


def _unread(spans: Sequence[Span], filled: Sequence[Filled], intent: CompiledIntent, tokens: Sequence[Token]) -> Counter[str]:
    """Values that no slot takes: typed ones, names, and values of choices and flags."""
    free = [span for span in spans if _is_free(span, filled)]
    typed = {span.start for span in free if span.kind in ("day", "time", "money") or (span.kind == "count" and span.value != 1)}
    chosen = {span.start for span in free if span.kind in ("choice", "flag")}
    names, end = 0, -1
    for span in sorted(free, key=lambda each: each.first):
        if span.kind != "name" or span.shape not in ("capitals", "quoted", "address") or span.first < end:
            continue
        inside = tokens[span.first : span.last]
        if any(stem(token.text) not in intent.world.lexicon and token.lower not in SMALL_TALK for token in inside):
            names, end = names + 1, span.last
    return Counter({"typed": len(typed), "names": names, "choices": len(chosen)})


def _foreign(tokens: Sequence[Token], filled: Sequence[Filled], intent: CompiledIntent) -> tuple[str, ...]:
    known = intent.world.lexicon | intent.world.slot_words
    explained = SMALL_TALK | FUNCTION_WORDS | frozenset(VERB_FAMILIES) | words("prepositions") | _WEEKDAYS
    return tuple(
        token.lower
        for token in tokens
        if token.text[0].isalpha()
        and token.lower not in explained
        and stem(token.text) not in known
        and not any(each.span.start <= token.start < each.span.end for each in filled)
    )


def _rival(scored: Sequence[Filled], filled: Sequence[Filled]) -> float:
    taken = {each.slot for each in filled}
    rival = 0.0
    for mine in filled:
        for other in scored:
            is_other_slot = other.span is mine.span and other.slot != mine.slot
            is_other_place = other.slot == mine.slot and (other.span.start, other.span.end) != (mine.span.start, mine.span.end)
            if other.probability > 0.1 and (is_other_slot or is_other_place):
                is_free = other.slot not in taken or is_other_place
                rival = max(rival, other.probability * (1.0 if is_free else 0.3))
    return rival


def _near_miss(scored: Sequence[Filled], filled: Sequence[Filled]) -> float:
    taken = {each.slot for each in filled}
    return max(
        (
            each.probability
            for each in scored
            if each.slot not in taken and each.probability < _LEAST_PROBABILITY and _is_free(each.span, filled)
        ),
        default=0.0,
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """The likeliest frame of a text.

    twins: intents of other worlds that do the same (`twins.py`), with the slots that correspond; either may be taken.
    features: of the confidence in the frame.
    """

    frame: FrameCandidate
    twins: Mapping[CompiledIntent, Correspondence]
    features: Features


def choose(text: Text, candidates: Sequence[FrameCandidate], twins: Twins, weights: Weights) -> Choice:
    """The likeliest candidate. twins: of all intents."""
    scores = np.array([sum(weights["frame"].get(name, 0.0) * value for name, value in each.features.items()) for each in candidates])
    order = np.argsort(-scores, kind="stable")
    winner = candidates[order[0]]
    rivals = [number for number in order[1:] if candidates[number].intent not in twins[winner.intent]]
    margin = float(scores[order[0]] - scores[rivals[0]]) if rivals else _MOST_MARGIN
    shares = np.exp(scores - scores.max())
    probabilities = [each.probability for each in winner.filled]
    features: Features = {
        "bias": 1.0,
        "share": float(shares[order[0]] / shares[[order[0], *rivals]].sum()),
        "margin": min(margin, _MOST_MARGIN),
        "least_slot": min(probabilities, default=1.0),
        "slots": sum(log(each) for each in probabilities),
        "filled": float(len(probabilities)),
        "nothing_filled": float(not probabilities),
        "unread_typed": float(winner.unread["typed"]),
        "unread_names": float(winner.unread["names"]),
        "unread_choices": float(winner.unread["choices"]),
        "foreign": float(min(len(winner.foreign), _MOST_FOREIGN)),
        "foreign_share": len(winner.foreign) / max(len(text.tokens), 1),
        "rival": winner.rival,
        "near_miss": winner.near_miss,
        "required_share": winner.features["required_share"],
        "verb": winner.features["verb"],
        "other_verb": winner.features["other_verb"],
        "words_of_others": float(len(_words_of_others(text, winner))),
        "score": float(scores[order[0]]) / 10,
        "whole": winner.features["whole"],
        "sentence": winner.features["sentence"],
        "lexical": winner.features["words"] + winner.features["lexicon"],
        "length": min(len(text.tokens), _MOST_TOKENS) / 30,
    }
    return Choice(winner, twins[winner.intent], features)


def _words_of_others(text: Text, frame: FrameCandidate) -> frozenset[str]:
    """Words of the text by which the world describes other intents, and neither this one nor its slots."""
    own = frame.intent.words | frozenset(word for facts in frame.intent.facts.values() for word in facts.words)
    said = frozenset(
        stem(token.text) for token in text.tokens if not any(each.span.start <= token.start < each.span.end for each in frame.filled)
    )
    return (said & frame.intent.world.intent_words) - own


def confidence(features: Features, weights: Weights) -> float:
    """The probability that a frame is right in every value, 0 to 1."""
    return 1 / (1 + exp(-sum(weights["confidence"].get(name, 0.0) * value for name, value in features.items())))
