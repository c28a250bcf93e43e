"""Fits the weights of the reader on labelled requests of some worlds, so that they hold in other worlds.

One idea: every score is fitted on what it will meet. Slots are scored with the intent that is right; frames are ranked, and their
confidence is fitted, with slot weights of *other* worlds, and the confidence meets requests that no world serves too. So folds are sets of
worlds: those of a fold are read together, and weights for them come from all others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filters.reading.compiled import CompiledIntent, CompiledWorld
from filters.reading.declaration import ReadableSlot, ReadableWorld
from filters.reading.frames import FrameCandidate, Text, Weights, choose
from filters.reading.name_kinds import NameKinds
from filters.reading.reader import Reader
from filters.reading.slots import GROUPS, Features, common_words, neighbours_of, pairs
from filters.reading.twins import Twins
from synth.engines.encoder import Encode, encode

_OUT_OF_SCOPE = 600
"""Requests that the worlds of a fold do not serve, in the fit of the confidence."""
_PRIORS: Weights = {
    "choice": {"role": 2.0, "wrong_role": -2.0},
    "name": {"part": 1.0, "wrong_part": -2.0},
    "id": {"bias": 3.5, "beside": 1.0, "rivals": -0.5, "role": 2.0, "wrong_role": -4.0},
}
"""Weights that few worlds can teach start here instead of at 0."""


@dataclass(frozen=True)
class Labelled:
    """A request and what it asks for.

    values: slot -> values of which one is right: as `ReadValue.value`; of a name, spellings.
    """

    text: str
    world: str
    intent: str
    values: Mapping[str, Sequence[Any]]

    def is_right(self, frame: FrameCandidate) -> bool:
        """Whether intent and every value are right."""
        if _key(frame.intent) != (self.world, self.intent):
            return False
        filled = {each.slot: each.span.value for each in frame.filled}
        slots = frame.intent.intent.slots
        return filled.keys() == self.values.keys() and all(
            is_equal(slots[slot], value, self.values[slot]) for slot, value in filled.items()
        )

    def alternatives(self, twins: Twins) -> list[Labelled]:
        """The request with this label, and with those of the twins of its intent that have all its slots."""
        own = next((others for intent, others in twins.items() if _key(intent) == (self.world, self.intent)), {})
        return [self] + [
            Labelled(self.text, *_key(other), {slots[name]: value for name, value in self.values.items()})
            for other, slots in own.items()
            if self.values.keys() <= slots.keys()
        ]


def is_equal(slot: ReadableSlot, value: Any, right: Sequence[Any]) -> bool:
    """Whether a value is one of the right ones; names without case, punctuation and articles."""
    if slot.kind == "name":
        return plain_name(str(value)) in {plain_name(str(each)) for each in right}
    if isinstance(value, float):
        return any(isinstance(each, int | float) and abs(value - each) < 1e-6 for each in right)
    return value in right


def plain_name(name: str) -> str:
    words = re.sub(r"[^\w\s]", " ", name.lower()).split()
    return " ".join(words[1:] if words[:1] in (["the"], ["a"]) and len(words) > 1 else words)


def fit(
    worlds: Sequence[ReadableWorld],
    folds: Sequence[Sequence[str]],
    examples: Sequence[Labelled],
    is_foreign: Callable[[Labelled, set[str]], bool],
    *,
    embed: Encode = encode,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Weights of all groups.

    Args:
        folds: names of the worlds of each fold.
        examples: requests of these worlds.
        is_foreign: (example, names of a fold) -> whether no world of the fold serves it.
        seed: of the draw of requests out of scope.
    """
    by_name = {world.name: world for world in worlds}
    rows = _slot_rows(by_name, examples, embed)
    ranked: list[tuple[list[FrameCandidate], int]] = []
    judged: list[tuple[Text, list[FrameCandidate], Twins, list[Labelled]]] = []
    rng = random.Random(seed)
    for fold in folds:
        names = set(fold)
        weights = fit_slots([row for row in rows if row.world not in names])
        reader = Reader([by_name[name] for name in fold], weights=weights, embed=embed)
        own = [example for example in examples if example.world in names]
        foreign = [example for example in examples if is_foreign(example, names)]
        foreign = rng.sample(foreign, min(_OUT_OF_SCOPE, len(foreign)))
        for example, (text, candidates) in zip([*own, *foreign], reader.candidates([each.text for each in (*own, *foreign)]), strict=True):
            is_own = example.world in names
            judged.append((text, candidates, reader.twins, example.alternatives(reader.twins) if is_own else []))
            right = [number for number, each in enumerate(candidates) if _key(each.intent) == (example.world, example.intent)]
            if is_own and right:
                ranked.append((candidates, right[0]))
    slots = fit_slots(rows)
    frame = fit_softmax([([each.features for each in candidates], right) for candidates, right in ranked])
    weights = {**slots, "frame": frame}
    features, labels = list[Features](), list[bool]()
    for text, candidates, twins, truth in judged:
        choice = choose(text, candidates, twins, weights)
        features.append(choice.features)
        labels.append(any(each.is_right(choice.frame) for each in truth))
    return {**slots, "frame": frame, "confidence": fit_logistic(features, labels, decay=2.0)}


def _key(intent: CompiledIntent) -> tuple[str, str]:
    return intent.world.world.name, intent.intent.name


# ---- slots ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A pair of a span and a slot, and whether the span is right."""

    world: str
    group: str
    features: Features
    is_right: bool


def _slot_rows(worlds: Mapping[str, ReadableWorld], examples: Sequence[Labelled], embed: Encode) -> list[SlotRow]:
    """The pairs of every example with the intent that is right."""
    compiled = {name: CompiledWorld(world) for name, world in worlds.items()}
    texts = [Text(example.text) for example in examples]
    spans = [text.spans(compiled[example.world]) for text, example in zip(texts, examples, strict=True)]
    names = sorted({span.text for each in spans for span in each if span.kind == "name"})
    kinds = dict(zip(names, NameKinds(embed).of(names), strict=True))

    def rows() -> Iterator[SlotRow]:
        for text, example, found in zip(texts, examples, spans, strict=True):
            world = compiled[example.world]
            intent = world.world.intents[example.intent]
            facts = world.facts_of(intent)
            near = neighbours_of(text.tokens, facts, common_words(facts), found)
            for span, slot, group, features in pairs(intent, near, kinds):
                right = slot in example.values and is_equal(intent.slots[slot], span.value, example.values[slot])
                yield SlotRow(example.world, group, features, right)

    return list(rows())


def fit_slots(rows: Sequence[SlotRow]) -> dict[str, dict[str, float]]:
    """A logistic regression for each group."""
    fitted = {}
    for group in dict.fromkeys(GROUPS.values()):
        own = [row for row in rows if row.group == group]
        fitted[group] = fit_logistic([row.features for row in own], [row.is_right for row in own], prior=_PRIORS.get(group, {}))
    return fitted


# ---- regressions ----------------------------------------------------------------------------------------------------------------


def _matrix(rows: Sequence[Features], more: Iterable[str] = ()) -> tuple[list[str], NDArray[np.float64]]:
    """Names of all features, `more` among them; and a row of their values for each row."""
    names = sorted({*more, *(name for row in rows for name in row)})
    place = {name: number for number, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            matrix[number, place[name]] = value
    return names, matrix


def fit_logistic(
    rows: Sequence[Features], labels: Sequence[bool], *, decay: float = 1.0, prior: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Weights of a logistic regression by Newton's method. decay: how strongly weights are drawn to the prior, 0 where it has none."""
    names, matrix = _matrix(rows, prior or ())
    target, centre = np.asarray(labels, float), np.array([(prior or {}).get(name, 0.0) for name in names])
    weights = centre.copy()

    def loss(at: NDArray[np.float64]) -> float:
        scores = matrix @ at
        return float(np.logaddexp(0.0, scores).sum() - target @ scores + decay / 2 * np.square(at - centre).sum())

    for _ in range(50):
        share = 1 / (1 + np.exp(-np.clip(matrix @ weights, -30, 30)))
        gradient = matrix.T @ (share - target) + decay * (weights - centre)
        curvature = (matrix * (share * (1 - share))[:, None]).T @ matrix + decay * np.eye(len(names))
        step = np.linalg.solve(curvature, gradient)
        before = loss(weights)
        while loss(weights - step) > before and np.abs(step).max() > 1e-6:  # far from the end a full step may lead away
            step /= 2
        weights -= step
        if np.abs(step).max() < 1e-6:
            break
    return {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}


def fit_softmax(
    groups: Sequence[tuple[Sequence[Features], int]], *, decay: float = 0.5, steps: int = 400, rate: float = 0.5
) -> dict[str, float]:
    """Weights by which the right one of each group scores highest. groups: (features of its members, number of the right one)."""
    names, matrix = _matrix([row for rows, _ in groups for row in rows])
    spread = matrix.std(axis=0) + 1e-6
    scaled, weights, start = (matrix - matrix.mean(axis=0)) / spread, np.zeros(len(names)), 0
    members = []
    for rows, right in groups:
        members.append((scaled[start : start + len(rows)], right))
        start += len(rows)
    for _ in range(steps):
        gradient = np.zeros(len(names))
        for rows, right in members:
            scores = rows @ weights
            shares = np.exp(scores - scores.max())
            gradient += rows.T @ (shares / shares.sum()) - rows[right]
        weights -= rate * (gradient + decay * weights) / len(members)
    return {name: round(float(weight), 4) for name, weight in zip(names, weights / spread, strict=True)}
