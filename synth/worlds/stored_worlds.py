"""Worlds of the user's own, kept in the store whose data was made in them.

One idea: such a world's name says its content (`bakery@1a2b3c4d`), so a store that holds its spec holds the world: each
process that works on the store compiles the world from there, and the file may change or go.
Worlds that Headrace ships or generates are found by name and are not stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import polars as pl

from storage.store import Store
from storage.tables import TABLES
from synth.worlds import WORLDS
from synth.worlds.base import World
from synth.worlds.declarative.compile import compile_spec
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.live.live_files import live_world_of_source
from synth.worlds.live.live_spec import is_live
from synth.worlds.live.live_world import LiveWorld


def worlds_frame(names: Iterable[str]) -> pl.DataFrame:
    """Rows of table `worlds` for those of these worlds that are the user's own."""
    rows = []
    for name in sorted({name for name in names if "@" in name}):
        world = WORLDS[name]
        assert issubclass(world, SpecWorld | LiveWorld)
        domain = world.domain.name if issubclass(world, SpecWorld) else world.spec.live
        rows.append({"world": name, "domain": domain, "spec": json.dumps(world.source, ensure_ascii=False)})
    return pl.DataFrame(rows, schema=TABLES["worlds"].columns)


def register_stored(store: Store) -> None:
    """Makes the worlds of a store known in this process; each is compiled when it is first looked up.

    `WORLDS[name]` raises SpecError if this version of Headrace cannot compile its spec.
    """
    for name, spec in store.query("SELECT world, spec FROM worlds ORDER BY world").iter_rows():
        if name not in WORLDS:
            WORLDS.register_later(name, partial(_compile, json.loads(spec), name=name, where=f"world {name} of {store.root}"))


def _compile(source: Any, *, name: str, where: str) -> type[World]:
    return live_world_of_source(source, where) if is_live(source) else compile_spec(source, name=name, where=where)
