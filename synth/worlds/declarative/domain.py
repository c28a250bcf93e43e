"""The parts of a compiled spec: entities and actions with resolved references and compiled expressions.

One idea: a `Domain` has no errors, because `resolve.py` builds it or reports everything that is wrong. A field has a place in the row (a
plain tuple) and an entity has a number, so calls need no look-ups by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from storage.records import Language
from synth.text.slot_kinds import SlotKind
from synth.worlds.declarative.common_names import plural_of
from synth.worlds.declarative.language import schema, spec_schema
from synth.worlds.declarative.language.expression_types import Compiled, Part, Type
from synth.worlds.declarative.language.read import Spec
from synth.worlds.declarative.language.values import Words

CREATED_DIGITS = 1
"""Digits that ids of created rows have more than ids of a fresh world."""
MAX_DAYS = 200_000
"""Most days between a date and today, before or after."""


Row = tuple[Any, ...]
"""The values of an entity's stored fields by place, then the row's id."""


@dataclass(eq=False, slots=True)
class Field:
    """A field of an entity.

    place: position in the row; -1 for a derived field.
    words: names of the values of a choice or name, by canonical value.
    starts: computes the value in a fresh world from the row's other fields; None if it is drawn.
    derived: computes the value of a field that rows do not hold; None for a stored field.
    """

    name: str
    spec: schema.FieldSpec
    type: Type
    label: Words
    place: int
    words: Mapping[str, Words] = field(default_factory=dict)
    starts: Compiled | None = None
    derived: Compiled | None = None
    filter: str = field(init=False)
    """The filter of `search`: equal, max, min, between, only or none."""

    def __post_init__(self) -> None:
        usual = "none" if self.spec.detail else _FILTERS.get(self.spec.type, "equal")
        self.filter = self.spec.filter or usual

    def filters(self) -> list[Field]:
        """The field once for each argument by which `search` filters by it: `between` has `min` and `max`."""
        if self.filter != "between":
            return [self] if self.filter != "none" else []
        bounds = copy(self), copy(self)
        for bound, each in zip(("min", "max"), bounds, strict=True):
            each.filter = bound
        return [*bounds]

    def superlatives(self) -> dict[str, Words]:
        """Order (`asc`, `desc`) -> superlative of the row that this order puts first; empty if rows are not ordered by the field."""
        orderable = (schema.IntegerField, schema.NumberField, schema.MoneyField, schema.DateField, schema.TimeField)
        if self.spec.detail or not isinstance(self.spec, orderable):
            return {}
        is_usual = self.spec.type != "money" or self.name.endswith(PRICE_WORDS)
        usual = _SUPERLATIVES.get(self.spec.type, {}) if is_usual else {}
        low, high = self.spec.low or usual.get("low"), self.spec.high or usual.get("high")
        return {order: words for order, words in (("asc", low), ("desc", high)) if words is not None}


_FILTERS = {"money": "max", "integer": "min", "number": "min", "time": "none", "date": "none"}
PRICE_WORDS = ("price", "fee", "cost", "fare", "rent", "rate", "charge", "premium")
"""Endings of the names of money fields that are prices."""
_SUPERLATIVES: Mapping[str, Mapping[str, Words]] = {
    "money": {"low": Words(en="cheapest", zh="最便宜的"), "high": Words(en="most expensive", zh="最贵的")},
    "date": {"low": Words(en="earliest", zh="最早的"), "high": Words(en="latest", zh="最晚的")},
    "time": {"low": Words(en="earliest", zh="最早的"), "high": Words(en="latest", zh="最晚的")},
}


@dataclass(eq=False, slots=True)
class Entity:
    """A kind of rows.

    number: position in `Domain.by_number`.
    ids: ids of a fresh world.
    stored: fields that rows hold, in the order of their places.
    table: rows of a table of the user's own, by place; None in a cell that is drawn; of a reference the number of the row referred to.
    hidden: arguments of its search that a given signature does not offer.
    """

    name: str
    number: int
    spec: spec_schema.EntitySpec
    plural: str
    fields: dict[str, Field]
    ids: tuple[str, ...]
    stored: tuple[Field, ...] = field(init=False)
    known_ids: frozenset[str] = field(init=False)
    table: tuple[Row, ...] = ()
    hidden: frozenset[str] = frozenset()

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

    def filters(self) -> list[Field]:
        """The fields by which its search filters, each with one filter (`Field.filters`)."""
        bounds = [bound for each in self.fields.values() for bound in each.filters()]
        return [each for each in bounds if filter_name(each) not in self.hidden] if self.hidden else bounds

    def owners(self) -> tuple[Field, ...]:
        """The fields that refer to the owners of a row."""
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
    """Whether its row is a person who may be the user."""
    is_either: bool = False
    """Whether the caller may give another parameter instead (`Act.either`)."""

    @property
    def is_required(self) -> bool:
        return self.default is None and not self.is_either and not self.spec.optional


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an action: a need, or a business rule.

    name: the name of a rule; empty for a need.
    message: the tool's error if the condition is false.
    placeholders: (text in the message, expression whose value replaces it).
    """

    name: str
    test: Compiled
    message: str
    rule: spec_schema.Rule | None = None
    placeholders: tuple[tuple[str, Compiled], ...] = ()

    def error_message(self, domain: Domain, state: Any, values: Mapping[str, Any]) -> str:
        text = self.message
        for place, value in self.placeholders:
            text = text.replace(place, str(json_value(domain, value.type.kind, value.run(state, values))))
        return text


@dataclass(frozen=True, slots=True)
class Setting:
    """An action sets a field. row: the id of the row. value: the field's new value."""

    row: Compiled
    entity: int
    place: int
    field: str
    value: Compiled


@dataclass(frozen=True, slots=True)
class Transfer:
    """An action moves an amount from one field to another.

    source, target: (the id of the row, entity number, place, name of the field).
    """

    amount: Compiled
    source: tuple[Compiled, int, int, str]
    target: tuple[Compiled, int, int, str]


@dataclass(frozen=True, slots=True)
class Creation:
    """An action creates a row. entity: entity number. values: by place."""

    entity: int
    values: tuple[Compiled, ...]


@dataclass(frozen=True, slots=True)
class ActCounter:
    """A number per subject that an action increases. by: the parameters whose values are the subject. add: the increase."""

    name: str
    by: tuple[str, ...]
    add: Compiled


@dataclass(frozen=True, slots=True)
class ResultField:
    """A field of a tool's result: the value of a parameter (or of the given one of `Act.either`), or of an expression."""

    name: str
    param: str = ""
    value: Compiled | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The rows that a tool shows which only reads: those of an entity with these values.

    filters: (field, the value's expression, the optional parameter that it is alone, or an empty text).
    """

    entity: Entity
    filters: tuple[tuple[Field, Compiled, str], ...]


@dataclass(eq=False, slots=True)
class Act:
    """An action, or a tool of its own that only reads (`is_reading`).

    on: the entity of the row that it acts on; None if there is none.
    params: by name; the row that it acts on comes first.
    either: name -> parameters of which exactly one is given.
    counters: numbers that it increases.
    result_fields: the result of its tool; if empty, the result is the rows that changed.
    finding: the rows in the result of a tool that only reads.
    required_rows: cache of `intents/required_observations.py`: the rows that sets of its tests use.
    """

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
    counters: tuple[ActCounter, ...] = ()
    result_fields: tuple[ResultField, ...] = ()
    finding: Finding | None = None
    required_rows: dict[tuple[Part, ...], Any] = field(default_factory=dict)

    @property
    def is_reading(self) -> bool:
        return bool(self.spec.shows or self.spec.finds)


@dataclass(eq=False, slots=True)
class Domain:
    """A compiled spec.

    digest: 16 hex digits, a hash of the spec's content.
    by_number: entities by their number.
    public: names of tools and parameters for callers (`naming.py`), by their names in the spec.
    kinds: cache of slot kinds by name.
    jobs: the intents that the spec defines (`language/job_steps.py`).
    """

    name: str
    spec: Spec
    digest: str
    entities: dict[str, Entity]
    acts: dict[str, Act]
    today: date
    by_number: tuple[Entity, ...] = ()
    public: Mapping[str, Any] = field(default_factory=dict)
    kinds: dict[str, SlotKind] = field(default_factory=dict)
    jobs: tuple[Any, ...] = ()

    @property
    def languages(self) -> tuple[Language, ...]:
        """The languages of its users, the one of its system prompt and tools first."""
        return self.spec.languages

    def text(self, english: str, chinese: str) -> str:
        """A text of its tools or its system prompt, in the first of its languages."""
        return english if self.languages[0] == "en" else chinese

    def id_key(self, entity: Entity) -> str:
        """The key of a row's id in tool results."""
        return entity.name if self.spec.head.naming.row_ids == "entity" else "id"

    def iso(self, days: int) -> str:
        """The ISO date of a day. days: after the domain's today."""
        return (self.today + timedelta(days=max(-MAX_DAYS, min(MAX_DAYS, days)))).isoformat()


def json_value(domain: Domain, kind: str, value: Any) -> Any:
    """An expression's value as calls and observations contain it."""
    if kind == "date":
        return domain.iso(value)
    return round(value, 2) if isinstance(value, float) else value


def is_searched(entity: Entity, filters: Sequence[Field]) -> bool:
    """Whether a search can count the rows with given values of these fields."""
    can_search = all(each.filter == "equal" and filter_name(each) not in entity.hidden for each in filters)
    return "search" in entity.spec.tools and can_search


def listing_owner(entity: Entity, filters: Sequence[Field]) -> Field | None:
    """The owner field whose list shows all rows with given values of these fields; None if there is none."""
    if any(each.spec.detail for each in filters):
        return None
    return next((each for each in entity.owners() if each in filters), None)


def plural_key(entity: Entity) -> str:
    """The plural of an entity's name, as names of tools and keys of their results contain it."""
    return plural_of(entity.name)


def filter_name(field: Field) -> str:
    """The argument by which `search` filters by a field."""
    return f"{field.filter}_{field.name}" if field.filter in ("max", "min") else field.name


def system_prompt(domain: Domain) -> str:
    """The system message of every conversation: the spec's own, else the business, the day, and the rules."""
    spec = domain.spec
    if spec.head.prompt is not None:
        return spec.head.prompt
    language = domain.languages[0]
    rules = [rule.words[language] for action in spec.actions.values() for rule in action.rules.values()]
    facts = [info.words[language] for info in spec.info]
    sentences = domain.text(" ", "").join(dict.fromkeys((*rules, *facts)))
    if spec.head.signatures and not sentences:
        return domain.text(
            f"You work for {spec.head.about.en}. Today is {domain.today.isoformat()}. If you must refuse, say why.",
            f"你为{spec.head.about.zh}工作。今天是{domain.today.isoformat()}。必须拒绝时，请说明原因。",
        )
    return domain.text(
        f"You work for {spec.head.about.en}. Today is {domain.today.isoformat()}. Look at what a rule is about before you act. "
        f"Rules: {sentences} If you must refuse, say why.",
        f"你为{spec.head.about.zh}工作。今天是{domain.today.isoformat()}。先查看规定所涉及的信息，再采取行动。"
        f"规定：{sentences}必须拒绝时，请说明原因。",
    )
