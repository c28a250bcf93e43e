"""Arguments of tool calls: a tool's JSON schema is compiled once to a checker, which every world calls before it does anything else.

One idea: each schema becomes a closure that accepts or refuses a value, and a text that says what is allowed; so a call costs a dictionary
look-up and a comparison or two per argument. A message names the parameter and what is allowed. It never repeats a name or value of the
caller: what a policy made up must not come back as an observation.

Keywords: type, enum, minimum, maximum, minLength, maxLength, pattern, items, minItems, maxItems, properties, required,
additionalProperties; and default, which is filled in at the top level. All others (format, description, x-grounded) are ignored. A value
passes where jsonschema's `Draft202012Validator` accepts it; only what no JSON text can hold is refused besides: NaN, infinities, halves of
surrogate pairs. That validator is not used because it is too slow for every call of a rollout, and its messages repeat values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from storage.records import JSON

Schema = Mapping[str, Any]
Accepts = Callable[[Any], bool]
Checker = Callable[[Mapping[str, JSON]], dict[str, Any]]
"""Arguments -> arguments with defaults filled in, 5.0 for an integer as 5. Raises BadArgument."""

_INFINITY = float("inf")
_NUMBER_TYPES = (int, float)
_TYPE_WORDS = {
    "null": "null",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "an object",
}


def without_marks(schema: JSON) -> JSON:
    """The schema as models read it: without Headrace's own mark `x-grounded`, at any depth."""
    if isinstance(schema, dict):
        return {key: without_marks(value) for key, value in schema.items() if key != "x-grounded"}
    return [without_marks(each) for each in schema] if isinstance(schema, list) else schema


class BadArgument(Exception):
    """An argument was refused; the message is the text of the error observation."""


def compile_checker(parameters: Schema, *, allows_blank: bool = True) -> Checker:
    """The checker of a tool's `parameters`, a schema of type object.

    allows_blank: False refuses strings that are empty or only white space, although the schema accepts them.
    """
    properties: Mapping[str, Schema | bool] = parameters.get("properties", {})
    checks = {
        name: (_compile(schema, allows_blank), f"{name} must be {_describe(schema, allows_blank)}") for name, schema in properties.items()
    }
    names = ", ".join(properties)
    others = parameters.get("additionalProperties", True)
    accepts_other = _compile(others, allows_blank)
    unknown = "there is no such parameter" if others is False else f"a parameter of another name must be {_describe(others, allows_blank)}"
    required = tuple(parameters.get("required", ()))
    schemas = {name: schema for name, schema in properties.items() if not isinstance(schema, bool)}
    defaults = {name: schema["default"] for name, schema in schemas.items() if "default" in schema}
    integers = frozenset(name for name, schema in schemas.items() if schema.get("type") == "integer")

    def check_arguments(arguments: Mapping[str, JSON]) -> dict[str, Any]:
        for name in required:
            if name not in arguments:
                raise BadArgument(f"{name} is required")
        values = defaults.copy()
        for name, value in arguments.items():
            check = checks.get(name)
            if check is None:
                if not accepts_other(value):
                    raise BadArgument(f"{unknown}; parameters are {names}")
            elif not check[0](value):
                raise BadArgument(check[1])
            values[name] = int(value) if type(value) is float and name in integers else value
        return values

    return check_arguments


# ---- one value ----------------------------------------------------------------------------------------------------------------


def _compile(schema: Schema | bool, allows_blank: bool) -> Accepts:
    if isinstance(schema, bool):
        return lambda value: schema
    if "enum" in schema:
        accepts = _compile({key: value for key, value in schema.items() if key != "enum"}, allows_blank)
        choices = list(filter(accepts, schema["enum"]))
        allowed = frozenset(map(_key, choices))
        if all(isinstance(choice, str) for choice in choices):
            return lambda value: isinstance(value, str) and value in allowed
        return lambda value: _key(value) in allowed
    types = schema.get("type", tuple(_TYPE_WORDS))  # without a type, each keyword limits the values of its type only
    if isinstance(types, str):
        return _compile_type(types, schema, allows_blank)
    any_of = [_compile_type(name, schema, allows_blank) for name in types]
    return lambda value: any(accepts(value) for accepts in any_of)


def _compile_type(name: str, schema: Schema, allows_blank: bool) -> Accepts:
    low, high = schema.get("minimum", -_INFINITY), schema.get("maximum", _INFINITY)
    if name == "integer":
        return lambda value: (type(value) is int or (type(value) is float and value.is_integer())) and low <= value <= high
    if name == "number":
        return lambda value: type(value) in _NUMBER_TYPES and low <= value <= high and abs(value) != _INFINITY
    if name == "string":
        return _compile_string(schema, allows_blank)
    if name == "array":
        return _compile_array(schema, allows_blank)
    if name == "object":
        return _compile_object(schema, allows_blank)
    if name == "boolean":
        return lambda value: value is True or value is False
    return lambda value: value is None


def _compile_string(schema: Schema, allows_blank: bool) -> Accepts:
    least, most = schema.get("minLength", 0), schema.get("maxLength", _INFINITY)
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None

    def accepts(value: Any) -> bool:
        return (
            isinstance(value, str)
            and (value.isascii() or _is_unicode(value))
            and (allows_blank or not (not value or value.isspace()))
            and least <= len(value) <= most
            and (pattern is None or pattern.search(value) is not None)
        )

    return accepts


def _is_unicode(text: str) -> bool:
    """Whether the text can be encoded at all: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _compile_array(schema: Schema, allows_blank: bool) -> Accepts:
    least, most = schema.get("minItems", 0), schema.get("maxItems", _INFINITY)
    accepts = _compile(schema.get("items", True), allows_blank)
    return lambda value: isinstance(value, list) and least <= len(value) <= most and all(map(accepts, value))


def _compile_object(schema: Schema, allows_blank: bool) -> Accepts:
    fields = {name: _compile(each, allows_blank) for name, each in schema.get("properties", {}).items()}
    accepts_other = _compile(schema.get("additionalProperties", True), allows_blank)
    required = frozenset(schema.get("required", ()))
    return lambda value: (
        isinstance(value, dict) and required <= value.keys() and all(fields.get(name, accepts_other)(each) for name, each in value.items())
    )


def _key(value: JSON) -> Hashable:
    """Equal for equal JSON values: 1 equals 1.0, and not true."""
    if isinstance(value, list):
        return (list, *map(_key, value))
    if isinstance(value, dict):
        return (dict, frozenset((name, _key(each)) for name, each in value.items()))
    return (bool, value) if isinstance(value, bool) else value


# ---- what is allowed, in words --------------------------------------------------------------------------------------------------


def _describe(schema: Schema | bool, allows_blank: bool) -> str:
    if isinstance(schema, bool):
        return "any value" if schema else "left out"
    if "enum" in schema:
        return f"one of {', '.join(choice if isinstance(choice, str) else json.dumps(choice) for choice in schema['enum'])}"
    types = schema.get("type", tuple(_TYPE_WORDS))
    return " or ".join(_describe_type(name, schema, allows_blank) for name in ((types,) if isinstance(types, str) else types))


def _describe_type(name: str, schema: Schema, allows_blank: bool) -> str:
    words = _TYPE_WORDS[name]
    if name in ("integer", "number"):
        return words + _span("from", schema.get("minimum"), schema.get("maximum"), "")
    if name == "array":
        items = f", each {_describe(schema['items'], allows_blank)}" if "items" in schema else ""
        return words + _span("of", schema.get("minItems"), schema.get("maxItems"), " items") + items
    if name == "string":
        form = f" that matches {schema['pattern']}" if "pattern" in schema else ""
        length = _span("of", schema.get("minLength"), schema.get("maxLength"), " characters")
        return (words if allows_blank else "a non-empty string") + length + form
    if name == "object" and schema.get("required"):
        return f"{words} with {', '.join(schema['required'])}"
    return words


def _span(preposition: str, low: float | None, high: float | None, unit: str) -> str:
    """` from 1 to 20`, ` of 2 to 10 items`, ` of at least 0`; empty without bounds."""
    least, most = (None if bound is None else f"{int(bound) if bound == int(bound) else bound}" for bound in (low, high))
    if least is not None and most is not None:
        return f" {preposition} {least} to {most}{unit}"
    if least is None and most is None:
        return ""
    return f" of at most {most}{unit}" if least is None else f" of at least {least}{unit}"
