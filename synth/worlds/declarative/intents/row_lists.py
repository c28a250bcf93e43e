"""Sets of rows that a request is about: all rows of an owner, or the first few of a search.

One idea: a row list names the rows in slots, adds the calls that show them to a plan, and returns what these calls show, because a
computation uses only what was shown (`computing.py`).
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from storage.records import JSON, Language
from synth.text.slot_kinds import Quantity, Vocabulary
from synth.worlds.base import misfit
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.intents.base import KindedSlot, PlanDraft, Slots, Step, make_slot, random_order, text_in, value_kind
from synth.worlds.declarative.intents.row_references import Phrase, find_by_name, owner_phrases, pick_filters, pick_orders
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT, MAX_LIMIT
from synth.worlds.declarative.rows.state import State
from synth.worlds.declarative.tools import LIST_LIMIT, Callee, RowWriter, list_name, lister, search_name, searcher

MIN_ROWS = 3
_OWNERS, _SEARCHES = 12, 8
"""Sets of rows proposed in one draw."""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """texts: the observations. rows: the rows in the last one."""

    texts: tuple[str, ...]
    rows: tuple[Mapping[str, JSON], ...]


class RowList(ABC):
    """slots: name the rows. steps: the calls that show them."""

    slots: tuple[KindedSlot, ...]
    steps: tuple[Step, ...]

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity = domain, entity

    @abstractmethod
    def propose(self, state: State, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        """Slots of sets of rows, in random order."""

    @abstractmethod
    def show(self, draft: PlanDraft, slots: Slots) -> ShownRows:
        """The rows; adds the calls that show them.

        Raises:
            Unsolvable: the slots name too few rows, or more than one call shows.
        """

    @abstractmethod
    def phrases(self, language: Language) -> list[Phrase]:
        """What requests call the rows."""

    def _call(self, draft: PlanDraft, callee: Callee, arguments: Mapping[str, JSON]) -> str:
        """The observation of a call, which becomes part of the plan."""
        draft.add_call(callee.tool.name, **arguments)
        return callee.call(draft.state, arguments).content

    def _shown_rows(self, *texts: str) -> ShownRows:
        rows = json.loads(texts[-1]).get("rows", [])
        if len(rows) < MIN_ROWS:
            raise misfit("too few rows to compute over")
        return ShownRows(texts, tuple(rows))


class OwnedRows(RowList):
    """All rows of an owner. name: the field by which the owner is searched first; None if the owner is given by id."""

    def __init__(self, domain: Domain, entity: Entity, owner: Field, name: Field | None) -> None:
        super().__init__(domain, entity)
        self.owner, self.name, self.owner_entity = owner, name, domain.entities[owner.type.entity]
        self.owner_slot = owner.name if name is None else f"{owner.name}_name"
        kind = value_kind(domain, entity.name, owner) if name is None else value_kind(domain, self.owner_entity.name, name)
        self.slots = (make_slot(self.owner_slot, kind, is_entity=True),)
        listing = Step(list_name(entity, owner), () if name is None else (0,))
        self.steps = (listing,) if name is None else (Step(search_name(self.owner_entity)), listing)

    @cached_property
    def _list(self) -> Callee:
        return lister(self.domain, self.entity, self.owner, RowWriter(self.domain, self.entity))

    @cached_property
    def _search(self) -> Callee:
        return searcher(self.domain, self.owner_entity, RowWriter(self.domain, self.owner_entity))

    def propose(self, state: State, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        return islice(self._fitting(state, rng), _OWNERS)

    def _fitting(self, state: State, rng: random.Random) -> Iterator[dict[str, JSON]]:
        number = self.owner_entity.number
        for key in random_order(self.owner_entity.ids, rng):
            if MIN_ROWS <= len(state.select(self.entity.number, ((self.owner.place, key),))) <= LIST_LIMIT:
                value = key if self.name is None else state.row(number, key)[self.name.place]
                if self.name is None or len(state.select(number, ((self.name.place, value),))) == 1:
                    yield {self.owner_slot: value}

    def show(self, draft: PlanDraft, slots: Slots) -> ShownRows:
        key, texts = slots[self.owner_slot], tuple[str, ...]()
        if self.name is not None:
            texts = (self._search.call(draft.state, {filter_name(self.name): key}).content,)
            key = find_by_name(draft, self.owner_entity, self.name, key, "not exactly one owner of that name")
        if len(draft.state.select(self.entity.number, ((self.owner.place, key),))) > LIST_LIMIT:
            raise misfit("more rows than a list shows")
        return self._shown_rows(*texts, self._call(draft, self._list, {self.owner.name: key}))

    def phrases(self, language: Language) -> list[Phrase]:
        things = text_in(language, self.entity.plural, self.entity.noun.zh)
        mine = text_in(language, f"my {things}", f"我的{things}")
        every = text_in(language, things, f"所有{things}")
        return owner_phrases(self.owner_entity, self.owner_slot, self.name, mine, every, language)


class FirstRows(RowList):
    """The first few rows of a search: "the five cheapest double rooms". kind: the field with their kind ("double")."""

    def __init__(self, domain: Domain, entity: Entity, kind: Field) -> None:
        super().__init__(domain, entity)
        self.kind, self.orders = kind, pick_orders(entity)
        counts = range(DEFAULT_LIMIT + 1, MAX_LIMIT + 1)
        self.few = Quantity("count", counts[0], counts[-1], tuple(counts))
        self.slots = (
            make_slot("pick", (f"{entity.name}.pick", Vocabulary({name: words.names() for name, words in self.orders.items()}))),
            make_slot("few", ("few", self.few)),
            make_slot("kind", value_kind(domain, entity.name, kind)),
        )
        self.steps = (Step(search_name(entity)),)

    @cached_property
    def _search(self) -> Callee:
        return searcher(self.domain, self.entity, RowWriter(self.domain, self.entity))

    def propose(self, state: State, given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        for kind in islice(random_order(list(self.kind.words) * _SEARCHES, rng), _SEARCHES):
            drawn = {"pick": rng.choice(list(self.orders)), "few": rng.choice(self.few.choices), "kind": kind}
            slots = {name: given.get(name, value) for name, value in drawn.items()}
            if len(state.select(self.entity.number, ((self.kind.place, slots["kind"]),))) > slots["few"]:
                yield slots

    def show(self, draft: PlanDraft, slots: Slots) -> ShownRows:
        arguments = {filter_name(self.kind): slots["kind"], "sort": slots["pick"], "limit": slots["few"]}
        shown = self._shown_rows(self._call(draft, self._search, arguments))
        if len(shown.rows) < slots["few"]:
            raise misfit("fewer rows than asked for")
        return shown

    def phrases(self, language: Language) -> list[Phrase]:
        if language == "zh":
            return [("", f"{{pick}}{{few}}{self.entity.spec.measure}{{kind}}{self.entity.noun.zh}")]
        return [("", f"the {{few}} {{pick}} {{kind}} {self.entity.plural}")]


def first_rows(domain: Domain, entity: Entity) -> FirstRows | None:
    """The first rows of a kind; None if the entity cannot be searched for them."""
    kinds = [each for each in pick_filters(entity) if each.type.kind == "choice" and each.place >= 0]
    if "search" not in entity.spec.tools or "limit" in entity.hidden or not kinds or not pick_orders(entity):
        return None
    return FirstRows(domain, entity, kinds[0])
