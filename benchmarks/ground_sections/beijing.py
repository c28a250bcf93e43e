"""The world that `headrace worlds draft` makes of CrossWOZ's tables of restaurants, hotels and sights, unmended; and its frames in the
words of CrossWOZ, to compare them with what its requests ask for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ground_sections.crosswoz import TABLES
from filters.reading.readings import Reading, ReadValue
from synth.worlds import WORLDS
from synth.worlds.declarative.compile import compile_file
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.declarative.domain import Entity
from synth.writing.draft_spec import draft_spec

_BOUNDS = {"min_": "least ", "max_": "most "}


def draft(data: Path, out: Path) -> type[SpecWorld]:
    """The drafted world, registered. data: folder of CrossWOZ's tables. out: folder for the spec and its tables."""
    files = []
    for name in TABLES.values():
        with gzip.open(data / f"crosswoz_db_{name}.json.gz", "rt", encoding="utf-8") as file:
            rows = [row for _, row in json.load(file)]
        files.append(out / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    spec = out / "beijing.yaml"
    spec.write_text(draft_spec(files, spec), encoding="utf-8")
    world = compile_file(spec)
    if world.name not in WORLDS:
        WORLDS.register(world)
    return world


def told(world: type[SpecWorld], intent: str, slots: Mapping[str, Any]) -> Reading:
    """A frame of the drafted world as a reading of the world of `crosswoz.py`; with the intent `other` where that has none like it."""
    name = next((each for each in TABLES.values() if intent in (f"suggest_{each}", f"ask_named_{each}")), None)
    if name is None:
        return Reading("", "other", (), 0.0, (), 0)
    entity = world.domain.entities[name]
    values = [_value(entity, slot, value) for slot, value in slots.items()]
    domain = next(word for word, each in TABLES.items() if each == name)
    return Reading("beijing", domain, tuple(ReadValue(slot, value, "", 0, 0, 1.0) for slot, value in values), 0.0, (), 0)


def _value(entity: Entity, slot: str, value: Any) -> tuple[str, Any]:
    """A slot and its value, called as the columns of the table."""
    if slot == "aspect":
        return f"ask {entity.fields[value].label.zh}", "yes"
    if slot == f"{entity.name}_name":
        return "名称", value
    if slot.startswith("ask_"):
        return f"ask {entity.fields[slot.removeprefix('ask_')].label.zh}", "yes"
    bound = next((each for each in _BOUNDS if slot.startswith(each)), "")
    field = entity.fields[slot.removeprefix(bound)]
    label = field.label.zh
    if bound:
        return _BOUNDS[bound] + label, value
    if field.type.kind == "flag":
        return f"酒店设施-{label}", "yes"
    return label, field.words[value].zh if value in field.words else value
