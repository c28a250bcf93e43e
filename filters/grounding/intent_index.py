"""The rules of the parser: for each intent, the required cues and slots, the cues that speak for it, and the cues of its slots' roles.

Rules come from the worlds' declarations and `grounding.yaml`. Sets of kinds and cues are integers (`RuleMask`), because every row of
symbols is compared with all rules. `nearest` finds the leaf of a text from its kinds and cues alone, even if the request is incomplete.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from filters.grounding.lexicon import Cue, Kind, SymbolClass, role_cues
from filters.lexicon_worlds import Worlds
from synth.tasks.wording import load_grounding
from synth.text.slot_kinds import Quantity
from synth.worlds.base import World

_MIN_NEARNESS = 0.5
"""Lowest score of a leaf: cues and kinds of values that match, less half for each missing kind."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotRule:
    name: str
    kind: Kind
    is_required: bool
    before: tuple[Cue, ...]
    after: tuple[Cue, ...]
    is_last: bool
    """Whether of several values of its kind the last is meant."""
    beside: str | None
    is_amount: bool
    """Whether a mere number fills the slot only beside a cue of its role."""
    is_repeatable: bool
    """Whether a text may name the value twice ("the cheapest lamp and the cheapest mug")."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """An intent as the parser sees it.

    needed: cues that a text must have, all of them.
    wanted: groups of cues; a text should have one of each group.
    unwanted: cues that a text must not have.
    telling: cues that speak for the intent.
    cues: cues that do not speak against it.
    neutral: `cues`, and the cues of roles of all worlds.
    phases: the slots in the order in which they get values: those that stand beside another slot come last.
    interchangeable: groups of slots that differ in nothing but their order.
    """

    world: str
    intent: str
    leaf: str
    slots: tuple[SlotRule, ...]
    needed: frozenset[Cue]
    wanted: tuple[frozenset[Cue], ...]
    unwanted: frozenset[Cue]
    telling: frozenset[Cue]
    cues: frozenset[Cue]
    neutral: frozenset[Cue]
    phases: tuple[tuple[SlotRule, ...], ...]
    interchangeable: tuple[tuple[str, ...], ...]


@cache
def rules(worlds: Worlds) -> tuple[Rule, ...]:
    """One rule for each intent of the worlds."""
    roles = role_cues(worlds)
    return tuple(_rule(world, name, roles) for world in worlds for name in world.intents)


def _rule(world: type[World], name: str, role_cues: frozenset[Cue]) -> Rule:
    grounding, intent = load_grounding(world), world.intents[name]
    given = grounding.intents.get(name, {})

    def cues(key: str) -> frozenset[Cue]:
        return frozenset((world.name, cue) for cue in given.get(key, ()))

    slots = []
    for slot in intent.slots:
        roles = grounding.roles.get(slot.name, {})
        slots.append(
            SlotRule(
                name=slot.name,
                kind=(world.name, slot.kind),
                is_required=slot.is_required,
                before=tuple((world.name, cue) for cue in roles.get("before", ())),
                after=tuple((world.name, cue) for cue in roles.get("after", ())),
                is_last=slot.name in given.get("last", ()),
                beside=next(iter(roles.get("beside", ())), None),
                is_amount=isinstance(world.kinds[slot.kind], Quantity),
                is_repeatable="repeats" in roles,
            )
        )
    groups = tuple(group for group in (cues("any"), cues("some")) if group)
    phases = tuple(tuple(slot for slot in slots if (slot.beside is not None) is is_beside) for is_beside in (False, True))
    telling = cues("all") | cues("plus") | frozenset().union(*groups)
    return Rule(
        world=world.name,
        intent=name,
        leaf=intent.leaf,
        slots=tuple(slots),
        needed=cues("all"),
        wanted=groups,
        unwanted=cues("none"),
        telling=telling,
        cues=telling | cues("may"),
        neutral=telling | cues("may") | role_cues,
        phases=phases,
        interchangeable=_interchangeable(slots),
    )


def _interchangeable(slots: Sequence[SlotRule]) -> tuple[tuple[str, ...], ...]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for slot in slots:
        if slot.beside is None and not slot.is_last:
            groups.setdefault((slot.kind, slot.before, slot.after), []).append(slot.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


@lru_cache(maxsize=1 << 16)
def possible_rules(worlds: Worlds, cues: int, kinds: int) -> tuple[tuple[tuple[int, Rule, RuleMask, float], ...], bool]:
    """(order, rule, its masks, score of its cues) of the rules that these cues and kinds may satisfy; and whether a rule lacks only
    slots."""
    candidates = []
    is_short = False
    for order, (rule, mask) in enumerate(_rule_masks(worlds)):
        if mask.needed & ~cues or mask.unwanted & cues:
            continue
        if mask.required & ~kinds:
            is_short |= bool(mask.needed) and bool(kinds)
            continue
        missing = sum(1 for group in mask.wanted if not group & cues)
        candidates.append((order, rule, mask, (mask.telling & cues).bit_count() - 2.0 * missing))
    return tuple(candidates), is_short


class _Bits:
    """Assigns a bit to each kind or cue, so that sets of them are integers."""

    def __init__(self) -> None:
        self._bits: dict[Kind | Cue, int] = {}

    def of(self, names: Iterable[Kind | Cue]) -> int:
        return functools.reduce(operator.or_, (self._bits.setdefault(name, 1 << len(self._bits)) for name in names), 0)


_KIND_BITS, _CUE_BITS = _Bits(), _Bits()


@dataclass(frozen=True, slots=True)
class SymbolMask:
    kinds: int
    written: int
    cues: int


@dataclass(frozen=True, slots=True)
class RuleMask:
    kinds: int
    required: int
    cues: int
    needed: int
    unwanted: int
    telling: int
    wanted: tuple[int, ...]


@lru_cache(maxsize=4096)
def masks_of(symbol: SymbolClass) -> SymbolMask:
    return SymbolMask(_KIND_BITS.of(symbol.kinds), _KIND_BITS.of(symbol.written), _CUE_BITS.of(symbol.cues))


@cache
def _rule_masks(worlds: Worlds) -> tuple[tuple[Rule, RuleMask], ...]:
    return tuple(
        (
            rule,
            RuleMask(
                kinds=_KIND_BITS.of(slot.kind for slot in rule.slots),
                required=_KIND_BITS.of(slot.kind for slot in rule.slots if slot.is_required),
                cues=_CUE_BITS.of(rule.cues),
                needed=_CUE_BITS.of(rule.needed),
                unwanted=_CUE_BITS.of(rule.unwanted),
                telling=_CUE_BITS.of(rule.telling),
                wanted=tuple(_CUE_BITS.of(group) for group in rule.wanted),
            ),
        )
        for rule in rules(worlds)
    )


def nearest(symbols: Sequence[SymbolClass | None], leaf_of: Mapping[str, str], worlds: Worlds) -> str | None:
    """The most likely leaf of a text, even if its request is incomplete; None if no score is high enough.

    Args:
        leaf_of: `world/intent` -> leaf; other intents do not count.
    """
    cues = kinds = 0
    for symbol in symbols:
        if symbol is not None:
            mask = masks_of(symbol)
            cues |= mask.cues
            kinds |= mask.kinds
    return next((leaf_of[intent] for intent in _nearest_intents(worlds, cues, kinds) if intent in leaf_of), None)


@lru_cache(maxsize=1 << 16)
def _nearest_intents(worlds: Worlds, cues: int, kinds: int) -> tuple[str, ...]:
    """The intents (world/intent) with a score of at least `_MIN_NEARNESS`, the highest first."""
    scores: list[tuple[float, int, str]] = []
    for order, (rule, mask) in enumerate(_rule_masks(worlds)):
        if not mask.telling & cues and not mask.kinds & kinds:
            continue
        score = (mask.telling & cues).bit_count() + (mask.kinds & kinds).bit_count() - (mask.required & ~kinds).bit_count() / 2
        for group in (mask.needed, *mask.wanted):
            score -= 2 * bool(group and not group & cues)
        if score >= _MIN_NEARNESS:
            scores.append((-score, order, f"{rule.world}/{rule.intent}"))
    return tuple(intent for _, _, intent in sorted(scores))
