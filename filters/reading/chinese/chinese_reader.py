"""Reads Chinese requests in any world: text -> frame, with a confidence that says how often such a frame is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from filters.reading.chinese.chinese_compiled import ChineseWorld
from filters.reading.chinese.chinese_frames import (
    NO_TWINS,
    ChineseChoice,
    ChineseFinder,
    ChineseFrame,
    ChineseText,
    TwinNames,
    Weights,
    choose,
    confidence,
)
from filters.reading.chinese.chinese_slots import ChineseFilled
from filters.reading.declaration import ReadableWorld
from filters.reading.readings import PossibleFrame, Reading, ReadValue
from synth.engines.encoder import Encode, encode


@cache
def shipped_weights() -> Weights:
    """The weights of this package. Where they come from stands in the file itself."""
    weights: Weights = json.loads((files("filters.reading.chinese") / "weights_zh.json").read_text(encoding="utf-8"))["weights"]
    return weights


class ChineseReader:
    """Reads Chinese requests in some worlds; arguments as of `Reader`. twins: intents of two worlds that do the same."""

    def __init__(
        self,
        worlds: Sequence[ReadableWorld],
        *,
        weights: Weights | None = None,
        embed: Encode = encode,
        id_patterns: Sequence[str] = (),
        twins: TwinNames = NO_TWINS,
    ) -> None:
        self._twins = twins
        self.weights = shipped_weights() if weights is None else weights
        self._embed = embed
        self._finder = ChineseFinder([ChineseWorld(world, tuple(id_patterns)) for world in worlds], embed)

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """The likeliest frame of each text, however unlikely."""
        return [reading_of(choice, confidence(choice.features, self.weights)) for choice in self.choices(texts)]

    def choices(self, texts: Sequence[str]) -> list[ChineseChoice]:
        """The likeliest frame of each text with its features, to fit weights or to look at."""
        documents = [ChineseText(text) for text in texts]
        return [choose(*each, self.weights, self._twins) for each in zip(documents, self._frames(documents), strict=True)]

    def candidates(self, texts: Sequence[str]) -> list[list[ChineseFrame]]:
        """The likeliest frames of each text."""
        return self._frames([ChineseText(text) for text in texts])

    def possible(self, texts: Sequence[str]) -> list[list[PossibleFrame]]:
        """As of `Reader`."""
        documents = [ChineseText(text) for text in texts]
        return [[_possible(text, frame) for frame in frames] for text, frames in zip(documents, self._frames(documents), strict=True)]

    def _frames(self, documents: Sequence[ChineseText]) -> list[list[ChineseFrame]]:
        vectors = self._embed([document.text for document in documents])
        return [self._finder.frames(document, vector) for document, vector in zip(documents, vectors, strict=True)]


def reading_of(choice: ChineseChoice, trust: float) -> Reading:
    frame = choice.frame
    values = tuple(map(_value, frame.filled))
    return Reading(*frame.intent.key, values, trust, frame.foreign, frame.unread, choice.twins)


def _value(filled: ChineseFilled) -> ReadValue:
    span = filled.span
    return ReadValue(filled.slot, filled.value, span.text, span.start, span.end, filled.probability)


def _possible(text: ChineseText, frame: ChineseFrame) -> PossibleFrame:
    world = frame.intent.world
    values = sorted(frame.scored, key=lambda each: -each.probability)
    own = {facts.slot.key for facts in frame.intent.slots.values()}
    spans = [
        span for span in text.spans(world) if span.kind in ("id", "day", "time", "amount") or (span.kind == "choice" and span.key in own)
    ]
    places = {(span.start, span.end) for span in spans if span.end - span.start > 1 or span.kind != "choice"}
    return PossibleFrame(world.world.name, frame.intent.intent.name, tuple(map(_value, values)), frame.foreign, tuple(sorted(places)))
