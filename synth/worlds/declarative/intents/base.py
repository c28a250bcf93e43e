"""What all jobs in a spec world share: slots and their kinds, facts and evidence, and a plan while it is being made.

One idea: a job is a *way of naming* rows (`row_references.py`) together with a *goal* (a question, an act, a refusal); every intent here is
such a pair, so a domain gets its intents by combining, and no code is written or generated for one of them. Evidence is a piece of what a
tool writes (`"id":"l012"`, `"renewals":2`): it was shown or it was not.
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import Any

from storage.records import JSON, Call, Fact, Language, Plan, Success
from synth.text.slot_kinds import Date, Identifier, Quantity, SlotKind, Vocabulary
from synth.text.value_spellings import value_spellings
from synth.worlds.base import Intent, Shape, Slot, Solution, Unsolvable, World
from synth.worlds.declarative.domain import Domain, Entity, Field, Param
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.state import State, clock_steps, number_steps, shown_value

Slots = Mapping[str, JSON]


def misfit(detail: str) -> Unsolvable:
    return Unsolvable("misfit", detail)


def say(language: Language, english: str, chinese: str) -> str:
    return english if language == "en" else chinese


# ---- kinds of slots -----------------------------------------------------------------------------------------------------------------


def id_kind(domain: Domain, entity: Entity) -> tuple[str, SlotKind]:
    if entity.name not in domain.kinds:
        domain.kinds[entity.name] = Identifier(entity.pattern, entity.ids)
    return entity.name, domain.kinds[entity.name]


def words_kind(name: str, words: Mapping[str, Words]) -> tuple[str, SlotKind]:
    return name, Vocabulary({key: each.names() for key, each in words.items()})


def value_kind(domain: Domain, owner: str, of: Field | Param) -> tuple[str, SlotKind]:
    """The kind of a slot that holds a value of a field or parameter. owner: the entity or act that it belongs to."""
    if of.type.kind == "ref":
        return id_kind(domain, domain.entities[of.type.entity])
    name = f"{owner}.{of.name}"
    if name not in domain.kinds:
        domain.kinds[name] = _kind(domain, name, of)
    return name, domain.kinds[name]


def _kind(domain: Domain, name: str, of: Field | Param) -> SlotKind:
    spec = of.spec
    if of.type.kind in ("choice", "name"):
        return words_kind(name, of.words)[1]
    if of.type.kind == "flag":
        want = getattr(spec, "want", None) or of.label
        return Vocabulary({"yes": want.names()})
    if isinstance(spec, (schema.DateField, schema.DateParam)):
        is_bare = spec.phrase is not None and not spec.phrase.en.startswith("_")
        return Date(spec.last, domain.today, is_bare)
    if isinstance(spec, (schema.TimeField, schema.TimeParam)):
        return Vocabulary({step: {"en": step, "zh": step} for step in clock_steps(spec.first, spec.last)})
    return _quantity(domain, spec)


def _quantity(domain: Domain, spec: Any) -> Quantity:
    unit = domain.spec.head.currency if isinstance(spec, (schema.MoneyField, schema.MoneyParam)) else spec.unit
    return Quantity(unit, spec.min, spec.max, grid(spec))


_SAID = 16
"""Different numbers that requests say of one quantity."""


def grid(spec: Any) -> tuple[float, ...]:
    """The values of a quantity that people say: its steps, thinned out."""
    if isinstance(spec, (schema.NumberField, schema.NumberParam)):
        steps: Sequence[float] = number_steps(spec.min, spec.max, spec.step)
    else:
        steps = range(spec.min, spec.max + 1, spec.step)
    return tuple(steps) if len(steps) <= _SAID else tuple(steps[at * (len(steps) - 1) // (_SAID - 1)] for at in range(_SAID))


def plain(kind: SlotKind, value: JSON, language: Language) -> str:
    """The plainest spelling of a value."""
    return value_spellings(kind, value, language)[0]


def answer_text(domain: Domain, of: Field, value: Any, language: Language) -> str:
    """A field's value in an answer."""
    if of.type.kind in ("choice", "name"):
        return of.words[value][language]
    if of.type.kind == "flag":
        return say(language, "yes" if value else "no", "是" if value else "否")
    if of.type.is_number:
        unit = domain.spec.head.currency if isinstance(of.spec, schema.MoneyField) else getattr(of.spec, "unit", "count")
        return value_spellings(Quantity(unit, 0, 0, ()), value, language)[0]
    return str(shown_value(domain, of, value))


# ---- facts ------------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=65536, typed=True)
def piece(name: str, value: JSON) -> Fact:
    """Evidence that a tool has written this key with this value."""
    return pair_fact(f'"{name}"', json.dumps(value, ensure_ascii=False))


@lru_cache(maxsize=65536)
def row_fact(key: str) -> Fact:
    """Evidence that a row was looked at."""
    return pair_fact('"id"', f'"{key}"')


def pair_fact(name: str, value: str) -> Fact:
    """A pair of a JSON object, as our tools write it and as others might."""
    return Fact(kind="word", value=f"{name}:{value}", alternatives=(f"{name}: {value}",))


def count_fact(result: Fact, listed: Fact | None) -> Fact:
    """Evidence that so many were found, or that all of an owner's were listed."""
    return (
        result if listed is None else result.model_copy(update={"alternatives": (*result.alternatives, listed.value, *listed.alternatives)})
    )


def fact(domain: Domain, of: Field, value: Any, rivals: Iterable[Any] = ()) -> Fact:
    """What an answer must say of a field; `rivals` are values of other rows, or other fields of the same type. No rival stands in the
    field's own label: that is said with every value."""
    kind = of.type.kind
    if kind == "choice":
        names = of.words[value]
        mine = {names.en.casefold(), names.zh, value}
        others = [each[language] for key, each in of.words.items() if key != value for language in ("en", "zh")]
        beside = (*mine, of.label.en.casefold(), of.label.zh)
        fitting = tuple(other for other in others if not any(other.casefold() in words for words in beside))
        return Fact(kind="word", value=names.en, alternatives=(names.zh, value), rivals=fitting)
    if kind == "name":
        return Fact(kind="name", value=value, alternatives=(of.words[value].zh,))
    text = str(shown_value(domain, of, value))
    others = sorted({str(shown_value(domain, of, other)) for other in rivals} - {text})
    if of.type.is_number:
        as_number = "price" if isinstance(of.spec, schema.MoneyField) else "number"
        return Fact(kind=as_number, value=text, rivals=tuple(other for other in others if float(other) != float(text)))
    return Fact(kind={"date": "date", "time": "time", "ref": "id"}[kind], value=text, rivals=tuple(others))


def inside(kind: str, value: JSON) -> Any:
    """A slot's value as expressions have it."""
    return value == "yes" if kind == "flag" else value


def outside(domain: Domain, kind: str, value: Any) -> JSON:
    """A value as a call carries it."""
    return domain.iso(value) if kind == "date" else value


# ---- plans ------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """A plan while it is being made. shown: rows that its calls show, by (entity, id): whether in full. listed: (tool, owner) of lists."""

    domain: Domain
    state: State
    calls: list[Call] = field(default_factory=list)
    evidence: list[Fact] = field(default_factory=list)
    shown: dict[tuple[str, str], bool] = field(default_factory=dict)
    listed: set[tuple[str, str]] = field(default_factory=set)

    def call(self, tool: str, /, **arguments: JSON) -> None:
        """Another call, unless it was made already."""
        public = self.domain.public[tool]
        call = Call(tool=public.tool, arguments={public.arguments[name]: value for name, value in arguments.items()})
        if call not in self.calls:
            self.calls.append(call)

    def shows(self, entity: Entity, key: str, *, is_full: bool = False) -> None:
        self.shown[entity.name, key] = self.shown.get((entity.name, key), False) or is_full

    def show(self, entity: Entity, key: str, *, needs_all: bool = True) -> None:
        """A row is shown, by a call of its own if no earlier one shows enough of it."""
        is_whole = self.shown.get((entity.name, key))
        if is_whole is None or (needs_all and not is_whole):
            self.call(f"get_{entity.name}", **{entity.name: key})
            self.shows(entity, key, is_full=True)

    def look(self, entity: Entity, key: str, *, needs_all: bool = True) -> None:
        """A row is shown, and must be."""
        self.show(entity, key, needs_all=needs_all)
        self.evidence.append(row_fact(key))

    def solution(self, answer: str, **criteria: Any) -> Solution:
        evidence = tuple(dict.fromkeys(self.evidence))
        return Solution(Plan(calls=tuple(self.calls), answer=answer), Success(evidence=evidence, **criteria))


class StateWorld(World):
    """A world whose rows lie in a `State`: all that an intent knows of the world in which it is solved."""

    now: State


class SpecIntent(Intent):
    """An intent of a compiled domain: an instance a job, not a class."""

    def __init__(self, domain: Domain, name: str, group: str, slots: Sequence[tuple[Slot, SlotKind]]) -> None:
        self.name, self.leaf, self.domain = name, f"{domain.name}.{group}.{name}", domain.name
        self.of = domain
        self.slots = tuple(slot for slot, _ in slots)
        self.kinds = {slot.kind: kind for slot, kind in slots}

    @abstractmethod
    def wordings(self) -> Mapping[Language, Sequence[str]]:
        """Templates by language, the plainest first."""

    def shape_of(self, steps: Iterable[tuple[str, tuple[int, ...]]]) -> Shape:
        """The shape of a plan, its tools as they are called from outside."""
        return Shape(tuple((self.of.public[tool].tool, parents) for tool, parents in steps))

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
            Unsolvable: the slots do not fit it.
        """

    @abstractmethod
    def draw(self, state: State, slot_names: frozenset[str], given: Slots, rng: random.Random) -> dict[str, JSON] | None:
        """Values for these slots, those `given` kept, that the state has a plan for; None where a few tries found none."""


def wander(values: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    """Every value once, from a random place on in steps of a random size: what is not taken costs nothing."""
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
