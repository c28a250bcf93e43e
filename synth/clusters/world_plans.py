"""Which tools the plans of worlds need: what has to lie in one cluster for a conversation about it to be possible.

It reads what a world's intents declare; nothing is solved or executed.
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
    """The plans, with required slots alone, that these tools suffice for; `run_python`, which any cluster can offer, is left out.

    Intents that are done without a call have none, nor have worlds that are not known in this process."""
    ids: dict[str, dict[str, str]] = defaultdict(dict)
    for tool in tools:
        if tool.world is not None and tool.world in WORLDS:
            ids[tool.world][tool.name] = tool.id
    return {
        (world, intent): frozenset(own[tool] for tool in needed)
        for world, own in ids.items()
        for intent, needed in _needed(world).items()
        if needed and needed <= own.keys()
    }


@cache
def _needed(world: str) -> Mapping[str, frozenset[str]]:
    """Intent -> names of its tools. Kept: a world is compiled anew where many others were looked at since."""
    return {
        name: frozenset(intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools) - {CODE_TOOL}
        for name, intent in WORLDS[world].intents.items()
    }


def served(plans: Plans, groups: Iterable[Sequence[str]]) -> int:
    """How many plans have all their tools in one of the groups."""
    holders: dict[str, list[frozenset[str]]] = defaultdict(list)
    for group in map(frozenset, groups):
        for tool in group:
            holders[tool].append(group)
    return sum(any(plan <= group for group in holders[min(plan)]) for plan in plans.values())
