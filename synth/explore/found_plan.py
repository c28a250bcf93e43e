"""A plan with values, and the intent that plans of one kind make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from storage.records import JSON, canonical_json
from synth.explore.value_records import is_key_like
from synth.worlds.live.lock import FoundIntent, FoundSlot
from synth.worlds.live.plans import PlanCall, kind_of, moved


@dataclass(frozen=True)
class FoundPlan:
    """A plan with values. told: path to what the answer tells; None for an act."""

    calls: tuple[PlanCall, ...]
    slots: Mapping[str, JSON]
    labels: Mapping[str, str]
    says: str
    told: tuple[Any, ...] | None = None
    told_label: str = ""

    @property
    def kind(self) -> str:
        told = None if self.told is None else [step if isinstance(step, str) else "where" for step in self.told]
        return f"{kind_of(self.calls, told)} {sorted(self.slots)} {self.says}"


def join_plans(first: FoundPlan, second: FoundPlan) -> FoundPlan:
    """Both goals in one request, the first one first; slots of the second that have a name of the first are renamed."""
    rename = {name: _free(name, {*first.slots, *second.slots}) for name in second.slots if name in first.slots}
    calls = (*first.calls, *moved(second.calls, len(first.calls), rename))
    slots = {**first.slots, **{rename.get(name, name): value for name, value in second.slots.items()}}
    labels = {**first.labels, **{rename.get(name, name): label for name, label in second.labels.items()}}
    says = second.says
    for name, new in rename.items():
        says = says.replace(f"{{{name}}}", f"{{{new}}}")
    return FoundPlan(calls, slots, labels, f"{first.says} Also, {says[0].lower()}{says[1:]}")


def _free(name: str, taken: set[str]) -> str:
    return next(f"{name}_{number}" for number in range(2, 99) if f"{name}_{number}" not in taken)


def intent_of_plans(name: str, plans: list[FoundPlan]) -> FoundIntent:
    """The intent of plans of one kind; their values are its examples."""
    first = plans[0]
    slots = tuple(
        FoundSlot(
            name=slot,
            label=first.labels.get(slot, slot.replace("_", " ")),
            kind="number" if all(isinstance(plan.slots[slot], int | float) for plan in plans) else "text",
            is_entity=is_key_like(slot),
        )
        for slot in first.slots
    )
    examples = tuple(json.loads(canonical_json(dict(plan.slots))) for plan in plans)
    return FoundIntent(
        name=name, calls=first.calls, told=first.told, told_label=first.told_label, slots=slots, says=(first.says,), examples=examples
    )
