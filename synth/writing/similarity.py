"""How alike two worlds are, by what can be called in them: the set Jaccard of their tools' signatures, with names and without.

With names, a tool is its name and its parameters' names and types; this finds a copy. Without, it is whether it changes state and, per
parameter in no order, the type (how many values a choice has, what kind of text a text is) and whether it must be given (`shapes.py`);
this finds a copy in which everything is called otherwise. The likeness is the larger of the two, so renaming alone never makes a new world.

Not seen: what rules say, how many rows there are. `run_python`, which all have, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.records import CODE_TOOL
from synth.worlds.base import World
from synth.writing.shapes import signature_without_names


@dataclass(frozen=True, slots=True)
class Signatures:
    """Of a world's tools, each signature once."""

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


def likeness(one: Signatures, other: Signatures) -> float:
    """0 (nothing in common) to 1 (the same tools, maybe under other names)."""
    return max(_jaccard(one.named, other.named), _jaccard(one.nameless, other.nameless))


def _jaccard(one: frozenset[object], other: frozenset[object]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0
