"""Requests of the Schema-Guided Dialogue data set (SGD, CC BY-SA 4.0) as labelled requests, and its services as readable worlds.

The data lie in `HEADRACE_TEST_DATA/real_queries`. An opening is a user's first turn; a whole request is all turns up to the first call of
a service. A value that the user does not care about counts as not said.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from filters.reading.declaration import ReadableIntent, ReadableSlot, ReadableWorld
from filters.reading.kind_inference import kind_of
from filters.reading.labels.fit import Labelled

TODAY = date(2019, 3, 1)
_MOST_COUNTED = 60


def read_json(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def read_rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def service_of(raw: Mapping[str, Any]) -> ReadableWorld:
    """A service of a schema file."""
    slots = {slot["name"]: _slot(slot) for slot in raw["slots"]}
    intents = {
        intent["name"]: ReadableIntent(
            intent["name"],
            intent["description"],
            {name: slots[name] for name in (*intent["required_slots"], *intent["optional_slots"])},
            frozenset(intent["required_slots"]),
            is_act=intent["is_transactional"],
        )
        for intent in raw["intents"]
    }
    return ReadableWorld(raw["service_name"], raw["description"], intents, TODAY)


def _slot(raw: Mapping[str, Any]) -> ReadableSlot:
    values = raw["possible_values"] if raw["is_categorical"] else []
    kind = kind_of(raw["name"], raw["description"], values)
    if kind == "choice":
        listed = {value: (value,) for value in values if value.lower() not in ("none", "dontcare")}
        return ReadableSlot(raw["name"], kind, raw["description"], listed)
    numbers = [int(value) for value in values] if kind == "count" else []
    low, high = (min(numbers), max(numbers)) if numbers else (1, _MOST_COUNTED) if kind == "count" else (0, math.inf)
    return ReadableSlot(raw["name"], kind, raw["description"], low=low, high=high)


def label(row: Mapping[str, Any], world: ReadableWorld) -> Labelled:
    """A row of a file of requests to a service."""
    intent = world.intents[row["intent"]]
    values = {
        slot: tuple(value for said in (each["canonical"], each["said"]) for text in said for value in _values(intent.slots[slot], text))
        for slot, each in row["slots"].items()
        if slot in intent.slots and "dontcare" not in each["canonical"]
    }
    return Labelled(row["text"], world.name, row["intent"], values)


def _values(slot: ReadableSlot, text: str) -> Sequence[Any]:
    """The value that a text of the data set stands for; nothing where it is not canonical."""
    try:
        if slot.kind == "day":
            return [date.fromisoformat(text)]
        if slot.kind == "time":
            hour, minute = text.split(":")
            return [int(hour) * 60 + int(minute)]
        if slot.kind in ("count", "number", "money"):
            return [float(text)]
    except ValueError:
        return []
    return [text == "True"] if slot.kind == "flag" else [text]
