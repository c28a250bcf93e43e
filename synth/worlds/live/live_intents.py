"""Intents of a live world: kinds of plans that were found by execution, with the requests that ask for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from storage.records import JSON, Fact, Language, Plan, Success
from synth.text.slot_kinds import Identifier, OpenNames, Quantity, SlotKind, Vocabulary
from synth.worlds.base import Intent, Shape, Slot, Solution, World, misfit
from synth.worlds.live.lock import FoundIntent
from synth.worlds.live.plans import execute_template, follow, shape_of

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d?\d:\d\d(:\d\d)?")
DONE = "It is done."
MOST_FORMS = 3
_RUN = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)
_FORMS = {"digit": r"\d+", "letter": "[A-Za-z]+"}


class LiveIntent(Intent):
    """One kind of plan. Solving executes the plan, and takes what it changed or found as the criteria of success."""

    def __init__(self, world: str, found: FoundIntent) -> None:
        self.found = found
        self.name = found.name
        self.domain = world
        self.leaf = f"{world}.{found.calls[-1].tool}"
        self.slots = tuple(Slot(slot.name, f"{found.name}.{slot.name}", True, slot.is_entity) for slot in found.slots)
        self._shape = shape_of(found.calls)

    def shape(self, slot_names: frozenset[str]) -> Shape:
        return self._shape

    def constraints(self, slot_names: frozenset[str]) -> int:
        return len(slot_names)

    def solve(self, world: World, slots: Mapping[str, JSON], language: Language) -> Solution:
        start = world.snapshot()
        try:
            executed = execute_template(world, self.found.calls, slots)
            changes = world.changes()
        finally:
            world.restore(start)
        if self.found.told is None:
            if not changes:
                raise misfit("nothing changes")
            return Solution(Plan(calls=executed.calls, answer=DONE), Success(changes=changes))
        if changes:
            raise misfit("a look-up changes the state")
        value = follow(executed.results()[-1], self.found.told, slots)
        fact = fact_of(value)
        if fact is None:
            raise misfit("what is asked for has no short value")
        answer = f"The {self.found.told_label} is {value}."
        return Solution(Plan(calls=executed.calls, answer=answer), Success(facts=(fact,), evidence=(fact,)))


def fact_of(value: JSON) -> Fact | None:
    """The fact that an answer must state; None for what is no short value."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return Fact(kind="number", value=str(value))
    if not isinstance(value, str) or not value.strip() or len(value) > 80 or "\n" in value:
        return None
    if _DATE.fullmatch(value):
        return Fact(kind="date", value=value)
    if _TIME.fullmatch(value):
        return Fact(kind="time", value=value[:5])
    if any(letter.isdigit() for letter in value) and " " not in value:
        return Fact(kind="id", value=value)
    return Fact(kind="word", value=value)


def kinds_of(intents: Sequence[FoundIntent]) -> dict[str, SlotKind]:
    """The slot kinds of intents, by `intent.slot`: numbers within what was seen, all others open."""
    kinds: dict[str, SlotKind] = {}
    for found in intents:
        for slot in found.slots:
            values = list(dict.fromkeys(example[slot.name] for example in found.examples if _is_plain(example[slot.name])))
            if slot.kind == "number" and values:
                numbers = sorted(value for value in values if isinstance(value, int | float))
                kinds[f"{found.name}.{slot.name}"] = Quantity("count", numbers[0], numbers[-1], tuple(numbers))
            elif pattern := id_pattern([str(value) for value in values]):
                kinds[f"{found.name}.{slot.name}"] = Identifier(pattern, tuple(str(value) for value in values))
            else:
                kinds[f"{found.name}.{slot.name}"] = Vocabulary(
                    OpenNames({str(value): {"en": str(value), "zh": str(value)} for value in values})
                )
    return kinds


def id_pattern(values: Sequence[str]) -> str:
    """The form that values share, as a regular expression: paths, addresses of mail, or the same letters, digits and marks in the same
    order; empty for words, and for values of many forms."""
    if not values or any(not value or any(letter.isspace() for letter in value) for value in values):
        return ""
    if all(value.startswith("/") for value in values):
        return r"/[\w./-]+"
    if all(re.fullmatch(r"[\w.+-]+@[\w.-]+", value) for value in values):
        return r"[\w.+-]+@[\w-]+\.[\w.-]+"
    if any(value.isalpha() for value in values):
        return ""
    forms = {"".join(_FORMS.get(_sort(run[0]), re.escape(run)) for run in _RUN.findall(value)) for value in values}
    return "|".join(sorted(forms)) if len(forms) <= MOST_FORMS else ""


def _sort(letter: str) -> str:
    return "digit" if letter.isdigit() else "letter" if letter.isalpha() else letter


def wording_of(intents: Sequence[FoundIntent]) -> dict[str, Any]:
    """The templates of requests, in the form of a `families.yaml`."""
    return {
        "intents": {found.name: {"en": list(found.says)} for found in intents},
        "canonical": {found.name: {"en": list(found.says[:1])} for found in intents},
    }


def _is_plain(value: JSON) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
