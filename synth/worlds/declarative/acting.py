"""Performs an action: checks its conditions, changes the state, and returns the result of its tool.

One idea: all new values are computed from the state before the action, and nothing is written until all of them are known to be valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.records import JSON
from synth.worlds.declarative.domain import MAX_DAYS, Act, Domain, Field, json_value
from synth.worlds.declarative.rows.state import State, shown_value

MAX_NUMBER = 10**12
"""The largest absolute value of a number in a row."""


class Refused(Exception):
    """A call that a condition forbids; the message is the tool's error."""


def defaults_of(act: Act) -> dict[str, Any]:
    """The values of optional parameters."""
    return {name: param.default for name, param in act.params.items() if not param.is_required}


def find_error(domain: Domain, act: Act, state: State, values: Mapping[str, Any]) -> str | None:
    """The error of the first condition that forbids the action; None if none does."""
    for names in act.either.values():
        if sum(values[name] is not None for name in names) != 1:
            return f"give one of {', '.join(names)}"
    for condition in act.conditions:
        if not condition.test.run(state, values):
            return condition.error_message(domain, state, values)
    totals: dict[tuple[int, str, int], float] = {}
    for transfer in act.transfers:
        (row, entity, place, name), amount = transfer.source, transfer.amount.run(state, values)
        target_row, target_entity, target_place, _ = transfer.target
        key = row.run(state, values)
        if (entity, key, place) == (target_entity, target_row.run(state, values), target_place):
            return "from and to are the same"
        whole = totals[entity, key, place] = totals.get((entity, key, place), 0) + amount
        if amount < 0 or state.row(entity, key)[place] < whole:
            return f"not enough {name.replace('_', ' ')}"
    return None


def perform(domain: Domain, act: Act, state: State, values: Mapping[str, Any]) -> list[dict[str, JSON]]:
    """Performs an action that no condition forbids. Returns the changed rows, then the new rows.

    Raises:
        Refused: a number or a day would be out of bounds, or a new row has no free id; nothing was changed.
    """
    changes: dict[tuple[int, str], dict[int, Any]] = {}
    for setting in act.settings:
        key = setting.row.run(state, values)
        changes.setdefault((setting.entity, key), {})[setting.place] = setting.value.run(state, values)
    for transfer in act.transfers:
        amount = transfer.amount.run(state, values)
        for (where, entity, place, _), change in ((transfer.source, -amount), (transfer.target, amount)):
            key = where.run(state, values)
            cells = changes.setdefault((entity, key), {})
            cells[place] = cells.get(place, state.row(entity, key)[place]) + change
    for (entity, _), cells in changes.items():
        fields = domain.by_number[entity].stored
        cells.update({place: stored_value(fields[place], value) for place, value in cells.items()})
    rows = []
    for creation in act.creations:
        created = domain.by_number[creation.entity]
        row = tuple(stored_value(each, value.run(state, values)) for each, value in zip(created.stored, creation.values, strict=True))
        key = state.new_id(created, row)
        if key is None:
            raise Refused(f"no room for another {created.noun.en}")
        rows.append((created, key, row))
    changed = [_change(domain, state, entity, key, cells) for (entity, key), cells in changes.items()]
    for created, key, row in rows:
        state.put(created.number, (*row, key))
        shown_row = {each.name: shown_value(domain, each, row[each.place]) for each in created.stored}
        changed.append({"id": key, "new": created.name, **shown_row})
    for counter in act.counters:
        subject = "-".join(str(values[name]) for name in counter.by if values[name] is not None)
        state.counters[counter.name, subject] = state.counters.get((counter.name, subject), 0) + counter.add.run(state, values)
    if not (act.creations or act.counters):
        subject = next(str(values[name]) for name in act.params if values[name] is not None)
        state.acts[act.name, subject] = state.acts.get((act.name, subject), 0) + 1
    return changed


def result_values(domain: Domain, act: Act, state: State, values: Mapping[str, Any]) -> dict[str, JSON]:
    """The values of an action's result fields, in the state after it."""
    results: dict[str, JSON] = {}
    for each in act.result_fields:
        if each.value is not None:
            results[each.name] = json_value(domain, each.value.type.kind, each.value.run(state, values))
        else:
            given = next((values[name] for name in act.either.get(each.param, (each.param,)) if values[name] is not None), None)
            if given is not None:
                results[each.name] = given
    return results


def stored_value(field: Field, value: Any) -> Any:
    """A field's value, rounded as rows hold it; raises Refused if it is out of bounds."""
    if field.type.kind in ("whole", "real", "date"):
        if not abs(value) <= (MAX_DAYS if field.type.kind == "date" else MAX_NUMBER):
            raise Refused(f"{field.name.replace('_', ' ')} would be out of all bounds")
        return round(value, 2) if isinstance(value, float) else value
    return value


def _change(domain: Domain, state: State, entity: int, key: str, cells: Mapping[int, Any]) -> dict[str, JSON]:
    row = list(state.row(entity, key))
    fields = domain.by_number[entity].stored
    for place, value in cells.items():
        row[place] = value
    state.put(entity, tuple(row))
    return {"id": key, **{fields[place].name: shown_value(domain, fields[place], value) for place, value in sorted(cells.items())}}
