"""Compares the tools of a world with those of a cluster: names, servers, parameters, which are required, and their types.

One idea: a world's tool fits if every call that the catalogue's schema describes by names and types has the same parameters here. What a
catalogue does not say (parameters, or the type of one) fits anything. Descriptions, enumerations, bounds and defaults are not compared, nor
whether a tool changes state: a catalogue rarely says so, and reading it from a name is a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage.records import CODE_TOOL, JSON, Tool
from synth.clusters.entities import properties, required_names

_MOST_DEPTH = 8


def json_types(schema: Mapping[str, JSON]) -> frozenset[str]:
    """The JSON types that a parameter may have, without null; empty if its schema does not say."""
    return frozenset(_types(schema, _MOST_DEPTH)) - {"null"}


def _types(schema: JSON, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or not depth:
        return
    kind = schema.get("type")
    yield from (kind,) if isinstance(kind, str) else (each for each in kind or () if isinstance(each, str))
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, list) else ():
            yield from _types(part, depth - 1)
    values = schema.get("enum")
    if kind is None and isinstance(values, list) and values and all(isinstance(each, str) for each in values):
        yield "string"


def signature_differences(tools: Sequence[Tool], given: Sequence[Tool]) -> list[str]:
    """What of a world's tools differs from those given by a cluster, one line each, as instructions; empty if nothing does."""
    here = {tool.name: tool for tool in tools if tool.name != CODE_TOOL}
    wanted = {tool.name: tool for tool in given}
    lines = [f"there is no tool {tool.id}; the cluster has it" for name, tool in wanted.items() if name not in here]
    lines += [
        f"{tool.id} is no tool of the cluster; leave it out (its entity's `tools`, or the action)"
        for name, tool in here.items()
        if name not in wanted
    ]
    for name in (each for each in wanted if each in here):
        lines += _differences(here[name], wanted[name])
    return lines


def _differences(tool: Tool, given: Tool) -> Iterator[str]:
    if tool.server != given.server:
        yield f"{given.id}: its server is {tool.server!r} here; write the signature's `tool` as {given.id}"
    if not given.parameters:
        return
    here, wanted = properties(tool.parameters), properties(given.parameters)
    if missing := [name for name in wanted if name not in here]:
        yield f"{given.id}: takes {', '.join(missing)} too; give it a place in `takes` of its signature"
    if extra := [name for name in here if name not in wanted]:
        yield f"{given.id}: takes no {', '.join(extra)}"
    required, needed = required_names(tool.parameters), required_names(given.parameters)
    for name in (each for each in wanted if each in here):
        if (name in required) != (name in needed):
            yield f"{given.id}: {name} is {'optional' if name in required else 'required'} in the catalogue"
        types, allowed = json_types(here[name]), json_types(wanted[name])
        if allowed and not all(each in allowed or (each == "integer" and "number" in allowed) for each in types):
            yield f"{given.id}: {name} is {' or '.join(sorted(allowed))} in the catalogue, and {' or '.join(sorted(types))} here"
