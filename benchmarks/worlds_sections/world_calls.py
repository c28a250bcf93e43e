"""Calls to measure a world with: a uniform mix of its tools, hardly one of them twice.

One idea: arguments are drawn anew from what each tool's schema allows, over the whole range of identifiers, any two points of the city, any
place's name, composed search words, and many seeds; a call that the world refuses is drawn again. So no cache of answers or readings
helps, as none would in use. `python -m benchmarks.worlds_sections.world_calls WORLD FILE` makes the calls of FILE (draws them first where
there is no such file) and prints the hash of what the world answered, for another process to compare with, and the CPU seconds that it
took.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from storage.records import Tool
from synth.worlds import make_world
from synth.worlds.base import Observation, World

Call = tuple[int, str, str]
"""Seed of the world, tool, arguments as JSON text."""

PER_TOOL = 2_000
WORLD_SEEDS: Mapping[str, range] = {"city": range(1, 6), "retail": range(1, 101)}
_TRIES = 100 * PER_TOOL
_OPTIONAL = 0.3


def draw_calls(name: str, seed: int = 0) -> list[Call]:
    """PER_TOOL different calls of every tool, shuffled; none of them is refused by a fresh world of its seed."""
    rng = random.Random(seed)
    worlds, starts = opened(name)
    calls: list[Call] = []
    for tool in make_world(name, 0).tools:
        mine: set[Call] = set()
        for _ in range(_TRIES):
            if len(mine) == PER_TOOL:
                break
            call = (rng.choice(WORLD_SEEDS[name]), tool.name, json.dumps(_arguments(tool, rng), ensure_ascii=False))
            if call not in mine and not run(worlds, starts, call).is_error:
                mine.add(call)
        if len(mine) < PER_TOOL:
            raise ValueError(f"{name}: only {len(mine)} calls of {tool.name} in {_TRIES} tries")
        calls += sorted(mine)
    rng.shuffle(calls)
    return calls


def opened(name: str) -> tuple[dict[int, World], dict[int, object]]:
    """The worlds of all seeds, and how each begins."""
    worlds = {seed: make_world(name, seed) for seed in WORLD_SEEDS[name]}
    return worlds, {seed: world.snapshot() for seed, world in worlds.items()}


def run(worlds: Mapping[int, World], starts: Mapping[int, object], call: Call) -> Observation:
    """Makes a call, and puts a world that it may have changed back to its beginning."""
    seed, tool, arguments = call
    world = worlds[seed]
    observation = world.call(tool, arguments)
    if world.name == "retail":
        world.restore(starts[seed])
    return observation


def repeated_share(calls: Sequence[Call]) -> float:
    """Share of the calls that an earlier one equals."""
    return 1 - len(set(calls)) / len(calls)


def hash_of(observations: Sequence[Observation]) -> str:
    digest = hashlib.sha256()
    for observation in observations:
        digest.update(observation.content.encode() + b"\0")
    return digest.hexdigest()


# ---- arguments ------------------------------------------------------------------------------------------------------------


def _arguments(tool: Tool, rng: random.Random) -> dict[str, Any]:
    """All required parameters and some of the others; not all that is drawn fits together."""
    properties: Mapping[str, Mapping[str, Any]] = tool.parameters["properties"]
    required = tool.parameters["required"]
    return {name: _value(tool, name, schema, rng) for name, schema in properties.items() if name in required or rng.random() < _OPTIONAL}


def _value(tool: Tool, name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] == "integer":
        return rng.randint(schema["minimum"], schema["maximum"])
    if schema["type"] == "number":
        return round(rng.uniform(0, 5 if name == "min_rating" else 100), 1)  # stars, and money
    if schema["type"] == "array":
        items = schema["items"]
        if "enum" in items:
            return rng.sample(items["enum"], rng.randint(1, 2))
        return [_coordinate(rng) for _ in range(rng.randint(schema["minItems"], min(4, schema["maxItems"])))]
    if tool.world == "retail":
        return f"{name[0]}{rng.randrange(25 if name == 'user' else 100):02d}"
    return _city_text(tool.name, name, rng)


def _city_text(tool: str, name: str, rng: random.Random) -> str:
    from synth.worlds.city.vocabulary import HORIZON_DAYS, TODAY

    day = TODAY + timedelta(days=rng.randint(0, HORIZON_DAYS))
    if name == "query":
        return _web_words(rng) if tool == "web_search" else _map_words(rng)
    if name == "date":
        return day.isoformat()
    if name in ("departure_time", "arrival_time"):
        return f"{day.isoformat()}T{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    if name == "region":
        return _label("district", rng)
    if tool.startswith("travel_"):
        return _label("city", rng)
    if name == "location" and rng.random() < 0.5:
        return _label(rng.choice(("district", "city")), rng)
    return _coordinate(rng)


def _coordinate(rng: random.Random) -> str:
    from synth.worlds.city.map.geometry import HEIGHT_M, WIDTH_M, to_text

    return to_text(rng.uniform(0, WIDTH_M), rng.uniform(0, HEIGHT_M))


def _label(kind: str, rng: random.Random) -> str:
    from synth.worlds.city.vocabulary import KINDS

    return rng.choice(rng.choice(_sorted_names(KINDS[kind].names)))  # type: ignore[union-attr]


def _sorted_names(names: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    return [sorted(spellings.values()) for _, spellings in sorted(names.items())]


def _map_words(rng: random.Random) -> str:
    """A place's name, or a category with none to two features and now and then 'open now'."""
    from synth.worlds.city.map.place_catalog import catalogue

    if rng.random() < 0.5:
        place = rng.choice(catalogue())
        return rng.choice((place.en, place.zh))
    words = [_label("category", rng), *(_label("feature", rng) for _ in range(rng.randrange(3)))]
    return " ".join(words + (["open now"] if rng.random() < 0.2 else []))


def _web_words(rng: random.Random) -> str:
    """A topic, interest or line, with a place, district or city beside it."""
    return f"{_label(rng.choice(('topic', 'interest', 'line', 'venue')), rng)} {_label(rng.choice(('place', 'district', 'city')), rng)}"


# ---- one measurement, in a process of its own -------------------------------------------------------------------------------


def call_each_tool(world: World, calls: Sequence[Call]) -> None:
    for tool, arguments in {tool: arguments for _, tool, arguments in calls}.items():
        world.call(tool, arguments)


def measured(name: str, calls: Sequence[Call]) -> tuple[str, float]:
    """Hash of the answers, and the CPU seconds they took: tables that all seeds share are loaded before, no call was made before."""
    call_each_tool(make_world(name, 0), calls)
    worlds, starts = opened(name)
    begun = time.process_time()
    observations = [run(worlds, starts, call) for call in calls]
    return hash_of(observations), time.process_time() - begun


def read_calls(file: Path) -> list[Call]:
    return [tuple(call) for call in json.loads(file.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    world_name, calls_file = sys.argv[1], Path(sys.argv[2])
    if not calls_file.exists():
        calls_file.write_text(json.dumps(draw_calls(world_name), ensure_ascii=False), encoding="utf-8")
    print(*measured(world_name, read_calls(calls_file)))
