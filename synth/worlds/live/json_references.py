"""JSON documents without local references (`$ref`): schemas of tools, and OpenAPI descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_REFERENCES, MOST_DEPTH, MOST_NODES = 12, 60, 100_000


def without_references(value: Any, document: Mapping[str, Any]) -> Any:
    """A copy of the value in which each local reference is replaced by what it names in the document; one in a circle, and what lies deeper
    than 60 levels or 12 references, by any value (`{}`). Definitions at its top (`$defs`, `definitions`) are left out.

    Raises:
        ValueError: a reference leads out of the document or nowhere; or the copy has more than 100,000 parts.
    """
    left = MOST_NODES

    def copied(value: Any, seen: tuple[str, ...], depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"with its references replaced it has more than {MOST_NODES:,} parts")
        if depth > MOST_DEPTH:
            return {}
        if isinstance(value, list):
            return [copied(each, seen, depth + 1) for each in value]
        if not isinstance(value, Mapping):
            return value
        reference = value.get("$ref")
        if not isinstance(reference, str):
            return {key: copied(inner, seen, depth + 1) for key, inner in value.items() if depth or key not in ("$defs", "definitions")}
        if reference in seen or len(seen) > MOST_REFERENCES:
            return {}
        target = copied(_named(document, reference), (*seen, reference), depth + 1)
        rest = copied({key: inner for key, inner in value.items() if key != "$ref"}, seen, depth + 1)
        return {**target, **rest} if isinstance(target, dict) else target

    return copied(value, (), 0)


def _named(document: Mapping[str, Any], reference: str) -> Any:
    if reference == "#":
        return document
    if not reference.startswith("#/"):
        raise ValueError(f"it refers to {reference}, which lies elsewhere; put what it names into this document")
    target: Any = document
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or key not in target:
            raise ValueError(f"it refers to {reference}, which is not there")
        target = target[key]
    return target
