"""The tools of a domain: their signatures, the check that arguments pass first, and what they do.

One idea: everything about a tool that does not depend on the state is worked out when the domain is compiled: how each argument is
checked, how each row is written, which index a search starts from. Error messages name what the schema names, never what a caller made up.

Reading tools are implied: `get_loan`, `search_loans` (equality, `min_`/`max_`, sort, limit), `list_loans_of_member` for owned rows.
Every action is a tool of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from storage.records import JSON, Tool
from synth.worlds.base import Observation
from synth.worlds.spec import schema
from synth.worlds.spec.domain import MAX_DAYS, Act, Domain, Entity, Field, Param, key_of
from synth.worlds.spec.state import Row, State, clock_steps, shown

DEFAULT_LIMIT, MAX_LIMIT = 3, 6
LIST_LIMIT = 20
"""Rows that a list of what somebody owns shows at most."""
MAX_NUMBER = 10**12
"""What no number of a row may pass, either way."""
_BAD = object()

Parser = Callable[[State, Any], Any]
"""(state, argument) -> value inside, or _BAD."""
Work = Callable[[State, dict[str, Any]], str]
"""(state, checked values) -> JSON text; raises Refused."""


class Refused(Exception):
    """A call that a condition forbids; the text is the tool's answer."""


@dataclass(frozen=True, slots=True)
class Checked:
    """parse: what the value is inside. error: what is said of a value that does not pass."""

    schema: dict[str, JSON]
    parse: Parser
    error: str
    default: Any = None
    is_required: bool = True
    is_id: bool = False
    inside: str = ""
    """The argument's name inside, where a caller knows it by another."""


@dataclass(frozen=True, slots=True)
class Callee:
    """A tool that can be called."""

    tool: Tool
    arguments: Mapping[str, Checked]
    required: tuple[str, ...]
    work: Work

    def call(self, state: State, given: Mapping[str, JSON]) -> Observation:
        values: dict[str, Any] = {}
        known = self.arguments
        for name in self.required:
            if name not in given:
                return failed(f"{name} is missing")
        for name, value in given.items():
            checked = known.get(name)
            if checked is None:
                return failed("unknown argument")
            values[checked.inside or name] = parsed = checked.parse(state, value)
            if parsed is _BAD:
                return failed(checked.error)
        try:
            return Observation(self.work(state, values))
        except Refused as refused:
            return failed(str(refused))
        except (OverflowError, ValueError):
            return failed("a number is out of all bounds")


def failed(text: str) -> Observation:
    return Observation(f'{{"error":{json.dumps(text)}}}', is_error=True)


# ---- arguments --------------------------------------------------------------------------------------------------------------------


def _id_argument(entity: Entity, name: str, *, is_required: bool = True) -> Checked:
    number, ids = entity.number, entity.known_ids

    def parse(state: State, value: Any) -> Any:
        if not isinstance(value, str) or not (value in ids or value in state.changed.get(number, ())):
            return _BAD
        return value

    described = {"type": "string", "pattern": f"^{entity.pattern}$", "description": f"{entity.noun.en} id", "x-grounded": True}
    return Checked(described, parse, f"no such {name}", is_required=is_required, is_id=True)


def _choice_argument(values: tuple[str, ...], name: str, label: str, default: Any = None, *, is_required: bool = True) -> Checked:
    allowed = frozenset(values)
    described: dict[str, JSON] = {"type": "string", "enum": list(values)}
    if label != name.replace("_", " "):
        described["description"] = label
    if default is not None:
        described["default"] = default
    return Checked(
        described,
        lambda state, value: value if isinstance(value, str) and value in allowed else _BAD,
        f"no such {name}",
        default,
        is_required,
    )


def _name_argument(field: Field, name: str) -> Checked:
    spellings = {words[language]: key for key, words in field.words.items() for language in ("zh", "en")}
    described = {"type": "string", "description": f"{field.label.en}, as it is written", "x-grounded": True}
    return Checked(
        described,
        lambda state, value: spellings.get(value, "") if isinstance(value, str) else _BAD,
        f"{name} must be text",
        is_required=False,
    )


def _number_argument(
    name: str, label: str, low: float, high: float, *, is_whole: bool, default: Any = None, is_required: bool = True
) -> Checked:
    allowed: Any = int if is_whole else (int, float)

    def parse(state: State, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, allowed) or not low <= value <= high:
            return _BAD
        return value

    kind = "integer" if is_whole else "number"
    described: dict[str, JSON] = {"type": kind, "minimum": low, "maximum": high, "description": label, "x-grounded": True}
    if default is not None:
        described["default"] = default
    error = f"{name} must be a {'whole ' if is_whole else ''}number from {low:g} to {high:g}"
    return Checked(described, parse, error, default, is_required)


@lru_cache(maxsize=4096)
def _days(today: date, first: int, last: int) -> Mapping[str, int]:
    """Days from today by how they are written: shared by all domains of that today."""
    return {(today + timedelta(days=day)).isoformat(): day for day in range(first, last + 1)}


def _date_argument(domain: Domain, name: str, label: str, first: int, last: int, *, is_required: bool = True) -> Checked:
    days = _days(domain.today, first, last)
    described = {"type": "string", "format": "date", "description": f"{label}, as YYYY-MM-DD", "x-grounded": True}
    return Checked(
        described,
        lambda state, value: days.get(value, _BAD) if isinstance(value, str) else _BAD,
        f"{name} must be a date from {domain.iso(first)} to {domain.iso(last)}",
        is_required=is_required,
    )


def _clock_argument(name: str, label: str, first: str, last: str, default: Any = None, *, is_required: bool = True) -> Checked:
    allowed = frozenset(clock_steps(first, last))
    described: dict[str, JSON] = {"type": "string", "pattern": r"^\d\d:(00|30)$", "description": label, "x-grounded": True}
    if default is not None:
        described["default"] = default
    return Checked(
        described,
        lambda state, value: value if isinstance(value, str) and value in allowed else _BAD,
        f"{name} must be a full or half hour from {first} to {last}",
        default,
        is_required,
    )


def _flag_argument(name: str, label: str, default: Any = None, *, is_required: bool = True) -> Checked:
    described: dict[str, JSON] = {"type": "boolean", "description": label}
    if default is not None:
        described["default"] = default
    return Checked(
        described, lambda state, value: value if isinstance(value, bool) else _BAD, f"{name} must be true or false", default, is_required
    )


def param_argument(domain: Domain, param: Param) -> Checked:
    """How the parameter of an action is checked."""
    spec, name, label, needed = param.spec, param.name, param.label.en, param.is_required
    if isinstance(spec, schema.RefParam):
        return _id_argument(domain.entities[spec.to], name)
    if isinstance(spec, schema.ChoiceParam):
        return _choice_argument(tuple(param.words), name, label, param.default, is_required=needed)
    if isinstance(spec, schema.DateParam):
        return _date_argument(domain, name, label, spec.first, spec.last, is_required=needed)
    if isinstance(spec, schema.TimeParam):
        return _clock_argument(name, label, spec.first, spec.last, param.default, is_required=needed)
    if isinstance(spec, schema.FlagParam):
        return _flag_argument(name, label, param.default, is_required=needed)
    is_whole = not isinstance(spec, schema.NumberParam)
    said = f"{label} in {domain.spec.head.currency}" if isinstance(spec, schema.MoneyParam) else label
    return _number_argument(name, said, spec.min, spec.max, is_whole=is_whole, default=param.default, is_required=needed)


# ---- rows as text -----------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes rows of one entity as JSON text. Rows of a fresh world whose derived fields follow from nothing else are written once."""

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity = domain, entity
        self._short = [each for each in entity.fields.values() if not each.spec.detail]
        self._full = list(entity.fields.values())
        self._keeps_short, self._keeps_full = (not any(map(_looks_beyond, fields)) for fields in (self._short, self._full))

    def text(self, state: State, key: str, row: Row, *, is_full: bool) -> str:
        number = self.entity.number
        if not (self._keeps_full if is_full else self._keeps_short) or key in state.changed.get(number, ()):
            return self._written(state, key, row, is_full)
        texts = state.base.table(number).texts
        found = texts.get((key, is_full))
        if found is None:
            found = texts[key, is_full] = self._written(state, key, row, is_full)
        return found

    def _written(self, state: State, key: str, row: Row, is_full: bool) -> str:
        values = {each.name: shown(self.domain, each, value_of(state, row, each)) for each in (self._full if is_full else self._short)}
        return json.dumps({"id": key, **values}, ensure_ascii=False, separators=(",", ":"))


def _looks_beyond(field: Field) -> bool:
    """Whether a derived field follows from other rows."""
    return field.derived is not None and bool(field.derived.reads or field.derived.counts)


def value_of(state: State, row: Row, field: Field) -> Any:
    """The value of a stored or derived field."""
    return row[field.place] if field.derived is None else field.derived.run(state, row)


# ---- reading tools ----------------------------------------------------------------------------------------------------------------


def _tool(
    domain: Domain, name: str, description: str, arguments: Mapping[str, Checked], group: str | None, *, is_act: bool = False
) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {key: each.schema for key, each in arguments.items()},
            "required": [key for key, each in arguments.items() if each.is_required],
            "additionalProperties": False,
        },
        server=f"{domain.name}-{group}" if group else domain.name,
        domain=domain.name,
        changes_state=is_act,
    )


def _callee(tool: Tool, arguments: Mapping[str, Checked], work: Work) -> Callee:
    return Callee(tool, arguments, tuple(name for name, each in arguments.items() if each.is_required), work)


def getter(domain: Domain, entity: Entity, writer: Writer) -> Callee:
    arguments = {entity.name: _id_argument(entity, entity.name)}
    tool = _tool(domain, f"get_{entity.name}", f"Everything about {_one(entity.noun.en)}.", arguments, entity.spec.group)
    number, name = entity.number, entity.name

    def work(state: State, values: dict[str, Any]) -> str:
        key = values[name]
        return writer.text(state, key, state.row(number, key), is_full=True)

    return _callee(tool, arguments, work)


def lister(domain: Domain, entity: Entity, owner: Field, writer: Writer) -> Callee:
    """All rows that belong to one owner."""
    of = domain.entities[owner.type.entity]
    arguments = {owner.name: _id_argument(of, owner.name)}
    name = list_name(entity, owner)
    tool = _tool(domain, name, f"All {entity.plural} of {_one(of.noun.en)}.", arguments, entity.spec.group)
    number, place, key_name, counted = entity.number, owner.place, owner.name, listed_key(entity)

    def work(state: State, values: dict[str, Any]) -> str:
        found = state.select(number, ((place, values[key_name]),))
        rows = ",".join(writer.text(state, key, row, is_full=False) for key, row in found[:LIST_LIMIT])
        return f'{{"{counted}":{len(found)},"rows":[{rows}]}}'

    return _callee(tool, arguments, work)


def list_name(entity: Entity, owner: Field) -> str:
    return f"list_{key_of(entity)}_of_{owner.name}"


def listed_key(entity: Entity) -> str:
    """Under which a list says how many there are."""
    return f"{key_of(entity)}_listed"


def found_key(entity: Entity) -> str:
    """Under which a search says how many fit."""
    return f"{key_of(entity)}_found"


def get_name(entity: Entity) -> str:
    return f"get_{entity.name}"


def search_name(entity: Entity) -> str:
    return f"search_{key_of(entity)}"


def filter_name(field: Field) -> str:
    """The argument by which `search` filters by a field."""
    return field.name if field.filter == "equal" else f"{field.filter}_{field.name}"


def _filter_argument(domain: Domain, field: Field) -> Checked:
    spec, name, label = field.spec, filter_name(field), field.label.en
    if isinstance(spec, schema.RefField):
        return _id_argument(domain.entities[spec.to], name, is_required=False)
    if isinstance(spec, schema.ChoiceField):
        return _choice_argument(tuple(field.words), name, label, is_required=False)
    if isinstance(spec, schema.NameField):
        return _name_argument(field, name)
    if isinstance(spec, schema.FlagField):
        return _flag_argument(name, label, is_required=False)
    bound = {"max": "at most, ", "min": "at least, "}.get(field.filter, "")
    if isinstance(spec, schema.DateField):
        bound = {"max": "no later than, ", "min": "no earlier than, "}.get(field.filter, "")
        return _date_argument(domain, name, f"{label}, {bound}".rstrip(", "), spec.first, spec.last + 366, is_required=False)
    if isinstance(spec, schema.TimeField):
        return _clock_argument(name, f"{label}, {bound}".rstrip(", "), "00:00", "23:30", is_required=False)
    unit = f"in {domain.spec.head.currency}, " if isinstance(spec, schema.MoneyField) else ""
    said = f"{label}, {unit}{bound}inclusive" if bound else label
    return _number_argument(name, said, -1_000_000, 1_000_000, is_whole=False, is_required=False)


def sorts(entity: Entity) -> dict[str, tuple[Field, bool]]:
    """Orders of a search by name: the field, and whether the largest comes first."""
    return {f"{each.name}_{order}": (each, order == "desc") for each in entity.fields.values() for order in each.superlatives()}


def searcher(domain: Domain, entity: Entity, writer: Writer) -> Callee:
    filtered = {filter_name(each): each for each in entity.fields.values() if each.filter != "none"}
    arguments = {name: _filter_argument(domain, each) for name, each in filtered.items()}
    orders = sorts(entity)
    if orders:
        arguments["sort"] = _choice_argument(tuple(orders), "sort", "sort", is_required=False)
    limit = _number_argument("limit", "rows shown", 1, MAX_LIMIT, is_whole=True, default=DEFAULT_LIMIT, is_required=False)
    arguments["limit"] = Checked(
        {key: each for key, each in limit.schema.items() if key != "x-grounded"}, limit.parse, limit.error, DEFAULT_LIMIT, False
    )
    tool = _tool(domain, search_name(entity), f"Searches {entity.plural}, and counts all that fit.", arguments, entity.spec.group)
    equal = {name: each.place for name, each in filtered.items() if each.filter == "equal" and each.place >= 0}
    others = {name: each for name, each in filtered.items() if name not in equal}
    number, counted = entity.number, found_key(entity)

    def find(state: State, values: dict[str, Any]) -> list[tuple[str, Row]]:
        found = state.select(number, [(equal[name], value) for name, value in values.items() if name in equal])
        for name, field in others.items():
            if name in values:
                found = _bounded(state, found, field, values[name])
        order = values.get("sort")
        if order is not None:
            field, is_descending = orders[order]
            place = field.place
            if place >= 0:
                found = sorted(found, key=lambda pair: pair[1][place], reverse=is_descending)
            else:
                found = sorted(found, key=lambda pair: value_of(state, pair[1], field), reverse=is_descending)
        return found

    def work(state: State, values: dict[str, Any]) -> str:
        found = find(state, values)
        rows = ",".join(writer.text(state, key, row, is_full=False) for key, row in found[: values.get("limit", DEFAULT_LIMIT)])
        return f'{{"{counted}":{len(found)},"rows":[{rows}]}}'

    return _callee(tool, arguments, work)


def _bounded(state: State, found: list[tuple[str, Row]], field: Field, bound: Any) -> list[tuple[str, Row]]:
    if field.filter == "max":
        return [pair for pair in found if value_of(state, pair[1], field) <= bound]
    if field.filter == "min":
        return [pair for pair in found if value_of(state, pair[1], field) >= bound]
    return [pair for pair in found if value_of(state, pair[1], field) == bound]


# ---- acts -------------------------------------------------------------------------------------------------------------------------


def actor(domain: Domain, act: Act) -> Callee:
    arguments = {name: param_argument(domain, param) for name, param in act.params.items()}
    group = act.spec.group or (act.on.spec.group if act.on is not None else None)
    tool = _tool(domain, act.name, act.spec.description or _described(act), arguments, group, is_act=True)
    defaults = defaults_of(act)

    def work(state: State, values: dict[str, Any]) -> str:
        whole = {**defaults, **values}
        problem = failing(act, state, whole)
        if problem is not None:
            raise Refused(problem)
        called = domain.public[act.name].tool if domain.public else act.name
        return f'{{"done":"{called}","rows":{json.dumps(perform(domain, act, state, whole), ensure_ascii=False, separators=(",", ":"))}}}'

    return _callee(tool, arguments, work)


def defaults_of(act: Act) -> dict[str, Any]:
    """The values of the parameters that may be left out."""
    return {name: param.default for name, param in act.params.items() if not param.is_required}


def _one(noun: str) -> str:
    """`a loan`, `an account`."""
    return f"an {noun}" if noun[0] in "aeioAEIO" else f"a {noun}"


def _described(act: Act) -> str:
    verb = act.spec.verb.en
    rows = (param for param in act.params.values() if isinstance(param.spec, schema.RefParam) and not param.is_person)
    first = next(rows, None) if act.on is None else None
    target = f" {_one(act.on.noun.en)}" if act.on is not None else f" {_one(first.label.en)}" if first is not None else ""
    said = verb.replace("_", target.strip() or "it") if "_" in verb else verb + target
    return f"{said[:1].upper()}{said[1:]}."


def failing(act: Act, state: State, values: Mapping[str, Any]) -> str | None:
    """What forbids an act, or None."""
    for condition in act.conditions:
        if not condition.test.run(state, values):
            return condition.message
    taken: dict[tuple[int, str, int], float] = {}
    for transfer in act.transfers:
        (row, entity, place, name), amount = transfer.source, transfer.amount.run(state, values)
        target_row, target_entity, target_place, _ = transfer.target
        key = row.run(state, values)
        if (entity, key, place) == (target_entity, target_row.run(state, values), target_place):
            return "from and to are the same"
        whole = taken[entity, key, place] = taken.get((entity, key, place), 0) + amount
        if amount < 0 or state.row(entity, key)[place] < whole:
            return f"not enough {name.replace('_', ' ')}"
    return None


def perform(domain: Domain, act: Act, state: State, values: Mapping[str, Any]) -> list[dict[str, JSON]]:
    """Does an act that nothing forbids, and tells of the rows that it changed or made, the new ones last.

    Everything is worked out from the state before it.

    Raises:
        Refused: a number or a day would leave all bounds, or no id is left for a new row; nothing was changed.
    """
    written: dict[tuple[int, str], dict[int, Any]] = {}
    for setting in act.settings:
        key = setting.row.run(state, values)
        written.setdefault((setting.entity, key), {})[setting.place] = setting.value.run(state, values)
    for transfer in act.transfers:
        amount = transfer.amount.run(state, values)
        for (where, entity, place, _), change in ((transfer.source, -amount), (transfer.target, amount)):
            key = where.run(state, values)
            cells = written.setdefault((entity, key), {})
            cells[place] = cells.get(place, state.row(entity, key)[place]) + change
    for (entity, _), cells in written.items():
        fields = domain.by_number[entity].stored
        cells.update({place: settled(fields[place], value) for place, value in cells.items()})
    rows = []
    for creation in act.creations:
        entity_made = domain.by_number[creation.entity]
        row = tuple(settled(each, value.run(state, values)) for each, value in zip(entity_made.stored, creation.values, strict=True))
        key = state.new_id(entity_made, row)
        if key is None:
            raise Refused(f"no room for another {entity_made.noun.en}")
        rows.append((entity_made, key, row))
    told = [_changed(domain, state, entity, key, cells) for (entity, key), cells in written.items()]
    for entity_made, key, row in rows:
        state.put(entity_made.number, (*row, key))
        shown_row = {each.name: shown(domain, each, row[each.place]) for each in entity_made.stored}
        told.append({"id": key, "new": entity_made.name, **shown_row})
    if not act.creations:
        subject = str(values[next(iter(act.params))])
        state.acts[act.name, subject] = state.acts.get((act.name, subject), 0) + 1
    return told


def settled(field: Field, value: Any) -> Any:
    """A value as a row holds it; raises Refused where it is beyond all bounds."""
    if field.type.kind in ("whole", "real", "date"):
        if not abs(value) <= (MAX_DAYS if field.type.kind == "date" else MAX_NUMBER):
            raise Refused(f"{field.name.replace('_', ' ')} would be out of all bounds")
        return round(value, 2) if isinstance(value, float) else value
    return value


def _changed(domain: Domain, state: State, entity: int, key: str, cells: Mapping[int, Any]) -> dict[str, JSON]:
    row = list(state.row(entity, key))
    fields = domain.by_number[entity].stored
    for place, value in cells.items():
        row[place] = value
    state.put(entity, tuple(row))
    return {"id": key, **{fields[place].name: shown(domain, fields[place], value) for place, value in sorted(cells.items())}}


def callees(domain: Domain) -> dict[str, Callee]:
    """All tools of a domain by name: what reads, entity by entity, then what acts."""
    found: list[Callee] = []
    for entity in domain.by_number:
        writer = Writer(domain, entity)
        if "get" in entity.spec.tools:
            found.append(getter(domain, entity, writer))
        found += [lister(domain, entity, owner, writer) for owner in entity.owners()]
        if "search" in entity.spec.tools:
            found.append(searcher(domain, entity, writer))
    found += [actor(domain, act) for act in domain.acts.values()]
    return {each.tool.name: each for each in found}
