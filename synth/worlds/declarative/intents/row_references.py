"""Ways of naming a row in a request: by its id, by its name, as an owner's only one of a kind, as the best of a search.

One idea: a way of naming proposes rows together with the slots that name them (so slots are drawn by choosing a row first), finds the
row again from the slots (adding the calls that a plan needs for it), and says how the row is called in both languages.
A way that leads by an owner's or a row's name costs one call more: the chain grows with the way of naming, the goal stays.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from storage.records import JSON, Language
from synth.text.slot_kinds import SlotKind, Vocabulary
from synth.worlds.base import Slot
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.intents.base import Slots, Work, grid, id_kind, inside, misfit, outside, value_kind, wander
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT
from synth.worlds.declarative.language.values import Words
from synth.worlds.declarative.state import Row, State
from synth.worlds.declarative.tools import LIST_LIMIT, list_name, search_name, value_of

_TRIES = 24

NamedSlots = tuple[tuple[Slot, SlotKind], ...]
Way = tuple[str, str]
"""How a row is called: a lead ("I am {member}") or nothing, and a noun phrase."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call that finding a row takes. parents: earlier steps that it follows from."""

    tool: str
    parents: tuple[int, ...] = ()


class Finder(ABC):
    """slots: that name the row. steps: the calls that find it. covers: rows that these calls show in short, by path from the row."""

    is_by_id: ClassVar[bool] = False

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity = domain, entity
        self.slots: NamedSlots = ()
        self.steps: tuple[Step, ...] = ()
        self.covers: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def propose(
        self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        """Rows of the state, each with the slots that name it, in random order; of `keys`."""

    @abstractmethod
    def find(self, work: Work, slots: Slots) -> str:
        """The id of the row that the slots name; raises Unsolvable where they name none, or several."""

    @abstractmethod
    def ways(self, language: Language) -> list[Way]:
        """How requests call it."""


class ById(Finder):
    is_by_id: ClassVar[bool] = True

    def __init__(self, domain: Domain, entity: Entity, slot: str) -> None:
        super().__init__(domain, entity)
        kind, of = id_kind(domain, entity)
        self.slot = slot
        self.slots = ((Slot(slot, kind, is_entity=True), of),)

    def propose(
        self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        for key in wander(keys, rng):
            yield key, {self.slot: key}

    def find(self, work: Work, slots: Slots) -> str:
        key = slots[self.slot]
        if not isinstance(key, str) or not work.state.has(self.entity.number, key):
            raise misfit("no such row")
        return key

    def ways(self, language: Language) -> list[Way]:
        gap = " " if language == "en" else ""
        return [("", f"{self.entity.noun[language]}{gap}{{{self.slot}}}")]


class ByName(Finder):
    """By its proper name: one search."""

    def __init__(self, domain: Domain, entity: Entity, name: Field, slot: str) -> None:
        super().__init__(domain, entity)
        kind, of = value_kind(domain, entity.name, name)
        self.name, self.slot = name, slot
        self.slots = ((Slot(slot, kind, is_entity=True), of),)
        self.steps = (Step(search_name(entity)),)
        self.covers = ((),)

    def propose(
        self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        for key in wander(keys, rng):
            yield key, {self.slot: state.row(self.entity.number, key)[self.name.place]}

    def find(self, work: Work, slots: Slots) -> str:
        rows = work.state.select(self.entity.number, ((self.name.place, slots[self.slot]),))
        if len(rows) != 1:
            raise misfit("not exactly one row of that name")
        work.call(search_name(self.entity), **{filter_name(self.name): slots[self.slot]})
        work.shows(self.entity, rows[0][0])
        return rows[0][0]

    def ways(self, language: Language) -> list[Way]:
        noun = self.entity.noun[language]
        if language == "zh":
            return [("", f"{noun}{{{self.slot}}}")]
        return [("", f"{noun} {{{self.slot}}}")]


class Owned(Finder):
    """As the one of its kind among what somebody owns: "my savings account"; `by_name`: the owner is named, not numbered."""

    def __init__(
        self, domain: Domain, entity: Entity, owner: Field, attribute: Field, *, name: Field | None, used_names: frozenset[str]
    ) -> None:
        super().__init__(domain, entity)
        self.owner, self.attribute, self.name = owner, attribute, name
        self.of = domain.entities[owner.type.entity]
        whose = id_kind(domain, self.of) if name is None else value_kind(domain, self.of.name, name)
        self.who = free_name(owner.name if name is None else f"{owner.name}_name", used_names, entity)
        self.which = free_name(attribute.name, used_names | {self.who}, entity)
        kind, of = value_kind(domain, entity.name, attribute)
        self.slots = ((Slot(self.who, whose[0], is_entity=True), whose[1]), (Slot(self.which, kind), of))
        listing = list_name(entity, owner)
        if name is None:
            self.steps, self.covers = (Step(listing),), ((),)
        else:
            self.steps, self.covers = (Step(search_name(self.of)), Step(listing, (0,))), ((), (owner.name,))

    def propose(
        self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        number = self.entity.number
        for key in wander(keys, rng):
            row = state.row(number, key)
            value = value_of(state, row, self.attribute)
            if given.get(self.which, value) != value:
                continue
            whose = row[self.owner.place]
            if self._only(state, whose, value) is None:
                continue
            if self.name is None:
                yield key, {self.who: whose, self.which: value}
                continue
            name = state.row(self.of.number, whose)[self.name.place]
            if len(state.select(self.of.number, ((self.name.place, name),))) == 1:
                yield key, {self.who: name, self.which: value}

    def _only(self, state: State, owner: str, value: Any) -> str | None:
        """The id of the owner's only row of that kind; None where there are none or several, or the list does not show it."""
        mine = state.select(self.entity.number, ((self.owner.place, owner),))
        matching = [at for at, (_, row) in enumerate(mine) if value_of(state, row, self.attribute) == value]
        return mine[matching[0]][0] if len(matching) == 1 and matching[0] < LIST_LIMIT else None

    def find(self, work: Work, slots: Slots) -> str:
        state, owner = work.state, slots[self.who]
        if self.name is not None:
            owners = state.select(self.of.number, ((self.name.place, owner),))
            if len(owners) != 1:
                raise misfit("not exactly one owner of that name")
            work.call(search_name(self.of), **{filter_name(self.name): owner})
            owner = owners[0][0]
            work.shows(self.of, owner)
        matching = self._only(state, owner, slots[self.which])
        if matching is None:
            raise misfit("not exactly one of that kind, or not in the list")
        work.call(list_name(self.entity, self.owner), **{self.owner.name: owner})
        work.listed.add((list_name(self.entity, self.owner), owner))
        for key, _ in state.select(self.entity.number, ((self.owner.place, owner),))[:LIST_LIMIT]:
            work.shows(self.entity, key)
        return matching

    def ways(self, language: Language) -> list[Way]:
        owner_slot, value_slot, noun = f"{{{self.who}}}", f"{{{self.which}}}", self.entity.noun[language]
        whose = self.of.noun[language]
        if language == "zh":
            thing = f"{value_slot}{noun}" if self.attribute.type.kind == "choice" else f"{noun}{value_slot}"
            third = ("", f"{owner_slot if self.name else whose + owner_slot}的{thing}")
            return [(f"我是{owner_slot}", f"我的{thing}"), third] if self.of.spec.person else [third]
        thing = f"{value_slot} {noun}" if self.attribute.type.kind == "choice" else f"{noun} {value_slot}"
        third = ("", f"the {thing} of {owner_slot if self.name else f'{whose} {owner_slot}'}")
        return [(f"I am {owner_slot}", f"my {thing}"), third] if self.of.spec.person else [third]


class Picked(Finder):
    """As the best of what fits: "the cheapest double room".

    fixed: what else it must be, by field, for what is to be done with it, as far as there are words for that.
    always: the filter that is said in any case (its kind): among all kinds there is too often no single best.
    """

    def __init__(self, domain: Domain, entity: Entity, *, used_names: frozenset[str], fixed: Sequence[tuple[Field, Any]] = ()) -> None:
        super().__init__(domain, entity)
        self.fixed = tuple(fixed)
        self.orders = pick_orders(entity)
        picks = {f"{each.name}_{order}": words for each, order, words in self.orders.values()}
        names = set(used_names) | {"pick"}
        slots: list[tuple[Slot, SlotKind]] = [
            (Slot("pick", f"{entity.name}.pick"), Vocabulary({key: words.names() for key, words in picks.items()}))
        ]
        self.filters: dict[str, Field] = {}
        self.always = ""
        for each in pick_filters(entity):
            if each in [of for of, _ in self.fixed]:
                continue
            slot = free_name(filter_name(each), frozenset(names), entity)
            if each.type.kind == "choice" and not self.filters:
                self.always = slot
            names.add(slot)
            kind, of = value_kind(domain, entity.name, each)
            slots.append((Slot(slot, kind, is_required=slot == self.always), of))
            self.filters[slot] = each
        self.slots = tuple(slots)
        self.steps, self.covers = (Step(search_name(entity)),), ((),)

    def matches(self, state: State, slots: Slots) -> list[tuple[str, Row]]:
        """All rows that fit, by id."""
        equal = [(each.place, value) for each, value in self.fixed if each.place >= 0]
        later: list[tuple[Field, Any]] = [(each, value) for each, value in self.fixed if each.place < 0]
        for slot, each in self.filters.items():
            if slot in slots:
                value = inside(each.type.kind, slots[slot])
                if each.place >= 0 and each.filter == "equal":
                    equal.append((each.place, value))
                else:
                    later.append((each, value))
        rows = state.select(self.entity.number, equal)
        for each, value in later:
            rows = [pair for pair in rows if passes(each, value_of(state, pair[1], each), value)]
        return rows

    def best(self, state: State, slots: Slots) -> tuple[str, list[tuple[str, Row]]] | None:
        """The one best row and all that fit: more than a search shows, so that looking from the wrong end does not show it."""
        rows = self.matches(state, slots)
        if len(rows) <= DEFAULT_LIMIT:
            return None
        of, order, _ = self.orders[slots["pick"]]
        values = [value_of(state, row, of) for _, row in rows]
        top = max(values) if order == "desc" else min(values)
        return (rows[values.index(top)][0], rows) if values.count(top) == 1 else None

    def propose(
        self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random
    ) -> Iterator[tuple[str, dict[str, JSON]]]:
        allowed = set(keys)
        for _ in range(_TRIES):
            row = state.row(self.entity.number, rng.choice(keys)) if keys else None
            if row is None:
                return
            slots: dict[str, JSON] = {"pick": given["pick"] if "pick" in given else rng.choice(list(self.orders))}
            for slot, each in self.filters.items():
                if slot in names:
                    slots[slot] = given[slot] if slot in given else filter_value(state, row, each, rng)
            best = None if None in slots.values() else self.best(state, slots)
            if best is not None and best[0] in allowed:
                yield best[0], slots

    def arguments(self, slots: Slots) -> dict[str, JSON]:
        """Of the search."""
        out: dict[str, JSON] = {filter_name(each): outside(self.domain, each.type.kind, value) for each, value in self.fixed}
        for slot, each in self.filters.items():
            if slot in slots:
                out[filter_name(each)] = outside(self.domain, each.type.kind, inside(each.type.kind, slots[slot]))
        return {**out, "sort": slots["pick"]}

    def find(self, work: Work, slots: Slots) -> str:
        best = self.best(work.state, slots)
        if best is None:
            raise misfit("too few to choose among, or no single best")
        work.call(search_name(self.entity), **self.arguments(slots))
        of, order, _ = self.orders[slots["pick"]]
        ranked = sorted(best[1], key=lambda pair: value_of(work.state, pair[1], of), reverse=order == "desc")
        for key, _ in ranked[:DEFAULT_LIMIT]:
            work.shows(self.entity, key)
        return best[0]

    def ways(self, language: Language) -> list[Way]:
        noun = self.entity.noun[language]
        before, after = filter_words(self.entity, self.filters, language, self.always)
        for each, value in self.fixed:
            words = fixed_words(each, value)
            assert words is not None
            text = f" {words[language]}" if language == "en" else words[language]
            before, after = (text + before, after) if stands_before(each) else (before, after + text)
        if language == "zh":
            return [("", f"{after}{{pick}}{before}{noun}")]
        return [("", f"the {{pick}}{before} {noun}{after}")]


# ---- helpers ----------------------------------------------------------------------------------------------------------------------


def pick_orders(entity: Entity) -> dict[str, tuple[Field, str, Words]]:
    """Orders of a search with their superlatives; of two that share a word in either language only the first."""
    orders: dict[str, tuple[Field, str, Words]] = {}
    used_words: set[str] = set()
    for each in entity.fields.values():
        for order, words in each.superlatives().items():
            if used_words.isdisjoint((words.en, words.zh)):
                used_words |= {words.en, words.zh}
                orders[f"{each.name}_{order}"] = (each, order, words)
    return orders


def pick_filters(entity: Entity) -> list[Field]:
    """Fields that a request for the best may narrow by: at most three."""
    suited = [each for each in entity.fields.values() if each.filter != "none" and each.type.kind in ("choice", "flag", "whole", "real")]
    kinds = sorted(suited, key=lambda each: ("choice", "flag", "whole", "real").index(each.type.kind))
    return [each for each in kinds if each.type.kind != "flag" or getattr(each.spec, "want", None) is not None][:3]


def free_name(preferred: str, used_names: frozenset[str], entity: Entity) -> str:
    """`wanted`, or another name of a slot where that is taken."""
    for name in (preferred, f"{entity.name}_{preferred}", f"{preferred}_of_{entity.name}"):
        if name not in used_names:
            return name
    return f"{preferred}_2"


def passes(field: Field, value: Any, bound: Any) -> bool:
    if field.filter == "max":
        return bool(value <= bound)
    return bool(value >= bound) if field.filter == "min" else bool(value == bound)


def filter_value(state: State, row: Row, field: Field, rng: random.Random) -> JSON:
    """A filter that this row passes, as a request says it; None where there is none."""
    value = value_of(state, row, field)
    if field.type.kind == "flag":
        return "yes" if value else None
    if field.type.kind in ("choice", "name", "ref"):
        return value
    vain = getattr(field.spec, field.filter, None)
    fitting = [bound for bound in grid(field.spec) if bound != vain and passes(field, value, bound)]
    return rng.choice(fitting) if fitting else None


def filter_words(entity: Entity, filters: Mapping[str, Field], language: Language, always: str) -> tuple[str, str]:
    """What stands directly before the noun, and (in English) after it or (in Chinese) before everything; all but `always` is optional."""
    before, after = "", ""
    for slot, field in filters.items():
        place = f"{{{slot}}}"
        if field.spec.phrase is not None:
            phrase = field.spec.phrase[language].replace("_", place)
        else:
            phrase = place if field.type.kind in ("choice", "flag") else _bound_words(field, place, language)
        phrase = f" {phrase}" if language == "en" else phrase
        phrase = phrase if slot == always else f"[{phrase}]"
        before, after = (before + phrase, after) if stands_before(field) else (before, after + phrase)
    return before, after


def stands_before(field: Field) -> bool:
    """Whether a request says a value directly before the noun."""
    return field.spec.phrase is None and field.type.kind == "choice"


def fixed_words(field: Field, value: Any) -> Words | None:
    """How a request says that a row must have this value; None where there are no words for it."""
    if field.type.kind == "flag":
        return field.spec.want if value and isinstance(field.spec, schema.FlagField) else None
    if field.type.kind != "choice":
        return None
    words, phrase = field.words[value], field.spec.phrase
    return words if phrase is None else Words(en=phrase.en.replace("_", words.en), zh=phrase.zh.replace("_", words.zh))


def _bound_words(field: Field, place: str, language: Language) -> str:
    label, is_max = field.label[language], field.filter == "max"
    if isinstance(field.spec, schema.MoneyField) and is_max:
        return f"for at most {place}" if language == "en" else f"{place}以内的"
    if language == "zh":
        return f"{label}{'不超过' if is_max else '至少'}{place}的"
    return f"with a {label} of at {'most' if is_max else 'least'} {place}"
