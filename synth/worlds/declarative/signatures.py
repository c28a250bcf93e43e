"""Signatures that are given from outside (`signatures` of a spec): a catalogue's tools under their own names and parameters.

One idea: inside this package everything has the names of the spec; a given signature says how callers see a tool. Each of its parameters is
a parameter of the spec's tool (perhaps as a list of one, an object with one property, or the digits of an id), is taken without effect, or
always has one value. A call is checked against the given signature first, then translated, then checked as any other.

Not done here: a parameter that takes several values at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from storage.records import JSON
from synth.worlds.declarative.arguments import Argument
from synth.worlds.declarative.domain import Domain, Entity
from synth.worlds.declarative.language.problems import Problem, nearest
from synth.worlds.declarative.language.spec_schema import Signature, Taken
from synth.worlds.declarative.naming import PublicName
from synth.worlds.declarative.tools import Callee, search_name

_READ: Mapping[str, Callable[[str], JSON]] = {"integer": int, "number": float, "boolean": lambda text: {"true": True, "false": False}[text]}
"""By JSON type, how the text of `always` is read."""
_NUMERIC = ("integer", "number")
_BOXES = ("array", "object")
"""JSON types that hold one value of the spec's parameter."""


def hidden_arguments(entity: Entity, signature: Signature) -> frozenset[str]:
    """The arguments of an entity's search that its given signature does not offer."""
    offered = {taken.argument for taken in signature.takes.values()}
    every = {"sort", "limit", *(f"{bound}{name}" for name in entity.fields for bound in ("", "min_", "max_"))}
    return frozenset(every - offered)


def signature_problems(domain: Domain, callees: Mapping[str, Callee]) -> Iterator[Problem]:
    """What does not fit between the given signatures and the tools of the spec."""
    signatures = domain.spec.head.signatures
    for name in (each for each in callees if each not in signatures):
        yield Problem(f"signatures.{name}", "is missing; a spec with `signatures` gives one for every tool, or leaves the tool out")
    used: dict[str, str] = {}
    for name, signature in signatures.items():
        path = f"signatures.{name}"
        if name not in callees:
            yield Problem(path, f"no tool {name!r}; {nearest(name, callees)}")
            continue
        first = used.setdefault(signature.name, name)
        if first != name:
            yield Problem(f"{path}.tool", f"{first} is called {signature.name} already; a world's tools differ in their names")
        yield from _problems_of(path, signature, callees[name])


def _problems_of(path: str, signature: Signature, callee: Callee) -> Iterator[Problem]:
    bound: dict[str, str] = {}
    for key, taken in signature.takes.items():
        where = f"{path}.takes.{key}"
        if taken.argument is None:
            if (taken.always is not None and _always(taken) is None) or (taken.unused is not None and taken.type is not None):
                yield Problem(where, f"{taken.always or taken.unused!r} does not go with type {taken.type}")
            continue
        argument = callee.arguments.get(taken.argument)
        if argument is None:
            yield Problem(where, f"{callee.tool.name} takes no {taken.argument!r}; {nearest(taken.argument, callee.arguments)}")
        elif taken.type not in (None, *_BOXES) and not (argument.is_id and taken.type in _NUMERIC) and taken.type != _type_of(argument):
            yield Problem(where, f"{taken.argument!r} is a {_type_of(argument)} here, and cannot be of type {taken.type}")
        if bound.setdefault(taken.argument, key) != key:
            yield Problem(where, f"{bound[taken.argument]} stands for {taken.argument!r} already")
    missing = [key for key, argument in callee.arguments.items() if argument.is_required and key not in bound]
    if missing:
        yield Problem(f"{path}.takes", f"nothing stands for {', '.join(missing)}, which {callee.tool.name} needs")


def _type_of(argument: Argument) -> str:
    return str(argument.schema["type"])


def _always(taken: Taken) -> JSON:
    """The one value of a parameter; None if its text is not of its type."""
    assert taken.always is not None
    if taken.type in _BOXES:
        return [taken.always] if taken.type == "array" else {"value": taken.always}
    try:
        read = _READ.get(taken.type or "string")
        return taken.always if read is None else read(taken.always)
    except (ValueError, KeyError):
        return None


# ---- names for plans --------------------------------------------------------------------------------------------------------------


def given_name(signature: Signature, callee: Callee) -> PublicName:
    """How plans call a tool with a given signature."""
    arguments = {taken.argument: key for key, taken in signature.takes.items() if taken.argument is not None}
    packed = {
        taken.argument: taken.type
        for taken in signature.takes.values()
        if taken.argument is not None and (taken.type in _BOXES or (taken.type in _NUMERIC and callee.arguments[taken.argument].is_id))
    }
    always = {key: _always(taken) for key, taken in signature.takes.items() if taken.always is not None}
    return PublicName(signature.name, arguments, {name: str(kind) for name, kind in packed.items()}, always)


# ---- tools for callers ------------------------------------------------------------------------------------------------------------


def given_callee(signature: Signature, callee: Callee) -> Callee:
    """The tool under its given signature."""
    arguments, spec_names, opened = dict[str, Argument](), dict[str, str](), dict[str, Callable[[Any], Any]]()
    properties: dict[str, JSON] = {}
    required = []
    for key, taken in signature.takes.items():
        if taken.argument is None:
            properties[key] = _fixed_schema(taken)
            required += [key] if taken.always is not None else []
            continue
        argument = callee.arguments[taken.argument]
        properties[key] = _packed_schema(argument, taken)
        required += [key] if argument.is_required else []
        arguments[key], spec_names[key] = argument, taken.argument
        if taken.type == "array":
            opened[key] = _only
        elif taken.type == "object":
            opened[key] = itemgetter(taken.argument)
        elif taken.type in _NUMERIC and argument.is_id:
            opened[key] = _id_of(argument)
    parameters = {**callee.tool.parameters, "properties": properties, "required": required}
    changes: dict[str, Any] = {"name": signature.name, "server": signature.server, "parameters": parameters}
    if signature.about:
        changes["description"] = signature.about
    return Callee(callee.tool.model_copy(update=changes), arguments, callee.work, spec_names, opened)


def _fixed_schema(taken: Taken) -> dict[str, JSON]:
    if taken.unused is not None:
        return {"type": taken.unused}
    return {"type": taken.type or "string", "enum": [_always(taken)]}


def _packed_schema(argument: Argument, taken: Taken) -> dict[str, JSON]:
    if taken.type in _BOXES:
        inner = {key: value for key, value in argument.schema.items() if key != "x-grounded"}
        grounded = {"x-grounded": True} if argument.schema.get("x-grounded") else {}
        if taken.type == "array":
            return {"type": "array", "items": inner, "minItems": 1, "maxItems": 1, **grounded}
        return {"type": "object", "properties": {str(taken.argument): inner}, "required": [str(taken.argument)], **grounded}
    if taken.type in _NUMERIC and argument.is_id:
        about = f"{argument.schema['description']}, its digits as a number"
        return {"type": str(taken.type), "minimum": 0, "description": about}  # the request says f012: no text contains the number
    return dict(argument.schema)


def _only(values: Any) -> Any:
    return values[0]


def _id_of(argument: Argument) -> Callable[[Any], str]:
    """What makes an id of its digits: f012 of 12."""
    pattern = str(argument.schema["pattern"])
    prefix, digits = re.match(r"\^([a-z]*)", pattern), re.search(r"\{(\d)", pattern)
    width = int(digits[1]) if digits is not None else pattern.count(r"\d")
    return lambda value: f"{prefix[1] if prefix is not None else ''}{int(value):0{width}d}"


def public_search(entity: Entity, signatures: Mapping[str, Signature]) -> Signature | None:
    """The given signature of an entity's search."""
    return signatures.get(search_name(entity)) if "search" in entity.spec.tools else None
