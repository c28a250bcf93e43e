"""Reads requests in any world: text -> frame, with a confidence that says how often such a frame is right.

It executes nothing, and decides nothing: the caller chooses the confidence from which it trusts a frame. English only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from filters.reading.compiled import CompiledIntent, CompiledWorld
from filters.reading.declaration import ReadableWorld
from filters.reading.frames import Choice, Filled, FrameCandidate, FrameFinder, Text, Weights, choose, confidence
from filters.reading.name_kinds import NameKinds
from filters.reading.readings import PossibleFrame, Reading, ReadValue
from synth.engines.encoder import Encode, encode


@cache
def shipped_weights() -> Weights:
    """The weights of this package. Where they come from stands in the file itself."""
    weights: Weights = json.loads((files("filters.reading") / "weights.json").read_text(encoding="utf-8"))["weights"]
    return weights


class Reader:
    """Reads requests in some worlds.

    Args:
        worlds: at least one; of worlds that can do the same, either is found.
        weights: the package's own by default.
        embed: texts -> unit vectors; the built-in encoder by default.
        id_patterns: regular expressions of identifiers as users write them (`#\\d+`), beside those of the worlds.
    """

    def __init__(
        self,
        worlds: Sequence[ReadableWorld],
        *,
        weights: Weights | None = None,
        embed: Encode = encode,
        id_patterns: Sequence[str] = (),
    ) -> None:
        self.worlds = [CompiledWorld(world, id_patterns) for world in worlds]
        self.weights = shipped_weights() if weights is None else weights
        self._embed = embed
        self._names = NameKinds(embed)
        self._finder = FrameFinder(self.worlds, embed)
        self.twins, self.intents = self._finder.twins, self._finder.intents

    @property
    def twin_names(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """(world, intent) -> those of other worlds that do the same."""
        return {_key(intent): [_key(other) for other in others] for intent, others in self.twins.items() if others}

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """The likeliest frame of each text, however unlikely."""
        readings = []
        for text, candidates in self.candidates(texts):
            choice = self.choose(text, candidates)
            readings.append(_reading(choice, confidence(choice.features, self.weights)))
        return readings

    def choose(self, text: Text, candidates: Sequence[FrameCandidate]) -> Choice:
        return choose(text, candidates, self.twins, self.weights)

    def possible(self, texts: Sequence[str]) -> list[list[PossibleFrame]]:
        """The intents that each text may ask for, the likeliest first, with all places that may fill their slots."""
        return [[_possible(text, candidate) for candidate in candidates] for text, candidates in self.candidates(texts)]

    def candidates(self, texts: Sequence[str]) -> list[tuple[Text, list[FrameCandidate]]]:
        """The likeliest frames of each text, to fit weights or to look at."""
        documents = [Text(text) for text in texts]
        every = [part for document in documents for part in (document.text, *document.sentences)]
        distinct = {part: number for number, part in enumerate(dict.fromkeys(every))}
        vectors = self._embed(list(distinct))[[distinct[part] for part in every]]
        names = sorted(
            {span.text for document in documents for world in self.worlds for span in document.spans(world) if span.kind == "name"}
        )
        kinds = dict(zip(names, self._names.of(names), strict=True))
        found, start = [], 0
        for document in documents:
            end = start + 1 + len(document.sentences)
            found.append((document, self._finder.candidates(document, vectors[start:end], kinds, self.weights)))
            start = end
        return found


def _reading(choice: Choice, trust: float) -> Reading:
    frame = choice.frame
    values = tuple(map(_value, frame.filled))
    twins = tuple(map(_key, choice.twins))
    return Reading(*_key(frame.intent), values, trust, frame.foreign, sum(frame.unread.values()), twins)


def _key(intent: CompiledIntent) -> tuple[str, str]:
    return intent.world.world.name, intent.intent.name


def _value(filled: Filled) -> ReadValue:
    span = filled.span
    return ReadValue(filled.slot, span.value, span.text, span.start, span.end, filled.probability)


def _possible(text: Text, candidate: FrameCandidate) -> PossibleFrame:
    world = candidate.intent.world
    values = sorted(candidate.scored, key=lambda each: -each.probability)
    own = {facts.slot.key for facts in candidate.intent.facts.values()}
    typed = [span for span in text.spans(world) if span.kind not in ("name", "choice", "flag") and (span.kind, span.value) != ("count", 1)]
    chosen = [span for span in text.spans(world) if span.kind in ("choice", "flag") and span.slot in own]
    places = {(span.start, span.end) for span in (*typed, *chosen)}
    return PossibleFrame(
        world.world.name, candidate.intent.intent.name, tuple(map(_value, values)), candidate.foreign, tuple(sorted(places))
    )
