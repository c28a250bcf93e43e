"""Rows that a request is about as a whole: all that somebody owns, or the first few of a search.

One idea: a source of rows names them in slots, finds them with the calls of a plan, and keeps what these calls show, since whoever
computes over rows computes over what was shown (`computing.py`).
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from storage.records import JSON, Language
from synth.text.slot_kinds import Quantity, SlotKind, Vocabulary
from synth.worlds.base import Slot
from synth.worlds.declarative.domain import Domain, Entity, Field, filter_name
from synth.worlds.declarative.intents.base import Slots, Work, misfit, value_kind, wander
from synth.worlds.declarative.intents.row_references import Step, Way, pick_filters, pick_orders
from synth.worlds.declarative.language.spec_schema import DEFAULT_LIMIT, MAX_LIMIT
from synth.worlds.declarative.state import State
from synth.worlds.declarative.tools import LIST_LIMIT, Callee, Writer, list_name, lister, search_name, searcher

LEAST_ROWS = 3
_OWNERS, _SEARCHES = 12, 8
"""Sets of rows proposed in one draw."""


@dataclass(frozen=True, slots=True)
class Shown:
    """texts: what the calls returned. rows: those that it is about, as they were shown."""

    texts: tuple[str, ...]
    rows: tuple[Mapping[str, JSON], ...]


class Rows(ABC):
    """slots: that name the rows. steps: the calls that show them."""

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity = domain, entity
        self.slots: tuple[tuple[Slot, SlotKind], ...] = ()
        self.steps: tuple[Step, ...] = ()

    @abstractmethod
    def propose(self, state: State, names: frozenset[str], given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        """Slots of sets of rows, in random order."""

    @abstractmethod
    def show(self, work: Work, slots: Slots) -> Shown:
        """The rows, by calls that are added to the plan; raises Unsolvable where there are too few."""

    @abstractmethod
    def ways(self, language: Language) -> list[Way]:
        """How requests call it."""

    def _add_call(self, work: Work, callee: Callee, arguments: Mapping[str, JSON]) -> str:
        """What a call shows, which is added to the plan."""
        work.call(callee.tool.name, **arguments)
        return callee.call(work.state, arguments).content

    def _shown_rows(self, *texts: str) -> Shown:
        rows = json.loads(texts[-1]).get("rows", [])
        if len(rows) < LEAST_ROWS:
            raise misfit("too few rows to compute over")
        return Shown(texts, tuple(rows))


class Listed(Rows):
    """All that somebody owns, in one list. name: by which the owner is searched first; None where he is numbered."""

    def __init__(self, domain: Domain, entity: Entity, owner: Field, name: Field | None) -> None:
        super().__init__(domain, entity)
        self.owner, self.name, self.of = owner, name, domain.entities[owner.type.entity]
        self.who = owner.name if name is None else f"{owner.name}_name"
        kind, of = value_kind(domain, entity.name, owner) if name is None else value_kind(domain, self.of.name, name)
        self.slots = ((Slot(self.who, kind, is_entity=True), of),)
        listing = Step(list_name(entity, owner), () if name is None else (0,))
        self.steps = (listing,) if name is None else (Step(search_name(self.of)), listing)

    @cached_property
    def _list(self) -> Callee:
        return lister(self.domain, self.entity, self.owner, Writer(self.domain, self.entity))

    @cached_property
    def _search(self) -> Callee:
        return searcher(self.domain, self.of, Writer(self.domain, self.of))

    def propose(self, state: State, names: frozenset[str], given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        fitting = 0
        for key in wander(self.of.ids, rng):
            if not LEAST_ROWS <= len(state.select(self.entity.number, ((self.owner.place, key),))) <= LIST_LIMIT:
                continue
            value = key if self.name is None else state.row(self.of.number, key)[self.name.place]
            if self.name is None or len(state.select(self.of.number, ((self.name.place, value),))) == 1:
                yield {self.who: value}
                fitting += 1
                if fitting == _OWNERS:
                    return

    def show(self, work: Work, slots: Slots) -> Shown:
        key, nodes = slots[self.who], tuple[str, ...]()
        if self.name is not None:
            rows = work.state.select(self.of.number, ((self.name.place, key),))
            if len(rows) != 1:
                raise misfit("not exactly one owner of that name")
            nodes = (self._add_call(work, self._search, {filter_name(self.name): key}),)
            key = rows[0][0]
        if len(work.state.select(self.entity.number, ((self.owner.place, key),))) > LIST_LIMIT:
            raise misfit("more rows than a list shows")
        return self._shown_rows(*nodes, self._add_call(work, self._list, {self.owner.name: key}))

    def ways(self, language: Language) -> list[Way]:
        owner_slot, noun, whose = f"{{{self.who}}}", self.entity.noun[language], self.of.noun[language]
        if language == "zh":
            mine, third = f"我的{noun}", f"{owner_slot if self.name else whose + owner_slot}的所有{noun}"
        else:
            mine, third = f"my {self.entity.plural}", f"the {self.entity.plural} of {owner_slot if self.name else f'{whose} {owner_slot}'}"
        lead = f"I am {owner_slot}" if language == "en" else f"我是{owner_slot}"
        return [(lead, mine), ("", third)] if self.of.spec.person else [("", third)]


class First(Rows):
    """The first few of a search: "the five cheapest double rooms"."""

    def __init__(self, domain: Domain, entity: Entity, kind: Field) -> None:
        super().__init__(domain, entity)
        self.kind, self.orders = kind, pick_orders(entity)
        picks = {name: words.names() for name, (_, _, words) in self.orders.items()}
        few = range(DEFAULT_LIMIT + 1, MAX_LIMIT + 1)
        values, of = value_kind(domain, entity.name, kind)
        self.slots = (
            (Slot("pick", f"{entity.name}.pick"), Vocabulary(picks)),
            (Slot("few", "few"), Quantity("count", few[0], few[-1], tuple(few))),
            (Slot("kind", values), of),
        )
        self.steps = (Step(search_name(entity)),)

    @cached_property
    def _search(self) -> Callee:
        return searcher(self.domain, self.entity, Writer(self.domain, self.entity))

    def propose(self, state: State, names: frozenset[str], given: Slots, rng: random.Random) -> Iterator[dict[str, JSON]]:
        few = next(of for slot, of in self.slots if slot.name == "few")
        assert isinstance(few, Quantity)
        for value in islice(wander(list(self.kind.words) * _SEARCHES, rng), _SEARCHES):
            values = {"pick": rng.choice(list(self.orders)), "few": rng.choice(few.choices), "kind": value}
            slots = {name: given.get(name, each) for name, each in values.items()}
            if len(state.select(self.entity.number, ((self.kind.place, slots["kind"]),))) > slots["few"]:
                yield slots

    def show(self, work: Work, slots: Slots) -> Shown:
        arguments = {filter_name(self.kind): slots["kind"], "sort": slots["pick"], "limit": slots["few"]}
        node = self._shown_rows(self._add_call(work, self._search, arguments))
        if len(node.rows) < slots["few"]:
            raise misfit("fewer rows than asked for")
        return node

    def ways(self, language: Language) -> list[Way]:
        if language == "zh":
            return [("", f"{{pick}}{{few}}{self.entity.spec.measure}{{kind}}{self.entity.noun.zh}")]
        return [("", f"the {{few}} {{pick}} {{kind}} {self.entity.plural}")]


def first_of(domain: Domain, entity: Entity) -> First | None:
    """The first few of a kind, where an entity can be searched for that."""
    kinds: Sequence[Field] = [each for each in pick_filters(entity) if each.type.kind == "choice" and each.place >= 0]
    if "search" not in entity.spec.tools or not kinds or not pick_orders(entity):
        return None
    return First(domain, entity, kinds[0])
