"""Hostile files, worlds, catalogues, policies, and answers of model servers; the cases are those of the tests (`tests/hostile/`).

hostile_kinds: how many. hostile_unexpected: neither taken nor refused in one line of ours. hostile_hung: did not end within a minute.
"""

from __future__ import annotations

from benchmarks.harness import Deadline, Figures
from tests.hostile.hostile_runs import GROUPS, outcomes

KEYS = ("hostile_kinds", "hostile_unexpected", "hostile_hung")
MINUTES = 15.0
MUTATED = 60
"""World files with one value replaced, beside the whole ones."""


def measure(deadline: Deadline) -> Figures:
    kinds = unexpected = hung = 0
    for group in GROUPS:
        deadline.allows(MINUTES / len(GROUPS))
        found = outcomes(group, MUTATED)
        kinds += len(found)
        hung += sum(told == "hung" for told in found.values())
        unexpected += sum(told.startswith("unexpected") for told in found.values())
        refused = sum(told.startswith("refused") for told in found.values())
        print(f"    {group}: {len(found)} kinds, {refused} refused, the others taken", flush=True)
        for name, told in found.items():
            if told == "hung" or told.startswith("unexpected"):
                print(f"        {name}: {told[:160]}", flush=True)
    return {"hostile_kinds": kinds, "hostile_unexpected": unexpected, "hostile_hung": hung}
