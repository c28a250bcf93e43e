"""What a package holds: the tasks that can travel, by split, and the worlds of the user's own that they need.

One idea: a task that cannot be played elsewhere is left out and counted with its reason, never written half.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from storage.errors import BadInput
from storage.records import CODE_TOOL, JSON, Task
from synth.packages.episode_server import ANSWER
from synth.packages.runtime import SPLITS, WORLDS_FILE
from synth.worlds import WORLDS
from synth.worlds.declarative.compiled_world import SpecWorld

RESERVED = frozenset({ANSWER, "reset", "step", "state", "close", "verify", "seed_session", "aggregate_metrics", "mcp"})
"""Names that ecosystems take for their own; no tool of a packaged task has one."""


@dataclass(frozen=True)
class Contents:
    """Tasks to package.

    name: a Python module's name, from the folder's.
    tasks: `Task.use` -> tasks, for the uses that have any.
    left_out: reason -> number of tasks.
    origin: where the tasks come from, a sentence for the card.
    licences: lines for the card.
    """

    name: str
    tasks: Mapping[str, Sequence[Task]]
    left_out: Mapping[str, int]
    origin: str
    licences: Sequence[str]

    @cached_property
    def all_tasks(self) -> list[Task]:
        return [task for tasks in self.tasks.values() for task in tasks]

    @cached_property
    def worlds(self) -> list[str]:
        return sorted({task.world for task in self.all_tasks})

    def data(self, folder: str) -> dict[str, str]:
        """Path -> text of the files that `runtime.Package` reads."""
        files = {f"{folder}/{split}.jsonl": task_lines(tasks) for split, tasks in self.tasks.items()}
        return files | {f"{folder}/{WORLDS_FILE}": world_lines(self.worlds)}


def choose(name: str, tasks: Iterable[Task], origin: str, licences: Sequence[str]) -> Contents:
    """The contents of a package.

    Raises:
        BadInput: no task can travel.
    """
    kept: dict[str, list[Task]] = {split: [] for split in SPLITS}
    left_out: Counter[str] = Counter()
    for task in {task.id: task for task in tasks}.values():
        reason = _reason_to_stay(task)
        if reason is None:
            kept[task.use].append(task)
        else:
            left_out[reason] += 1
    if not any(kept.values()):
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise BadInput(f"no task can be packaged: {reasons or 'there is none'}")
    return Contents(name, {split: tasks for split, tasks in kept.items() if tasks}, dict(left_out), origin, licences)


def _reason_to_stay(task: Task) -> str | None:
    if task.conversation is not None:
        return "in which the user goes on after the request"
    if CODE_TOOL in task.tools:
        return f"that offer {CODE_TOOL}, which needs a sandbox"
    if not _can_travel(task.world):
        return f"of world {task.world}, which is neither Headrace's nor a spec"
    return "with a tool whose name an ecosystem takes for its own" if RESERVED.intersection(task.tools) else None


def _can_travel(world: str) -> bool:
    return world == "city" or (world in WORLDS and issubclass(WORLDS[world], SpecWorld))


def task_lines(tasks: Iterable[Task]) -> str:
    """Tasks as JSON Lines."""
    return "".join(task.model_dump_json() + "\n" for task in tasks)


def world_lines(names: Iterable[str]) -> str:
    """What a package says of its worlds, as JSON Lines: the version, and the spec of one that is the user's own."""
    return "".join(json.dumps(_world_row(name), ensure_ascii=False) + "\n" for name in names)


def _world_row(name: str) -> dict[str, JSON]:
    world = WORLDS[name]
    spec = world.source if "@" in name and issubclass(world, SpecWorld) else None
    return {"world": name, "version": world.version, "spec": spec}
