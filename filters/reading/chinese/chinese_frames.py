"""From a Chinese text to its likeliest frame: intents are ranked, the slots of the likeliest are filled, and what is left unread lowers the
confidence. As `frames.py`, with features of its own; slots are filled by odds that are set by hand (`chinese_slots.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from filters.reading.chinese.chinese_compiled import ChineseIntent, ChineseWorld, word_set
from filters.reading.chinese.chinese_slots import ChineseFilled, fill, rival_of, scored
from filters.reading.chinese.chinese_spans import ChineseSpan
from filters.reading.chinese.chinese_words import lone_talk, plain, said_nothing
from filters.reading.slots import Features
from synth.engines.encoder import Encode, Vectors

_TRIED = 8
"""Intents whose slots are filled."""
_MOST_MARGIN, _MOST_WORDS = 6.0, 8.0
TwinNames = Mapping[tuple[str, str], Sequence[tuple[str, str]]]
"""(world, intent) -> those of other worlds that do the same."""
NO_TWINS: TwinNames = {}
Weights = Mapping[str, Mapping[str, float]]
"""`frame`, `confidence` -> feature -> weight."""


@dataclass(frozen=True, eq=False)
class ChineseFrame:
    """A possible frame of a text. unread: values that no slot takes. foreign: characters that nothing explains, in runs. scored: every slot
    with every place that may fill it."""

    intent: ChineseIntent
    filled: tuple[ChineseFilled, ...]
    features: Features
    unread: int
    foreign: tuple[str, ...]
    rival: float
    scored: tuple[ChineseFilled, ...]


class ChineseText:
    """A text with its spans in each world."""

    def __init__(self, text: str) -> None:
        self.text, self.plain = text, plain(text)
        self.words = word_set(self.plain)
        self._spans: dict[ChineseWorld, list[ChineseSpan]] = {}
        self._known: dict[ChineseWorld, list[bool]] = {}

    def known(self, world: ChineseWorld) -> list[bool]:
        """Which characters belong to words of the world."""
        if world not in self._known:
            self._known[world] = world.known_characters(self.plain)
        return self._known[world]

    def spans(self, world: ChineseWorld) -> list[ChineseSpan]:
        if world not in self._spans:
            self._spans[world] = world.spans(self.plain, self.text)
        return self._spans[world]


class ChineseFinder:
    """The frames of texts among the intents of some worlds."""

    def __init__(self, worlds: Sequence[ChineseWorld], encode: Encode) -> None:
        self.intents = [intent for world in worlds for intent in world.intents]
        vectors = encode([text for intent in self.intents for text in intent.texts])
        self._vectors, self._starts = vectors, np.cumsum([0, *(len(intent.texts) for intent in self.intents)])[:-1]
        counts = Counter(word for intent in self.intents for word in intent.words)
        self._idf = {word: log((len(self.intents) + 1) / (count + 0.5)) for word, count in counts.items()}
        self._having: dict[str, list[int]] = {}
        for number, intent in enumerate(self.intents):
            for word in intent.words:
                self._having.setdefault(word, []).append(number)

    def frames(self, text: ChineseText, vector: Vectors) -> list[ChineseFrame]:
        """The frames of the likeliest intents, in the order of a first guess. vector: of the text."""
        cosines = np.maximum.reduceat(self._vectors @ vector, self._starts)
        shared = np.zeros(len(self.intents))
        for word in text.words:
            for number in self._having.get(word, ()):
                shared[number] += self._idf[word]
        guess = cosines + 0.08 * np.minimum(shared, _MOST_WORDS)
        order = np.argsort(-guess, kind="stable")[:_TRIED]
        return [self._frame(text, self.intents[number], float(cosines[number]), float(shared[number])) for number in order]

    def _frame(self, text: ChineseText, intent: ChineseIntent, cosine: float, shared: float) -> ChineseFrame:
        spans = text.spans(intent.world)
        every = scored(text.plain, intent, spans)
        filled = fill(every, intent)
        unread, foreign = _unread(spans, filled, intent), _foreign(text, filled, intent)
        required = intent.intent.required
        share = sum(any(each.slot == name for each in filled) for name in required) / len(required) if required else 1.0
        said = sum(self._idf.get(word, 0.0) for word in text.words & intent.world.words - intent.words - intent.slot_words)
        features: Features = {
            "cosine": cosine,
            "shared": min(shared, _MOST_WORDS) / 4,
            "others": min(said, _MOST_WORDS) / 4,
            "odds": min(sum(log(each.probability / (1 - each.probability + 1e-6)) for each in filled), 12.0) / 4,
            "unread": float(min(unread, 4)),
            "required_share": share,
            "filled": float(len(filled)),
            "foreign": min(sum(map(len, foreign)), 20) / 5,
        }
        return ChineseFrame(intent, filled, features, unread, foreign, rival_of(every, filled), tuple(every))


def _unread(spans: Sequence[ChineseSpan], filled: Sequence[ChineseFilled], intent: ChineseIntent) -> int:
    """Values that no slot takes: typed ones, identifiers, and those of the intent's own choices. Of an overlap only one counts."""
    free = [span for span in spans if not any(span.overlaps(each.span) for each in filled)]
    own = {facts.slot.key for facts in intent.slots.values()}
    typed = [span for span in free if span.kind in ("id", "day", "time", "amount")]
    chosen = [span for span in free if span.kind == "choice" and span.key in own and span.end - span.start > 1]
    return len(typed) + len({span.start for span in chosen if not any(span.overlaps(other) for other in typed)})


def _foreign(document: ChineseText, filled: Sequence[ChineseFilled], intent: ChineseIntent) -> tuple[str, ...]:
    """Runs of characters that nothing explains. Small talk of one character beside such a run is part of its word: 会 of 会议室."""
    text, explained = document.plain, [*document.known(intent.world)]
    for each in filled:
        lead = next((len(lead) for lead in intent.slots[each.slot].leads if text.endswith(lead, 0, each.span.start)), 0)
        explained[each.span.start - lead : each.span.end] = [True] * (each.span.end - each.span.start + lead)
    idle, lone = said_nothing(text), lone_talk(text)
    foreign = [not (is_known or is_idle) for is_known, is_idle in zip(explained, idle, strict=True)]
    for places, step in ((range(1, len(text)), -1), (range(len(text) - 2, -1, -1), 1)):
        for place in places:
            foreign[place] |= foreign[place + step] and lone[place] and not explained[place]
    marked = "".join(character if is_foreign else " " for character, is_foreign in zip(text, foreign, strict=True))
    return tuple(marked.split())


# ---- the likeliest frame --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ChineseChoice:
    """The likeliest frame of a text. features: of the confidence in it. twins: (world, intent) that do the same."""

    frame: ChineseFrame
    features: Features
    twins: tuple[tuple[str, str], ...] = ()


def choose(text: ChineseText, frames: Sequence[ChineseFrame], weights: Weights, twins: TwinNames = NO_TWINS) -> ChineseChoice:
    """The likeliest frame. twins: intents of other worlds that do the same, which are no rivals."""
    scores = np.array([sum(weights["frame"].get(name, 0.0) * value for name, value in each.features.items()) for each in frames])
    order = np.argsort(-scores, kind="stable")
    winner = frames[order[0]]
    same = twins.get(winner.intent.key, ())
    rivals = [number for number in order[1:] if frames[number].intent.key not in same]
    margin = float(scores[order[0]] - scores[rivals[0]]) if rivals else _MOST_MARGIN
    probabilities = [each.probability for each in winner.filled]
    names = [each.probability for each in winner.filled if each.span.kind == "name"]
    length = max(1, sum(not nothing for nothing in said_nothing(text.plain)))
    features: Features = {
        "bias": 1.0,
        **{name: winner.features[name] for name in ("cosine", "others", "odds", "unread", "required_share", "filled", "foreign")},
        "margin": min(margin, _MOST_MARGIN),
        "nothing_filled": float(not probabilities),
        "nothing_shared": float(not winner.features["shared"]),
        "names": float(len(names)),
        "least_name": min(names, default=1.0),
        "rival": winner.rival,
        "foreign_share": min(1.0, sum(map(len, winner.foreign)) / length),
        "foreign_runs": float(min(len(winner.foreign), 5)),
        "score": float(scores[order[0]]) / 10,
    }
    return ChineseChoice(winner, features, tuple(same))


def confidence(features: Features, weights: Weights) -> float:
    """The probability that a frame is right in every value, 0 to 1."""
    return 1 / (1 + exp(-sum(weights["confidence"].get(name, 0.0) * value for name, value in features.items())))
