"""What is served: a world with its tools, or the start state of a stored task.

`run_python` is among the tools only where a sandbox works on this machine. A served task offers exactly its own tools, its world's data
are those of the task and seen in its context, and a client cannot choose another seed. Nor can it in a live
world whose spec takes no seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from storage.errors import BadInput
from storage.records import CODE_TOOL, Task, Tool
from storage.store import Store
from synth.context.offered_tools import tools_of
from synth.context.view import ViewedWorld, open_world
from synth.worlds import WORLDS
from synth.worlds.base import World
from synth.worlds.declarative.compiled_world import SpecWorld
from synth.worlds.live.copies.copy_pool import MOST_IDLE
from synth.worlds.live.live_world import LiveWorld
from synth.worlds.run_python import missing
from synth.worlds.stored_worlds import register_stored

MOST_OPEN = 1_000
"""Episodes that may be open at a time, of a world that needs no process."""


@dataclass(frozen=True)
class Served:
    """What a server offers.

    world: class of the world that each episode gets an instance of.
    tools: the offered tools; a call of any other is answered with an error.
    seed: seed of an episode that names none.
    instructions: system prompt for the model at the client; empty for none.
    task: the one that is served, if it is one. request: its user's first message; empty without a task.
    """

    world: type[World]
    tools: tuple[Tool, ...]
    seed: int = 0
    instructions: str = ""
    task: Task | None = None
    request: str = ""

    @property
    def task_id(self) -> str:
        """Empty without a task."""
        return "" if self.task is None else self.task.id

    def open(self, seed: int) -> World | ViewedWorld:
        """A fresh world; of a task, with its data and in its context, whatever the seed."""
        return self.world(seed) if self.task is None else open_world(self.world, self.task)

    @property
    def why_one_seed(self) -> str:
        """Why a client cannot choose the seed of its episode; empty if it can."""
        if self.task_id:
            return f"this server serves task {self.task_id}, whose seed is {self.seed}"
        return "" if takes_seed(self.world) else f"world {self.world.name} has one start state: no {{seed}} stands in its file"

    @property
    def most_open(self) -> int:
        """How many episodes may be open at a time if the user names no number: of a live world, each is a process."""
        return MOST_IDLE if issubclass(self.world, LiveWorld) else MOST_OPEN

    def quick_tools(self) -> frozenset[str]:
        """Tools that answer in less time than it takes to hand a call to a thread: those of compiled specs, which run in memory."""
        is_compiled = issubclass(self.world, SpecWorld)
        return frozenset(tool.name for tool in self.tools if is_compiled and tool.name != CODE_TOOL)


def serve_world(name: str, seed: int = 0) -> Served:
    """A world by its name, with all tools that work on this machine.

    Raises:
        KeyError: there is no world of that name.
        BadInput: a seed is given, and the world takes none.
    """
    world = WORLDS[name]
    if seed and not takes_seed(world):
        raise BadInput(f"world {name} has one start state: no {{seed}} stands in its file; leave out --seed")
    return Served(world, _working(world.tools), seed, instructions=world.system_prompt)


def serve_task(task: Task) -> Served:
    """The start state of a task.

    Raises:
        BadInput: its user says more after the request, its world is not known here, or its plan runs programs and no sandbox works here.
    """
    if task.conversation is not None:
        raise BadInput(f"the user of task {task.id} says more after the request, and a server plays no user; name a task of one request")
    if task.world not in WORLDS:
        raise BadInput(f"task {task.id} is of world {task.world!r}, which is not known here; name the store that holds it with --store")
    if missing() and any(call.tool == CODE_TOOL for call in task.plan.calls):
        raise BadInput(f"task {task.id} needs {CODE_TOOL}, and no sandbox works here: {missing()}")
    world = WORLDS[task.world]
    texts = {role: "\n\n".join(each.content or "" for each in task.messages if each.role == role) for role in ("system", "user")}
    return Served(world, _working(tools_of(world, task)), task.world_seed, texts["system"], task, texts["user"])


def takes_seed(world: type[World]) -> bool:
    """Whether the world's data depend on its seed: always, but for live worlds in whose spec no `{seed}` stands."""
    return not issubclass(world, LiveWorld) or world.pool.is_seeded


def find_task(store: Store, id_: str) -> Task:
    """A stored task by its id or the beginning of it; the worlds of its store are known from then on.

    Raises:
        BadInput: there is no such task, or there are several.
    """
    register_stored(store)
    found = store.query("SELECT task_id, spec FROM tasks WHERE starts_with(task_id, ?) ORDER BY task_id LIMIT 2", [id_])
    if len(found) == 0:
        raise BadInput(f"{store.root} has no task {id_!r}; see them with: SELECT task_id FROM tasks, in DuckDB")
    if len(found) > 1 and found["task_id"][0] != id_:
        raise BadInput(f"several tasks of {store.root} begin with {id_!r}; give more of the id")
    return Task.model_validate_json(found["spec"][0])


def _working(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """These tools, without the one that needs a sandbox where none works."""
    return tuple(tool for tool in tools if tool.name != CODE_TOOL or not missing())
