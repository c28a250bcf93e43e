"""Calls in an address, and the form that adds one: made from the JSON schema of a tool, read back as a line.

One idea: a step is a line, `TOOL {json}` as at the prompt of `headrace worlds try`, or a JSON string for what the assistant says. All steps
stand in the address, so a page can be shared, reloaded and gone back from; the form only adds a line. What does not fit the schema is
sent all the same: the world says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from fastapi import Request

from flows.interactive.world_repl import read_arguments
from storage.errors import BadInput
from storage.records import JSON, Tool, plain_json

MOST_STEPS, LONGEST_STEP = 40, 4_000
"""Steps of an address, and characters of one."""
_FIELD = "arg."
"""Before the name of an argument, in names of form fields."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form. kind: choice, number, text, or json for values that have parts. hint: what the schema says of the values."""

    name: str
    label: str
    kind: str
    is_required: bool
    choices: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True)
class Step:
    """A call, or what the assistant says (tool is empty, and `text` is what it says). text: the arguments as JSON text otherwise."""

    tool: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.tool} {self.text}" if self.tool else json.dumps(self.text, ensure_ascii=False)


def form_fields(tool: Tool) -> list[FormField]:
    """A field for each argument of a tool."""
    required = tool.parameters.get("required", ())
    properties = tool.parameters.get("properties", {})
    return [_field(name, schema if isinstance(schema, Mapping) else {}, name in required) for name, schema in properties.items()]


def _field(name: str, schema: Mapping[str, Any], is_required: bool) -> FormField:
    choices = tuple(_text(value) for value in schema.get("enum", ()))
    kind = schema.get("type")
    if kind == "boolean":
        choices = ("true", "false")
    shape = "choice" if choices else {"integer": "number", "number": "number", "array": "json", "object": "json"}.get(str(kind), "text")
    return FormField(name, str(schema.get("description", "")), shape, is_required, choices, hint_of(schema))


def hint_of(schema: Mapping[str, Any]) -> str:
    """What a schema says of a value's type and bounds, in words."""
    kind, items = schema.get("type", "any value"), schema.get("items")
    kind = kind if isinstance(kind, str) else " or ".join(map(str, kind))
    if "enum" in schema:
        said = ["one of " + ", ".join(_text(value) for value in schema["enum"])]
    elif kind == "array" and isinstance(items, Mapping):
        said = [f"a JSON list of {hint_of(items)}"]
    else:
        said = ["a JSON object" if kind == "object" else {"string": "text", "boolean": "true or false"}.get(kind, kind)]
    words = {"minimum": "at least", "maximum": "at most", "pattern": "of the form", "maxLength": "characters at most", "default": "default"}
    said += [f"{words[key]} {_bound(schema[key])}" for key in words if schema.get(key) is not None]
    return ", ".join(said)


def _bound(value: JSON) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else _text(value)


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_steps(lines: Sequence[str]) -> list[Step]:
    """The steps of an address.

    Raises:
        BadInput: there are too many, or one is too long.
    """
    if len(lines) > MOST_STEPS:
        raise BadInput(f"an address may have {MOST_STEPS} steps, and this one has {len(lines):,}; go back to fewer")
    for line in lines:
        if len(line) > LONGEST_STEP:
            raise BadInput(f"a step may have {LONGEST_STEP:,} characters, and one has {len(line):,}")
    return [read_step(line) for line in lines if line.strip()]


def read_step(line: str) -> Step:
    """A step from its line. Arguments that cannot be read stay as they are: the world says what is wrong."""
    line = line.strip()
    if line.startswith('"'):
        try:
            said = json.loads(line)
        except ValueError:
            said = line.strip('"')
        return Step("", str(said))
    tool, _, rest = line.partition(" ")
    try:
        return Step(tool, read_arguments(rest.strip()))
    except ValueError:
        return Step(tool, rest.strip())


def added_step(request: Request, tools: Sequence[Tool]) -> Step | None:
    """The step that the fields of a form add; None if they add none."""
    query = request.query_params
    if said := query.get("say", "").strip():
        return Step("", said)
    if line := query.get("line", "").strip():
        return read_step(line)
    if query.get("add") is None:
        return None
    tool = next((tool for tool in tools if tool.name == query["add"]), None)
    schemas = tool.parameters.get("properties", {}) if tool is not None else {}
    sent = {name.removeprefix(_FIELD): value for name, value in query.items() if name.startswith(_FIELD) and value != ""}
    return Step(query["add"], plain_json({name: _value(value, schemas.get(name, {})) for name, value in sent.items()}))


def _value(text: str, schema: Mapping[str, Any]) -> JSON:
    """The value of a form field by its schema; as text if it does not fit."""
    if schema.get("type") == "string" or all(isinstance(value, str) for value in schema.get("enum", (None,))):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def address(request: Request, steps: Sequence[Step], **changed: str | int | None) -> str:
    """The address of this page with these steps, and these values of the other parameters; None leaves one out."""
    dropped = {"call", "add", "line", "say", *changed}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in dropped and not name.startswith(_FIELD)]
    kept += [(name, str(value)) for name, value in changed.items() if value not in (None, "")]
    query = urlencode([*kept, *(("call", step.line) for step in steps)])
    return f"{request.url.path}?{query}" if query else request.url.path
