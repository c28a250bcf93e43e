"""Twin intents: intents of two worlds that do the same, such as finding a film in either of two catalogues.

One idea: a request cannot tell twins apart, so neither is a misreading of the other, and neither lowers the confidence in the other. Twins
are told by their declarations alone: descriptions with near vectors, and slots that correspond one to one, all required ones among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from filters.reading.compiled import CompiledIntent
from filters.reading.slots import SlotFacts
from synth.engines.encoder import Vectors

_LEAST_COSINE = 0.7
_LEAST_SHARED = 0.4
"""Least share of common words of two slots' names and descriptions."""

Correspondence = Mapping[str, str]
"""Slot of one intent -> slot of its twin."""


Twins = Mapping[CompiledIntent, Mapping[CompiledIntent, Correspondence]]
"""Intent -> its twins -> how its own slots correspond to theirs."""


def find_twins(intents: Sequence[CompiledIntent], centroids: Vectors) -> Twins:
    """The twins of each intent. centroids: a unit vector of each."""
    near = centroids @ centroids.T
    twins: dict[CompiledIntent, dict[CompiledIntent, Correspondence]] = {intent: {} for intent in intents}
    for first, intent in enumerate(intents):
        for second in range(first + 1, len(intents)):
            other = intents[second]
            if intent.world is other.world or near[first, second] < _LEAST_COSINE or intent.intent.is_act != other.intent.is_act:
                continue
            slots = _corresponding(intent.facts, other.facts)
            if slots is not None and {*intent.required} <= slots.keys() and {*other.required} <= {*slots.values()}:
                twins[intent][other] = slots
                twins[other][intent] = {theirs: ours for ours, theirs in slots.items()}
    return twins


def _corresponding(first: Mapping[str, SlotFacts], second: Mapping[str, SlotFacts]) -> Correspondence | None:
    """Pairs of slots, as many as the intent with fewer slots has; None where one has no counterpart."""
    if len(first) > len(second):
        turned = _corresponding(second, first)
        return turned and {theirs: ours for ours, theirs in turned.items()}
    pairs: dict[str, str] = {}
    for name, facts in first.items():
        shared = {other: _shared(facts, second[other]) for other in second if other not in pairs.values()}
        best = max(shared, key=lambda other: (shared[other], other), default="")
        if not best or shared[best] < _LEAST_SHARED:
            return None
        pairs[name] = best
    return pairs


def _shared(first: SlotFacts, second: SlotFacts) -> float:
    if first.slot.kind != second.slot.kind or first.role != second.role:
        return 0.0
    if first.slot.name == second.slot.name:
        return 1.0
    return len(first.words & second.words) / max(1, len(first.words | second.words))
