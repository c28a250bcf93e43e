"""The slot values that an amount in a text may be ("3 days" may be a span or, after "in", a day).

An amount has a unit and a value (`synth/text/read_values.py`); it fits every slot kind of that unit whose range contains the value.
Millions of rows have few distinct amounts, so each is read once and cached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from functools import cache, lru_cache
from itertools import chain

from filters.lexicon_worlds import Worlds
from storage.records import JSON
from synth.tasks.wording import load_grounding
from synth.text.datetimes import WEEKDAYS
from synth.text.read_values import Amount, amount_pattern, day_offset, read_amount
from synth.text.slot_kinds import Date, Quantity, SlotKind, Vocabulary


@cache
def _nouns(worlds: Worlds) -> Mapping[str, set[tuple[str, str]]]:
    """Nouns that make a bare number a count of something ("3 nights") -> the slot kinds (world, kind) that they count."""
    kinds_of: dict[str, set[tuple[str, str]]] = {}
    for world in worlds:
        for kind, phrases in load_grounding(world).units.items():
            for noun in chain.from_iterable(phrases.values()):
                kinds_of.setdefault(noun.lower(), set()).add((world.name, kind))
    return kinds_of


@cache
def pattern(worlds: Worlds) -> str:
    """The regular expression that finds amounts in prepared texts."""
    return amount_pattern(_nouns(worlds))


def is_clock(value: str) -> bool:
    """Whether a canonical slot value is a time of day."""
    return re.fullmatch(r"[0-9]{2}:[0-9]{2}", value) is not None


@lru_cache(maxsize=65536)
def is_bare(raw: str) -> bool:
    """Whether an amount is a mere number, which only its surroundings can make a value."""
    amount = read_amount(raw)
    return amount is not None and amount.unit == "count" and not amount.words


@lru_cache(maxsize=65536)
def values(raw: str, worlds: Worlds) -> tuple[tuple[str, str, JSON], ...]:
    """Every slot value that an amount may be: (world, kind name, canonical value), in a fixed order."""
    amount = read_amount(raw)
    if amount is None:
        return ()
    return tuple(
        (world.name, name, value)
        for world in worlds
        for name, kind in world.kinds.items()
        if (value := _as_kind(kind, name, amount, (world.name, name) in _nouns(worlds).get(amount.words, ()))) is not None
    )


def _as_kind(kind: SlotKind, name: str, amount: Amount, has_noun: bool) -> JSON:
    """The canonical value of an amount as a slot kind; None if it is none. has_noun: whether the amount's noun counts this kind."""
    unit, value, words = amount
    if isinstance(kind, Quantity):
        if unit == "day":
            return _far(kind, name, words)
        fits = has_noun if words else kind.unit == unit or (unit == "count" and kind.unit == "stars")
        whole = kind.unit != "count" or value.is_integer()
        return kind.canonical(value) if fits and whole and kind.low <= value <= kind.high else None
    if isinstance(kind, Date) and unit == "day":
        days = day_offset(words, kind.today)
        return days if 0 <= days <= kind.horizon_days else None
    if isinstance(kind, Vocabulary) and unit == "clock":
        text = f"{int(value) // 60:02d}:{int(value) % 60:02d}"
        return text if text in kind.names else None
    return None


def _far(kind: Quantity, name: str, text: str) -> JSON:
    """The number of days of a day beyond the horizon ("in 30 days"), for worlds with a slot kind `far_...`."""
    if not name.startswith("far_") or not re.search("天|day|week", text) or any(day.lower() in text for day in WEEKDAYS):
        return None
    days = day_offset(text, date(2026, 1, 1))
    return days if kind.low <= days <= kind.high else None
