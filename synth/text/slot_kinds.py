"""Kinds of slot values: a vocabulary, a quantity, an identifier or a date.

A world declares its slot kinds by name (`World.kinds`). A slot kind defines the canonical values of a slot, the values that plans and
records hold; `value_spellings.py` writes a canonical value as people do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from storage.records import Language


class OpenNames(dict[str, Mapping[Language, str]]):
    """Names of values, of which others may come up: one that is not there stands for itself in both languages."""

    def __missing__(self, value: str) -> Mapping[Language, str]:
        return {"en": value, "zh": value}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A slot kind with a finite set of canonical values, or with some that are known (`OpenNames`).

    names: canonical value -> language -> plain name. Synonyms are wording; they are in `grounding.yaml` beside the world.
    """

    names: Mapping[str, Mapping[Language, str]]

    @property
    def is_open(self) -> bool:
        """Whether a value may be any name."""
        return isinstance(self.names, OpenNames)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A slot kind that is a number in a unit. A canonical value is an int, or a float with at most one decimal.

    unit: m, minutes, yuan, dollars, stars, count, or a unit of `value_spellings`, such as nights or kg.
    low, high: inclusive bounds, in the unit.
    choices: usual values, in the unit.
    """

    unit: str
    low: float
    high: float
    choices: tuple[float, ...]

    @property
    def has_decimals(self) -> bool:
        """Whether a usual value is not a whole number."""
        return any(isinstance(choice, float) and not choice.is_integer() for choice in self.choices)

    def canonical(self, value: float) -> int | float:
        """The canonical form of a value: a float with one decimal if usual values have decimals, else an int if the value is whole."""
        if self.has_decimals:
            return round(float(value), 1)
        return int(value) if float(value).is_integer() else value


@dataclass(frozen=True, slots=True)
class Identifier:
    """A slot kind that is an opaque identifier, e.g. an order `o17`.

    pattern: regular expression without look-around; it matches a whole identifier in normalised text.
    choices: identifiers that exist in every seed.
    """

    pattern: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Date:
    """A slot kind that is a day. A canonical value is the number of days after `today`, from 0 to `horizon_days`.

    today: the fixed current day of the world.
    is_bare: whether wording puts a preposition before the value ("to May 21"); its spellings then have none.
    """

    horizon_days: int
    today: date = date(2026, 5, 13)
    is_bare: bool = False


SlotKind = Vocabulary | Quantity | Identifier | Date
