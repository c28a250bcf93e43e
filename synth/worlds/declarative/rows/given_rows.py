"""Rows that a world is given because a request names them: of each description, exactly one row of the world fits it.

One idea: a description is a set of filters, as the entity's search has them (`{"city": "San Jose", "max_price": 30}`). A row that a hash
chooses gets values that fit; every other row that would fit gets another value in one of its fields; and some rows come to fit all filters
but one, or the search would have nothing to tell apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.records import JSON, Given, canonical_json
from synth.worlds.declarative.domain import Domain, Entity, Field, Row, filter_name
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.values import clock_steps, number_steps

NEAR_MISSES = 3
"""Rows that fit all filters of a description but one."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter of a description: its field, its value, and whether a value of the field passes."""

    field: Field
    value: Any

    def passes(self, value: Any) -> bool:
        if self.field.filter == "max":
            return bool(value <= self.value)
        return bool(value >= self.value) if self.field.filter == "min" else bool(value == self.value)


def give_rows(entity: Entity, rows: dict[str, Row], descriptions: Sequence[Mapping[str, JSON]], seed: str) -> dict[str, Row]:
    """The rows of a fresh world, changed so that exactly one fits each description.

    A value that no row can have (a price below the lowest) is left: then none fits.

    Args:
        rows: by id.
        seed: of the world and the entity; equal arguments give equal rows.

    Raises:
        KeyError: a description has a filter that the entity's search has not.
    """
    listed = {key: [*row] for key, row in rows.items()}
    taken = set[str]()
    for description in descriptions:
        conditions = conditions_of(entity, description)
        rng = random.Random(f"{seed}/{canonical_json(dict(description))}")
        order = rng.sample(entity.ids, len(entity.ids))
        free = [each for each in order if each not in taken]
        if not free:
            break
        key = next((each for each in free if entity.table and _fits(listed[each], conditions)), free[0])
        taken.add(key)
        freed = {each.field.name: listed[key][each.field.place] for each in conditions}
        if not _fits(listed[key], conditions):
            _take_from_table(entity, listed[key], conditions, rng)
        _fit(listed[key], conditions, rng)
        for other in order:
            if other not in taken and _fits(listed[other], conditions):
                _break_one(listed[other], conditions, freed, rng)
        if len(conditions) > 1:
            taken |= _add_near_misses(listed, [each for each in order if each not in taken], conditions, rng)
    return {key: tuple(row) for key, row in listed.items()}


def conditions_of(entity: Entity, description: Mapping[str, JSON]) -> list[Condition]:
    """The conditions on stored fields; those on derived ones cannot be given."""
    filters = {filter_name(each): each for each in entity.filters()}
    found = [Condition(filters[name], value) for name, value in description.items()]
    return [each for each in found if each.field.place >= 0]


def names_given(domain: Domain, given: Given) -> Mapping[str, tuple[str, ...]]:
    """The names that descriptions have and the domain's lists have not: spelling -> spellings of the same."""
    names = {}
    for entity_name, descriptions in given.items():
        entity = domain.entities[entity_name]
        for description in descriptions:
            for condition in conditions_of(entity, description):
                if condition.field.type.kind == "name" and condition.value not in condition.field.words:
                    names[condition.value] = (condition.value,)
    return names


def _fits(row: Sequence[Any], conditions: Sequence[Condition]) -> bool:
    return all(each.passes(row[each.field.place]) for each in conditions)


def _fit(row: list[Any], conditions: Sequence[Condition], rng: random.Random) -> None:
    for each in conditions:
        if not each.passes(row[each.field.place]):
            fitting = [each.value] if each.field.filter in ("equal", "only") else _values_that_pass(each, conditions)
            if fitting:
                row[each.field.place] = rng.choice(fitting)


def _values_that_pass(condition: Condition, conditions: Sequence[Condition]) -> list[Any]:
    """Values of the condition's field that pass all conditions on this field."""
    same = [each for each in conditions if each.field.name == condition.field.name]
    return [value for value in _values(condition.field) if all(each.passes(value) for each in (condition, *same))]


def _take_from_table(entity: Entity, row: list[Any], conditions: Sequence[Condition], rng: random.Random) -> None:
    """Gives a row the cells of one of the table's rows that fit, if there is one; references stay, as not all rows are in a world."""
    known = [cells for cells in entity.table if all(cells[each.field.place] is not None for each in conditions)]
    fitting = [cells for cells in known if _fits(cells, conditions)]
    if fitting:
        cells = rng.choice(fitting)
        for each in entity.stored:
            if cells[each.place] is not None and each.type.kind != "ref":
                row[each.place] = cells[each.place]


def _break_one(row: list[Any], conditions: Sequence[Condition], preferred: Mapping[str, Any], rng: random.Random) -> None:
    """Gives the row a value that one of the conditions refuses, if there is one. preferred: by field, a value to take first."""
    any(_refuse(row, each, preferred, rng) for each in rng.sample(conditions, len(conditions)))


def _refuse(row: list[Any], condition: Condition, preferred: Mapping[str, Any], rng: random.Random) -> bool:
    first = preferred.get(condition.field.name)
    refused = [value for value in _values(condition.field) if not condition.passes(value)]
    if first is not None and not condition.passes(first):
        row[condition.field.place] = first
    elif refused:
        row[condition.field.place] = rng.choice(refused)
    else:
        return False
    return True


def _add_near_misses(rows: dict[str, list[Any]], free: Sequence[str], conditions: Sequence[Condition], rng: random.Random) -> set[str]:
    """Rows that fit all conditions but one, `NEAR_MISSES` in all, made of free ones where too few are there. Returns those."""
    missing = NEAR_MISSES - sum(sum(not each.passes(row[each.field.place]) for each in conditions) == 1 for row in rows.values())
    made = set[str]()
    for key, missed in zip(free[-max(missing, 0) :] if missing > 0 else (), _in_turns(conditions, rng), strict=False):
        row = list(rows[key])
        _fit(row, [each for each in conditions if each is not missed], rng)
        if missed.passes(row[missed.field.place]) and not _refuse(row, missed, {}, rng):
            continue
        rows[key] = row
        made.add(key)
    return made


def _in_turns(conditions: Sequence[Condition], rng: random.Random) -> Iterator[Condition]:
    while True:
        yield from rng.sample(conditions, len(conditions))


def _values(field: Field) -> Sequence[Any]:
    """The values that a fresh world draws for a field; of a reference none, as other rows may depend on it."""
    spec = field.spec
    for kind, values in _VALUES_OF.items():
        if isinstance(spec, kind):
            return values(field, spec)
    return ()


_VALUES_OF: Mapping[Any, Callable[[Field, Any], Sequence[Any]]] = {
    (schema.ChoiceField, schema.NameField): lambda field, _: tuple(field.words),
    (schema.FlagField,): lambda *_: (False, True),
    (schema.DateField,): lambda _, spec: range(spec.first, spec.last + 1),
    (schema.IntegerField, schema.MoneyField): lambda _, spec: range(spec.min, spec.max + 1, spec.step),
    (schema.NumberField,): lambda _, spec: number_steps(spec.min, spec.max, spec.step),
    (schema.TimeField,): lambda _, spec: clock_steps(spec.first, spec.last, spec.step),
}
