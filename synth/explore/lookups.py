"""Paths to a value in a result that the request determines: a field, the only entry, or the one entry that has what is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from storage.records import JSON
from synth.explore.value_records import singular, slot_name
from synth.worlds.live.plans import KEY, ONLY

MOST_PATHS = 6


@dataclass(frozen=True)
class Route:
    """A path to a value, with the slots of its conditions, and what requests call these."""

    path: tuple[Any, ...]
    slots: Mapping[str, JSON]
    labels: Mapping[str, str]


def routes_to(value: JSON, result: JSON, prefix: str = "") -> list[Route]:
    """At most six routes to a value in a result, the shortest first. prefix: of the names of slots."""
    found = sorted(_routes(value, result, (), {}, {}, prefix), key=lambda route: (len(route.slots), len(route.path), str(route.path)))
    return found[:MOST_PATHS]


def holds_value(result: JSON, value: JSON) -> bool:
    """Whether a value stands anywhere in a result, as a value or as a key."""
    return _holds(result, value)


def scalar_routes(result: JSON, prefix: str = "") -> list[tuple[Route, JSON]]:
    """Routes to all short values in a result, each with its value."""
    values: list[JSON] = []
    _collect(result, values)
    return [(route, value) for value in values for route in routes_to(value, result, prefix)[:1]]


def _collect(value: JSON, into: list[JSON]) -> None:
    if isinstance(value, Mapping):
        for inner in value.values():
            _collect(inner, into)
    elif isinstance(value, list):
        for inner in value[:50]:
            _collect(inner, into)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and value not in into and len(into) < 60:
        into.append(value)


def _routes(value: JSON, tree: JSON, path: tuple[Any, ...], slots: dict[str, JSON], labels: dict[str, str], prefix: str) -> Iterator[Route]:
    if not isinstance(tree, Mapping | list):
        if tree == value and type(tree) is type(value):
            yield Route(path, slots, labels)
        return
    if len(slots) > 1:
        return
    entries = list(tree.items()) if isinstance(tree, Mapping) else list(enumerate(tree))
    if not _is_collection(tree):
        for name, inner in entries:
            yield from _routes(value, inner, (*path, name), slots, labels, prefix)
        return
    if len(entries) > 200:
        return
    noun = singular(str(next((step for step in reversed(path) if isinstance(step, str) and step not in (ONLY, KEY)), "entry")))
    for name, inner in entries:
        is_key = isinstance(tree, Mapping) and name == value
        if not is_key and not _holds(inner, value):
            continue
        for step, more, more_labels in _selections(name, inner, entries, value, prefix, noun):
            new_slots, new_labels = {**slots, **more}, {**labels, **more_labels}
            if is_key:
                yield Route((*path, step, KEY), new_slots, new_labels)
            else:
                yield from _routes(value, inner, (*path, step), new_slots, new_labels, prefix)


def _is_collection(tree: JSON) -> bool:
    """Whether the entries are alike, so that one has to be chosen: a list, or a mapping of mappings."""
    return isinstance(tree, list) or (bool(tree) and all(isinstance(each, Mapping) for each in tree.values()) and _are_alike(tree))


def _are_alike(tree: Mapping[str, Any]) -> bool:
    first = set(next(iter(tree.values())))
    return all(len(first & set(each)) >= len(first) / 2 for each in tree.values())


def _holds(tree: JSON, value: JSON) -> bool:
    if isinstance(tree, Mapping):
        return value in tree or any(_holds(inner, value) for inner in tree.values())
    if isinstance(tree, list):
        return any(_holds(inner, value) for inner in tree)
    return bool(tree == value and type(tree) is type(value))


def _selections(
    name: JSON, entry: JSON, entries: list[tuple[Any, Any]], value: JSON, prefix: str, noun: str
) -> Iterator[tuple[Any, dict[str, JSON], dict[str, str]]]:
    """Ways to choose an entry: it is the only one, or one of its fields has a value that no other has."""
    if len(entries) == 1:
        yield ONLY, {}, {}
        return
    if not isinstance(entry, Mapping):
        return
    for field, inner in entry.items():
        if (
            not isinstance(inner, str | int | float)
            or isinstance(inner, bool)
            or inner == value
            or len(str(inner)) > 40
            or not str(inner).strip()
        ):
            continue
        if str(inner) == str(name) or field.endswith(("_id", "Id")):
            continue
        if sum(isinstance(other, Mapping) and other.get(field) == inner for _, other in entries) == 1:
            slot = slot_name(f"{prefix}{noun}_{field}")
            yield {"where": [field, slot]}, {slot: inner}, {slot: field.replace("_", " ")}
            return
