"""From a row of symbol classes to a frame: which intent explains best what a text mentions, and which symbol fills which slot.

One idea: an intent explains a text if its required slots find values and its cues are there; of those that do, the one that leaves
least unexplained wins. Nothing knows a template: cues are words, roles are what stands beside a value ("from", 附近), so wordings that
nobody has seen parse as long as they say what they mean. A tie is `ambiguous`; a value that no slot takes is `unparsed`.

It sees classes (kinds and cues), never values, so that a result holds for every text of the same classes (`ground.py` fills in values).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from filters.lexicon import GAP, Cue, Kind, SymbolClass, role_cues
from synth.wording import load_grounding
from synth.worlds import WORLDS

VERSION = 1
MIN_SCORE = -1.0
"""What an explanation must score at least: below, the text mentions an intent's values but does not ask for it."""

_TIE = 0.01
_A_SLOT, _BEST_FIT = 0.5, 3.2
_MOST_A_SLOT = _A_SLOT + _BEST_FIT / 12

Reason = Literal["missing_tool", "missing_information", "not_actionable", "unknown", "ambiguous", "unparsed"]


@dataclass(frozen=True, slots=True)
class SlotRule:
    name: str
    kind: Kind
    is_required: bool
    before: tuple[Cue, ...]
    after: tuple[Cue, ...]
    is_last: bool
    """Whether of several values of its kind the last is meant."""
    beside: str | None
    is_repeatable: bool
    """Whether a text may name the value twice ("the cheapest lamp and the cheapest mug")."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An intent as the parser sees it. needed: all must be there; wanted: one of each group should; telling: what speaks for it; cues: all
    that does not speak against it."""

    world: str
    intent: str
    slots: tuple[SlotRule, ...]
    needed: frozenset[Cue]
    wanted: tuple[frozenset[Cue], ...]
    unwanted: frozenset[Cue]
    telling: frozenset[Cue]
    cues: frozenset[Cue]


@dataclass(frozen=True, slots=True)
class Parse:
    """What a row of symbols says. slots: position of the symbol of each slot; repeats: positions that must hold the same value again;
    unexplained: symbols that were passed over (they lower the quality)."""

    world: str
    intent: str
    slots: tuple[tuple[str, int], ...]
    repeats: tuple[tuple[str, int], ...] = ()
    unexplained: int = 0


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """One rule an intent, of all worlds."""
    return tuple(_rule(world, name) for world in WORLDS for name in WORLDS[world].intents)


def _rule(world: str, name: str) -> Rule:
    grounding, intent = load_grounding(world), WORLDS[world].intents[name]
    given = grounding.intents.get(name, {})

    def cues(key: str) -> frozenset[Cue]:
        return frozenset((world, cue) for cue in given.get(key, ()))

    slots = []
    for slot in intent.slots:
        roles = grounding.roles.get(slot.name, {})
        slots.append(
            SlotRule(
                name=slot.name,
                kind=(world, slot.kind),
                is_required=slot.is_required,
                before=tuple((world, cue) for cue in roles.get("before", ())),
                after=tuple((world, cue) for cue in roles.get("after", ())),
                is_last=slot.name in given.get("last", ()),
                beside=next(iter(roles.get("beside", ())), None),
                is_repeatable="repeats" in roles,
            )
        )
    wanted = tuple(group for group in (cues("any"), cues("some")) if group)
    telling = cues("all") | cues("plus") | frozenset().union(*wanted)
    return Rule(world, name, tuple(slots), cues("all"), wanted, cues("none"), telling, telling | cues("may"))


@dataclass(frozen=True, slots=True)
class _Context:
    """A row of symbols, and what is next to each: cues before and after it, each with its weight (1, or 0.5 across unread text)."""

    symbols: tuple[SymbolClass | None, ...]
    values: tuple[int, ...]
    before: tuple[tuple[frozenset[Cue], float], ...]
    after: tuple[tuple[frozenset[Cue], float], ...]
    cues: frozenset[Cue]


def _context(symbols: Sequence[SymbolClass | None]) -> _Context:
    def side(step: int) -> tuple[tuple[frozenset[Cue], float], ...]:
        found = []
        for index in range(len(symbols)):
            other, weight = index + step, 1.0
            if 0 <= other < len(symbols) and symbols[other] is None:
                other, weight = other + step, 0.5
            neighbour = symbols[other] if 0 <= other < len(symbols) else None
            found.append((neighbour.cues if neighbour is not None else frozenset(), weight))
        return tuple(found)

    return _Context(
        symbols=tuple(symbols),
        values=tuple(index for index, symbol in enumerate(symbols) if symbol is not None and symbol.kinds),
        before=side(-1),
        after=side(1),
        cues=frozenset().union(*(symbol.cues for symbol in symbols if symbol is not None)),
    )


def parse(symbols: Sequence[SymbolClass | None]) -> Parse | Reason:
    """The best explanation of a row of symbols (None: unread text), or why there is none."""
    context = _context(symbols)
    hopes, is_short_of_slots = _hopes(context)
    found: list[tuple[float, Parse, int]] = []
    best = -math.inf
    for ceiling, _, rule in hopes:
        if ceiling < best - _TIE:
            break
        explained = _explain(rule, context)
        if explained is not None:
            found.append(explained)
            best = max(best, explained[0])
    if not found:
        if is_short_of_slots:
            return "missing_information"
        return "unknown" if context.values or context.cues else "not_actionable"
    found.sort(key=lambda item: -item[0])
    score, chosen, strong = found[0]
    if score < MIN_SCORE and not strong:
        return "unknown"
    if len(found) > 1 and score - found[1][0] < _TIE:
        return "ambiguous"
    return "unparsed" if strong else chosen


def _hopes(context: _Context) -> tuple[list[tuple[float, int, Rule]], bool]:
    """The rules that may explain the symbols, each with the most that it can score, best first; and whether an intent's cues are there
    but not its slots."""
    masks = [_masks(symbol) for symbol in context.symbols if symbol is not None]
    cues = functools.reduce(operator.or_, (mask.cues for mask in masks), 0)
    kinds = functools.reduce(operator.or_, (mask.kinds for mask in masks), 0)
    values = [mask for mask in masks if mask.kinds]
    hopes = []
    is_short = False
    for order, (rule, mask) in enumerate(_ruled()):
        if mask.needed & ~cues or mask.unwanted & cues:
            continue
        if mask.required & ~kinds:
            is_short |= bool(mask.needed) and bool(values)
            continue
        lost = sum(1 for value in values if value.written and not value.kinds & mask.kinds and not value.cues & mask.cues)
        missing = sum(1 for group in mask.wanted if not group & cues)
        ceiling = min(len(rule.slots), len(values)) * _MOST_A_SLOT + (mask.telling & cues).bit_count() - 3.0 * lost - 2.0 * missing
        hopes.append((ceiling, order, rule))
    hopes.sort(key=lambda hope: (-hope[0], hope[1]))
    return hopes, is_short


class _Bits:
    """Numbers the kinds and cues that are met, so that sets of them are integers."""

    def __init__(self) -> None:
        self._bits: dict[Kind | Cue, int] = {}

    def of(self, names: Iterable[Kind | Cue]) -> int:
        return functools.reduce(operator.or_, (self._bits.setdefault(name, 1 << len(self._bits)) for name in names), 0)


_KIND_BITS, _CUE_BITS = _Bits(), _Bits()


@dataclass(frozen=True, slots=True)
class _SymbolMask:
    kinds: int
    written: int
    cues: int


@dataclass(frozen=True, slots=True)
class _RuleMask:
    kinds: int
    required: int
    cues: int
    needed: int
    unwanted: int
    telling: int
    wanted: tuple[int, ...]


@lru_cache(maxsize=4096)
def _masks(symbol: SymbolClass) -> _SymbolMask:
    return _SymbolMask(_KIND_BITS.of(symbol.kinds), _KIND_BITS.of(symbol.written), _CUE_BITS.of(symbol.cues))


@lru_cache(maxsize=1)
def _ruled() -> tuple[tuple[Rule, _RuleMask], ...]:
    return tuple(
        (
            rule,
            _RuleMask(
                kinds=_KIND_BITS.of(slot.kind for slot in rule.slots),
                required=_KIND_BITS.of(slot.kind for slot in rule.slots if slot.is_required),
                cues=_CUE_BITS.of(rule.cues),
                needed=_CUE_BITS.of(rule.needed),
                unwanted=_CUE_BITS.of(rule.unwanted),
                telling=_CUE_BITS.of(rule.telling),
                wanted=tuple(_CUE_BITS.of(group) for group in rule.wanted),
            ),
        )
        for rule in rules()
    )


def _explain(rule: Rule, context: _Context) -> tuple[float, Parse, int] | None:
    """(score, parse, values that no slot takes) of an intent, or None where a required slot finds no value."""
    assigned, gain = _assign(rule, context)
    if assigned is None:
        return None
    taken = set(assigned.values())
    slot_of_kind = {slot.kind: slot.name for slot in rule.slots if slot.is_repeatable and slot.name in assigned}
    repeats, strong, weak = [], 0, 0
    for position in context.values:
        symbol = context.symbols[position]
        if position in taken or symbol is None or symbol.cues & rule.cues:
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
    """Cues of the intent's own world that it has no use for."""
    neutral = rule.cues | role_cues()
    pure = (symbol.cues for symbol in context.symbols if symbol is not None and not symbol.kinds)
    return {own for cues in pure if (own := frozenset(cue for cue in cues if cue[0] == rule.world)) and not cues & neutral}


def _assign(rule: Rule, context: _Context) -> tuple[dict[str, int] | None, float]:
    """Position by slot name, and what the roles gained; None where a required slot stays empty.

    A name that is a cue of the intent as well ("a hotel in Riverside District and a bakery near it") counts as the cue, unless a
    required slot needs it: then the last of them does not.
    """
    telling = rule.needed.union(*rule.wanted)
    doubles = [position for position in context.values if (symbol := context.symbols[position]) is not None and symbol.cues & telling]
    for start in range(len(doubles), -1, -1):
        cues = frozenset(doubles[:start])
        assigned, gain = _filled(rule, context, [position for position in context.values if position not in cues])
        if all(slot.name in assigned for slot in rule.slots if slot.is_required):
            return assigned, gain
    return None, 0.0


def _filled(rule: Rule, context: _Context, free: list[int]) -> tuple[dict[str, int], float]:
    """The best match of slots with the values at the `free` positions, and what it gained."""
    assigned: dict[str, int] = {}
    gain = 0.0
    for is_beside in (False, True):
        slots = [slot for slot in rule.slots if (slot.beside is not None) is is_beside]
        offers = [
            (-_fit(slot, position, context, assigned), position, order, slot.name)
            for order, slot in enumerate(slots)
            for position in free
            if slot.kind in _kinds_at(context, position) and position not in assigned.values()
        ]
        for cost, position, _, name in sorted(offers):
            if name not in assigned and position not in assigned.values():
                assigned[name] = position
                gain += _A_SLOT + max(0.0, -cost) / 12
    _set_in_order(rule, assigned)
    return assigned, gain


def _set_in_order(rule: Rule, assigned: dict[str, int]) -> None:
    """Slots that nothing but their order tells apart (first stop, second stop) take their values in the order of the text."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for slot in rule.slots:
        if slot.name in assigned and slot.beside is None and not slot.is_last:
            alike.setdefault((slot.kind, slot.before, slot.after), []).append(slot.name)
    for names in alike.values():
        assigned.update(zip(names, sorted(assigned[name] for name in names), strict=True))


def _fit(slot: SlotRule, position: int, context: _Context, assigned: dict[str, int]) -> float:
    """How well a symbol's surroundings suit a slot: 3 where a role cue stands beside it, rather before than after; less across
    unread text."""
    if slot.beside is not None:
        return 3.0 if assigned.get(slot.beside) == _neighbour(position, context, assigned) else 0.0
    before, after = context.before[position], context.after[position]
    fits = [3.0 - 0.5 * rank for rank, cue in enumerate(slot.before) if cue in before[0]]
    fits = [(fit + 0.1) * before[1] for fit in fits] + [
        (3.0 - 0.5 * rank) * after[1] for rank, cue in enumerate(slot.after) if cue in after[0]
    ]
    if slot.is_last and position == max(other for other in context.values if slot.kind in _kinds_at(context, other)):
        fits.append(1.0)
    return max(fits, default=0.0) + (0.1 if slot.is_required else 0.0)


def _kinds_at(context: _Context, position: int) -> frozenset[Kind]:
    symbol = context.symbols[position]
    return symbol.kinds if symbol is not None else frozenset()


def _neighbour(position: int, context: _Context, assigned: dict[str, int]) -> int:
    """The position of the value that this one describes: the next symbol if a slot took it, else the one before; -1 for none."""
    taken = set(assigned.values())
    symbols = context.symbols
    for other in (position + 1, position - 1):
        if other in taken and 0 <= other < len(symbols):
            return other
    return -1


def classes_of(codes: Sequence[int], classes: Sequence[SymbolClass]) -> tuple[SymbolClass | None, ...]:
    return tuple(None if code == GAP else classes[code] for code in codes)


def nearest(symbols: Sequence[SymbolClass | None]) -> list[tuple[float, str]]:
    """(how much of the symbols it may explain, leaf) of the intents that may be meant, the best first; complete requests or not."""
    hopes, _ = _hopes(_context(symbols))
    return [(ceiling, WORLDS[rule.world].intents[rule.intent].leaf) for ceiling, _, rule in hopes if ceiling >= 0]
