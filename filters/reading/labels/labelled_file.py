"""A file of labelled requests: JSON Lines with text, intent and slots, as people label their own.

    {"text": "cancel reservation b012", "world": "hotel", "intent": "cancel_reservation", "slots": {"reservation": "b012"}}

`world` may be left out where there is one. Slots have the values that the world's own tasks have, days as ISO dates. A file with a wrong
line is refused whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from filters.reading.declaration import ReadableSlot, ReadableWorld
from filters.reading.labels.fit import Labelled
from storage.errors import BadInput

_MOST_PROBLEMS = 3


def read_labelled(path: Path, worlds: Sequence[ReadableWorld]) -> list[Labelled]:
    """The requests of a file.

    Raises:
        BadInput: the file cannot be read or is empty; a line is not such an object, names an unknown world, intent or slot, or a value that
            the slot cannot hold. The message has the first problems.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as UTF-8 text ({error})") from None
    examples, problems = list[Labelled](), list[str]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            examples.append(_label(json.loads(line), worlds))
        except json.JSONDecodeError:
            problems.append(f"{path}:{number}: not JSON")
        except BadInput as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        more = f"; and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        raise BadInput("; ".join(problems[:_MOST_PROBLEMS]) + more)
    if not examples:
        raise BadInput(f"{path}: no labelled request; write one a line, with text, intent and slots")
    return examples


def _label(row: Any, worlds: Sequence[ReadableWorld]) -> Labelled:
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), str) or not isinstance(row.get("intent"), str):
        raise BadInput("expected an object with text, intent and slots")
    named = [world for world in worlds if row.get("world") in (None, world.name) and row["intent"] in world.intents]
    if not named:
        raise BadInput(f"no world has the intent {row['intent']!r}" + (f" ({row['world']})" if row.get("world") else ""))
    if len(named) > 1:
        raise BadInput(f"{row['intent']!r} is an intent of {', '.join(world.name for world in named)}; name the world")
    (world,) = named
    slots = row.get("slots") or {}
    if not isinstance(slots, Mapping):
        raise BadInput("slots is no object")
    declared = world.intents[row["intent"]].slots
    if unknown := sorted(set(slots) - set(declared)):
        raise BadInput(f"{row['intent']} has no slot {unknown[0]!r}; there are {', '.join(declared) or 'none'}")
    return Labelled(row["text"], world.name, row["intent"], {name: [_value(declared[name], value)] for name, value in slots.items()})


def _value(slot: ReadableSlot, value: Any) -> Any:
    try:
        if slot.kind == "day":
            return date.fromisoformat(value)
        if slot.kind == "time":
            hour, minute = value.split(":")
            return int(hour) * 60 + int(minute)
    except (TypeError, ValueError, AttributeError):
        expected = "an ISO date" if slot.kind == "day" else "a time such as 15:30"
        raise BadInput(f"{slot.name}: expected {expected}, not {value!r}") from None
    if slot.kind == "choice" and value not in slot.values:
        raise BadInput(f"{slot.name}: expected one of {', '.join(map(str, slot.values))}, not {value!r}")
    if slot.kind in ("count", "number", "money") and not isinstance(value, int | float):
        raise BadInput(f"{slot.name}: expected a number, not {value!r}")
    return value
