"""Whether arguments meet the JSON schema of a tool that nobody here wrote.

A catalogue's schema is believed where it can be checked at all: it is a schema, its references stay inside it and lead somewhere, its
patterns are patterns, and it is not as long as a book. What is fetched from elsewhere is never fetched. A call may name the declared
parameters alone, unless the schema says in so many words that there may be others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from jsonschema import Draft202012Validator, SchemaError

from storage.records import JSON, Tool, canonical_json

LONGEST_SCHEMA = 8_000
"""Characters. Of 9,460 signatures of real servers, 99.9 % are shorter."""
_LONGEST_PROBLEM, _LONGEST_DESCRIPTION = 240, 600
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What OpenAI's interface lets a function be called."""


def is_offerable(tool: Tool) -> bool:
    """Whether a tool can be shown to a model and its calls checked: a name that servers take, and parameters that are known."""
    return _NAME.fullmatch(tool.name) is not None and tool.parameters.get("type") == "object" and is_checkable(tool.parameters)


def is_checkable(schema: Mapping[str, JSON]) -> bool:
    """Whether values can be held against a schema; against one that says nothing they cannot."""
    if not schema or len(canonical_json(schema)) > LONGEST_SCHEMA:
        return False
    try:
        Draft202012Validator.check_schema(schema)
        if not all(_is_sound(part, schema) for part in _parts(schema)):
            return False
        list(Draft202012Validator(schema).iter_errors({}))
    except (SchemaError, re.error, RecursionError):
        return False
    return True


def argument_problems(tool: Tool, arguments: Mapping[str, JSON], *, unknown: Collection[str] = ()) -> list[str]:
    """How a call's arguments break its tool's signature, in words for whoever made it; empty where they keep to it.

    Args:
        tool: an offerable one.
        unknown: arguments whose values are not known yet; they count as given, and as right.
    """
    schema = tool.parameters
    is_closed = "properties" in schema and schema.get("additionalProperties", False) is False and "patternProperties" not in schema
    strange = sorted(set(arguments) - set(schema["properties"])) if is_closed else []
    found = [f"{tool.name} has no parameter {name}" for name in strange]
    for error in sorted(Draft202012Validator(schema).iter_errors(dict(arguments)), key=lambda error: error.json_path):
        is_told = error.validator == "additionalProperties" and not error.absolute_path
        if not (is_told and strange) and not (error.absolute_path and error.absolute_path[0] in unknown):
            found.append(f"{tool.name}, {error.json_path}: {error.message}"[:_LONGEST_PROBLEM])
    return found


def told(tools: Iterable[Tool]) -> list[dict[str, JSON]]:
    """Tools as a prompt tells of them: name, description (its beginning), `takes` and `returns` as JSON, changes_state."""
    return [
        {
            "name": tool.name,
            "description": " ".join(tool.description.split())[:_LONGEST_DESCRIPTION],
            "takes": canonical_json(tool.parameters),
            "returns": canonical_json(tool.output) if tool.output else "",
            "changes_state": tool.changes_state,
        }
        for tool in tools
    ]


def _parts(schema: JSON) -> Iterator[Mapping[str, JSON]]:
    """All objects in a schema, itself first."""
    if isinstance(schema, Mapping):
        yield schema
        for item in schema.values():
            yield from _parts(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _parts(item)


def _is_sound(part: Mapping[str, JSON], schema: Mapping[str, JSON]) -> bool:
    """Whether references of a part lead to another part. Raises re.error where its pattern is none."""
    if isinstance(part.get("pattern"), str):
        re.compile(part["pattern"])
    if isinstance(part.get("patternProperties"), Mapping):
        for pattern in part["patternProperties"]:
            re.compile(pattern)
    if isinstance(part.get("$id"), str) and part is not schema:
        return False
    return all(_leads_to(part[key], schema) for key in ("$ref", "$dynamicRef") if isinstance(part.get(key), str))


def _leads_to(reference: str, schema: JSON) -> bool:
    """Whether a reference of the form `#/a/b` names a place in the schema."""
    if reference != "#" and not reference.startswith("#/"):
        return False
    for key in reference.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or name not in schema:
            return False
        schema = schema[name]
    return isinstance(schema, (Mapping, bool))
