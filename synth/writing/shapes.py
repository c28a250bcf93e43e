"""The shape of a domain: a hash of its tools without names.

One idea: tools, and the entities whose ids they take and return, are nodes of a graph. A tool's first colour is its signature without
names (for each parameter: type, number of values, kind of text, required or not). Colours are refined by those of the neighbours
(Weisfeiler-Lehman) until no more nodes differ; the shape is the hash of all colours. Domains that differ only in nouns, order or wording
have the same shape; another parameter, action or reference changes it. Amounts in rules, weights and numbers of rows do not.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from storage.records import JSON, Tool
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Act, Domain, Entity
from synth.worlds.declarative.tools import get_name, list_name, search_name

Edge = tuple[str, str, str]
"""Tool, entity, and relation: `gives`, `takes` or `may take`."""


def shape_of(world: type[SpecWorld]) -> str:
    """The shape of a domain, 16 hex digits, the same in every process."""
    edges = list(_edges(world))
    colours = {
        f"tool {callee.tool.name}": _hash((callee.tool.changes_state, signature_without_names(callee.tool)))
        for callee in world.callees.values()
    }
    colours.update({f"entity {name}": "" for name in world.domain.entities})
    neighbours: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for tool, entity, kind in edges:
        neighbours[f"tool {tool}"].append((kind, f"entity {entity}"))
        neighbours[f"entity {entity}"].append((kind, f"tool {tool}"))
    distinct = 0
    while len(set(colours.values())) > distinct:
        distinct = len(set(colours.values()))
        colours = {
            node: _hash((colour, sorted((kind, colours[other]) for kind, other in neighbours[node]))) for node, colour in colours.items()
        }
    return _hash(sorted(Counter(colours.values()).items()))


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def signature_without_names(tool: Tool) -> list[tuple[str, bool]]:
    """Kind of each parameter and whether it is required, sorted."""
    required: Iterable[str] = tool.parameters["required"]
    properties: Mapping[str, Mapping[str, JSON]] = tool.parameters["properties"]
    return sorted((_kind(schema), name in required) for name, schema in properties.items())


def _kind(schema: Mapping[str, JSON]) -> str:
    """Type of a parameter, with its number of values or the kind of text."""
    if "enum" in schema:
        return f"one of {len(schema['enum'])}"
    if schema["type"] != "string":
        return str(schema["type"])
    pattern = str(schema.get("pattern", ""))
    return "date" if schema.get("format") == "date" else "time" if ":" in pattern else "id" if pattern else "text"


def _edges(world: type[SpecWorld]) -> Iterable[Edge]:
    domain = world.domain
    by_pattern = {f"^{entity.pattern}$": name for name, entity in domain.entities.items()}
    for tool in (callee.tool for callee in world.callees.values()):
        for name, schema in tool.parameters["properties"].items():
            entity_of_pattern = by_pattern.get(str(schema.get("pattern", "")))
            if entity_of_pattern is not None:
                yield tool.name, entity_of_pattern, "takes" if name in tool.parameters["required"] else "may take"
    for entity in domain.entities.values():
        tool_names = [get_name(entity), search_name(entity), *(list_name(entity, owner) for owner in entity.owners())]
        for name in tool_names:
            if name in domain.public:
                yield from ((domain.public[name].tool, given, "gives") for given in _shown_entities(entity, in_full=name == tool_names[0]))
    for act in domain.acts.values():
        yield from ((domain.public[act.name].tool, given, "gives") for given in _changed_entities(domain, act))


def _shown_entities(entity: Entity, *, in_full: bool) -> list[str]:
    """The entities whose ids a row shows: its own and the referenced ones."""
    refs = [each.type.entity for each in entity.fields.values() if each.type.kind == "ref" and (in_full or not each.spec.detail)]
    return [entity.name, *refs]


def _changed_entities(domain: Domain, act: Act) -> list[str]:
    """The entities of the rows that an action creates or changes."""
    numbers = {creation.entity for creation in act.creations} | {setting.entity for setting in act.settings}
    for transfer in act.transfers:
        numbers |= {transfer.source[1], transfer.target[1]}
    return [domain.by_number[number].name for number in sorted(numbers)]
