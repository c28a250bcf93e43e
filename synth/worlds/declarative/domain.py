"""What a compiled spec is made of: entities and actions with references resolved and expressions compiled.

One idea: in a `Domain` nothing can fail any more (`resolve.py` makes it, or says everything that is wrong). Fields are known by their
place in a row (a plain tuple), entities by their number, so that calls need no look-ups by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from synth.text.slot_kinds import SlotKind
from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.language import schema, spec_schema
from synth.worlds.declarative.language.expression_types import Compiled, Part, Type
from synth.worlds.declarative.language.read import Spec
from synth.worlds.declarative.language.values import Words

CREATED_DIGITS = 1
"""Ids of rows that acts create have so many digits more than those of a fresh world."""


MAX_DAYS = 200_000
"""How far a day may be from today, either way."""


@dataclass(eq=False, slots=True)
class Field:
    """place: in the row; -1 where it is derived. words: of the values of a choice or name, by canonical value."""

    name: str
    spec: schema.FieldSpec
    type: Type
    label: Words
    place: int
    words: Mapping[str, Words] = field(default_factory=dict)
    starts: Compiled | None = None
    derived: Compiled | None = None
    filter: str = field(init=False)
    """How `search` filters by it: equal, max, min, only or none."""

    def __post_init__(self) -> None:
        usual = "none" if self.spec.detail else _FILTERS.get(self.spec.type, "equal")
        self.filter = self.spec.filter or usual

    def superlatives(self) -> dict[str, Words]:
        """`asc` and `desc` with the superlative for the row that such an order puts first; empty where there is no such order."""
        if not isinstance(self.spec, (schema.IntegerField, schema.NumberField, schema.MoneyField, schema.DateField, schema.TimeField)):
            return {}
        if self.spec.detail:
            return {}
        is_usual = self.spec.type != "money" or any(self.name.endswith(word) for word in _PRICES)
        usual = _SUPERLATIVES.get(self.spec.type, {}) if is_usual else {}
        low, high = self.spec.low or usual.get("low"), self.spec.high or usual.get("high")
        return {order: words for order, words in (("asc", low), ("desc", high)) if words is not None}


_FILTERS = {"money": "max", "integer": "min", "number": "min", "time": "none", "date": "none"}
_PRICES = ("price", "fee", "cost", "fare", "rent", "rate", "charge", "premium")
_SUPERLATIVES: Mapping[str, Mapping[str, Words]] = {
    "money": {"low": Words(en="cheapest", zh="最便宜的"), "high": Words(en="most expensive", zh="最贵的")},
    "date": {"low": Words(en="earliest", zh="最早的"), "high": Words(en="latest", zh="最晚的")},
    "time": {"low": Words(en="earliest", zh="最早的"), "high": Words(en="latest", zh="最晚的")},
}


@dataclass(eq=False, slots=True)
class Entity:
    """ids: of a fresh world. stored: fields that rows hold, in order of their places."""

    name: str
    number: int
    spec: spec_schema.EntitySpec
    plural: str
    fields: dict[str, Field]
    ids: tuple[str, ...]
    stored: tuple[Field, ...] = field(init=False)
    known_ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stored = tuple(each for each in self.fields.values() if each.place >= 0)
        self.known_ids = frozenset(self.ids)

    @property
    def noun(self) -> Words:
        return self.spec.noun

    @property
    def prefix(self) -> str:
        return self.spec.id.rstrip("#")

    @property
    def pattern(self) -> str:
        digits = self.spec.id.count("#")
        if not self.spec.grows:
            return self.prefix + r"\d" * digits
        return rf"{self.prefix}\d{{{digits},{digits + CREATED_DIGITS}}}"

    def owners(self) -> tuple[Field, ...]:
        """References to what these rows belong to."""
        return tuple(each for each in self.fields.values() if isinstance(each.spec, schema.RefField) and each.spec.owned)


@dataclass(eq=False, slots=True)
class Param:
    name: str
    spec: schema.ParamSpec
    type: Type
    label: Words
    words: Mapping[str, Words]
    default: Any = None
    is_person: bool = False
    """Whether it is the row of somebody who speaks of themselves."""
    is_either: bool = False
    """Whether another row may be given in its place."""

    @property
    def is_required(self) -> bool:
        return self.default is None and not self.is_either


@dataclass(frozen=True, slots=True)
class Condition:
    """A need or a rule. name: of a rule, else empty. message: what the tool says where it does not hold; worked_out: what stands in it, by
    the text in its place."""

    name: str
    test: Compiled
    message: str
    rule: spec_schema.Rule | None = None
    worked_out: tuple[tuple[str, Compiled], ...] = ()

    def said(self, domain: Domain, state: Any, values: Mapping[str, Any]) -> str:
        """The message, in a state."""
        text = self.message
        for place, value in self.worked_out:
            text = text.replace(place, str(outside(domain, value.type.kind, value.run(state, values))))
        return text


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of the row that `row` leads to gets the value of `value`."""

    row: Compiled
    entity: int
    place: int
    field: str
    value: Compiled


@dataclass(frozen=True, slots=True)
class Transfer:
    """amount leaves one field and arrives at another: (row, entity, place, field) each."""

    amount: Compiled
    source: tuple[Compiled, int, int, str]
    target: tuple[Compiled, int, int, str]


@dataclass(frozen=True, slots=True)
class Creation:
    entity: int
    values: tuple[Compiled, ...]
    """By place."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A number that is kept of what was done: `add` more for what the parameters in `by` are."""

    name: str
    by: tuple[str, ...]
    add: Compiled


@dataclass(frozen=True, slots=True)
class Told:
    """A value that a tool tells: a parameter as it was given (or whichever was), or what is worked out."""

    name: str
    param: str = ""
    value: Compiled | None = None


@dataclass(eq=False, slots=True)
class Act:
    """An action. params: the row that it acts on first. either: whichever of some rows is given, by its name. kept: numbers that are kept
    of it. tells: what its tool answers; nothing for the rows that changed. sights: what sets of its tests look at (`intents/sight.py`),
    kept when first asked for."""

    name: str
    number: int
    spec: spec_schema.ActionSpec
    on: Entity | None
    params: dict[str, Param]
    conditions: tuple[Condition, ...] = ()
    settings: tuple[Setting, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    creations: tuple[Creation, ...] = ()
    either: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kept: tuple[Kept, ...] = ()
    tells: tuple[Told, ...] = ()
    sights: dict[tuple[Part, ...], Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Domain:
    """digest: of what the spec says: 16 hex digits."""

    name: str
    spec: Spec
    digest: str
    entities: dict[str, Entity]
    acts: dict[str, Act]
    today: date
    by_number: tuple[Entity, ...] = ()
    """Entities by their number."""
    public: Mapping[str, Any] = field(default_factory=dict)
    """How tools and their parameters are called from outside (`naming.py`), by their names inside."""
    kinds: dict[str, SlotKind] = field(default_factory=dict)
    """Kinds of slots by name, made when they are first asked for."""
    jobs: tuple[Any, ...] = ()
    """Intents of the spec's own (`job_steps.py`)."""

    def id_key(self, entity: Entity) -> str:
        """Under which tools show the id of a row."""
        return entity.name if self.spec.head.naming.row_ids == "entity" else "id"

    def iso(self, days: int) -> str:
        """A day, counted from the domain's today, as text."""
        return (self.today + timedelta(days=max(-MAX_DAYS, min(MAX_DAYS, days)))).isoformat()


def outside(domain: Domain, kind: str, value: Any) -> Any:
    """A value of an expression as a call or an observation carries it."""
    if kind == "date":
        return domain.iso(value)
    return round(value, 2) if isinstance(value, float) else value


def is_searched(entity: Entity, filters: Sequence[Field]) -> bool:
    """Whether a search tells how many rows have these values."""
    return "search" in entity.spec.tools and all(each.filter == "equal" for each in filters)


def listing_for(entity: Entity, filters: Sequence[Field]) -> Field | None:
    """The owner whose list shows all rows with these values."""
    if any(each.spec.detail for each in filters):
        return None
    return next((each for each in entity.owners() if each in filters), None)


def key_of(entity: Entity) -> str:
    """The plural of an entity's name, for tools."""
    return plural_of(entity.name)


def filter_name(field: Field) -> str:
    """The argument by which `search` filters by a field."""
    return f"{field.filter}_{field.name}" if field.filter in ("max", "min") else field.name


def system_prompt(domain: Domain) -> str:
    """What every conversation opens with: what the business is, what day it is, and what it forbids; or what the spec says itself."""
    spec = domain.spec
    if spec.head.prompt is not None:
        return spec.head.prompt
    rules = [rule.words.en for action in spec.actions.values() for rule in action.rules.values()]
    facts = [info.words.en for info in spec.info]
    sentences = " ".join(dict.fromkeys((*rules, *facts)))
    return (
        f"You work for {spec.head.about.en}. Today is {domain.today.isoformat()}. Look at what a rule is about before you act. "
        f"Rules: {sentences} If you must refuse, say why."
    )
