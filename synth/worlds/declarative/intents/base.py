"""Base class of the intents of a compiled domain, with the parts that they share: slot kinds, facts, evidence, and the draft of a plan.

One idea: an intent is a *reference* to rows (`row_references.py`) together with a *goal* (a question, an action, a refusal), so a domain
gets its intents by combining the two, and no code is generated. Evidence is a pair that a tool prints (`"id":"l012"`, `"renewals":2`): an
observation either contains it or does not.
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from storage.records import JSON, Call, Fact, Given, Language, Plan, Success
from synth.text.slot_kinds import Date, Identifier, OpenNames, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds.base import Intent, Shape, Slot, Solution, World
from synth.worlds.declarative.domain import Domain, Entity, Field, Param
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import OpenWords, Words, clock_steps, number_steps
from synth.worlds.declarative.rows.state import State, shown_value
from synth.worlds.declarative.tools import get_name

Slots = Mapping[str, JSON]
NamedKind = tuple[str, SlotKind]
KindedSlot = tuple[Slot, SlotKind]


class Step(NamedTuple):
    """A call of a plan. tool: its name in the spec. parents: indices of the earlier calls whose results it uses."""

    tool: str
    parents: tuple[int, ...] = ()


def text_in(language: Language, english: str, chinese: str) -> str:
    return english if language == "en" else chinese


# ---- slots --------------------------------------------------------------------------------------------------------------------------


def make_slot(name: str, kind: NamedKind, *, is_required: bool = True, is_entity: bool = False) -> KindedSlot:
    return Slot(name, kind[0], is_required, is_entity), kind[1]


def id_kind(domain: Domain, entity: Entity) -> NamedKind:
    """The kind of a slot that holds the id of a row."""
    if entity.name not in domain.kinds:
        domain.kinds[entity.name] = Identifier(entity.pattern, entity.ids)
    return entity.name, domain.kinds[entity.name]


def words_kind(name: str, words: Mapping[str, Words]) -> NamedKind:
    names = {key: each.names() for key, each in words.items()}
    return name, Vocabulary(OpenNames(names) if isinstance(words, OpenWords) else names)


def value_kind(domain: Domain, owner: str, field: Field | Param) -> NamedKind:
    """The kind of a slot that holds a value of a field or parameter. owner: its entity or action."""
    if field.type.kind == "ref":
        return id_kind(domain, domain.entities[field.type.entity])
    name = f"{owner}.{field.name}"
    if name not in domain.kinds:
        domain.kinds[name] = _kind(domain, name, field)
    return name, domain.kinds[name]


def _kind(domain: Domain, name: str, field: Field | Param) -> SlotKind:
    spec: Any = field.spec
    if field.type.kind in ("choice", "name"):
        return words_kind(name, field.words)[1]
    if field.type.kind == "flag":
        return Vocabulary({"yes": (getattr(spec, "want", None) or field.label).names()})
    if isinstance(spec, (schema.DateField, schema.DateParam)):
        is_bare = spec.phrase is not None and not spec.phrase.en.startswith("_")
        return Date(spec.last, domain.today, is_bare)
    if isinstance(spec, (schema.TimeField, schema.TimeParam)):
        return clock_kind(spec.first, spec.last, spec.step)
    return Quantity(unit_of(domain, spec), spec.min, spec.max, usual_values(spec))


def clock_kind(first: str, last: str, step: int) -> Vocabulary:
    return Vocabulary({time: {"en": time, "zh": time} for time in clock_steps(first, last, step)})


def unit_of(domain: Domain, spec: Any) -> str:
    """The unit of a number field, parameter or kind."""
    is_money = isinstance(spec, (schema.MoneyField, schema.MoneyParam))
    return domain.spec.head.currency if is_money else getattr(spec, "unit", "count")


_USUAL_VALUES = 16
"""Different values of one quantity in requests."""


def usual_values(spec: Any) -> tuple[float, ...]:
    """The values of a quantity that requests contain: at most 16 of its steps, evenly spaced."""
    if isinstance(spec, (schema.NumberField, schema.NumberParam)):
        steps: Sequence[float] = number_steps(spec.min, spec.max, spec.step)
    else:
        steps = range(spec.min, spec.max + 1, spec.step)
    if len(steps) <= _USUAL_VALUES:
        return tuple(steps)
    return tuple(steps[at * (len(steps) - 1) // (_USUAL_VALUES - 1)] for at in range(_USUAL_VALUES))


def expression_value(kind: str, value: JSON) -> Any:
    """A slot's value as expressions use it."""
    return value == "yes" if kind == "flag" else value


# ---- drawing ------------------------------------------------------------------------------------------------------------------------


def any_value(kind: SlotKind, rng: random.Random) -> JSON:
    """A random value of a slot kind."""
    if isinstance(kind, Date):
        return rng.randrange(kind.horizon_days + 1)
    return rng.choice(tuple(kind.names) if isinstance(kind, Vocabulary) else kind.choices)


def given_or_drawn(given: Slots, name: str, choices: Iterable[JSON], rng: random.Random) -> JSON:
    """The given value of a slot, else one of the choices."""
    return given[name] if name in given else rng.choice(list(choices))


def random_order(values: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    """Every value once, lazily: from a random position in steps of a random size that has no common divisor with the length."""
    count = len(values)
    if count < 2:
        yield from values
        return
    at, step = int(rng.random() * count), 1 + int(rng.random() * (count - 1))
    while gcd(step, count) != 1:
        step += 1
    for _ in range(count):
        yield values[at]
        at = (at + step) % count


# ---- given rows -----------------------------------------------------------------------------------------------------------------


def merge_given(parts: Iterable[Given]) -> Given:
    """All descriptions of rows, each once."""
    merged: dict[str, list[Mapping[str, JSON]]] = {}
    for part in parts:
        for entity, descriptions in part.items():
            known = merged.setdefault(entity, [])
            known += [each for each in descriptions if each not in known]
    return merged


# ---- answers, facts and evidence ----------------------------------------------------------------------------------------------------


def answer_text(domain: Domain, field: Field, value: Any, language: Language) -> str:
    """A field's value in an answer."""
    if field.type.kind in ("choice", "name"):
        return field.words[value][language]
    if field.type.kind == "flag":
        return text_in(language, "yes" if value else "no", "是" if value else "否")
    if field.type.is_number:
        return quantity_text(unit_of(domain, field.spec), value, language)
    return str(shown_value(domain, field, value))


def quantity_text(unit: str, value: float, language: Language) -> str:
    return value_spellings(Quantity(unit, 0, 0, ()), value, language)[0]


def answer_fact(domain: Domain, field: Field, value: Any, rivals: Iterable[Any] = ()) -> Fact:
    """What an answer must contain of a field.

    rivals: wrong values, which it must not contain: those of other rows, or of other fields of the same type. Of a choice, the rivals are
    its other values, except those that its own names or the field's label contain: the answer may contain the label.
    """
    kind = field.type.kind
    if kind == "choice":
        names = field.words[value]
        own_texts = (*{names.en.casefold(), names.zh, value}, field.label.en.casefold(), field.label.zh)
        others = [each[language] for key, each in field.words.items() if key != value for language in domain.languages]
        distinct = tuple(other for other in others if not any(other.casefold() in text for text in own_texts))
        return Fact(kind="word", value=names.en, alternatives=(names.zh, value), rivals=distinct)
    if kind == "name":
        return Fact(kind="name", value=value, alternatives=(field.words[value].zh,))
    text = str(shown_value(domain, field, value))
    others = sorted({str(shown_value(domain, field, other)) for other in rivals} - {text})
    if field.type.is_number:
        number_kind = "price" if isinstance(field.spec, schema.MoneyField) else "number"
        return Fact(kind=number_kind, value=text, rivals=tuple(other for other in others if float(other) != float(text)))
    return Fact(kind={"date": "date", "time": "time", "ref": "id"}[kind], value=text, rivals=tuple(others))


@lru_cache(maxsize=65536, typed=True)
def field_fact(name: str, value: JSON) -> Fact:
    """Evidence that a tool printed this key with this value."""
    return pair_fact(f'"{name}"', json.dumps(value, ensure_ascii=False))


@lru_cache(maxsize=65536)
def row_fact(key: str) -> Fact:
    """Evidence that a tool printed a row."""
    return pair_fact('"id"', f'"{key}"')


def pair_fact(name: str, value: str) -> Fact:
    """A pair of a JSON object, without and with a space after the colon."""
    return Fact(kind="word", value=f"{name}:{value}", alternatives=(f"{name}: {value}",))


# ---- plans --------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlanDraft:
    """A plan under construction.

    shown: the rows that its calls show, by (entity, id); the value is whether in full.
    listed: (tool, owner's id) of its lists.
    """

    domain: Domain
    state: State
    calls: list[Call] = field(default_factory=list)
    evidence: list[Fact] = field(default_factory=list)
    shown: dict[tuple[str, str], bool] = field(default_factory=dict)
    listed: set[tuple[str, str]] = field(default_factory=set)

    def copy(self) -> PlanDraft:
        return PlanDraft(self.domain, self.state, [*self.calls], [*self.evidence], {**self.shown}, {*self.listed})

    def add_call(self, tool: str, /, **arguments: JSON) -> None:
        """Adds a call, unless the plan has it already."""
        public = self.domain.public[tool]
        call = Call(tool=public.tool, arguments=public.public_arguments(arguments))
        if call not in self.calls:
            self.calls.append(call)

    def mark_shown(self, entity: Entity, key: str, *, is_full: bool = False) -> None:
        self.shown[entity.name, key] = self.shown.get((entity.name, key), False) or is_full

    def get_row(self, entity: Entity, key: str, *, needs_all: bool = True) -> None:
        """Adds a call that shows a row, unless an earlier call shows enough of it. needs_all: whether a short form is not enough."""
        is_full = self.shown.get((entity.name, key))
        if is_full is None or (needs_all and not is_full):
            self.add_call(get_name(entity), **{entity.name: key})
            self.mark_shown(entity, key, is_full=True)

    def require_row(self, entity: Entity, key: str, *, needs_all: bool = True) -> None:
        """`get_row`, and the row becomes evidence."""
        self.get_row(entity, key, needs_all=needs_all)
        self.evidence.append(row_fact(key))

    def solution(self, answer: str, **criteria: Any) -> Solution:
        evidence = tuple(dict.fromkeys(self.evidence))
        return Solution(Plan(calls=tuple(self.calls), answer=answer), Success(evidence=evidence, **criteria))


# ---- the base class -----------------------------------------------------------------------------------------------------------------


class StateWorld(World):
    """A world whose rows are in a `State`; intents read nothing else of a world."""

    now: State


class SpecIntent(Intent):
    """An intent of a compiled domain: one instance per intent, not one class."""

    steps: Sequence[Step] = ()
    """The calls of a typical plan, known without a state."""

    def __init__(self, domain: Domain, name: str, group: str, slots: Sequence[KindedSlot]) -> None:
        self.name, self.leaf, self.domain = name, f"{domain.name}.{group}.{name}", domain.name
        self.spec_domain = domain
        self.slots = tuple(slot for slot, _ in slots)
        self.kinds = {slot.kind: kind for slot, kind in slots}

    def wordings(self) -> Mapping[Language, Sequence[str]]:
        """Templates of requests by language, the plainest first."""
        return {language: self.templates(language) for language in self.spec_domain.languages}

    @abstractmethod
    def templates(self, language: Language) -> list[str]:
        """Templates of requests in a language, the plainest first."""

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return Shape(tuple((self.spec_domain.public[tool].tool, parents) for tool, parents in self.steps))

    def constraints(self, slot_names: frozenset[str]) -> int:
        return sum(slot.name in slot_names and not slot.is_entity and slot.name != "aspect" for slot in self.slots)

    def has_conflict(self, slot_names: frozenset[str]) -> bool:
        return "pick" in slot_names and any(isinstance(self.kinds[slot.kind], Quantity) for slot in self.slots if slot.name in slot_names)

    def solve(self, world: World, slots: Slots, language: Language) -> Solution:
        assert isinstance(world, StateWorld)
        return self.plan(world.now, slots, language)

    @abstractmethod
    def plan(self, state: State, slots: Slots, language: Language) -> Solution:
        """`solve`, in a state.

        Raises:
            Unsolvable: the slots do not fit the state.
        """

    def given(self, slots: Slots) -> Given:
        """What a world must be given beside its seed for these slots to be solved: the rows that they describe. Nothing by default."""
        return {}

    @abstractmethod
    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        """Values for these slots, the `given` ones unchanged, that can be solved in the state; None if a few tries give none."""
