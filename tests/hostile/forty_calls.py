"""Calls every tool of a world forty times on the first row of each table."""

from __future__ import annotations

from storage.records import JSON
from synth.worlds.base import World

CALLS = 40


def call_forty_times(world_class: type[World]) -> list[str]:
    """The last observation of each tool. Each parameter gets the id of a row; a tool may refuse it, as it refuses a policy's."""
    world = world_class(0)
    tables = {name: rows for name, rows in world.state().items() if isinstance(rows, dict) and rows}
    last = []
    for tool in world.tools:
        properties = tool.parameters.get("properties", {})
        assert isinstance(properties, dict)
        arguments: dict[str, JSON] = {}
        for name in properties:
            table = next((table for table in tables if name.startswith(table.rstrip("s"))), None)
            arguments[name] = next(iter(tables[table])) if table is not None else ""
        for _ in range(CALLS):
            observation = world.call(tool.name, arguments)
        last.append(str(observation))
    return last
