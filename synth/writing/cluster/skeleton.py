"""The skeleton of a domain whose tools are those of a cluster: entities, states, and what each tool does, by rule.

One idea: a tool's name gives a verb and an entity, its parameters refer to entities or describe new rows (`synth/clusters/`). A reading
tool of one id is the entity's `get`, one without required parameters its `search`; any other reading tool finds rows by what it takes. A
tool that creates gives a new row, one that changes sets what it takes or a state, one that removes sets the state `removed`. What has no
place is `unused`. All of it is guessed: an author, or a language model, finishes it (`skeleton_text.py` marks what is guessed).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage.records import Tool
from synth.clusters.business_clusters import Cluster
from synth.clusters.edges import Edge
from synth.clusters.entities import parameter_words, properties, required_names
from synth.clusters.tool_words import ParsedName, entity_keys, parse_names, word_lists
from synth.worlds.declarative.common_names import participle_of, plural_of
from synth.writing.cluster.names import free_name, is_key, name_field, service_word, usable_key
from synth.writing.cluster.tool_signature import json_types

_IDS = frozenset({"id", "uuid", "guid", "identifier", "key", "uid"})
_LIMITS = frozenset({"limit", "max_result", "page_size", "per_page", "count", "amount", "top_k", "max_count", "size"})
_QUERIES = frozenset({"q", "query", "search", "name", "term", "keyword", "search_query", "search_term", "filter"})
_SEARCHED = frozenset({"sort", "limit"})
"""Parameters of every search: no field may be called so."""
_MOST_VALUES = 12
_CHANGES = ("create", "change", "remove")


@dataclass(slots=True)
class EntityPlan:
    """An entity. fields: name -> keys. states: values of its `state`, beside `active`. tools: reading tools."""

    name: str
    fields: dict[str, dict[str, object]] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    @property
    def noun(self) -> str:
        return self.name.replace("_", " ")

    def all_fields(self) -> dict[str, dict[str, object]]:
        """Its fields, with the state if actions change it."""
        if not self.states:
            return self.fields
        values = {state: state.replace("_", " ") for state in ("active", *dict.fromkeys(self.states))}
        return {**self.fields, "state": {"type": "choice", "label": "state", "values": values, "weights": {"active": 3}}}


@dataclass(slots=True)
class ToolPlan:
    """A tool of the cluster in the spec.

    name: of the spec's tool.
    form: get, search (of an entity) or action.
    action: keys of the action.
    takes: the signature's parameters.
    """

    tool: Tool
    name: str
    form: str
    action: dict[str, object] = field(default_factory=dict)
    takes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """entities by name, and a plan for every tool of the cluster."""

    entities: Mapping[str, EntityPlan]
    tools: Sequence[ToolPlan]


def build_skeleton(cluster: Cluster, tools: Sequence[Tool]) -> Skeleton:
    """The skeleton of a domain with these tools of a cluster."""
    return _Builder(cluster.edges, tools).build()


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a tool. reference: the entity that it refers to, or an empty text."""

    public: str
    key: str
    words: tuple[str, ...]
    types: frozenset[str]
    values: tuple[str, ...]
    is_required: bool
    reference: str = ""


class _Builder:
    def __init__(self, edges: Sequence[Edge], tools: Sequence[Tool]) -> None:
        self.edges, self.source = edges, tools
        self.names = parse_names(tools)
        self.entities: dict[str, EntityPlan] = {}
        self.used: set[str] = set()

    def build(self) -> Skeleton:
        self.objects = [self._object(tool, name) for tool, name in zip(self.source, self.names, strict=True)]
        for each in self.objects:
            self._entity(each)
        parameters = [self._parameters(at) for at in range(len(self.source))]
        plans = [self._plan(at, parameters[at]) for at in range(len(self.source))]
        for plan in plans:
            self._complete(plan)
        ordered = sorted(self.entities.values(), key=lambda each: self._depth(each.name, ()))
        return Skeleton({each.name: each for each in ordered}, plans)

    def _depth(self, name: str, above: tuple[str, ...]) -> int:
        """Number of references from an entity on: entities that are referred to come first."""
        references = [str(keys["to"]) for keys in self.entities[name].fields.values() if keys["type"] == "ref"]
        return 1 + max((self._depth(other, (*above, name)) for other in references if other not in (*above, name)), default=0)

    # ---- entities -------------------------------------------------------------------------------------------------------------

    def _object(self, tool: Tool, name: ParsedName) -> str:
        """The entity that a tool is about: its object's head, with the word before it where both name one."""
        keys = [*entity_keys(name.object), *entity_keys(name.tail)]
        inside = [key for edge in self.edges for key in (edge.entity,) if tool.id in (edge.source, edge.target) and key in keys]
        return usable_key((inside or keys or [service_word(tool.server)])[0], "item")

    def _entity(self, name: str) -> EntityPlan:
        if name not in self.entities:
            self.entities[name] = EntityPlan(name, {"name": name_field(name)})
        return self.entities[name]

    # ---- parameters -----------------------------------------------------------------------------------------------------------

    def _parameters(self, at: int) -> list[_Parameter]:
        tool, name, about = self.source[at], self.names[at], self.objects[at]
        if not tool.parameters:
            return self._guessed(at)
        required, found, keys = required_names(tool.parameters), [], set[str]()
        for public, schema in properties(tool.parameters).items():
            words = parameter_words(public)
            key = free_name(usable_key("_".join(words), "value"), keys)
            keys.add(key)
            values = tuple(value for value in schema.get("enum") or () if isinstance(value, str))
            one = _Parameter(public, key, words, json_types(schema), values, public in required)
            reference = self._reference(one, name, about) if public in required else ""
            found.append(_Parameter(public, key, words, one.types, values, one.is_required, reference))
        return found

    def _guessed(self, at: int) -> list[_Parameter]:
        """Parameters of a tool whose parameters are unknown: what edges bring it, else a name for a new row."""
        name, about = self.names[at], self.objects[at]
        incoming = [edge.entity for edge in self.edges if edge.target == self.source[at].id]
        fed = next((each for each in incoming if each in self.entities and each != about), "")
        if name.kind == "create":
            texts = [_Parameter("name", "name", ("name",), frozenset({"string"}), (), True)]
            return [*texts, *([_Parameter(f"{fed}_id", f"{fed}_id", (fed, "id"), frozenset({"string"}), (), True, fed)] if fed else [])]
        is_about_one = name.kind in ("change", "remove") or self.source[at].changes_state or (name.kind == "read" and not name.is_plural)
        reference = about if is_about_one else fed
        return (
            [_Parameter(f"{reference}_id", f"{reference}_id", (reference, "id"), frozenset({"string"}), (), True, reference)]
            if reference
            else []
        )

    def _reference(self, parameter: _Parameter, name: ParsedName, about: str) -> str:
        """The entity that a parameter refers to; empty for a text, a number or a choice."""
        words, lists = parameter.words, word_lists()
        is_number = bool(parameter.types & {"integer", "number"})
        if parameter.values or "boolean" in parameter.types or not words or (is_number and words[-1] not in _IDS):
            return ""
        stem = words[:-1] if words[-1] in lists.references | lists.identifiers | _IDS else words
        known = [key for key in entity_keys(stem) if key in self.entities]
        is_id = words[-1] in _IDS
        if known and (is_id or stem == words or name.kind != "create" or known[0] != about):
            return known[0]
        if is_id and not stem:
            return about if name.kind != "create" else ""
        if is_id:
            created = usable_key(next(iter(entity_keys(stem)), ""), "")
            return self._entity(created).name if created else ""
        is_own_name = words[-1] in lists.references and not stem
        return about if is_own_name and name.kind in ("read", "change", "remove") and not name.is_plural else ""

    # ---- tools ----------------------------------------------------------------------------------------------------------------

    def _plan(self, at: int, parameters: list[_Parameter]) -> ToolPlan:
        tool, name, entity = self.source[at], self.names[at], self.entities[self.objects[at]]
        required = [each for each in parameters if each.is_required]
        if tool.changes_state and name.kind != "list":
            return self._act(tool, name, entity, parameters)
        is_one = len(required) == 1 and required[0].reference == entity.name
        if is_one and "get" not in entity.tools and not name.is_plural and "array" not in required[0].types:
            entity.tools.append("get")
            return ToolPlan(tool, f"get_{entity.name}", "get", {}, self._signature(parameters, {required[0].public: entity.name}))
        if not required and "search" not in entity.tools and (bound := self._filters(entity, parameters)):
            entity.tools.append("search")
            return ToolPlan(tool, f"search_{plural_of(entity.name)}", "search", {}, self._signature(parameters, bound))
        return self._read(tool, name, entity, parameters)

    def _filters(self, entity: EntityPlan, parameters: list[_Parameter]) -> dict[str, str]:
        """What a search's parameters stand for; empty if it filters by nothing."""
        bound: dict[str, str] = {}
        for each in parameters:
            if 2 <= len(each.values) <= _MOST_VALUES:
                field_name = self._choice(entity, each)
                bound |= {each.public: field_name} if field_name else {}
            elif not each.types - {"string"} and "_".join(each.words) in _QUERIES and "name" not in bound.values():
                bound[each.public] = "name"
                entity.fields["name"] = {"type": "name", "open": "true", "label": entity.noun, "list": "company"}  # names that differ
        limit = next((each.public for each in parameters if each.key in _LIMITS and not each.types - {"integer", "number"}), None)
        return {**bound, limit: "limit"} if bound and limit is not None else bound

    def _read(self, tool: Tool, name: ParsedName, entity: EntityPlan, parameters: list[_Parameter]) -> ToolPlan:
        """A tool of its own that finds rows of its entity by what it takes, or shows the row that it is given."""
        takes, bound = self._taken(entity, [each for each in parameters if each.is_required], is_new=False)
        own = next((key for key, keys in takes.items() if keys.get("to") == entity.name), None)
        action: dict[str, object] = {"verb": f"look up {entity.noun if own else f'the {plural_of(entity.noun)}'}", "takes": takes}
        if own is not None:
            action["verb"] = "look up" if next(iter(takes.values()))["type"] == "ref" else f"look up {entity.noun}"
            action["shows"] = {key: f"{own}.{key}" for key in entity.fields}
        else:
            action["finds"] = {entity.name: {self._column(entity, key, keys): key for key, keys in takes.items() if keys["type"] != "flag"}}
            first = next((key for key, keys in takes.items() if keys["type"] == "ref"), None)
            action["verb"] = f"look up the {plural_of(entity.noun)}{' of _' if first else ''}"
        return ToolPlan(tool, self._name(tool), "action", action, self._signature(parameters, bound, takes))

    def _act(self, tool: Tool, name: ParsedName, entity: EntityPlan, parameters: list[_Parameter]) -> ToolPlan:
        is_new = name.kind == "create" and not any(each.reference == entity.name for each in parameters if each.is_required)
        wanted = [each for each in parameters if each.is_required]
        texts = [each for each in parameters if not each.is_required and "string" in (each.types or {"string"})]
        if not wanted and texts:
            wanted = texts[:1]
        takes, bound = self._taken(entity, wanted, is_new=is_new)
        own = next((key for key, keys in takes.items() if keys.get("to") == entity.name), None)
        verb = name.verb or "use"
        action: dict[str, object] = {"takes": takes}
        first = next((key for key, keys in takes.items() if keys["type"] == "ref"), None)
        if own is not None and not is_new:
            action["verb"] = verb if first == own else f"{verb} the {entity.noun}"
            columns = {self._column(entity, key, keys): key for key, keys in takes.items() if key != own and keys["type"] != "flag"}
            action |= self._change(entity, own, verb, columns, is_removal=name.kind == "remove")
        else:
            noun = entity.noun
            action["verb"] = f"{verb} {'an' if noun[0] in 'aeiou' else 'a'} {noun}{' for _' if first else ''}"
            columns = {self._column(entity, key, keys): key for key, keys in takes.items() if keys["type"] != "flag"}
            action["creates"] = {entity.name: columns}
        return ToolPlan(tool, self._name(tool), "action", action, self._signature(parameters, bound, takes))

    def _change(self, entity: EntityPlan, own: str, verb: str, columns: Mapping[str, str], *, is_removal: bool) -> dict[str, object]:
        settable = {column: key for column, key in columns.items() if entity.fields[column]["type"] != "ref"}
        if settable and not is_removal:
            needs = [{"if": f"{own}.{column} != {key}", "else": "nothing would change"} for column, key in [*settable.items()][:1]]
            return {"needs": tuple(needs), "sets": {f"{own}.{column}": key for column, key in settable.items()}}
        state = "removed" if is_removal else usable_key(participle_of(verb).replace(" ", "_"), "changed")
        entity.states.append(state)
        need = {"if": f"{own}.state != {state}", "else": f"the {entity.noun} is {state.replace('_', ' ')} already"}
        return {"needs": (need,), "sets": {f"{own}.state": state}}

    def _complete(self, plan: ToolPlan) -> None:
        """Gives a new row all fields of its entity, and a reading tool something to show: other tools may have added some."""
        for name, columns in (plan.action.get("creates") or {}).items():  # type: ignore[attr-defined]
            for column, keys in self.entities[name].all_fields().items():
                if column not in columns:
                    columns[column] = _first_value(column, keys, plan.action["takes"])  # type: ignore[arg-type]
        for name, columns in (plan.action.get("finds") or {}).items():  # type: ignore[attr-defined]
            if not columns and self.entities[name].states:
                columns["state"] = "active"
        if "shows" in plan.action:
            own = next(key for key, keys in plan.action["takes"].items() if keys.get("to"))  # type: ignore[attr-defined]
            shown = plan.action["takes"][own]["to"]  # type: ignore[index]
            plan.action["shows"] = {key: f"{own}.{key}" for key in self.entities[shown].all_fields()}

    # ---- what a tool takes ----------------------------------------------------------------------------------------------------

    def _taken(
        self, entity: EntityPlan, parameters: list[_Parameter], *, is_new: bool
    ) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
        """Parameters of an action with their keys, and the spec's name of each public one."""
        takes: dict[str, dict[str, object]] = {}
        bound: dict[str, str] = {}
        for each in parameters:
            one = replace(each, reference="") if each.reference == entity.name and entity.name in takes else each
            key = one.reference if one.reference and one.reference not in takes else one.key
            key = free_name(f"{key}_value" if key in self.entities and not one.reference else key, takes)
            takes[key] = self._type_of(entity, one)
            bound[each.public] = key
        return takes, bound

    def _type_of(self, entity: EntityPlan, parameter: _Parameter) -> dict[str, object]:
        label = " ".join(parameter.words) or "value"
        if parameter.reference:
            return {"type": "ref", "to": parameter.reference}
        column = self._field_name(parameter)
        if 2 <= len(parameter.values) <= _MOST_VALUES and (choice := self._choice(entity, parameter)):
            return {"type": "choice", "like": f"{entity.name}.{choice}"}
        if parameter.types and parameter.types <= {"integer", "number"}:
            kind = "integer" if "integer" in parameter.types else "number"
            entity.fields.setdefault(column, {"type": kind, "min": 1, "max": 20, "label": label})
            return {"type": kind, "min": 1, "max": 20, "label": label}
        if parameter.types == {"boolean"}:
            return {"type": "flag", "label": label}
        entity.fields.setdefault(column, name_field(column, label))
        default = {} if parameter.is_required else {"default": "none given"}
        return {"type": "name", "like": f"{entity.name}.{column}", "label": label, **default}

    def _field_name(self, parameter: _Parameter) -> str:
        return f"{parameter.key}_value" if parameter.key in self.entities or parameter.key in _SEARCHED else parameter.key

    def _column(self, entity: EntityPlan, key: str, keys: Mapping[str, object]) -> str:
        """The field of an entity for a parameter; adds a reference where there is none."""
        if keys["type"] == "ref":
            target = str(keys["to"])
            name = key if key == target or key not in self.entities else target
            entity.fields.setdefault(name, {"type": "ref", "to": target})
            return name
        like = str(keys.get("like", ""))
        column = like.partition(".")[2] if like.startswith(f"{entity.name}.") else key
        return f"{column}_value" if column in _SEARCHED else column

    def _choice(self, entity: EntityPlan, parameter: _Parameter) -> str:
        """The field of a choice; empty if its values cannot be keys as they are."""
        if not all(is_key(value) for value in parameter.values):
            return ""
        name = self._field_name(parameter)
        values = {value: value.replace("_", " ") for value in parameter.values}
        known = entity.fields.setdefault(name, {"type": "choice", "label": " ".join(parameter.words), "values": values})
        return name if known.get("values") == values else ""

    def _signature(
        self, parameters: Sequence[_Parameter], bound: Mapping[str, str], takes: Mapping[str, Mapping[str, object]] | None = None
    ) -> dict[str, object]:
        """`takes` of a tool's signature."""
        signature: dict[str, object] = {}
        for each in parameters:
            argument = bound.get(each.public)
            boxes = ("array", "object", *(("integer", "number") if each.reference else ()))
            kind = next((name for name in boxes if each.types == {name}), None)
            if argument is not None:
                signature[each.public] = argument if kind is None else {"argument": argument, "type": kind}
            elif each.is_required:
                signature[each.public] = {"always": "any", **({"type": kind} if kind else {})}
            else:
                signature[each.public] = {"unused": min(each.types & _JSON_TYPES, default="string")}
        return signature

    def _name(self, tool: Tool) -> str:
        """The name of an action: the tool's, as a key that no other tool has."""
        name = usable_key("_".join(re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", tool.name).lower())), "use")
        reading = {f"get_{each}" for each in self.entities} | {f"search_{plural_of(each)}" for each in self.entities}
        name = f"do_{name}" if name in reading or name.startswith("list_") else name
        name = free_name(name[:36].rstrip("_"), self.used)
        self.used.add(name)
        return name


_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object"})


def _first_value(column: str, keys: Mapping[str, object], takes: Mapping[str, Mapping[str, object]]) -> str:
    """The value of a new row in a field that no parameter gives."""
    kind = keys["type"]
    if kind == "ref":
        return next((key for key, each in takes.items() if each.get("to") == keys["to"]), f"{keys['to']}:0")
    if kind == "choice":
        return str(next(iter(keys["values"])))  # type: ignore[call-overload]
    if kind in ("integer", "number"):
        return "1"
    if kind == "name":
        return f"'{keys['values'][0]}'" if "values" in keys else "'Unnamed'"  # type: ignore[index]
    return "false"
