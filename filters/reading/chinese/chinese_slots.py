"""Which place of a Chinese text fills which slot of an intent, by odds that are set by hand.

One idea: as in `slots.py`, a place is judged by relations and not by words of a world: do the words beside it stand beside the slot in the
world's own wording, does a label of the slot stand before it, does its unit fit, is it led to and ended as names are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from filters.reading.chinese.chinese_compiled import ChineseIntent, ChineseSlot
from filters.reading.chinese.chinese_spans import ChineseSpan, bounds_of
from filters.reading.chinese.chinese_words import idle_after, idle_before, known_words, said_nothing, words
from filters.reading.spans import ANY_ID

_OF_KIND = {"id": 2.0, "day": 1.5, "time": 1.5, "amount": 1.0, "choice": 1.5, "mark": 1.0, "name": -1.5}
"""Odds (logarithms) of a place that may fill a slot, by its kind."""
_ODDS: Mapping[str, float] = {
    **{"before": 1.0, "after": 0.6, "label": 1.5},  # a character as in the world's own wording; a label of the slot before it
    **{"no_unit": -2.0, "out_of_range": -3.0, "no_bound": -0.3},  # of an amount
    **{"character": 0.3, "single": -2.0, "known_name": 1.0, "part_of_name": -2.0},  # of a value of a choice or name
    **{"said_nothing": -3.0, "long": -0.08, "no_start": -4.0, "lead_inside": -2.0, "several": -3.0, "short": -1.5},  # of a name
    **{"lead": 0.7, "lead_character": 0.5, "end": 0.7, "shown": 2.0, "asked": 1.5, "break": 0.5},
}
_NO_NAME = -6.0
_MOST_BEFORE, _MOST_AFTER, _MOST_CHARACTERS = 3, 2, 4
_USUAL_NAME, _SHORT_NAME, _STRONG = 8, 2, 1.5
"""Characters of a name that is not long; of one that needs a lead of more than one character; how much such a lead counts."""
_SHOWN = re.compile(r"[这那][个家道座间种款]?")
"""What stands between a name and the noun of its kind: 地坛这个景点."""
_CLAUSE_END = re.compile(r"[。,!?;]")
_BREAKS = "。,!?"
_LABEL_REACH, _LABEL_AFTER = 8, 2
"""Characters between a label and its value, and between a value and its label, at most."""
_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class ChineseFilled:
    """A slot with the place that fills it, the value in the slot's unit, and the probability that it does."""

    slot: str
    span: ChineseSpan
    value: Any
    probability: float


def scored(text: str, intent: ChineseIntent, spans: Sequence[ChineseSpan]) -> list[ChineseFilled]:
    """Every slot with every place of a plain text that may fill it."""
    return list(_pairs(text, intent, spans))


def _pairs(text: str, intent: ChineseIntent, spans: Sequence[ChineseSpan]) -> Iterator[ChineseFilled]:
    for name, facts in intent.slots.items():
        for span in spans:
            value = _value(span, facts, bool(intent.partners[name]))
            if value is not None:
                odds = _odds(text, span, facts, spans) + (_name_odds(text, span, facts, intent) if span.kind == "name" else 0.0)
                yield ChineseFilled(name, span, value, 1 / (1 + exp(-odds)))


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
    before, after = text[: span.start], text[span.end :]
    odds = _OF_KIND[span.kind]
    odds += _ODDS["before"] * min(_MOST_BEFORE, max((_shared(before[::-1], each[::-1]) for each in facts.before), default=0))
    odds += _ODDS["after"] * min(_MOST_AFTER, max((_shared(after, each) for each in facts.after), default=0))
    if span.kind == "amount":
        odds += _amount_odds(span, facts)
    if span.kind == "choice":
        odds += _choice_odds(text, span, facts, spans)
    return odds + _ODDS["label"] * any(label in _before(text, span, spans) for label in facts.labels)


def _amount_odds(span: ChineseSpan, facts: ChineseSlot) -> float:
    slot = facts.slot
    value = span.value * (slot.units.get(span.unit) or 1.0)
    odds = 0.0 if span.unit else _ODDS["no_unit"]
    odds += _ODDS["out_of_range"] * (not slot.low <= value <= slot.high)
    return odds + _ODDS["no_bound"] * bool(slot.bound and span.low == span.high)


def _choice_odds(text: str, span: ChineseSpan, facts: ChineseSlot, spans: Sequence[ChineseSpan]) -> float:
    length = span.end - span.start
    is_beside = any(other.kind in ("choice", "id") and (other.end == span.start or other.start == span.end) for other in spans)
    odds = _ODDS["character"] * min(_MOST_CHARACTERS, length) + _ODDS["single"] * (length == 1 and not is_beside)
    if facts.slot.kind == "name":
        begins = idle_before(text, span.start) or _led(text[: span.start], facts)
        odds += _ODDS["known_name"] if begins and idle_after(text, span.end, facts.ends) else _ODDS["part_of_name"]
    return odds


def _before(text: str, span: ChineseSpan, spans: Sequence[ChineseSpan]) -> str:
    """What stands shortly before a place: in its clause, and behind the value before it."""
    end = span.core[0] if span.kind == "amount" else span.start
    borders = [other.end for other in spans if other is not span and other.kind != "name" and other.end <= end]
    return _CLAUSE_END.split(text[max(0, end - _LABEL_REACH, *borders) : end])[-1]


def _name_odds(text: str, span: ChineseSpan, facts: ChineseSlot, intent: ChineseIntent) -> float:
    """How likely a place is a name at all, and one of this slot's."""
    before, after, said = text[: span.start], text[span.end :], text[span.start : span.end]
    idle = said_nothing(text)[span.start : span.end]
    unknown = known_words().sub("", said)
    if len(unknown) <= 1 and (not unknown or idle[said.index(unknown)]):
        return _NO_NAME
    led = _led(before, facts)
    odds = _ODDS["said_nothing"] * sum(idle) / len(idle) + _ODDS["long"] * max(0, len(said) - _USUAL_NAME)
    odds += _ODDS["no_start"] * said.startswith(words("no_starts")) + _ODDS["lead_inside"] * said.startswith(facts.leads)
    odds += _ODDS["several"] * any(word in said[2:-2] for word in words("inner"))
    odds += _ODDS["short"] * (len(said) == _SHORT_NAME and led < _STRONG)
    odds += led + _ODDS["end"] * after.startswith(facts.ends) + _ODDS["break"] * (not after or after[0] in _BREAKS)
    shown = _SHOWN.match(after)
    if shown is not None:
        noun = after[shown.end() :]
        is_own = noun.startswith(tuple(facts.labels)) or (facts.names_row and intent.world.nouns.match(noun) is not None)
        return odds + _ODDS["shown"] * is_own
    is_asked = facts.names_row and after.startswith("的")
    is_asked = is_asked and any(each.asked is not None and each.asked.match(after, 1) for each in intent.slots.values())
    return odds + _ODDS["asked"] * is_asked


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
    longest = next((len(lead) for lead in facts.kind_leads if before.endswith(lead)), 0)
    return _ODDS["lead"] + _ODDS["lead_character"] * longest if longest else 0.0


def fill(every: Sequence[ChineseFilled], intent: ChineseIntent) -> tuple[ChineseFilled, ...]:
    """The best filling, greedily; a place is taken once, but by the two slots that bound the same."""
    filled: list[ChineseFilled] = []

    def order(each: ChineseFilled) -> tuple[Any, ...]:  # marks last, as a label of a value asks for nothing
        return each.span.kind == "mark", -each.probability, each.span.start - each.span.end, each.slot

    for each in sorted(every, key=order):
        if each.probability < _LEAST or any(each.slot == other.slot or _labels(each, other, intent) for other in filled):
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
        or 0 <= mark.span.start - other.span.end <= _LABEL_AFTER
        or mark.span.overlaps(other.span)
    )


def rival_of(every: Sequence[ChineseFilled], filled: Sequence[ChineseFilled]) -> float:
    """Highest probability of another filling of one of the filled places or slots."""
    rival = 0.0
    for mine in filled:
        for other in every:
            is_other_slot = other.span is mine.span and other.slot != mine.slot and not any(other.slot == each.slot for each in filled)
            is_other_place = other.slot == mine.slot and not other.span.overlaps(mine.span)
            if is_other_slot or is_other_place:
                rival = max(rival, other.probability)
    return rival
