"""From a row of symbol classes to a frame: chooses the intent that explains a text best, and the symbol that fills each slot.

An intent explains a text if the text has its cues and a value for each required slot. The intent that leaves the least unexplained wins.
The parser knows no templates: cues are words, and roles are the words beside a value ("from", 附近), so it also parses new wordings. A tie
is `ambiguous`; a text with a value that no slot takes is `unparsed`.

The parser reads classes (kinds and cues), not values, so one result serves all texts with the same classes. `ground.py` adds the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from filters.grounding.intent_index import Rule, SlotRule, masks_of, possible_rules
from filters.grounding.lexicon import GAP, Cue, Kind, SymbolClass
from filters.lexicon_worlds import Worlds

MIN_SCORE = -1.0
"""Lowest score of an explanation. Below it, the text mentions values of the intent but does not ask for it."""
_TIE = 0.01
_A_SLOT, _BEST_FIT = 0.5, 3.2
_MOST_A_SLOT = _A_SLOT + _BEST_FIT / 12
Reason = Literal["missing_tool", "missing_information", "not_actionable", "unknown", "ambiguous", "unparsed"]


@dataclass(frozen=True, slots=True)
class Parse:
    """The result for a row of symbols.

    slots: (slot name, position of its symbol).
    repeats: (slot name, position of a symbol that must have the same value again).
    unexplained: number of symbols without a use; they lower the quality score.
    """

    world: str
    intent: str
    slots: tuple[tuple[str, int], ...]
    repeats: tuple[tuple[str, int], ...] = ()
    unexplained: int = 0


@dataclass(frozen=True, slots=True)
class _Context:
    """A row of symbols and what the parser needs to know about it.

    values: positions of symbols that may be values.
    before, after: position of a value -> the cues beside it, and their weight (1, or 0.5 if unread text lies between).
    cues: cues of all symbols.
    """

    symbols: tuple[SymbolClass | None, ...]
    values: tuple[int, ...]
    before: dict[int, tuple[frozenset[Cue], float]]
    after: dict[int, tuple[frozenset[Cue], float]]
    cues: frozenset[Cue]


_NOTHING: frozenset[Cue] = frozenset()


def _beside(symbols: tuple[SymbolClass | None, ...], position: int, step: int) -> tuple[frozenset[Cue], float]:
    other, weight = position + step, 1.0
    if 0 <= other < len(symbols) and symbols[other] is None:
        other, weight = other + step, 0.5
    neighbour = symbols[other] if 0 <= other < len(symbols) else None
    return (_NOTHING if neighbour is None or neighbour.is_idle else neighbour.cues), weight


def _context(symbols: tuple[SymbolClass | None, ...]) -> _Context:
    values = tuple(position for position, symbol in enumerate(symbols) if symbol is not None and symbol.kinds)
    return _Context(
        symbols=symbols,
        values=values,
        before={position: _beside(symbols, position, -1) for position in values},
        after={position: _beside(symbols, position, 1) for position in values},
        cues=_NOTHING.union(*[symbol.cues for symbol in symbols if symbol is not None]),
    )


def parse(symbols: tuple[SymbolClass | None, ...], worlds: Worlds) -> Parse | Reason:
    """The best explanation of a row of symbols (None: unread text), or why there is none."""
    context = _context(symbols)
    ranked_rules, is_short_of_slots = _rank_rules(context, worlds)
    candidates: list[tuple[float, Parse, int]] = []
    best = -math.inf
    for ceiling, _, rule in ranked_rules:
        if ceiling < best - _TIE:
            break
        explained = _explain(rule, context)
        if explained is None:
            is_short_of_slots |= bool(rule.needed)
        else:
            candidates.append(explained)
            best = max(best, explained[0])
    if not candidates:
        if is_short_of_slots:
            return "missing_information"
        return "unknown" if context.values or context.cues else "not_actionable"
    candidates.sort(key=lambda item: -item[0])
    score, winner, strong = candidates[0]
    if score < MIN_SCORE and not strong:
        return "missing_information" if is_short_of_slots else "unknown"
    if len(candidates) > 1 and score - candidates[1][0] < _TIE:
        return "ambiguous"
    return "unparsed" if strong else winner


def _rank_rules(context: _Context, worlds: Worlds) -> tuple[list[tuple[float, int, Rule]], bool]:
    """(highest possible score, order, rule) of the rules that may explain the symbols, best first; and whether the text has the cues of an
    intent without its slots."""
    masks = [masks_of(symbol) for symbol in context.symbols if symbol is not None]
    cues = kinds = 0
    for symbol in masks:
        cues |= symbol.cues
        kinds |= symbol.kinds
    rules, is_short = possible_rules(worlds, cues, kinds)
    written = [mask for mask in masks if mask.written]
    count = len(context.values)
    ranked = []
    for order, rule, mask, gain in rules:
        rule_kinds, rule_cues, lost = mask.kinds, mask.cues, 0
        for value in written:
            if not value.kinds & rule_kinds and not value.cues & rule_cues:
                lost += 1
        ranked.append((min(len(rule.slots), count) * _MOST_A_SLOT + gain - 3.0 * lost, order, rule))
    ranked.sort(key=lambda entry: (-entry[0], entry[1]))
    return ranked, is_short


def _explain(rule: Rule, context: _Context) -> tuple[float, Parse, int] | None:
    """(score, parse, values that no slot takes) of an intent, or None where a required slot finds no value."""
    assigned, gain = _assign(rule, context)
    if assigned is None:
        return None
    used = set(assigned.values())
    slot_of_kind = {slot.kind: slot.name for slot in rule.slots if slot.is_repeatable and slot.name in assigned}
    repeats, strong, weak = [], 0, 0
    for position in context.values:
        symbol = context.symbols[position]
        if position in used or symbol is None or symbol.cues & rule.cues:
            continue
        again = next((slot_of_kind[kind] for kind in symbol.kinds if kind in slot_of_kind), None)
        if again is not None:
            repeats.append((again, position))
        elif symbol.written:
            strong += 1
        else:
            weak += 1
    odd = _odd_cues(rule, context)
    matched = rule.telling & context.cues
    score = gain + len(matched) - 3.0 * strong - weak - len(odd) - 0.1 * len(repeats)
    score -= sum(2.0 for group in rule.wanted if not group & context.cues)
    return score, Parse(rule.world, rule.intent, tuple(sorted(assigned.items())), tuple(repeats), weak + len(odd)), strong


def _odd_cues(rule: Rule, context: _Context) -> set[frozenset[Cue]]:
    """Cues of the intent's world that do not belong to the intent."""
    odd = set()
    for symbol in context.symbols:
        if symbol is not None and not symbol.kinds and not symbol.cues & rule.neutral:
            cues = frozenset(cue for cue in symbol.cues if cue[0] == rule.world)
            if cues:
                odd.add(cues)
    return odd


def _assign(rule: Rule, context: _Context) -> tuple[dict[str, int] | None, float]:
    """Position by slot name, and the score of the roles; None where a required slot stays empty.

    A name that is a cue of the intent as well ("a hotel in Riverside District and a bakery near it") counts as the cue, unless a
    required slot needs it: then the last of them does not.
    """
    telling = rule.needed.union(*rule.wanted)
    doubles = [position for position in context.values if (symbol := context.symbols[position]) is not None and symbol.cues & telling]
    for start in range(len(doubles), -1, -1):
        cues = frozenset(doubles[:start])
        assigned, gain = _fill_slots(rule, context, [position for position in context.values if position not in cues])
        if all(slot.name in assigned for slot in rule.slots if slot.is_required):
            return assigned, gain
    return None, 0.0


def _fill_slots(rule: Rule, context: _Context, free: list[int]) -> tuple[dict[str, int], float]:
    """The best match of slots with the values at the `free` positions, and its score."""
    assigned: dict[str, int] = {}
    used: set[int] = set()
    gain = 0.0
    for slots in rule.phases:
        offers = []
        for position in free:
            if position in used:
                continue
            symbol = context.symbols[position]
            assert symbol is not None
            for order, slot, needs_role in _takers(slots, symbol):
                fit = _fit(slot, position, context, assigned)
                if fit >= 1 or not needs_role:
                    offers.append((-fit, position, order, slot.name))
        for cost, position, _, name in sorted(offers):
            if name not in assigned and position not in used:
                assigned[name] = position
                used.add(position)
                gain += _A_SLOT + max(0.0, -cost) / 12
    _set_in_order(rule, assigned)
    return assigned, gain


@lru_cache(maxsize=1 << 15)
def _takers(slots: tuple[SlotRule, ...], symbol: SymbolClass) -> tuple[tuple[int, SlotRule, bool], ...]:
    """(order, slot, whether only beside a cue of its role) of the slots that may take a symbol."""
    return tuple(
        (order, slot, slot.is_amount and slot.kind in symbol.read) for order, slot in enumerate(slots) if slot.kind in symbol.kinds
    )


def _set_in_order(rule: Rule, assigned: dict[str, int]) -> None:
    """Interchangeable slots (first stop, second stop) take their values in the order of the text."""
    for names in rule.interchangeable:
        here = [name for name in names if name in assigned]
        if len(here) > 1:
            assigned.update(zip(here, sorted(assigned[name] for name in here), strict=True))


def _fit(slot: SlotRule, position: int, context: _Context, assigned: dict[str, int]) -> float:
    """How well a symbol's surroundings suit a slot: 3 where a role cue stands beside it, rather before than after; less across
    unread text."""
    if slot.beside is not None:
        return 3.0 if assigned.get(slot.beside) == _neighbour(position, context, assigned) else 0.0
    fit = 0.0
    for cues, (neighbours, weight), bonus in ((slot.before, context.before[position], 3.1), (slot.after, context.after[position], 3.0)):
        for rank, cue in enumerate(cues):
            if cue in neighbours:
                fit = max(fit, (bonus - 0.5 * rank) * weight)
    if slot.is_last and fit < 1 and position == max(other for other in context.values if slot.kind in _kinds_at(context, other)):
        fit = 1.0
    return fit + (0.1 if slot.is_required else 0.0)


def _kinds_at(context: _Context, position: int) -> frozenset[Kind]:
    symbol = context.symbols[position]
    return symbol.kinds if symbol is not None else frozenset()


def _neighbour(position: int, context: _Context, assigned: dict[str, int]) -> int:
    """The position of the value that this one describes: the next symbol if a slot took it, else the one before; -1 for none."""
    used = set(assigned.values())
    symbols = context.symbols
    for other in (position + 1, position - 1):
        if other in used and 0 <= other < len(symbols):
            return other
    return -1


def classes_of(codes: Sequence[int], classes: Sequence[SymbolClass]) -> tuple[SymbolClass | None, ...]:
    return tuple(None if code == GAP else classes[code] for code in codes)
