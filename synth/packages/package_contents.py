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
from synth.worlds.live.live_world import LiveWorld

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
    licence: the one of all requests, as it was stated, where there is one; None: it is not stated, or there are several.
    """

    name: str
    tasks: Mapping[str, Sequence[Task]]
    left_out: Mapping[str, int]
    origin: str
    licences: Sequence[str]
    licence: str | None = None

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


def choose(name: str, tasks: Iterable[Task], origin: str, licences: Sequence[str], licence: str | None = None) -> Contents:
    """The contents of a package. licence: of the requests; that of a world of the user's own is never known.

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
    has_own = any("@" in task.world for tasks in kept.values() for task in tasks)
    by_split = {split: tasks for split, tasks in kept.items() if tasks}
    return Contents(name, by_split, dict(left_out), origin, licences, None if has_own else licence)


def _reason_to_stay(task: Task) -> str | None:
    if task.conversation is not None:
        return "in which the user goes on after the request"
    if CODE_TOOL in task.tools:
        return f"that offer {CODE_TOOL}, which needs a sandbox"
    if (reason := why_world_stays(task.world)) is not None:
        return f"of world {task.world}, {reason}"
    return "with a tool whose name an ecosystem takes for its own" if RESERVED.intersection(task.tools) else None


def why_world_stays(world: str) -> str | None:
    """Why a world cannot be in a package; None: it can."""
    if world not in WORLDS:
        return "which is not known here"
    kind = WORLDS[world]
    if issubclass(kind, LiveWorld):
        return "a live one: its server, its files and its secrets are on this machine and are not packaged"
    return None if world == "city" or issubclass(kind, SpecWorld) else "which has no spec that could be packaged"


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
