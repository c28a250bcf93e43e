"""Checks arguments against the JSON schema of a tool from a catalogue.

A schema is checkable if it is a valid JSON schema, its references lead to places inside it, its patterns compile, and it is not too long.
Nothing is fetched. A call may use declared parameters only, unless the schema allows others explicitly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from jsonschema import Draft202012Validator, SchemaError

from storage.records import JSON, Tool, canonical_json

LONGEST_SCHEMA = 8_000
"""Characters. Of 9,460 signatures of real servers, 99.9 % are shorter."""
_LONGEST_PROBLEM, _LONGEST_DESCRIPTION = 240, 600
"""Characters."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that OpenAI's API accepts for a function."""


def is_offerable(tool: Tool) -> bool:
    """Whether a model can get the tool and its calls can be checked: its name is accepted by APIs, and its parameters are checkable."""
    return _NAME.fullmatch(tool.name) is not None and tool.parameters.get("type") == "object" and is_checkable(tool.parameters)


def is_checkable(schema: Mapping[str, JSON]) -> bool:
    """Whether values can be checked against a schema (see the module's description); an empty schema cannot."""
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
    """Violations of a tool's signature by a call's arguments, as messages to the caller; empty if there is none.

    Args:
        tool: a tool that `is_offerable`.
        unknown: names of arguments without a value yet; they count as present and valid.
    """
    schema = tool.parameters
    is_closed = "properties" in schema and schema.get("additionalProperties", False) is False and "patternProperties" not in schema
    undeclared = sorted(set(arguments) - set(schema["properties"])) if is_closed else []
    problems = [f"{tool.name} has no parameter {name}" for name in undeclared]
    for error in sorted(Draft202012Validator(schema).iter_errors(dict(arguments)), key=lambda error: error.json_path):
        is_reported = bool(undeclared) and error.validator == "additionalProperties" and not error.absolute_path
        if not is_reported and not (error.absolute_path and error.absolute_path[0] in unknown):
            problems.append(f"{tool.name}, {error.json_path}: {error.message}"[:_LONGEST_PROBLEM])
    return problems


def told(tools: Iterable[Tool]) -> list[dict[str, JSON]]:
    """Tools as a prompt describes them: name, start of the description, `takes` and `returns` as JSON text, changes_state."""
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
    """All objects in a schema, the schema first."""
    if isinstance(schema, Mapping):
        yield schema
        for item in schema.values():
            yield from _parts(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _parts(item)


def _is_sound(part: Mapping[str, JSON], schema: Mapping[str, JSON]) -> bool:
    """Whether the references of a part lead to places in the schema. Raises re.error if a pattern of the part does not compile."""
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
