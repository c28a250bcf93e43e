"""What the reader knows of a world: its intents, and the slots of these with their kinds, in words.

One idea: a reader needs no code of a world, only names and descriptions, as a tool's JSON schema has them. So a tool schema, a table's
columns and a compiled spec all become a `ReadableWorld`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

ReadableKind = Literal["day", "time", "count", "number", "money", "choice", "flag", "mark", "name", "id"]
"""What a slot holds. A count says how many of something; a number measures something else (a rating); a name is an open value (a city, a
title), which stands for itself; an id is an identifier of a known form; a mark says that something is asked for, and has one value."""
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def split_name(name: str) -> list[str]:
    """`FindRestaurants` and `find_restaurants` as the words find, restaurants."""
    return re.findall(r"[a-z]+", _CAMEL_CASE.sub(" ", name).lower())


@dataclass(frozen=True, eq=False)
class ReadableSlot:
    """A slot of an intent.

    name: in the intent.
    about: its description; may be empty.
    values: of a choice, canonical value -> how people write it.
    low, high: of a count, inclusive bounds.
    nouns: of a count, what it counts, where name and description do not say it all.
    pattern: of an id, a regular expression for a whole identifier in lower case.
    bound: of a number, -1 for at least, 1 for at most, 0 for just so many. Chinese alone; in English, words say it.
    units: of a number, unit as it is written -> factor to the slot's own. Chinese alone.
    beside: (words before, words after) the slot in the world's own wording. Chinese alone.
    key: what slots of several intents share that hold the same; its name by default.
    """

    name: str
    kind: ReadableKind
    about: str = ""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    low: float = 0
    high: float = math.inf
    nouns: frozenset[str] = frozenset()
    pattern: str = ""
    bound: int = 0
    units: Mapping[str, float] = field(default_factory=dict)
    beside: tuple[tuple[str, str], ...] = ()
    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name)


@dataclass(frozen=True, eq=False)
class ReadableIntent:
    """An intent.

    about: its description.
    slots: by name. required: names of those that it needs.
    is_act: whether it changes the state of the world where its users first ask for what there is, so that an act is the rarer wish.
    examples: other requests for it, without the values of slots.
    """

    name: str
    about: str
    slots: Mapping[str, ReadableSlot]
    required: frozenset[str]
    is_act: bool = False
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ReadableWorld:
    """A world. today: the day that "tomorrow" refers to."""

    name: str
    about: str
    intents: Mapping[str, ReadableIntent]
    today: date

    @property
    def slots(self) -> dict[str, ReadableSlot]:
        """One slot for each key."""
        return {slot.key: slot for intent in self.intents.values() for slot in intent.slots.values()}
