"""Plans of a live world as templates: calls whose arguments are said in the request, looked up in an earlier result, or constant.

One idea: a template is JSON, so it lies in the lock file, and the same code that explores also solves: it executes the calls one by one and
takes what a later call needs from the results. A look-up leads to one value or to none: a step of its path is a field, the only entry of a
list, or the one entry whose field has a value that the request says.

| form | stands for |
|---|---|
| `{"said": "order_id"}` | the value of a slot |
| `{"found": [0, ["orders", {"where": ["status", "status"]}, "order_id"]]}` | what the path leads to in the result of call 0 |
| `{"text": "DELETE FROM orders WHERE id = {id}"}` | a text with slots |
| anything else | itself, its parts likewise |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from storage.records import JSON, Call
from synth.worlds.base import Observation, Shape, Unsolvable, World, misfit
from synth.worlds.live.loose_json import parse_loosely

Path = tuple[Any, ...]
ONLY, KEY = "*", "@"
"""Steps of a path: the only entry of a list or mapping, and the key of the mapping's entry that was chosen before."""
_FORMS = ("said", "found", "text")


class PlanCall(BaseModel):
    """A call of a template. arguments: by name, in the forms above."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Executed:
    """Calls that were made, with what they returned."""

    calls: tuple[Call, ...]
    observations: tuple[Observation, ...]

    def results(self) -> list[JSON]:
        return [parse_loosely(json.loads(each.content)) for each in self.observations]


def execute_template(world: World, calls: Sequence[PlanCall], slots: Mapping[str, JSON]) -> Executed:
    """Makes the calls in the world, and leaves it changed.

    Raises:
        Unsolvable: a look-up finds nothing, or not one thing; or a call is an error.
    """
    made: list[Call] = []
    seen: list[Observation] = []
    results: list[JSON] = []
    for call in calls:
        arguments = {name: fill(source, slots, results) for name, source in call.arguments.items()}
        observation = world.call(call.tool, arguments)
        made.append(Call(tool=call.tool, arguments=arguments))
        seen.append(observation)
        if observation.is_error:
            raise misfit(f"{call.tool}: {observation.content[:200]}")
        results.append(parse_loosely(json.loads(observation.content)))
    return Executed(tuple(made), tuple(seen))


def fill(source: JSON, slots: Mapping[str, JSON], results: Sequence[JSON]) -> JSON:
    """The value of an argument. Raises Unsolvable as `execute_template`."""
    if isinstance(source, Mapping):
        form = form_of(source)
        if form == "said":
            return slots[source["said"]]
        if form == "found":
            at, path = source["found"]
            return follow(results[at], path, slots)
        if form == "text":
            return str(source["text"]).format_map(dict(slots))
        return {key: fill(inner, slots, results) for key, inner in source.items()}
    return [fill(each, slots, results) for each in source] if isinstance(source, list) else source


def form_of(source: JSON) -> str:
    """`said`, `found` or `text`; empty for a constant."""
    if isinstance(source, Mapping) and len(source) == 1:
        ((name, value),) = source.items()
        return name if name in _FORMS and isinstance(value, list if name == "found" else str) else ""
    return ""


def follow(value: JSON, path: Sequence[Any], slots: Mapping[str, JSON]) -> JSON:
    """What a path leads to. Raises Unsolvable."""
    key: JSON = None
    for step in path:
        if step == KEY:
            return key
        if step == ONLY:
            entries = _entries(value)
            if len(entries) != 1:
                raise misfit(f"{len(entries)} entries where one is meant")
            key, value = entries[0]
        elif isinstance(step, Mapping):
            field, slot = step["where"]
            fitting = [(name, each) for name, each in _entries(value) if isinstance(each, Mapping) and each.get(field) == slots[slot]]
            if len(fitting) != 1:
                raise misfit(f"{len(fitting)} entries have {field} {slots[slot]!r}")
            key, value = fitting[0]
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        else:
            raise misfit(f"the result has no {step!r}")
    return value


def _entries(value: JSON) -> list[tuple[JSON, JSON]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def said_slots(source: JSON) -> Iterator[str]:
    """Names of the slots that an argument, or its look-up, depends on."""
    form = form_of(source)
    if form == "said":
        yield source["said"]
    elif form == "found":
        yield from (step["where"][1] for step in source["found"][1] if isinstance(step, Mapping))
    elif form == "text":
        import string

        yield from (name for _, name, _, _ in string.Formatter().parse(source["text"]) if name)
    elif isinstance(source, Mapping):
        for inner in source.values():
            yield from said_slots(inner)
    elif isinstance(source, list):
        for inner in source:
            yield from said_slots(inner)


def found_in(source: JSON) -> Iterator[tuple[int, Sequence[Any]]]:
    """The look-ups of an argument: the call, and the path in its result."""
    form = form_of(source)
    if form == "found":
        yield source["found"][0], source["found"][1]
    elif form == "" and isinstance(source, Mapping | list):
        for inner in source.values() if isinstance(source, Mapping) else source:
            yield from found_in(inner)


def parents_of(source: JSON) -> Iterator[int]:
    """The earlier calls that an argument needs."""
    form = form_of(source)
    if form == "found":
        yield source["found"][0]
    elif form == "" and isinstance(source, Mapping):
        for inner in source.values():
            yield from parents_of(inner)
    elif isinstance(source, list):
        for inner in source:
            yield from parents_of(inner)


def shape_of(calls: Sequence[PlanCall]) -> Shape:
    return Shape(
        tuple((call.tool, tuple(sorted({at for source in call.arguments.values() for at in parents_of(source)}))) for call in calls)
    )


def kind_of(calls: Sequence[PlanCall], told: Sequence[JSON] | None = None) -> str:
    """A text that is equal for plans of one kind: the same tools, and the same arguments said and looked up in the same places."""
    parts = [[call.tool, sorted((name, _outline(source)) for name, source in call.arguments.items())] for call in calls]
    return json.dumps([parts, told], sort_keys=True)


def _outline(source: JSON) -> JSON:
    """A source without the names of slots and without constants."""
    form = form_of(source)
    if form == "said":
        return "said"
    if form == "found":
        at, path = source["found"]
        return [at, [{"where": step["where"][0]} if isinstance(step, Mapping) else step for step in path]]
    if form == "text":
        return source["text"]
    if isinstance(source, Mapping):
        return {key: _outline(inner) for key, inner in source.items()}
    if isinstance(source, list):
        return [_outline(each) for each in source]
    return "constant"


def moved(calls: Sequence[PlanCall], by: int, rename: Mapping[str, str]) -> list[PlanCall]:
    """The calls as they stand behind `by` others, with other names of slots."""
    return [
        PlanCall(tool=call.tool, arguments={name: _moved(source, by, rename) for name, source in call.arguments.items()}) for call in calls
    ]


def _moved(source: JSON, by: int, rename: Mapping[str, str]) -> JSON:
    form = form_of(source)
    if form == "said":
        return {"said": rename.get(source["said"], source["said"])}
    if form == "found":
        at, path = source["found"]
        steps = [
            {"where": [step["where"][0], rename.get(step["where"][1], step["where"][1])]} if isinstance(step, Mapping) else step
            for step in path
        ]
        return {"found": [at + by, steps]}
    if form == "text":
        return {"text": source["text"].format_map({slot: f"{{{rename.get(slot, slot)}}}" for slot in said_slots(source)})}
    if isinstance(source, Mapping):
        return {key: _moved(inner, by, rename) for key, inner in source.items()}
    return [_moved(each, by, rename) for each in source] if isinstance(source, list) else source


__all__ = ["Executed", "PlanCall", "Unsolvable", "execute_template", "fill", "follow", "kind_of", "moved", "said_slots", "shape_of"]
