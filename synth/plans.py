"""Which tools the plans of worlds need: what has to lie in one cluster for a conversation about it to be possible.

It reads what a world's intents declare; nothing is solved or executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

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
    found = {}
    for world, own in ids.items():
        for name, intent in WORLDS[world].intents.items():
            needed = {*intent.shape(frozenset(slot.name for slot in intent.slots if slot.is_required)).tools} - {CODE_TOOL}
            if needed and needed <= own.keys():
                found[world, name] = frozenset(own[tool] for tool in needed)
    return found


def served(plans: Plans, groups: Iterable[Sequence[str]]) -> int:
    """How many plans have all their tools in one of the groups."""
    holders: dict[str, list[frozenset[str]]] = defaultdict(list)
    for group in map(frozenset, groups):
        for tool in group:
            holders[tool].append(group)
    return sum(any(plan <= group for group in holders[min(plan)]) for plan in plans.values())
