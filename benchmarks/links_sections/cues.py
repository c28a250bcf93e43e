"""Can a policy see what it has to decide? A classifier reads what stands before each message of the assistant, and says what kind it is.

Conversations are scripted, accepted, in English and of several worlds. Half of them train a logistic regression on words of the last two
user turns, alone and together with whether a tool has just answered and with what; the other half measure it. A kind that nothing asks for
has an area under the ROC curve near .5. Turns that erred are never learned, and are left out.
"""

from __future__ import annotations

import itertools
import random
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Deadline, Figures
from storage.conversation import Step, call_status, derive_turns
from storage.records import Message, RefusalReason
from synth.blueprints.blueprint import Blueprint, TurnPlan
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import cluster_tools
from synth.conversations.cues import uncued_turns
from synth.roles.simulate import simulate
from synth.worlds import WORLDS

Kind = Literal["ask", "ask_first", "refuse", "answer", "call", "together", "repair", "verify"]
KINDS: tuple[Kind, ...] = ("ask", "ask_first", "refuse", "answer", "call", "together", "repair", "verify")
WORLDS_READ = ("retail", "city", "library", "banking", "hotel", "gen-1", "gen-2", "gen-3")
CONVERSATIONS = 1_200
LEAST = 30
"""Fewest decisions of a kind, in the half that measures, for its figure to count."""
_SIZE, _STEPS, _RATE, _DECAY = 4096, 150, 2.0, 1e-4
_WORD = re.compile(r"[a-z]+")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """kind: of one message of the assistant. features: of what stands before it."""

    kind: Kind
    features: tuple[str, ...]


def measure(_: Deadline) -> Figures:
    conversations = draw(CONVERSATIONS)
    counts = [uncued_turns(blueprint, messages) for blueprint, messages in conversations]
    areas = areas_of([decisions(blueprint, messages) for blueprint, messages in conversations])
    blind = areas_of([decisions(blueprint, _without_words(messages)) for blueprint, messages in conversations])
    for kind, area in areas.items():
        print(f"    {kind}: {area:.3f}, without the users' words {blind[kind]:.3f}", flush=True)
    return {
        "cue_auc_min": min(areas.values()),
        "cue_auc_min_without_words": min(blind.values()),
        "uncued_share": sum(uncued for uncued, _ in counts) / sum(learned for _, learned in counts),
    }


def draw(count: int) -> list[tuple[Blueprint, Sequence[Message]]]:
    """Accepted conversations, and their messages."""
    clusters = [one for name in WORLDS_READ for one in cluster_tools(WORLDS[name].tools) if one.world]
    rng, planner = random.Random(0), Planner(lambda _: True, chinese_share=0.0)
    made: list[tuple[Blueprint, Sequence[Message]]] = []
    while len(made) < count:
        try:
            simulated = simulate(blueprint := planner.draw_unsteered(rng.choice(clusters), rng))
        except PlanFailed:
            continue
        if simulated.accepted:
            made.append((blueprint, simulated.trajectory.messages))
    return made


def _without_words(messages: Sequence[Message]) -> list[Message]:
    return [message.model_copy(update={"content": "words"}) if message.role == "user" else message for message in messages]


def decisions(blueprint: Blueprint, messages: Sequence[Message]) -> list[Decision]:
    """The decisions of a conversation, without those that erred."""
    steps = [(plan, step) for turn, plan in zip(derive_turns(messages), blueprint.turns, strict=True) for step in turn.steps]
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return [
        Decision(_kind(blueprint, plan, step), _features(messages[:place]))
        for place, (plan, step) in zip(places, steps, strict=True)
        if not any(call.status == "error" for call in step.calls)
    ]


def _kind(blueprint: Blueprint, plan: TurnPlan, step: Step) -> Kind:
    if step.calls:
        return "repair" if step.mode == "R" else "verify" if step.mode == "V" else "together" if len(step.calls) > 1 else "call"
    reasons = {blueprint.goals[goal].refusal for goal in plan.settles}
    if plan.is_question or RefusalReason.MISSING_INFORMATION in reasons:
        return "ask_first" if plan.is_question and not plan.withholds else "ask"
    return "refuse" if reasons - {None} else "answer"


def _features(before: Sequence[Message]) -> tuple[str, ...]:
    said = [message.content or "" for message in before if message.role == "user"]
    last = before[-1]
    results: list[str] = []
    for message in reversed(before):
        if message.role != "tool":
            break
        results.append(call_status(message.content))
    state = f"{last.role}{'/'.join(sorted(set(results)))}"
    calls = sum(bool(message.tool_calls) for message in before[max(i for i, m in enumerate(before) if m.role == "user") :])
    words = [f"{age}:{word}" for age, text in enumerate(reversed(said[-2:])) for word in _grams(text)]
    return (state, f"calls {min(calls, 4)} {state}", *words, *(f"{state} {word}" for word in words))


def _grams(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    return {*words, *(f"{one} {other}" for one, other in itertools.pairwise(words))}


def areas_of(conversations: Sequence[Sequence[Decision]]) -> dict[Kind, float]:
    """Area under the ROC curve of each kind against all others, on every second conversation, of a classifier that learned the others.

    Raises:
        ValueError: a kind is too rare.
    """
    taught = [one for conversation in conversations[::2] for one in conversation]
    asked = [one for conversation in conversations[1::2] for one in conversation]
    seen = Counter(one.kind for one in asked)
    if rare := [kind for kind in KINDS if seen[kind] < LEAST]:
        raise ValueError(f"{rare[0]} is decided {seen[rare[0]]} times: draw more conversations")
    weights = _fit(_matrix(taught), np.array([[one.kind == kind for kind in KINDS] for one in taught], dtype=np.float64))
    scores = _matrix(asked) @ weights
    return {kind: _area(scores[:, at], np.array([one.kind == kind for one in asked])) for at, kind in enumerate(KINDS)}


def _matrix(rows: Sequence[Decision]) -> Floats:
    """Hashed features, one row a decision, each of length 1."""
    matrix = np.zeros((len(rows), _SIZE))
    for at, row in enumerate(rows):
        for name in row.features:
            matrix[at, zlib.crc32(name.encode()) % _SIZE] = 1.0
    return matrix / np.sqrt(matrix.sum(axis=1, keepdims=True))


def _fit(features: Floats, labels: Floats) -> Floats:
    """Weights of one logistic regression a kind, by gradient descent with momentum."""
    weights, speed = np.zeros((features.shape[1], labels.shape[1])), 0.0
    for _ in range(_STEPS):
        error = 1 / (1 + np.exp(-(features @ weights))) - labels
        speed = 0.9 * speed - _RATE * (features.T @ error / len(features) + _DECAY * weights)
        weights = weights + speed
    return weights


def _area(scores: Floats, is_positive: NDArray[np.bool_]) -> float:
    """The chance that a positive scores above a negative; ties count half."""
    _ordered, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(is_positive.sum())
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * (len(scores) - positives)))
