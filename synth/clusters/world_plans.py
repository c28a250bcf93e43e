"""Tools that the plans of a world's intents need. A conversation about an intent needs a cluster with all tools of its plan.

Plans come from the shapes that intents declare; nothing is solved or executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from storage.records import CODE_TOOL, Tool
from synth.worlds import WORLDS

Plans = Mapping[tuple[str, str], frozenset[str]]
"""World and intent -> ids of the tools of its plan."""


def plans_of(tools: Sequence[Tool]) -> Plans:
    """The plans with required slots only whose tools are all among these. Without `run_python`, which every cluster can offer.

    Intents that need no call have no plan, nor have worlds that this process does not know.
    """
    ids: dict[str, dict[str, str]] = defaultdict(dict)
    for tool in tools:
        if tool.world is not None and tool.world in WORLDS:
            ids[tool.world][tool.name] = tool.id
    return {
        (world, intent): frozenset(world_ids[name] for name in names)
        for world, world_ids in ids.items()
        for intent, names in _tool_names_by_intent(world).items()
        if names and names <= world_ids.keys()
    }


@cache
def _tool_names_by_intent(world: str) -> Mapping[str, frozenset[str]]:
    """Intent -> names of its tools. Cached, because `WORLDS` may have to compile the world again."""
    return {
        name: frozenset(intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools) - {CODE_TOOL}
        for name, intent in WORLDS[world].intents.items()
    }


def count_covered_plans(plans: Plans, groups: Iterable[Sequence[str]]) -> int:
    """Number of plans with all their tools in one of the groups of tool ids."""
    holders: dict[str, list[frozenset[str]]] = defaultdict(list)
    for group in map(frozenset, groups):
        for tool in group:
            holders[tool].append(group)
    return sum(any(plan <= group for group in holders[min(plan)]) for plan in plans.values())
