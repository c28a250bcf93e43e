"""The state of a spec world: seeded rows, shared by all worlds of a seed, and an overlay of the rows that actions have changed.

One idea: a row is a tuple, so a changed row is a new tuple in the overlay and a snapshot copies only references. The cost of a fork follows
the number of changed rows, not the size of the world. The table of an entity is drawn at its first use, with a random generator per table,
so reading one entity does not draw the others, and every process draws the same rows.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite
from operator import itemgetter
from typing import Any

from storage.records import JSON, Given
from synth.worlds.declarative.domain import CREATED_DIGITS, Domain, Entity, Field, Row
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import clock_steps, number_steps
from synth.worlds.declarative.rows import deal_values
from synth.worlds.declarative.rows.given_rows import give_rows

CACHED_SEEDS = 320
"""Seeded states in memory, over all domains: as many as conversations of five domains use."""

NOTHING_GIVEN = "{}"


class Table:
    """The rows of one entity in a fresh world.

    rows: by id, in order.
    texts: cache of rows as JSON text, by id and shown fields.
    """

    __slots__ = ("_indexes", "rows", "texts")

    def __init__(self, rows: dict[str, Row]) -> None:
        self.rows = rows
        self.texts: dict[tuple[str, tuple[Field, ...]], str] = {}
        self._indexes: dict[int, dict[Any, list[str]]] = {}

    def index(self, place: int) -> Mapping[Any, list[str]]:
        """The ids of the rows with each value at a place."""
        index = self._indexes.get(place)
        if index is None:
            index = {}
            for key, row in self.rows.items():
                index.setdefault(row[place], []).append(key)
            self._indexes[place] = index
        return index


class FreshState:
    """The rows of a fresh world.

    given: JSON text of what it is given beside its seed (`Given`).
    tables: by entity number; None until `table` draws it.
    """

    def __init__(self, domain: Domain, seed: int, given: str = NOTHING_GIVEN) -> None:
        self.domain, self.seed, self.given = domain, seed, given
        self._descriptions: Given = json.loads(given)
        self.tables: list[Table | None] = [None] * len(domain.by_number)

    def table(self, entity: int) -> Table:
        table = self.tables[entity]
        if table is None:
            table = self.tables[entity] = Table(self._rows(self.domain.by_number[entity]))
        return table

    def row(self, entity: int, key: str) -> Row:
        return (self.tables[entity] or self.table(entity)).rows[key]

    def _rows(self, entity: Entity) -> dict[str, Row]:
        rng = random.Random(f"{self.domain.digest}/{self.seed}/{entity.number}")
        columns: list[Sequence[Any]] = []
        listed = [entity.table[at] for at in self._picked(entity)]
        for each in entity.stored:
            if listed and listed[0][each.place] is not None:
                columns.append(self._table_column(each, [row[each.place] for row in listed]))
                continue
            within = getattr(each.spec, "within", None)
            if within is None:
                columns.append(_column(each, self.domain, len(entity.ids), rng))
            else:
                columns.append(self._grouped_column(each, columns[entity.fields[within].place], rng))
        columns.append(entity.ids)
        drawn_rows: dict[str, Row] = dict(zip(entity.ids, zip(*columns, strict=True), strict=True))
        if descriptions := self._descriptions.get(entity.name, ()):
            drawn_rows = give_rows(entity, drawn_rows, descriptions, f"{self.domain.digest}/{self.seed}/{entity.number}")
        computed = [(each.place, each.starts.run) for each in entity.stored if each.starts is not None]
        if not computed:
            return drawn_rows
        rows: dict[str, Row] = {}
        for key, values in drawn_rows.items():
            row = list(values)
            for place, run in computed:
                row[place] = run(self, row)
            rows[key] = tuple(row)
        return rows

    def _picked(self, entity: Entity) -> Sequence[int]:
        """The numbers of the rows of its table that a world has, in the order of its ids; none without a table."""
        rng = random.Random(f"{self.domain.digest}/{self.seed}/{entity.number}/table")
        return rng.sample(range(len(entity.table)), len(entity.ids)) if entity.table else ()

    def _table_column(self, field: Field, cells: Sequence[Any]) -> Sequence[Any]:
        """A column of a table, with ids for references."""
        if field.type.kind != "ref":
            return cells
        other = self.domain.entities[field.type.entity]
        ids = dict(zip(self._picked(other), other.ids, strict=True))
        return [ids[cell] for cell in cells]

    def _grouped_column(self, field: Field, groups: Sequence[Any], rng: random.Random) -> Sequence[Any]:
        """The first values of a field whose values differ within a group of rows. groups: the group of each row."""
        spec = field.spec
        if isinstance(spec, schema.ChoiceField):
            return deal_values.shuffle_and_deal(groups, tuple(spec.values), spec.mix, rng)
        if isinstance(spec, (schema.IntegerField, schema.MoneyField)):
            return deal_values.deal_differently(groups, range(spec.min, spec.max + 1, spec.step), rng)
        assert isinstance(spec, schema.RefField)
        other = self.domain.entities[spec.to]
        if spec.apart is None:
            return deal_values.deal_differently(groups, other.ids, rng)
        rows, place = self.table(other.number).rows, other.fields[spec.apart].place
        return deal_values.deal_differently(groups, other.ids, rng, lambda key: rows[key][place])


def _column(field: Field, domain: Domain, count: int, rng: random.Random) -> Sequence[Any]:
    """The first values of a field, by row."""
    spec = field.spec
    if isinstance(spec, (schema.RefField, schema.ChoiceField)) and spec.even:
        values = domain.entities[spec.to].ids if isinstance(spec, schema.RefField) else tuple(spec.values)
        return deal_values.deal_evenly(values, count, rng)
    if isinstance(spec, schema.RefField):
        ids = domain.entities[spec.to].ids
        each_once = shuffle(ids, rng)[:count]
        return each_once + draw_values(ids, count - len(each_once), rng)
    if isinstance(spec, schema.ChoiceField):
        table = _weight_values(tuple(spec.values), tuple(spec.weights.get(key, 1.0) for key in spec.values))
        return [table[byte] for byte in rng.randbytes(count)]
    if isinstance(spec, schema.FlagField):
        bound = round(256 * spec.share)
        return [byte < bound for byte in rng.randbytes(count)]
    if isinstance(spec, schema.NameField):
        names = tuple(field.words)
        return shuffle(names, rng)[:count] if len(names) >= count else draw_values(names, count, rng)
    if isinstance(spec, schema.DateField):
        return draw_values(range(spec.first, spec.last + 1), count, rng)
    if isinstance(spec, schema.TimeField):
        return draw_values(clock_steps(spec.first, spec.last, spec.step), count, rng)
    if isinstance(spec, schema.NumberField):
        return draw_values(number_steps(spec.min, spec.max, spec.step), count, rng)
    steps = range(spec.min, spec.max + 1, spec.step)
    return rng.sample(steps, count) if field.superlatives() and len(steps) >= count else draw_values(steps, count, rng)


def draw_values(values: Sequence[Any], count: int, rng: random.Random) -> list[Any]:
    """`count` of the values, all equally likely; twice as fast as `random.choices`."""
    size, draw = len(values), rng.random
    return [values[int(draw() * size)] for _ in range(count)]


def shuffle(values: Sequence[Any], rng: random.Random) -> list[Any]:
    """The values in random order; twice as fast as `random.sample`."""
    shuffled, draw = list(values), rng.random
    shuffled.sort(key=lambda _: draw())
    return shuffled


@lru_cache(maxsize=8192)
def _weight_values(values: tuple[str, ...], weights: tuple[float, ...]) -> tuple[str, ...]:
    """256 values, each in proportion to its weight; at least once if its weight is not 0."""
    total = sum(weights)
    shares = [max(1, round(256 * weight / total)) if weight else 0 for weight in weights]
    shares[shares.index(max(shares))] += 256 - sum(shares)
    return tuple(value for value, share in zip(values, shares, strict=True) for _ in range(share))


@lru_cache(maxsize=CACHED_SEEDS)
def fresh_state(domain: Domain, seed: int, given: str = NOTHING_GIVEN) -> FreshState:
    return FreshState(domain, seed, given)


class State:
    """The current state of a world.

    changed: by entity number and id, rows that are new or differ from the fresh world.
    acts: by action and subject, how often an action was done that neither creates rows nor increases a counter.
    counters: by name and subject, the counters of actions.
    """

    __slots__ = ("acts", "base", "changed", "counters")

    def __init__(self, base: FreshState) -> None:
        self.base = base
        self.changed: dict[int, dict[str, Row]] = {}
        self.acts: dict[tuple[str, str], int] = {}
        self.counters: dict[tuple[str, str], int] = {}

    def row(self, entity: int, key: str) -> Row:
        if self.changed:
            changed = self.changed.get(entity)
            if changed is not None and key in changed:
                return changed[key]
        base = self.base
        return (base.tables[entity] or base.table(entity)).rows[key]

    def has(self, entity: int, key: str) -> bool:
        return key in self.base.table(entity).rows or key in self.changed.get(entity, ())

    def select(self, entity: int, equal: Sequence[tuple[int, Any]]) -> list[tuple[str, Row]]:
        """Ids and rows, by id. equal: (place, value) pairs that a row must have."""
        table, changed = self.base.table(entity), self.changed.get(entity)
        rows = table.rows
        if equal:
            place, value = equal[0]
            pairs = [(key, rows[key]) for key in table.index(place).get(value, ())]
            for other, expected in equal[1:]:
                pairs = [pair for pair in pairs if pair[1][other] == expected]
        else:
            pairs = list(rows.items())
        if changed:
            pairs = [pair for pair in pairs if pair[0] not in changed]
            pairs += [pair for pair in changed.items() if all(pair[1][place] == value for place, value in equal)]
            pairs.sort(key=itemgetter(0))
        return pairs

    def base_keys(self, entity: int, equal: Sequence[tuple[int, Any]]) -> list[str]:
        """Ids of rows of the fresh world that have these values now. equal: (place, value) pairs; at least one."""
        table = self.base.table(entity)
        if self.changed.get(entity):
            return [key for key, _ in self.select(entity, equal) if key in table.rows]
        keys = table.index(equal[0][0]).get(equal[0][1], [])
        return keys if len(equal) == 1 else [key for key in keys if all(table.rows[key][place] == value for place, value in equal)]

    def count(self, entity: int, places: tuple[int, ...], values: tuple[Any, ...]) -> int:
        """The number of rows with these values at these places."""
        return len(self.select(entity, tuple(zip(places, values, strict=True))))

    def put(self, entity: int, row: Row) -> None:
        """Replaces or adds a row."""
        self.changed.setdefault(entity, {})[row[-1]] = row

    def new_id(self, entity: Entity, values: Row) -> str | None:
        """The id of a new row; None if all are in use.

        It is a hash of the row, so the order of independent actions does not matter; an equal row gets the next free id.
        """
        size = 10 ** (digits := entity.spec.id.count("#") + CREATED_DIGITS)
        changed = self.changed.get(entity.number, {})
        digest = int.from_bytes(hashlib.blake2b(repr((entity.name, values)).encode(), digest_size=8).digest())
        keys = (f"{entity.prefix}{(digest + step) % size:0{digits}d}" for step in range(size))
        return next((key for key in keys if key not in changed), None)

    def snapshot(self) -> object:
        changed = tuple((entity, rows.copy()) for entity, rows in self.changed.items())
        return ((self.base.seed, self.base.given), changed, self.acts.copy(), self.counters.copy())

    def restore(self, snapshot: Any) -> None:
        _, changed, acts, counters = snapshot
        self.changed = {entity: rows.copy() for entity, rows in changed}
        self.acts, self.counters = acts.copy(), counters.copy()

    def changes(self) -> dict[str, JSON]:
        """`entity/id/field`, `acts/action/subject` or `counter/subject` -> new value, where it differs from the fresh world."""
        changes: dict[str, JSON] = {}
        domain = self.base.domain
        for number, rows in self.changed.items():
            entity, base = domain.by_number[number], self.base.table(number).rows
            for key, row in rows.items():
                before = base.get(key)
                for field in entity.stored:
                    value = row[field.place]
                    if before is None or before[field.place] != value:
                        changes[f"{entity.name}/{key}/{field.name}"] = shown_value(domain, field, value)
        for (act, key), times in self.acts.items():
            changes[f"acts/{act}/{key}"] = times
        for (name, key), number in self.counters.items():
            changes[f"{name}/{key}"] = number
        return changes

    def to_json(self) -> dict[str, JSON]:
        """All rows, action counts and counters."""
        domain = self.base.domain
        out: dict[str, JSON] = {
            entity.name: {
                key: {field.name: shown_value(domain, field, row[field.place]) for field in entity.stored}
                for key, row in self.select(entity.number, ())
            }
            for entity in domain.by_number
        }
        acts: dict[str, dict[str, int]] = {}
        for (act, key), times in self.acts.items():
            acts.setdefault(act, {})[key] = times
        counters: dict[str, dict[str, int]] = {each.name: {} for act in domain.acts.values() for each in act.counters}
        for (name, key), number in self.counters.items():
            counters[name][key] = number
        return out | {"acts": acts} | counters


def shown_value(domain: Domain, field: Field, value: Any) -> JSON:
    """A field's value as observations and changes contain it."""
    if field.type.kind == "date":
        return domain.iso(value)
    if isinstance(value, float):
        return round(value, 2) if isfinite(value) else None
    return value
