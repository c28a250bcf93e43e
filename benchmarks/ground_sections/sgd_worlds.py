"""Services of SGD as specs of executable worlds, by one rule for all of them.

An entity `thing` has a field for every slot of the service's intents, and a title. An intent that looks for something becomes a job that
searches things by all its slots and tells the title of one. A transaction searches the thing by those slots that an intent of the service
looks for things by, if a name is among them, and then does an action that takes the other slots and records them. Names are open; cities
and persons of a built-in list fill the fields. Slots of an action that the service leaves open are needed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ground_sections.sgd import TODAY
from filters.reading.declaration import ReadableIntent, ReadableSlot, ReadableWorld, split_name

ROWS = 60
DAYS = 400
_LISTS = {"city": "city", "location": "city", "address": "street"}
_MOST = {"money": 5000, "count": 60, "number": 100}
_NAMED = ("name", "choice")


def spec_of(world: ReadableWorld, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a service. raw: as its schema file has it."""
    slots = {name: slot for intent in world.intents.values() for name, slot in intent.slots.items()}
    looked_for = {name for intent in raw["intents"] if not intent["is_transactional"] for name in _slots_and_results(intent)} & slots.keys()
    actions: dict[str, Any] = {}
    intents: dict[str, Any] = {}
    orders: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for intent in world.intents.values():
        where = {name for name in intent.slots if name in looked_for and intent.slots[name].kind in _NAMED}
        if not intent.is_act:
            steps: list[Any] = [_search(intent.slots), {"tell": "thing.title"}]
        else:
            where = where if any(intent.slots[name].kind == "name" for name in where) else set()
            steps = [_search(where), {"do": key_of(intent)}] if where else [{"do": key_of(intent)}]
            taken = {name: slot for name, slot in intent.slots.items() if name not in where}
            actions[key_of(intent)] = _action(intent, taken, has_thing=bool(where))
            orders[f"{key_of(intent)}_order"] = _order(taken, len(orders), has_thing=bool(where))
        kinds |= {name: _kind(name, slot) for name, slot in intent.slots.items()}
        optional = [] if intent.is_act else [name for name in intent.slots if name not in intent.required]
        intents[key_of(intent)] = {
            "leaf": key_of(intent),
            "slots": {name: f"k_{name}" for name in intent.slots},
            **({"optional": optional} if optional else {}),
            "steps": steps,
            "says": [_says(intent, optional)],
        }
    things = {name: _field(name, slot) for name, slot in slots.items()}
    return {
        "domain": re.sub(r"[^a-z0-9]+", "_", world.name.lower()).strip("_"),
        "about": world.about,
        "languages": ["en"],
        "today": TODAY.isoformat(),
        "combined": False,
        "entities": {
            "thing": {
                "noun": "thing", "id": "t###", "rows": ROWS,
                "tools": {"get": {}, "search": {}},
                "fields": {"title": {"type": "name", "list": "company"}, **things},
            },
            **orders,
        },
        "actions": actions,
        "kinds": {f"k_{name}": kind for name, kind in kinds.items()},
        "intents": intents,
    }  # fmt: skip


def key_of(intent: ReadableIntent) -> str:
    """`FindMovies` as the name of a job: find_movies."""
    return "_".join(split_name(intent.name))


def slots_in_spec(intent: ReadableIntent, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a reading in the canonical form of the spec's world."""
    return {name: _canonical(intent.slots[name], value) for name, value in values.items()}


def _canonical(slot: ReadableSlot, value: Any) -> Any:
    if slot.kind == "day":
        return (value - TODAY).days
    if slot.kind == "time":
        return f"{value // 60:02d}:{value % 60:02d}"
    if slot.kind == "flag":
        return "yes" if value else "no"
    if slot.kind == "choice":
        return choice_key(value)
    return int(value) if slot.kind in _MOST else value


def choice_key(value: str) -> str:
    key = re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_")
    return key if key[:1].isalpha() else f"v_{key}"


def _slots_and_results(intent: Mapping[str, Any]) -> Sequence[str]:
    return [*intent["required_slots"], *intent["optional_slots"], *intent["result_slots"]]


def _search(slots: Any) -> dict[str, Any]:
    return {"search": "thing", "where": {name: name for name in slots}}


def _says(intent: ReadableIntent, optional: Sequence[str]) -> str:
    parts = [f"{' '.join(split_name(name))} {{{name}}}" for name in intent.slots if name not in optional]
    return ", ".join([" ".join(split_name(intent.name)), *parts]) + "".join(f"[, {' '.join(split_name(n))} {{{n}}}]" for n in optional)


def _action(intent: ReadableIntent, taken: Mapping[str, ReadableSlot], *, has_thing: bool) -> dict[str, Any]:
    thing = {"thing": "thing"} if has_thing else {}
    return {
        "verb": " ".join(split_name(intent.name)),
        "takes": {**thing, **{name: _param(name, slot) for name, slot in taken.items()}},
        "creates": {f"{key_of(intent)}_order": {**thing, **{name: name for name in taken}}},
    }


def _order(taken: Mapping[str, ReadableSlot], number: int, *, has_thing: bool) -> dict[str, Any]:
    thing = {"thing": {"type": "ref", "to": "thing"}} if has_thing else {}
    fields = {**thing, **{name: _field(name, slot) for name, slot in taken.items()}}
    return {"noun": f"order {number}", "id": f"o{'abcdef'[number]}###", "rows": 2, "tools": ["get"], "fields": fields}


def _field(name: str, slot: ReadableSlot) -> dict[str, Any]:
    label = {"label": " ".join(split_name(name))}
    if slot.kind == "name":
        listed = next((each for word, each in _LISTS.items() if word in name), "person")
        return {"type": "name", "open": "true", "list": listed, **label}
    typed = _kind(name, slot)
    return {**typed, **label, "filter": "equal"} if slot.kind in (*_MOST, "day", "time") else {**typed, **label}


def _param(name: str, slot: ReadableSlot) -> dict[str, Any]:
    return {"type": "name", "like": f"thing.{name}"} if slot.kind == "name" else _kind(name, slot)


def _kind(name: str, slot: ReadableSlot) -> dict[str, Any]:
    if slot.kind == "name":
        return {"type": "choice", "like": f"thing.{name}"}
    if slot.kind == "choice":
        return {"type": "choice", "values": {choice_key(value): value for value in slot.values}}
    if slot.kind == "flag":
        return {"type": "choice", "values": {"yes": "yes", "no": "no"}}
    if slot.kind == "day":
        return {"type": "date", "from": "0", "to": str(DAYS)}
    if slot.kind == "time":
        return {"type": "time", "from": "00:00", "to": "23:30", "step": "5"}
    return {"type": "integer", "min": "0", "max": str(_MOST[slot.kind])}
