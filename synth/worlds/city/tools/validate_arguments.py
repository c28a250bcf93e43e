"""The layer in front of every tool: arguments are checked against the tool's schema before anything else happens.

Missing, wrongly typed or out-of-range arguments give a `BadArgument` that names the parameter and what is allowed; defaults are filled
in. The name of an unknown one is not repeated: what a policy made up must not come back as an observation. Only the part of JSON Schema
that our tools use is understood (type, enum, minimum, maximum, minItems, maxItems, items).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from storage.records import JSON, Tool

Check = Callable[[Any], str | None]
"""What is wrong with a value, or None."""


class BadArgument(Exception):
    """An argument was refused; the message is the observation's."""


def _integer(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is float and value.is_integer():
            value = int(value)
        return None if type(value) is int and low <= value <= high else f"must be an integer from {low} to {high}"

    return check


def _number(low: float, high: float | None) -> Check:
    span = f"of at least {low}" if high is None else f"from {low} to {high}"

    def check(value: Any) -> str | None:
        if type(value) not in (int, float) or not low <= value < float("inf") or (high is not None and value > high):
            return f"must be a number {span}"
        return None

    return check


def _string(value: Any) -> str | None:
    return None if type(value) is str and value.strip() and (value.isascii() or _is_unicode(value)) else "must be a non-empty string"


def _is_unicode(text: str) -> bool:
    """Whether it can be written at all: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _one_of(choices: list[str]) -> Check:
    allowed = frozenset(choices)
    return lambda value: None if type(value) is str and value in allowed else f"must be one of {', '.join(choices)}"


def _boolean(value: Any) -> str | None:
    return None if type(value) is bool else "must be true or false"


def _array(item: Check, least: int, most: int) -> Check:
    def check(value: Any) -> str | None:
        if type(value) is not list or not least <= len(value) <= most:
            return f"must be a list of {least} to {most} items"
        return next((f"has an item that {problem}" for element in value if (problem := item(element))), None)

    return check


def _check_of(schema: Mapping[str, JSON]) -> Check:
    kind = schema["type"]
    if kind == "integer":
        return _integer(schema["minimum"], schema["maximum"])
    if kind == "number":
        return _number(schema["minimum"], schema.get("maximum"))
    if kind == "boolean":
        return _boolean
    if kind == "array":
        return _array(_check_of(schema["items"]), schema["minItems"], schema["maxItems"])
    return _one_of(schema["enum"]) if "enum" in schema else _string


class Signature:
    """A tool's parameters, ready to check with."""

    def __init__(self, tool: Tool) -> None:
        properties: dict[str, dict[str, JSON]] = tool.parameters["properties"]
        self._required: list[str] = tool.parameters["required"]
        self._checks = {name: _check_of(schema) for name, schema in properties.items()}
        self._defaults = {name: schema.get("default") for name, schema in properties.items()}
        self._names = ", ".join(properties)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """All parameters by name, absent ones at their default (None where there is none).

        Raises:
            BadArgument: a parameter is missing, unknown, of the wrong type or out of bounds.
        """
        for name in self._required:
            if name not in arguments:
                raise BadArgument(f"{name} is required")
        bound = dict(self._defaults)
        for name, value in arguments.items():
            check = self._checks.get(name)
            if check is None:
                raise BadArgument(f"there is no such parameter; parameters are {self._names}")
            problem = check(value)
            if problem is not None:
                raise BadArgument(f"{name} {problem}")
            bound[name] = value
        return bound
