"""Stores with a promoted policy that was probed for real: scripted rollouts in two worlds, with a skill of its own in each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import polars as pl

from filters.certainty.certainty import RegionConfig, certainty
from storage.record_rows import tasks_frame
from storage.records import Task
from storage.store import Store, part_id
from storage.tables import TABLES
from synth.blueprints.single_goal import draw_drills
from synth.rollouts.draws import rollout_parts
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from tests.synth.scripted_engine import ScriptedEngine

WORLDS_USED = ("retail", "clinic")
K = 8


@cache
def drilled(world: str, count: int = 120) -> tuple[Task, ...]:
    """Tasks of all divisions, each with an opening of its own."""
    found = {
        task.messages[-1].content: task
        for task in (drill.task for drill in draw_drills(WORLDS[world], count, [], DivisionConfig(), seed=0))
    }
    return tuple(found.values())


def of(world: str, division: str) -> list[Task]:
    return [task for task in drilled(world) if task.division == division]


def probe(store: Store, policy: str, tasks: list[Task], skill: float, *, purpose: str = "probe") -> pl.DataFrame:
    """Rolls the scripted policy out and tags the tasks by certainty; returns the tags."""
    parts = rollout_parts(store, ScriptedEngine(tasks, skill=skill, name=policy), tasks, K, purpose=purpose, policy_id=policy)
    rollouts = pl.concat([pl.read_parquet(store.root / part.path) for part in parts])
    difficulty = pl.DataFrame({"task_id": [task.id for task in tasks], "difficulty": [task.difficulty for task in tasks]})
    tags = certainty(rollouts, difficulty, RegionConfig(), purpose="probe")
    store.commit([*parts, store.write("tags", part_id("tags", [policy, *tags["task_id"]], {"skill": skill}, 1), tags)])
    return tags


def promote(store: Store, policy: str, position: int = 1) -> None:
    """The policy passes the gate."""
    rows = {
        "policies": {"policy_id": policy, "stage_id": None, "path": f"models/{policy}", "weights_hash": policy},
        "promotions": {"policy_id": policy, "position": position, "passed": True, "checks": "{}"},
    }
    store.commit(
        [
            store.write(table, part_id(table, [policy], {}, 1), pl.DataFrame([row], schema=TABLES[table].columns))
            for table, row in rows.items()
        ]
    )


def probed_store(root: Path, skills: Mapping[str, float], policy: str = "policy-1") -> Store:
    """A store with the tasks of both worlds, and a promoted policy of these skills on the probe tasks."""
    store = Store(root)
    tasks = [task for world in WORLDS_USED for task in drilled(world)]
    store.commit([store.write("tasks", part_id("tasks", ["drilled"], {}, 1), tasks_frame(tasks))])
    promote(store, policy)
    for world, skill in skills.items():
        probe(store, policy, of(world, "probe"), skill)
    return store
