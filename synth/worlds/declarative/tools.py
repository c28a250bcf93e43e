"""The tools of a domain: their signatures, and what a call does after its arguments are checked (`arguments.py`).

One idea: everything that does not depend on the state is computed at compile time: checks of arguments, fields of a shown row, indices of a
search.

Entities have reading tools: `get_loan`, `search_loans` (equality, `min_`/`max_`, sort, limit), and `list_loans_of_member` for each owner.
Every action has a tool (`acting.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from storage.records import JSON, Tool
from synth.worlds.arguments import BadArgument, compile_checker
from synth.worlds.base import Observation
from synth.worlds.declarative.acting import Refused, defaults_of, find_error, perform, result_values
from synth.worlds.declarative.arguments import BAD, Argument, choice_argument, filter_argument, id_argument, number_argument, param_argument
from synth.worlds.declarative.domain import Act, Domain, Entity, Field, Finding, Row, filter_name, plural_key
from synth.worlds.declarative.language import schema
from synth.worlds.declarative.language.spec_schema import GetTool, ListTool, SearchTool
from synth.worlds.declarative.rows.state import State, shown_value

LIST_LIMIT = 20
"""Most rows that a list of one owner shows."""
View = Literal["get", "list", "search"]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""`json.dumps` with these options would build an encoder for every call."""
Work = Callable[[State, dict[str, Any]], str]
"""(state, checked values) -> JSON text; raises Refused."""


class Callee:
    """A tool with the code that executes its calls.

    arguments: by the names that callers use.
    work: executes a call.
    spec_names: names in the spec, by the names that callers use; None if they are the same. A name that is not there has no effect.
    opened: by the name that callers use, what turns a value of theirs into one of the spec (a list of one into the one).
    """

    def __init__(
        self,
        tool: Tool,
        arguments: Mapping[str, Argument],
        work: Work,
        spec_names: Mapping[str, str] | None = None,
        opened: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self.tool, self.arguments, self.work = tool, arguments, work
        self._is_renamed, self._spec_names, self._opened = spec_names is not None, spec_names or {}, opened or {}
        self._check = compile_checker(tool.parameters)
        self._conversions = [
            (self._spec_names.get(name, name), each.convert, each.error) for name, each in arguments.items() if each.convert is not None
        ]

    def call(self, state: State, arguments: Mapping[str, JSON]) -> Observation:
        try:
            values = self._check(arguments)
        except BadArgument as problem:
            return error_observation(str(problem))
        for name in self._opened.keys() & values.keys():
            values[name] = self._opened[name](values[name])
        if self._is_renamed:
            values = {self._spec_names[name]: value for name, value in values.items() if name in self._spec_names}
        for name, convert, error in self._conversions:
            if name in values:
                values[name] = value = convert(state, values[name])
                if value is BAD:
                    return error_observation(error)
        try:
            return Observation(self.work(state, values))
        except Refused as refused:
            return error_observation(str(refused))
        except (OverflowError, ValueError):
            return error_observation("a number is out of all bounds")


def error_observation(text: str) -> Observation:
    return Observation(f'{{"error":{json.dumps(text)}}}', is_error=True)


# ---- rows as text -----------------------------------------------------------------------------------------------------------------


class RowWriter:
    """Writes rows of one entity as JSON text for `get`, `list` and `search`. The text of an unchanged row is cached if its fields depend on
    no other row."""

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.domain, self.entity, self._id_key = domain, entity, domain.id_key(entity)
        self._fields = {view: view_fields(entity, view) for view in ("get", "list", "search")}
        self._is_cached = {view: not any(_reads_other_rows(entity, each) for each in fields) for view, fields in self._fields.items()}

    def text(self, state: State, key: str, row: Row, view: View) -> str:
        number, fields = self.entity.number, self._fields[view]
        if not self._is_cached[view] or key in state.changed.get(number, ()):
            return self._write_row(state, key, row, fields)
        texts = state.base.table(number).texts
        text = texts.get((key, fields))
        if text is None:
            text = texts[key, fields] = self._write_row(state, key, row, fields)
        return text

    def list_text(self, state: State, pairs: Sequence[tuple[str, Row]], view: View, limit: int, count_key: str | None) -> str:
        """The first `limit` rows as a JSON list, in an object with the number of all rows; if `count_key` is None, only the list."""
        rows = ",".join(self.text(state, key, row, view) for key, row in pairs[:limit])
        return f"[{rows}]" if count_key is None else f'{{"{count_key}":{len(pairs)},"rows":[{rows}]}}'

    def _write_row(self, state: State, key: str, row: Row, fields: Iterable[Field]) -> str:
        values = {each.name: shown_value(self.domain, each, value_of(state, row, each)) for each in fields}
        return _encode({self._id_key: key, **values})


def view_fields(entity: Entity, view: View) -> tuple[Field, ...]:
    """The fields that a reading tool shows: `shows` of the spec; by default all for `get`, and all but details for the other tools."""
    spec = getattr(entity.spec.tools, view)
    if spec is not None and spec.shows:
        return tuple(entity.fields[name] for name in spec.shows)
    return tuple(each for each in entity.fields.values() if view == "get" or not each.spec.detail)


def _reads_other_rows(entity: Entity, field: Field) -> bool:
    """Whether the value of a derived field depends on other rows, itself or by a derived field that it names."""
    if field.derived is None:
        return False
    named = (entity.fields[name] for name in field.derived.names if name in entity.fields)
    return bool(field.derived.reads or field.derived.counts) or any(_reads_other_rows(entity, each) for each in named)


def value_of(state: State, row: Row, field: Field) -> Any:
    """The value of a stored or derived field."""
    return row[field.place] if field.derived is None else field.derived.run(state, row)


# ---- reading tools ----------------------------------------------------------------------------------------------------------------


def _tool(
    domain: Domain, name: str, description: str, arguments: Mapping[str, Argument], group: str | None, *, is_act: bool = False
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
        server=domain.spec.head.naming.server or (f"{domain.name}-{group}" if group else domain.name),
        domain=domain.name,
        changes_state=is_act,
    )


def getter(domain: Domain, entity: Entity, writer: RowWriter) -> Callee:
    """The tool that shows one row."""
    arguments = {entity.name: id_argument(domain, entity, entity.name)}
    spec = entity.spec.tools.get or GetTool()
    about = spec.about or domain.text(f"Everything about {_with_article(entity.noun.en)}.", f"{entity.noun.zh}的全部信息。")
    tool = _tool(domain, get_name(entity), about, arguments, entity.spec.group)
    number, name = entity.number, entity.name

    def work(state: State, values: dict[str, Any]) -> str:
        key = values[name]
        return writer.text(state, key, state.row(number, key), "get")

    return Callee(tool, arguments, work)


def lister(domain: Domain, entity: Entity, owner: Field, writer: RowWriter) -> Callee:
    """The tool that lists the rows of one owner."""
    of = domain.entities[owner.type.entity]
    arguments = {owner.name: id_argument(domain, of, owner.name)}
    spec = entity.spec.tools.list or ListTool()
    about = spec.about or domain.text(f"All {entity.plural} of {_with_article(of.noun.en)}.", f"{of.noun.zh}的所有{entity.noun.zh}。")
    tool = _tool(domain, list_name(entity, owner), about, arguments, entity.spec.group)
    number, place, owner_name = entity.number, owner.place, owner.name
    count_key = None if spec.bare else list_count_key(entity)

    def work(state: State, values: dict[str, Any]) -> str:
        pairs = state.select(number, ((place, values[owner_name]),))
        return writer.list_text(state, pairs, "list", LIST_LIMIT, count_key)

    return Callee(tool, arguments, work)


def list_name(entity: Entity, owner: Field) -> str:
    return f"list_{plural_key(entity)}_of_{owner.name}"


def list_count_key(entity: Entity) -> str:
    """The key of the number of all rows in the result of a list."""
    return f"{plural_key(entity)}_listed"


def search_count_key(entity: Entity) -> str:
    """The key of the number of all matching rows in the result of a search."""
    return f"{plural_key(entity)}_found"


def get_name(entity: Entity) -> str:
    return f"get_{entity.name}"


def search_name(entity: Entity) -> str:
    return f"search_{plural_key(entity)}"


def search_orders(entity: Entity) -> dict[str, tuple[Field, bool]]:
    """Orders of a search: name -> field, and whether its largest value comes first."""
    if "sort" in entity.hidden:
        return {}
    return {f"{each.name}_{order}": (each, order == "desc") for each in entity.fields.values() for order in each.superlatives()}


class Search:
    """The search of an entity.

    filters: fields by the name of their argument.
    orders: field, and whether its largest value comes first, by the name of the order.
    arguments: filters, order and limit, by name.
    """

    def __init__(self, domain: Domain, entity: Entity) -> None:
        self.entity, self.spec, self.orders = entity, entity.spec.tools.search or SearchTool(), search_orders(entity)
        self.filters = {filter_name(each): each for each in entity.filters()}
        self.arguments = {
            name: replace(filter_argument(domain, each), is_required=name in self.spec.needs) for name, each in self.filters.items()
        }
        if self.orders:
            self.arguments["sort"] = choice_argument(tuple(self.orders), "sort", "sort", self.spec.sort, is_required=False)
        limit = number_argument(
            domain.text("rows shown", "显示的行数"), 1, self.spec.most, is_whole=True, default=self.spec.limit, is_required=False
        )
        self.arguments["limit"] = replace(limit, schema={key: each for key, each in limit.schema.items() if key != "x-grounded"})
        self._equal = {name: each.place for name, each in self.filters.items() if each.filter == "equal" and each.place >= 0}
        self._others = {name: each for name, each in self.filters.items() if name not in self._equal}

    def find(self, state: State, values: Mapping[str, Any]) -> list[tuple[str, Row]]:
        """All matching rows, in the order of `sort`."""
        pairs = state.select(self.entity.number, [(self._equal[name], value) for name, value in values.items() if name in self._equal])
        for name, field in self._others.items():
            if name in values:
                pairs = _filter_rows(state, pairs, field, values[name])
        order = values.get("sort", self.spec.sort)
        if order is not None:
            field, is_descending = self.orders[order]
            pairs = sorted(pairs, key=lambda pair: value_of(state, pair[1], field), reverse=is_descending)
        return pairs


def searcher(domain: Domain, entity: Entity, writer: RowWriter) -> Callee:
    """The tool that searches the rows of an entity."""
    search = Search(domain, entity)
    spec, count_key = search.spec, None if search.spec.bare else search_count_key(entity)
    about = spec.about or domain.text(
        f"Searches {entity.plural}, and counts all that fit.", f"搜索{entity.noun.zh}，并统计符合条件的数量。"
    )
    tool = _tool(domain, search_name(entity), about, search.arguments, entity.spec.group)

    def work(state: State, values: dict[str, Any]) -> str:
        return writer.list_text(state, search.find(state, values), "search", values.get("limit", spec.limit), count_key)

    return Callee(tool, search.arguments, work)


def _filter_rows(state: State, pairs: list[tuple[str, Row]], field: Field, bound: Any) -> list[tuple[str, Row]]:
    if field.filter == "max":
        return [pair for pair in pairs if value_of(state, pair[1], field) <= bound]
    if field.filter == "min":
        return [pair for pair in pairs if value_of(state, pair[1], field) >= bound]
    if field.filter == "only" and not bound:
        return pairs
    return [pair for pair in pairs if value_of(state, pair[1], field) == bound]


# ---- actions ----------------------------------------------------------------------------------------------------------------------


def find_rows(finding: Finding, state: State, values: Mapping[str, Any]) -> list[tuple[str, Row]]:
    """The rows that a reading tool of the spec's own finds. values: of all its parameters; None for one that the call leaves out."""
    wanted = [(field, value.run(state, values)) for field, value, name in finding.filters if not name or values[name] is not None]
    pairs = state.select(finding.entity.number, [(field.place, value) for field, value in wanted if field.place >= 0])
    derived = [(field, value) for field, value in wanted if field.place < 0]
    return [pair for pair in pairs if all(value_of(state, pair[1], field) == value for field, value in derived)]


def reader(domain: Domain, act: Act) -> Callee:
    """The tool of an action that only reads."""
    arguments = {name: param_argument(domain, param) for name, param in act.params.items()}
    tool = _tool(domain, act.name, act.spec.description or _describe(domain, act), arguments, _group_of(act))
    defaults, finding = defaults_of(act), act.finding
    writer = None if finding is None else RowWriter(domain, finding.entity)

    def work(state: State, values: dict[str, Any]) -> str:
        params = {**defaults, **values}
        error = find_error(domain, act, state, params)
        if error is not None:
            raise Refused(error)
        shown = _encode(result_values(domain, act, state, params))
        if finding is None or writer is None:
            return shown
        rows = writer.list_text(state, find_rows(finding, state, params), "list", LIST_LIMIT, search_count_key(finding.entity))
        return rows if shown == "{}" else f"{shown[:-1]},{rows[1:]}"

    return Callee(tool, arguments, work)


def _group_of(act: Act) -> str | None:
    return act.spec.group or (act.on.spec.group if act.on is not None else None)


def actor(domain: Domain, act: Act) -> Callee:
    """The tool that performs an action."""
    arguments = {name: param_argument(domain, param) for name, param in act.params.items()}
    tool = _tool(domain, act.name, act.spec.description or _describe(domain, act), arguments, _group_of(act), is_act=True)
    defaults = defaults_of(act)

    def work(state: State, values: dict[str, Any]) -> str:
        params = {**defaults, **values}
        error = find_error(domain, act, state, params)
        if error is not None:
            raise Refused(error)
        rows = perform(domain, act, state, params)
        if act.result_fields:
            return _encode(result_values(domain, act, state, params))
        public_name = domain.public[act.name].tool if domain.public else act.name
        return f'{{"done":"{public_name}","rows":{_encode(rows)}}}'

    return Callee(tool, arguments, work)


def _with_article(noun: str) -> str:
    """`a loan`, `an account`."""
    return f"an {noun}" if noun[0] in "aeioAEIO" else f"a {noun}"


def _describe(domain: Domain, act: Act) -> str:
    verb = act.spec.verb.en
    rows = (param for param in act.params.values() if isinstance(param.spec, schema.RefParam) and not param.is_person)
    first = next(rows, None) if act.on is None else None
    noun = act.on.noun if act.on is not None else first.label if first is not None else None
    target = "" if noun is None else domain.text(f" {_with_article(noun.en)}", noun.zh)
    text = verb.replace("_", target.strip() or "it") if "_" in verb else verb + target
    return f"{text[:1].upper()}{text[1:]}{domain.text('.', '。')}"


def callees(domain: Domain) -> dict[str, Callee]:
    """All tools of a domain by their names in the spec: reading tools by entity, then actions."""
    result: list[Callee] = []
    for entity in domain.by_number:
        writer = RowWriter(domain, entity)
        if "get" in entity.spec.tools:
            result.append(getter(domain, entity, writer))
        result += [lister(domain, entity, owner, writer) for owner in entity.owners()]
        if "search" in entity.spec.tools:
            result.append(searcher(domain, entity, writer))
    result += [reader(domain, act) if act.is_reading else actor(domain, act) for act in domain.acts.values()]
    return {each.tool.name: each for each in result}
