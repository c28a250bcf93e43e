"""Similarity of two worlds: the Jaccard index of their tools' signatures, with and without names, whichever is larger.

With names, a signature is the tool's name and its parameters' names and types; this finds copies. Without names, it is whether the tool
changes state and, for each parameter, its type and whether it is required (`shapes.py`); this finds renamed copies.

Rules and numbers of rows are not compared. `run_python`, which all worlds have, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.records import CODE_TOOL
from synth.worlds.base import World
from synth.writing.shapes import signature_without_names


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a world's tools, with and without names."""

    named: frozenset[object]
    nameless: frozenset[object]


def signatures_of(world: type[World]) -> Signatures:
    tools = [tool for tool in world.tools if tool.name != CODE_TOOL]
    return Signatures(
        frozenset(
            (tool.name, *sorted((name, str(schema.get("type"))) for name, schema in tool.parameters["properties"].items()))
            for tool in tools
        ),
        frozenset((tool.changes_state, *signature_without_names(tool)) for tool in tools),
    )


def similarity(one: Signatures, other: Signatures) -> float:
    """0 (nothing in common) to 1 (the same tools, maybe under other names)."""
    return max(_jaccard(one.named, other.named), _jaccard(one.nameless, other.nameless))


def _jaccard(one: frozenset[object], other: frozenset[object]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
