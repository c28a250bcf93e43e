"""Which place of a text fills which slot: a logistic score for each pair of a span and a slot.

One idea: the features have no words of any world in them, only relations: does the preposition fit what the slot holds, does the slot's
own word stand beside the place, is it the only slot of its kind. So weights that were fitted on some worlds hold in others.

Features are grouped by what slots hold (`GROUPS`); `weights.json` has a weight for each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log

from filters.reading.declaration import ReadableIntent, ReadableSlot, split_name
from filters.reading.english_words import FUNCTION_WORDS, SMALL_TALK, VERB_FAMILIES, Token, phrases, singular, stem, words
from filters.reading.name_kinds import KINDS, Distribution, kinds_of_slot
from filters.reading.spans import ANY_ID, Span

GROUPS = {
    "day": "when",
    "time": "when",
    "count": "count",
    "number": "count",
    "money": "count",
    "choice": "choice",
    "flag": "flag",
    "name": "name",
    "id": "id",
}
"""What a slot holds -> its group of features."""
Features = dict[str, float]
_CUE_KINDS: Mapping[str, tuple[str, ...]] = {
    **{"in": ("city",), "at": ("venue", "address", "city"), "near": ("city", "venue", "address"), "around": ("city",)},
    **{
        "from": ("city", "venue", "address"),
        "to": ("city", "address", "venue", "person"),
        "towards": ("city",),
        "visit": ("city", "venue", "person"),
    },
    **dict.fromkeys(("by", "with", "starring", "directed"), ("person",)),
    **dict.fromkeys(("called", "named"), ("title", "venue", "person")),
    **dict.fromkeys(("titled", "play", "watch"), ("title",)),
    **{"for": ("person", "title", "venue", "city"), "of": ("title", "person", "city"), "like": ("word", "person", "title")},
    **{"see": ("title", "person"), "try": ("venue",), "is": ()},
}
"""Word before a name -> the kinds of names that it goes with."""
_WORD = KINDS.index("word")
_CITY = KINDS.index("city")
_MOSTLY = 0.6
_RANGE_END = re.compile(r"\b(?:between|from) (?:[$€£] )?\S+ (?:and|to|-)(?: [$€£])?$")
_MOST_SCORE = 30.0


class SlotFacts:
    """What the features need to know of a slot. described: stems of the words that describe its world and the world's intents.

    words, own_words: stems of the words of its name and description, and of its name alone.
    role: -1 if it begins or comes from something, 1 if it ends or goes to it, 0 for neither.
    bound: -1 if it is the least value of something, 1 if it is the most, by its name; 0 for neither.
    """

    def __init__(self, slot: ReadableSlot, described: frozenset[str]) -> None:
        self.slot = slot
        self._name, self._about = split_name(slot.name), re.findall(r"[a-z]+", slot.about.lower())
        every = [*self._name, *self._about]
        self.words = frozenset(stem(word) for word in every if word not in FUNCTION_WORDS)
        self.own_words = frozenset(stem(word) for word in self._name if word not in FUNCTION_WORDS)
        self.role = _role(self._name, every)
        self.bound = {"min": -1, "max": 1}.get(self._name[0], 0) if self._name else 0
        self._described = described

    @cached_property
    def kinds(self) -> Distribution:
        """Of a name slot: how likely it holds each kind of name."""
        return kinds_of_slot(self._name, self.slot.about)

    @cached_property
    def names_one(self) -> bool:
        """Of a name slot: whether it holds cities or persons, whose names have no "and" in them."""
        return float(self.kinds[_CITY] + self.kinds[KINDS.index("person")]) > _MOSTLY

    @cached_property
    def is_mark(self) -> bool:
        """Whether it says that something is asked for: it has one value."""
        return self.slot.kind == "choice" and len(self.slot.values) == 1

    @cached_property
    def is_cast(self) -> int:
        """Of a name slot: 1 for who appears in something, -1 for who made it, 0 for neither or both."""
        every = {*self._name, *self._about}
        return bool(every & words("cast_slots")) - bool(every & words("maker_slots"))

    @cached_property
    def nouns(self) -> frozenset[str]:
        """Of a count: what it counts, in the singular."""
        counted = re.search(r"number of ([a-z ]+?)(?: in| to| of| for| at| made|$)", self.slot.about.lower())
        described = counted[1].split() if counted else self._about if len(self._name) == 1 else []
        nouns = {singular(word) for word in (*self._name, *described) if word not in FUNCTION_WORDS}
        nouns |= {singular(noun) for noun in self.slot.nouns}
        if nouns & {"star", "rating"}:
            return frozenset({"star"})
        if self.counts_people or "ticket" in nouns:
            nouns |= words("people") if self.counts_people else {"people", "person", "seat", "us"}
        if "stay" in self.slot.about.lower() or nouns & {"day", "night"}:
            nouns |= {"day", "night"}
        for short, long in (("bed", "bedroom"), ("bath", "bathroom")):
            if any(noun.startswith(short) for noun in nouns):
                nouns |= {short, long}
        return frozenset(nouns)

    @cached_property
    def counts_people(self) -> bool:
        named = {singular(word) for word in (*self._name, *self._about)}
        return bool(named & (words("people") - {"ticket", "table", "us"}))

    @cached_property
    def keys(self) -> frozenset[str]:
        """Of a flag: stems by which a text names it."""
        every = self.words - {stem(word) for word in words("flag_words")}
        own = self.own_words & every
        return (own - self._described) or (every - self._described) or own

    @cached_property
    def spellings(self) -> list[tuple[str, list[list[str]]]]:
        """Of a choice: (value, its spellings in words). A last word that the slot's name has may be left out: `Delta` of Delta Airlines."""
        listed = []
        for value, texts in self.slot.values.items():
            spelled = [[singular(word) for word in re.findall(r"[a-z0-9'-]+", text.lower())] for text in texts]
            short = [form[:-1] for form in spelled if len(form) > 1 and stem(form[-1]) in self.own_words]
            listed.append((value, [form for form in (*spelled, *short) if form]))
        return listed


def _role(name: Sequence[str], every: Sequence[str]) -> int:
    """-1, 1 or 0; the words of the name count first."""
    sources, targets = words("from_slots"), words("to_slots")
    joined = " ".join(every)
    pairs = (("check in", -1), ("check out", 1))
    for part in (name, every):
        source = sum(word in sources for word in part)
        target = sum(word in targets for word in part if word != "to" or "to" in name)
        for pair, role in pairs:
            if pair in joined and part is every:
                source, target = source + 2 * (role < 0), target + 2 * (role > 0)
        if source != target:
            return 1 if target > source else -1
    return 0


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What a pair's features need to know of the intent's other slots and of the text's other spans.

    tokens: of the text. facts: of all slots of the intent. common: stems that more than two of these slots have.
    spans: all spans of the text.
    """

    tokens: Sequence[Token]
    facts: Mapping[str, SlotFacts]
    common: frozenset[str]
    spans: Sequence[Span]

    def rivals(self, facts: SlotFacts, bound: int = 0) -> int:
        """How many slots of the intent hold the like, this one included. bound: as of `SlotFacts`, 0 for any."""
        kind = facts.slot.kind
        same = [other for other in self.facts.values() if other.slot.kind == kind and (not bound or other.bound == bound)]
        return len(same) if kind != "name" else sum(float(other.kinds @ facts.kinds) > 0.25 for other in same)

    def order(self, span: Span) -> int:
        """-1 for the first of several days or times of the text, 1 for the last, else 0."""
        places = sorted({other.start for other in self.spans if other.kind == span.kind})
        return 0 if len(places) < 2 else -1 if span.start == places[0] else 1 if span.start == places[-1] else 0


def common_words(facts: Mapping[str, SlotFacts]) -> frozenset[str]:
    """Stems that more than two of the slots have."""
    counts = Counter(word for each in facts.values() for word in each.words)
    return frozenset(word for word, count in counts.items() if count > 2)


def neighbours_of(tokens: Sequence[Token], facts: Mapping[str, SlotFacts], common: frozenset[str], spans: Sequence[Span]) -> Neighbours:
    """facts: of the intent's slots. common: their `common_words`. spans: of the world; values of other intents' choices and flags are left
    out."""
    keys = {each.slot.key for each in facts.values()}
    own = [span for span in spans if span.kind not in ("choice", "flag") or span.slot in keys]
    return Neighbours(tokens, facts, common, own)


def pairs(
    intent: ReadableIntent, near: Neighbours, kinds_of_names: Mapping[str, Distribution]
) -> Iterator[tuple[Span, str, str, Features]]:
    """(span, slot, group, features) of every span that may fill a slot of the intent.

    kinds_of_names: text of a name -> how likely it is each kind of name.
    """
    for name, facts in near.facts.items():
        kind = facts.slot.kind
        is_required = float(name in intent.required)
        for span in near.spans:
            if not _may_fill(span, facts.slot) or (kind == "name" and facts.names_one and _is_several(span, near.tokens)):
                continue
            bound = said_bound(near.tokens, span) if facts.bound else 0
            if bound and bound != facts.bound:
                continue
            group = GROUPS[kind]
            if group == "name":
                features = _name_features(span, facts, kinds_of_names[span.text], near)
            elif group == "when":
                features = _when_features(span, facts, near)
            elif group == "count":
                features = _count_features(span, facts, near, bound)
            elif group == "id":
                features = _id_features(span, facts, near)
            else:
                features = _choice_features(span, facts, near) if group == "choice" else _flag_features(span, facts, near)
            yield span, name, group, {"bias": 1.0, "required": is_required, **features}


def _may_fill(span: Span, slot: ReadableSlot) -> bool:
    kind = slot.kind
    if kind in ("choice", "flag"):
        return span.kind == kind and span.slot == slot.key
    if kind == "id":
        return span.kind == "id" and span.slot in (slot.pattern, ANY_ID)
    if kind in ("count", "number", "money"):
        return span.kind in ("count", "money")
    return span.kind == kind


def said_bound(tokens: Sequence[Token], span: Span) -> int:
    """-1 where a text says that a number is the least ("at least 4", "4 or more", "between 4 and 8"), 1 where it is the most, else 0."""
    before = " ".join(token.lower for token in tokens[max(0, span.first - 5) : span.first])
    after = " ".join(token.lower for token in tokens[span.last : span.last + 4])
    if _RANGE_END.search(before):
        return 1
    found = [(len(match[1]), bound) for bound, name in ((1, "at_most"), (-1, "at_least")) if (match := _cue_before(name).search(before))]
    if found:
        return max(found)[1]
    return next((bound for bound, name in ((1, "at_most_after"), (-1, "at_least_after")) if _cue_after(name).match(after)), 0)


@cache
def _cue_before(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(sorted(phrases(name), key=len, reverse=True))})(?: of)?(?: [$€£])?$")


@cache
def _cue_after(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:[a-z]+ )?(?:{'|'.join(phrases(name))})\b")


def _is_several(span: Span, tokens: Sequence[Token]) -> bool:
    return any(token.lower in ("and", "or", "&") for token in tokens[span.first + 1 : span.last - 1])


def _nearest(stems: Sequence[str], wanted: frozenset[str], fall: float) -> float:
    """1 for a wanted stem at the near end (the first), less by `fall` for each stem between; 0 without one."""
    return max((1 - distance * fall for distance, word in enumerate(stems) if word in wanted), default=0.0)


def _stems(tokens: Sequence[Token]) -> list[str]:
    return [stem(token.text) for token in tokens]


# ---- names ----------------------------------------------------------------------------------------------------------------------


def _name_features(span: Span, facts: SlotFacts, kinds: Distribution, near: Neighbours) -> Features:
    tokens = near.tokens
    before = [token.lower for token in tokens[max(0, span.first - 3) : span.first]]
    while before and before[-1] in ("the", "a", "an", "some"):
        before.pop()
    cue = before[-1] if before else ""
    inside = tokens[span.first : span.last]
    left = _stems(tokens[max(0, span.first - 5) : span.first])[::-1]
    sides = [tokens[place] for place in (span.last, span.first - 1) if 0 <= place < len(tokens)]
    sides = [token for token in sides if token.is_capital and not token.is_first and token.lower not in words("pronouns")]
    direction = -1 if cue in words("source_cues") else 1 if cue in words("target_cues") else 0
    features: Features = {
        "kind": log(float(kinds @ facts.kinds) * len(KINDS)) + 1,
        "beside": _nearest(left, facts.words - near.common, 0.18),
        "beside_own": _nearest(left, facts.own_words, 0.18),
        "before_word": _nearest(_stems(tokens[span.last : span.last + 3]), facts.words, 0.3),
        span.shape: 1.0,
        "length": min(5, len(inside)) / 5,
        "first": float(inside[0].is_first),
        "capital_word": float(facts.kinds[_WORD]) * (span.shape in ("capitals", "part", "trimmed")),
        "slot_words": sum(stem(token.text) in facts.words for token in inside) / len(inside),
        "small_talk": sum(token.lower in SMALL_TALK for token in inside) / len(inside),
        "only": float(near.rivals(facts) == 1),
        "inside_longer": float(any(_contains(other, span) for other in near.spans)),
        "dividers": float(sum(token.lower in words("dividers") for token in inside[1:-1])),
        "joiners": float(sum(token.lower in ("of", "the", "and", "&") for token in inside[1:-1])),
        "cut_word": float(any(stem(token.text) in facts.words for token in sides)),
        "cut_capital": float(bool(sides)),
        "after_verb": float(cue in VERB_FAMILIES),
    }
    if cue in _CUE_KINDS:
        features["cue"] = 2 * sum(float(facts.kinds[KINDS.index(kind)]) for kind in _CUE_KINDS[cue]) - 1
    else:
        features["city_without_cue"] = float(facts.kinds[_CITY])
    if direction and facts.role:
        features["role" if direction == facts.role else "wrong_role"] = 1.0
    part = 1 if cue in words("cast_cues") else -1 if cue in words("maker_cues") else 0
    if part and facts.is_cast:
        features["part" if part == facts.is_cast else "wrong_part"] = 1.0
    return features


def _contains(other: Span, span: Span) -> bool:
    is_name = other.kind == "name" and other.shape != "lower"
    return is_name and other is not span and other.first <= span.first and other.last >= span.last


# ---- days, times, counts, choices, flags ----------------------------------------------------------------------------------------


def _when_features(span: Span, facts: SlotFacts, near: Neighbours) -> Features:
    left = list(near.tokens[max(0, span.first - 6) : span.first])
    for place in range(len(left) - 1, -1, -1):
        if left[place].text in ".?!;":
            left = left[place + 1 :]
            break
    direction = 0
    for distance, token in enumerate(reversed(left[-5:])):
        if token.lower in words("until_cues") or (token.lower in ("to", "and", "-") and distance <= 1):
            direction = 1
        elif token.lower in words("from_cues"):
            direction = -1
        if direction:
            break
    stems, rivals, order = _stems(left)[::-1], near.rivals(facts), near.order(span)
    features: Features = {
        "beside": _nearest(stems, facts.words - near.common, 0.15),
        "beside_own": _nearest(stems, facts.own_words - near.common, 0.15),
        "before_word": _nearest(_stems(near.tokens[span.last : span.last + 4]), facts.words - near.common, 0.25),
        "only": float(rivals == 1),
        "rivals": rivals - 1,
    }
    if not facts.role:
        features["no_role"] = 1.0
    elif direction:
        features["role" if direction == facts.role else "wrong_role"] = 1.0
    elif facts.role < 0:
        features["begins_without_cue"] = 1.0
    if order and facts.role:
        features["order" if order == facts.role else "wrong_order"] = 1.0
    return features


def _count_features(span: Span, facts: SlotFacts, near: Neighbours, bound: int) -> Features:
    before = [token.lower for token in near.tokens[max(0, span.first - 4) : span.first]]
    features: Features = {"only": float(near.rivals(facts, bound) == 1)}
    if facts.slot.kind == "money":
        has_unit = span.kind == "money"
        features["noun_1" if has_unit else "bare"] = 1.0
        if not has_unit:
            features["other_unit"] = float(bool(span.nouns))
            features["noun_before"] = float(any(stem(word) in facts.words for word in before))
        return features
    counted = facts.nouns if facts.slot.kind == "count" else frozenset(singular(word) for word in facts.words)
    stems = {stem(noun) for noun in counted}
    hit = next((place for place, noun in enumerate(span.nouns) if noun in counted or stem(noun) in stems), None)
    if hit is not None:
        features[f"noun_{min(hit, 2) + 1}"] = 1.0
    features["other_unit"] = float(span.kind == "money")
    features["out_of_range"] = float(not facts.slot.low <= span.value <= facts.slot.high)
    features["noun_before"] = float(any(singular(word) in counted for word in before[-3:]))
    is_end = not span.nouns or span.nouns[0] in ("please", "i", "in", "on", "to", "at", "from", "and", "with")
    if (
        hit is None
        and facts.slot.kind == "count"
        and facts.counts_people
        and is_end
        and before[-1:]
        and before[-1] in ("for", "of", "are", "us")
    ):
        features["people_for"] = 1.0
    if hit is None and not span.nouns:
        features["bare"] = 1.0
    if hit is None and span.text.lower() == "one":
        features["pronoun_one"] = 1.0
    return features


def _choice_features(span: Span, facts: SlotFacts, near: Neighbours) -> Features:
    around = [*near.tokens[max(0, span.first - 4) : span.first], *near.tokens[span.last : span.last + 3]]
    features: Features = {
        span.shape: 1.0,
        "beside": float(any(stem(token.text) in facts.words for token in around)),
        "length": min(3, span.last - span.first),
        "rivals": sum(other.kind == "choice" and other.first == span.first and other.slot != span.slot for other in near.spans),
    }
    direction = 0
    for token in reversed(near.tokens[max(0, span.first - 5) : span.first]):
        if token.text in ".?!" or direction:
            break
        direction = -1 if token.lower in words("own_cues") else 1 if token.lower in words("other_cues") else 0
    role = facts.role or (-1 if any(_is_counterpart(other, facts) for other in near.facts.values()) else 0)
    if direction and role:
        features["role" if direction == role else "wrong_role"] = 1.0
    return features


def _is_counterpart(other: SlotFacts, facts: SlotFacts) -> bool:
    """Whether another slot holds the same values at the other end: the account that money goes to."""
    return other is not facts and other.role == 1 and other.slot.kind == "choice" and bool(set(other.slot.values) & set(facts.slot.values))


def _id_features(span: Span, facts: SlotFacts, near: Neighbours) -> Features:
    before = [token.lower for token in near.tokens[max(0, span.first - 4) : span.first]]
    direction = next((-1 if word in ("from", "of") else 1 for word in reversed(before) if word in ("from", "of", "to", "into")), 0)
    features: Features = {
        "beside": _nearest([stem(word) for word in reversed(before)], facts.words, 0.2),
        "rivals": float(sum(other.slot.pattern == facts.slot.pattern for other in near.facts.values()) - 1),
    }
    if direction and facts.role:
        features["role" if direction == facts.role else "wrong_role"] = 1.0
    return features


def _flag_features(span: Span, facts: SlotFacts, near: Neighbours) -> Features:
    named = sum(stem(part) in facts.keys for token in near.tokens for part in token.lower.split("-"))
    return {"named": float(named)}


def probability(features: Features, weights: Mapping[str, float]) -> float:
    """The logistic score of a pair."""
    score = sum(weights.get(name, 0.0) * value for name, value in features.items())
    return 1 / (1 + exp(-min(max(score, -_MOST_SCORE), _MOST_SCORE)))
