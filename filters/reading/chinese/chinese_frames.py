"""From a Chinese text to its likeliest frame: intents are ranked, the slots of the likeliest are filled, and what is left unread lowers the
confidence. As `frames.py`, with features of its own; slots are filled by odds that are set by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from filters.reading.chinese.chinese_compiled import ChineseIntent, ChineseSlot, ChineseWorld, word_set
from filters.reading.chinese.chinese_spans import ChineseSpan, bounds_of
from filters.reading.chinese.chinese_words import NAMES, idle_after, idle_before, known_words, lone_talk, plain, said_nothing, words
from filters.reading.slots import Features
from filters.reading.spans import ANY_ID
from synth.engines.encoder import Encode, Vectors

_TRIED = 8
"""Intents whose slots are filled."""
_MOST_MARGIN, _MOST_WORDS = 6.0, 8.0
_SHORT_NAME, _STRONG = 2, 1.5
"""Characters of a name that needs a lead of more than one character; how much such a lead counts."""
_SHOWN = re.compile(r"[这那][个家道座间种款]?")
"""What stands between a name and the noun of its kind: 地坛这个景点."""
_LABEL_REACH = 8
"""Characters between a label and its value, at most."""
_BASE = {"id": 2.0, "day": 1.5, "time": 1.5, "amount": 1.0, "choice": 1.5, "mark": 1.0, "name": -1.5}
"""Odds (logarithms) of a place that may fill a slot, by its kind."""

Weights = Mapping[str, Mapping[str, float]]
"""`frame`, `confidence` -> feature -> weight."""


@dataclass(frozen=True, slots=True)
class ChineseFilled:
    """A slot with the place that fills it, the value in the slot's unit, and the probability that it does."""

    slot: str
    span: ChineseSpan
    value: Any
    probability: float


@dataclass(frozen=True, eq=False)
class ChineseFrame:
    """A possible frame of a text. unread: values that no slot takes. foreign: characters that nothing explains, in runs."""

    intent: ChineseIntent
    filled: tuple[ChineseFilled, ...]
    features: Features
    unread: int
    foreign: tuple[str, ...]
    rival: float


class ChineseText:
    """A text with its spans in each world."""

    def __init__(self, text: str) -> None:
        self.text, self.plain = text, plain(text)
        self.words = word_set(self.plain)
        self._spans: dict[ChineseWorld, list[ChineseSpan]] = {}

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
        self._sizes = np.array([max(1.0, sum(self._idf[word] for word in intent.words)) for intent in self.intents])

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
        scored = list(_scored(text.plain, intent, spans))
        filled = _fill(scored, intent)
        unread, foreign = _unread(spans, filled, intent), _foreign(text.plain, filled, intent)
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
        return ChineseFrame(intent, filled, features, unread, foreign, _rival(scored, filled))


# ---- slots ----------------------------------------------------------------------------------------------------------------------


def _scored(text: str, intent: ChineseIntent, spans: Sequence[ChineseSpan]) -> list[ChineseFilled]:
    scored = []
    for name, facts in intent.slots.items():
        for span in spans:
            value = _value(span, facts, bool(intent.partners[name]))
            if value is not None:
                odds = _odds(text, span, facts, spans) + (_name_odds(text, span, facts, intent) if span.kind == "name" else 0.0)
                scored.append(ChineseFilled(name, span, value, 1 / (1 + exp(-odds))))
    return scored


def _value(span: ChineseSpan, facts: ChineseSlot, has_partner: bool) -> Any:
    """The value of the span in the slot; None where it can be none."""
    slot = facts.slot
    if slot.kind in ("count", "number", "money"):
        if span.kind != "amount":
            return None
        factor = slot.units.get(span.unit) if span.unit else 1.0
        is_range = span.low is not None and span.high is not None and span.low != span.high
        if factor is None or (is_range and not has_partner):
            return None
        held = span.low if slot.bound < 0 else span.high if slot.bound > 0 else span.value
        return None if held is None or (not slot.bound and span.low != span.high) else round(held * factor, 3)
    if span.kind == "amount" and facts.amounts:
        return _amount_value(span, facts)
    if slot.kind == "name":
        is_own = span.kind == "choice" and span.key == slot.key
        return span.value if is_own or (span.kind == "name" and not facts.amounts) else None
    if slot.kind in ("choice", "flag", "mark"):
        return span.value if span.kind in ("choice", "mark") and span.key == slot.key else None
    if slot.kind == "id":
        return span.value if span.kind == "id" and span.key in (slot.pattern, ANY_ID) else None
    return span.value if span.kind == slot.kind else None


def _amount_value(span: ChineseSpan, facts: ChineseSlot) -> Any:
    """The value of a slot that an amount comes to; of an open one the amount itself, if the others are of its family."""
    bounds = bounds_of(span)
    if bounds is None:
        return None
    is_open = facts.slot.kind == "name" and None not in bounds and any(family == bounds[2] for *_, family in facts.amounts)
    return facts.amounts.get(bounds, span.text[span.core[0] - span.start : span.core[1] - span.start] if is_open else None)


def _odds(text: str, span: ChineseSpan, facts: ChineseSlot, spans: Sequence[ChineseSpan]) -> float:
    slot = facts.slot
    odds = _BASE[span.kind]
    before, after = text[: span.start], text[span.end :]
    odds += 1.0 * min(3, max((_shared(before[::-1], each[::-1]) for each in facts.before), default=0))
    odds += 0.6 * min(2, max((_shared(after, each) for each in facts.after), default=0))
    if span.kind == "amount":
        odds += 0.0 if span.unit else -2.0
        value = span.value * (slot.units.get(span.unit) or 1.0)
        odds -= 3.0 * (not slot.low <= value <= slot.high)
        odds -= 0.3 * bool(slot.bound and span.low == span.high)
    if span.kind == "choice":
        is_beside = any(other.kind in ("choice", "id") and (other.end == span.start or other.start == span.end) for other in spans)
        odds += 0.3 * min(4, span.end - span.start) - 2.0 * (span.end - span.start == 1 and not is_beside)
        if slot.kind == "name":  # a known name, unless it is the end of a longer one
            is_whole = (idle_before(text, span.start) or _led(before, facts)) and idle_after(text, span.end, facts.ends)
            odds += 1.0 if is_whole else -2.0
    start = span.core[0] if span.kind == "amount" else span.start
    near = text[max(0, start - _LABEL_REACH) : start]
    borders = [other.end for other in spans if other is not span and other.kind != "name" and other.end <= start]
    near = near[max(0, max(borders, default=0) - max(0, start - _LABEL_REACH)) :]
    near = re.split(r"[，。！？；,!?;]", near)[-1]
    odds += 1.5 * any(label in near for label in facts.labels)
    return odds


def _name_odds(text: str, span: ChineseSpan, facts: ChineseSlot, intent: ChineseIntent) -> float:
    """How likely a place is a name at all, and one of this slot's."""
    before, after, said = text[: span.start], text[span.end :], text[span.start : span.end]
    idle = said_nothing(text)[span.start : span.end]
    unknown = known_words().sub("", said)
    if len(unknown) < 2 and (not unknown or idle[said.index(unknown)]):
        return -6.0
    odds = -3.0 * sum(idle) / len(idle) - 0.08 * max(0, len(said) - 8)
    odds -= (
        4.0 * said.startswith(words("no_starts"))
        + 2.0 * said.startswith(facts.leads)
        + 3.0 * any(word in said[2:-2] for word in words("inner"))
    )
    led = _led(before, facts)
    odds -= 1.5 * (len(said) == _SHORT_NAME and led < _STRONG)
    odds += led + 0.7 * any(after.startswith(end) for end in facts.ends)
    shown = _SHOWN.match(after)
    if shown is not None:
        noun = after[shown.end() :]
        odds += 2.0 * (noun.startswith(tuple(facts.labels)) or (facts.names_row and intent.world.nouns.match(noun) is not None))
    elif facts.names_row and after.startswith("的"):
        odds += 1.5 * any(each.asked is not None and each.asked.match(after, 1) for each in intent.slots.values())
    return odds + 0.5 * (not after or after[0] in "，。！？,!?")


def _shared(first: str, second: str) -> int:
    """Length of the common beginning."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def _led(before: str, facts: ChineseSlot) -> float:
    """More for a longer word that leads to names of the slot's kind."""
    leads = (lead for each in NAMES.values() if any(word in facts.labels for word in each["slots"]) for lead in each["before"])
    return max((0.7 + 0.5 * len(lead) for lead in leads if before.endswith(lead)), default=0.0)


def _fill(scored: Sequence[ChineseFilled], intent: ChineseIntent) -> tuple[ChineseFilled, ...]:
    """The best filling, greedily; a place is taken once, but by the two slots that bound the same."""
    filled: list[ChineseFilled] = []

    def order(each: ChineseFilled) -> tuple[Any, ...]:  # marks last, as a label of a value asks for nothing
        return each.span.kind == "mark", -each.probability, each.span.start - each.span.end, each.slot

    for each in sorted(scored, key=order):
        if each.probability < 0.5 or any(each.slot == other.slot or _labels(each, other, intent) for other in filled):
            continue
        if all(
            not each.span.overlaps(other.span) or (each.span is other.span and intent.partners[each.slot] == other.slot) for other in filled
        ):
            filled.append(each)
    return tuple(filled)


def _labels(mark: ChineseFilled, other: ChineseFilled, intent: ChineseIntent) -> bool:
    """Whether a mark is but the label of another slot's value: 评分 of 评分4.5分以上."""
    if mark.span.kind != "mark" or other.span.kind == "mark" or not intent.slots[other.slot].labels & intent.slots[mark.slot].labels:
        return False
    return (
        0 <= other.span.start - mark.span.end <= _LABEL_REACH
        or 0 <= mark.span.start - other.span.end <= 2
        or mark.span.overlaps(other.span)
    )


def _unread(spans: Sequence[ChineseSpan], filled: Sequence[ChineseFilled], intent: ChineseIntent) -> int:
    """Values that no slot takes: typed ones, identifiers, and those of the intent's own choices. Of an overlap only one counts."""
    free = [span for span in spans if not any(span.overlaps(each.span) for each in filled)]
    own = {facts.slot.key for facts in intent.slots.values()}
    typed = [span for span in free if span.kind in ("id", "day", "time", "amount")]
    chosen = [span for span in free if span.kind == "choice" and span.key in own and span.end - span.start > 1]
    return len(typed) + len({span.start for span in chosen if not any(span.overlaps(other) for other in typed)})


def _foreign(text: str, filled: Sequence[ChineseFilled], intent: ChineseIntent) -> tuple[str, ...]:
    """Runs of characters that nothing explains. Small talk of one character beside such a run is part of its word: 会 of 会议室."""
    explained = [False] * len(text)
    for each in filled:
        lead = next((len(lead) for lead in intent.slots[each.slot].leads if text.endswith(lead, 0, each.span.start)), 0)
        explained[each.span.start - lead : each.span.end] = [True] * (each.span.end - each.span.start + lead)
    for place in range(len(text) - 1):
        if text[place : place + 2] in intent.world.words:
            explained[place] = explained[place + 1] = True
    for word in intent.world.known:
        start = text.find(word)
        while start >= 0:
            explained[start : start + len(word)] = [True] * len(word)
            start = text.find(word, start + 1)
    idle, lone = said_nothing(text), lone_talk(text)
    foreign = [not (is_known or is_idle) for is_known, is_idle in zip(explained, idle, strict=True)]
    for places, step in ((range(1, len(text)), -1), (range(len(text) - 2, -1, -1), 1)):
        for place in places:
            foreign[place] |= foreign[place + step] and lone[place] and not explained[place]
    marked = "".join(character if is_foreign else " " for character, is_foreign in zip(text, foreign, strict=True))
    return tuple(marked.split())


def _rival(scored: Sequence[ChineseFilled], filled: Sequence[ChineseFilled]) -> float:
    """Highest probability of another filling of one of the filled places or slots."""
    rival = 0.0
    for mine in filled:
        for other in scored:
            is_other_slot = other.span is mine.span and other.slot != mine.slot and not any(other.slot == each.slot for each in filled)
            is_other_place = other.slot == mine.slot and not other.span.overlaps(mine.span)
            if is_other_slot or is_other_place:
                rival = max(rival, other.probability)
    return rival


# ---- the likeliest frame --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ChineseChoice:
    """The likeliest frame of a text. features: of the confidence in it."""

    frame: ChineseFrame
    features: Features


def choose(text: ChineseText, frames: Sequence[ChineseFrame], weights: Weights) -> ChineseChoice:
    scores = np.array([sum(weights["frame"].get(name, 0.0) * value for name, value in each.features.items()) for each in frames])
    order = np.argsort(-scores, kind="stable")
    winner = frames[order[0]]
    margin = float(scores[order[0]] - scores[order[1]]) if len(order) > 1 else _MOST_MARGIN
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
    return ChineseChoice(winner, features)


def confidence(features: Features, weights: Weights) -> float:
    """The probability that a frame is right in every value, 0 to 1."""
    return 1 / (1 + exp(-sum(weights["confidence"].get(name, 0.0) * value for name, value in features.items())))
