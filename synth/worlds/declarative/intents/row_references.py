"""Ways to name a row in a request: by its id, by its name, as an owner's only row of a kind, as the best of a search.

One idea: a reference proposes rows together with the slots that name them (so slots are drawn by choosing a row first), resolves slots
to the row again (and adds the calls that a plan needs for this), and gives the noun phrases of requests. A reference by an owner's or a
row's name takes one call more: the chain of calls grows with the reference, the goal stays.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from storage.records import JSON, Given, Language
from synth.text.slot_kinds import Vocabulary
from synth.worlds.base import misfit
from synth.worlds.declarative.domain import Domain, Entity, Field, Row, filter_name
from synth.worlds.declarative.intents.base import (
    KindedSlot,
    PlanDraft,
    Slots,
    Step,
    expression_value,
    given_or_drawn,
    id_kind,
    make_slot,
    random_order,
    text_in,
    usual_values,
    value_kind,
)
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT
from synth.worlds.declarative.language.values import OpenWords, Words
from synth.worlds.declarative.rows.state import State
from synth.worlds.declarative.tools import LIST_LIMIT, Search, list_name, search_name, value_of

_TRIES = 24
"""Rows tried in one draw of a best row."""

Phrase = tuple[str, str]
"""What a request calls a row: a lead ("I am {member}") or an empty text, and a noun phrase."""
Proposal = tuple[str, dict[str, JSON]]
"""The id of a row, and the slots that name it."""


class RowReference(ABC):
    """A way to name a row.

    slots: name the row.
    steps: the calls that find it.
    shown_paths: the rows that these calls show in short form, as paths of references from the row; () is the row itself.
    """

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity = domain, entity
        self.slots: tuple[KindedSlot, ...] = ()
        self.steps: tuple[Step, ...] = ()
        self.shown_paths: tuple[tuple[str, ...], ...] = ()

    @abstractmethod
    def propose(self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random) -> Iterator[Proposal]:
        """Rows with ids in `keys` and the slots `names` that name them, in random order; `given` slots keep their values."""

    @abstractmethod
    def find(self, draft: PlanDraft, slots: Slots) -> str:
        """The id of the row that the slots name; adds the calls that find it.

        Raises:
            Unsolvable: the slots name no row, or several.
        """

    @abstractmethod
    def phrases(self, language: Language) -> list[Phrase]:
        """What requests call the row."""

    def given(self, slots: Slots) -> Given:
        """What a world must be given for these slots to name a row; nothing if any world may have it."""
        return {}


class IdReference(RowReference):
    def __init__(self, domain: Domain, entity: Entity, slot: str) -> None:
        super().__init__(domain, entity)
        self.slot = slot
        self.slots = (make_slot(slot, id_kind(domain, entity), is_entity=True),)

    def propose(self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random) -> Iterator[Proposal]:
        for key in random_order(keys, rng):
            yield key, {self.slot: key}

    def find(self, draft: PlanDraft, slots: Slots) -> str:
        key = slots[self.slot]
        if not isinstance(key, str) or not draft.state.has(self.entity.number, key):
            raise misfit("no such row")
        return key

    def phrases(self, language: Language) -> list[Phrase]:
        gap = " " if language == "en" else ""
        return [("", f"{self.entity.noun[language]}{gap}{{{self.slot}}}")]


class NameReference(RowReference):
    """By a unique proper name: one search."""

    def __init__(self, domain: Domain, entity: Entity, name: Field, slot: str) -> None:
        super().__init__(domain, entity)
        self.name, self.slot = name, slot
        self.slots = (make_slot(slot, value_kind(domain, entity.name, name), is_entity=True),)
        self.steps, self.shown_paths = (Step(search_name(entity)),), ((),)

    def propose(self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random) -> Iterator[Proposal]:
        for key in random_order(keys, rng):
            yield key, {self.slot: state.row(self.entity.number, key)[self.name.place]}

    def find(self, draft: PlanDraft, slots: Slots) -> str:
        key = find_by_name(draft, self.entity, self.name, slots[self.slot], "not exactly one row of that name")
        draft.mark_shown(self.entity, key)
        return key

    def given(self, slots: Slots) -> Given:
        return row_of_name(self.entity, self.name, slots[self.slot])

    def phrases(self, language: Language) -> list[Phrase]:
        gap = " " if language == "en" else ""
        return [("", f"{self.entity.noun[language]}{gap}{{{self.slot}}}")]


class OwnedReference(RowReference):
    """As an owner's only row with a value of `attribute`: "my savings account".

    owner: the field that refers to the owner.
    name: the field by which the owner is searched first; None if the owner is given by id.
    used_names: slot names that are taken.
    """

    def __init__(
        self, domain: Domain, entity: Entity, owner: Field, attribute: Field, *, name: Field | None, used_names: frozenset[str]
    ) -> None:
        super().__init__(domain, entity)
        self.owner, self.attribute, self.name = owner, attribute, name
        self.owner_entity = domain.entities[owner.type.entity]
        self.owner_slot = free_name(owner.name if name is None else f"{owner.name}_name", used_names, entity)
        self.value_slot = free_name(attribute.name, used_names | {self.owner_slot}, entity)
        owner_kind = id_kind(domain, self.owner_entity) if name is None else value_kind(domain, self.owner_entity.name, name)
        self.slots = (
            make_slot(self.owner_slot, owner_kind, is_entity=True),
            make_slot(self.value_slot, value_kind(domain, entity.name, attribute)),
        )
        listing = list_name(entity, owner)
        if name is None:
            self.steps, self.shown_paths = (Step(listing),), ((),)
        else:
            self.steps, self.shown_paths = (Step(search_name(self.owner_entity)), Step(listing, (0,))), ((), (owner.name,))

    def propose(self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random) -> Iterator[Proposal]:
        for key in random_order(keys, rng):
            row = state.row(self.entity.number, key)
            value = value_of(state, row, self.attribute)
            if given.get(self.value_slot, value) != value:
                continue
            owner = row[self.owner.place]
            if self._only_row(state, owner, value) is None:
                continue
            if self.name is None:
                yield key, {self.owner_slot: owner, self.value_slot: value}
                continue
            name = state.row(self.owner_entity.number, owner)[self.name.place]
            if len(state.select(self.owner_entity.number, ((self.name.place, name),))) == 1:
                yield key, {self.owner_slot: name, self.value_slot: value}

    def _only_row(self, state: State, owner: str, value: Any) -> str | None:
        """The id of the owner's only row with this value; None if there are none or several, or the list does not show it."""
        rows = state.select(self.entity.number, ((self.owner.place, owner),))
        matching = [at for at, (_, row) in enumerate(rows) if value_of(state, row, self.attribute) == value]
        return rows[matching[0]][0] if len(matching) == 1 and matching[0] < LIST_LIMIT else None

    def find(self, draft: PlanDraft, slots: Slots) -> str:
        state, owner = draft.state, slots[self.owner_slot]
        if self.name is not None:
            owner = find_by_name(draft, self.owner_entity, self.name, owner, "not exactly one owner of that name")
            draft.mark_shown(self.owner_entity, owner)
        key = self._only_row(state, owner, slots[self.value_slot])
        if key is None:
            raise misfit("not exactly one of that kind, or not in the list")
        draft.add_call(list_name(self.entity, self.owner), **{self.owner.name: owner})
        draft.listed.add((list_name(self.entity, self.owner), owner))
        for other, _ in state.select(self.entity.number, ((self.owner.place, owner),))[:LIST_LIMIT]:
            draft.mark_shown(self.entity, other)
        return key

    def given(self, slots: Slots) -> Given:
        return {} if self.name is None else row_of_name(self.owner_entity, self.name, slots[self.owner_slot])

    def phrases(self, language: Language) -> list[Phrase]:
        parts = (f"{{{self.value_slot}}}", self.entity.noun[language])
        thing = (" " if language == "en" else "").join(parts if self.attribute.type.kind == "choice" else reversed(parts))
        mine = text_in(language, f"my {thing}", f"我的{thing}")
        return owner_phrases(self.owner_entity, self.owner_slot, self.name, mine, thing, language)


class BestReference(RowReference):
    """As the best row of a search: "the cheapest double room".

    used_names: slot names that are taken.
    fixed: (field, value) of filters that the goal of the request needs; there are words for each.
    always: the slot of the filter that every request contains, a choice: over all its values there is too often no single best row.
    """

    def __init__(self, domain: Domain, entity: Entity, *, used_names: frozenset[str], fixed: Sequence[tuple[Field, Any]] = ()) -> None:
        super().__init__(domain, entity)
        self.fixed, self.search, self.orders = tuple(fixed), Search(domain, entity), pick_orders(entity)
        names = set(used_names) | {"pick"}
        picks = Vocabulary({key: words.names() for key, words in self.orders.items()})
        slots = [make_slot("pick", (f"{entity.name}.pick", picks))]
        self.filters: dict[str, Field] = {}
        self.always = ""
        for each in pick_filters(entity):
            if each in [field for field, _ in self.fixed]:
                continue
            slot = free_name(filter_name(each), frozenset(names), entity)
            if each.type.kind == "choice" and not self.filters:
                self.always = slot
            names.add(slot)
            slots.append(make_slot(slot, value_kind(domain, entity.name, each), is_required=slot == self.always))
            self.filters[slot] = each
        self.slots = tuple(slots)
        self.steps, self.shown_paths = (Step(search_name(entity)),), ((),)

    def _conditions(self, slots: Slots) -> dict[str, Any]:
        """The filters of the search, by argument."""
        fixed = {filter_name(each): value for each, value in self.fixed}
        filters = self.filters.items()
        return fixed | {filter_name(each): expression_value(each.type.kind, slots[slot]) for slot, each in filters if slot in slots}

    def best(self, state: State, slots: Slots) -> tuple[str, list[tuple[str, Row]]] | None:
        """The id of the only best row, and all rows that pass the filters; None if there is no single best.

        Also None if one search shows all rows: then a search in the wrong order shows the best row too.
        """
        rows = self.search.find(state, self._conditions(slots))
        if len(rows) <= DEFAULT_LIMIT:
            return None
        field, is_descending = self.search.orders[slots["pick"]]
        values = [value_of(state, row, field) for _, row in rows]
        top = max(values) if is_descending else min(values)
        return (rows[values.index(top)][0], rows) if values.count(top) == 1 else None

    def propose(self, state: State, names: frozenset[str], given: Slots, keys: Sequence[str], rng: random.Random) -> Iterator[Proposal]:
        allowed = set(keys)
        for _ in range(_TRIES if keys else 0):
            row = state.row(self.entity.number, rng.choice(keys))
            slots: dict[str, JSON] = {"pick": given_or_drawn(given, "pick", self.orders, rng)}
            for slot, each in self.filters.items():
                if slot in names:
                    slots[slot] = given[slot] if slot in given else filter_value(state, row, each, rng)
            best = None if None in slots.values() else self.best(state, slots)
            if best is not None and best[0] in allowed:
                yield best[0], slots

    def find(self, draft: PlanDraft, slots: Slots) -> str:
        best = self.best(draft.state, slots)
        if best is None:
            raise misfit("too few to choose among, or no single best")
        arguments = self._conditions(slots) | {"sort": slots["pick"]}
        draft.add_call(search_name(self.entity), **arguments)
        for key, _ in self.search.find(draft.state, arguments)[:DEFAULT_LIMIT]:
            draft.mark_shown(self.entity, key)
        return best[0]

    def phrases(self, language: Language) -> list[Phrase]:
        noun = self.entity.noun[language]
        before, after = filter_words(self.filters, language, self.always)
        for each, value in self.fixed:
            words = fixed_words(each, value)
            assert words is not None
            text = f" {words[language]}" if language == "en" else words[language]
            before, after = (text + before, after) if _is_before_noun(each) else (before, after + text)
        if language == "zh":
            return [("", f"{after}{{pick}}{before}{noun}")]
        return [("", f"the {{pick}}{before} {noun}{after}")]


# ---- helpers ------------------------------------------------------------------------------------------------------------------------


def find_by_name(draft: PlanDraft, entity: Entity, name: Field, value: JSON, problem: str) -> str:
    """The id of the only row with this name; adds the search for it.

    Raises:
        Unsolvable: no row has this name, or several; `problem` says so.
    """
    rows = draft.state.select(entity.number, ((name.place, value),))
    if len(rows) != 1:
        raise misfit(problem)
    draft.add_call(search_name(entity), **{filter_name(name): value})
    return rows[0][0]


def row_of_name(entity: Entity, name: Field, value: JSON) -> Given:
    """What a world is given so that it has a row of this name, where it may have any name."""
    return {entity.name: [{filter_name(name): value}]} if has_open_name(name) else {}


def has_open_name(name: Field | None) -> bool:
    return name is not None and isinstance(name.words, OpenWords)


def searched_name(entity: Entity) -> Field | None:
    """The field with the proper name by which an entity can be searched."""
    if "search" not in entity.spec.tools:
        return None
    names = (each for each in entity.fields.values() if each.type.kind == "name" and each.filter == "equal" and each.place >= 0)
    return next((each for each in names if filter_name(each) not in entity.hidden), None)


def owner_phrases(owner: Entity, slot: str, name: Field | None, mine: str, thing: str, language: Language) -> list[Phrase]:
    """What requests call the rows of an owner: "I am {member}", "my loans" if the owner is a person, and "the loans of member {member}".

    name: the field by which the owner is named; None if by id.
    mine, thing: the noun phrase with and without "my".
    """
    place = f"{{{slot}}}"
    if language == "en":
        lead, third = f"I am {place}", f"the {thing} of {place if name else f'{owner.noun.en} {place}'}"
    else:
        lead, third = f"我是{place}", f"{place if name else owner.noun.zh + place}的{thing}"
    return [(lead, mine), ("", third)] if owner.spec.person else [("", third)]


def pick_orders(entity: Entity) -> dict[str, Words]:
    """Orders of a search with their superlatives; of two that share a word in either language only the first."""
    orders: dict[str, Words] = {}
    used_words: set[str] = set()
    if "sort" in entity.hidden:
        return orders
    for each in entity.fields.values():
        for order, words in each.superlatives().items():
            if used_words.isdisjoint((words.en, words.zh)):
                used_words |= {words.en, words.zh}
                orders[f"{each.name}_{order}"] = words
    return orders


def pick_filters(entity: Entity) -> list[Field]:
    """Fields that a request for the best row may filter by: at most three."""
    suited = [each for each in entity.filters() if each.type.kind in ("choice", "flag", "whole", "real")]
    kinds = sorted(suited, key=lambda each: ("choice", "flag", "whole", "real").index(each.type.kind))
    return [each for each in kinds if each.type.kind != "flag" or getattr(each.spec, "want", None) is not None][:3]


def free_name(preferred: str, used_names: frozenset[str], entity: Entity) -> str:
    """The preferred name of a slot, or another one if that is used."""
    for name in (preferred, f"{entity.name}_{preferred}", f"{preferred}_of_{entity.name}"):
        if name not in used_names:
            return name
    return f"{preferred}_2"


def _passes(field: Field, value: Any, bound: Any) -> bool:
    if field.filter == "max":
        return bool(value <= bound)
    return bool(value >= bound) if field.filter == "min" else bool(value == bound)


def filter_value(state: State, row: Row, field: Field, rng: random.Random) -> JSON:
    """The slot value of a filter that this row passes; None if there is none."""
    value = value_of(state, row, field)
    if field.type.kind == "flag":
        return "yes" if value else None
    if field.type.kind in ("choice", "name", "ref"):
        return value
    passed_by_all = getattr(field.spec, field.filter, None)
    fitting = [bound for bound in usual_values(field.spec) if bound != passed_by_all and _passes(field, value, bound)]
    return rng.choice(fitting) if fitting else None


def filter_words(filters: Mapping[str, Field], language: Language, always: str) -> tuple[str, str]:
    """The words of filters directly before the noun, and those after it (English) or before everything (Chinese).

    always: the slot that is not optional.
    """
    before, after = "", ""
    for slot, field in filters.items():
        place = f"{{{slot}}}"
        if field.spec.phrase is not None:
            phrase = field.spec.phrase[language].replace("_", place)
        else:
            phrase = place if field.type.kind in ("choice", "flag") else _bound_words(field, place, language)
        phrase = f" {phrase}" if language == "en" else phrase
        phrase = phrase if slot == always else f"[{phrase}]"
        before, after = (before + phrase, after) if _is_before_noun(field) else (before, after + phrase)
    return before, after


def _is_before_noun(field: Field) -> bool:
    """Whether requests have a value directly before the noun."""
    return field.spec.phrase is None and field.type.kind == "choice"


def fixed_words(field: Field, value: Any) -> Words | None:
    """The words of a request for rows with this value; None if there are none."""
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
