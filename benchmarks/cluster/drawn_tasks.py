"""Tasks for the engines' classes: of shipped and generated worlds, of conversations with several user turns, and of requests of SGD.

One idea: an adapter is wrong where a conversation is unlike those it was written with. So a third of the tasks have several user turns, a
quarter are requests that crowd workers wrote (SGD), in worlds that are compiled from that data set's own schemas and stand in the store,
and the rest are drawn over ten worlds in both languages. Without SGD's files (HEADRACE_TEST_DATA) its share is drawn like the rest.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.audits import mutations
from benchmarks.ground_sections.english import real_requests
from benchmarks.ground_sections.executable import compile_worlds, task_of_reading
from filters.reading.reader import Reader
from storage.record_rows import tasks_frame
from storage.records import Task
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.clusters.cluster_store import tools_frame
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.tasks.solver import NotAdmitted
from synth.worlds import WORLDS
from synth.worlds.stored_worlds import worlds_frame
from tests.synth.conversations import conversations

PLAIN = ("retail", "banking", "library", "clinic", "gen-1", "gen-2", "gen-5", "gen-8", "gen-13", "gen-21")
SPOKEN = ("retail", "banking", "library")
SEED = 36


def draw_tasks(count: int) -> list[Task]:
    """`count` different tasks, the same ones whenever they are drawn."""
    spoken = [task for name in SPOKEN for task in conversations.tasks(name, count // 9)]
    real = _requests(count // 4)
    plain = [name for name in PLAIN if name in WORLDS]
    rng, found = random.Random(SEED), {task.id: task for task in [*spoken, *real]}
    each = -(-(count - len(found)) // len(plain))
    for name in plain:
        drawn = mutations.draw_tasks(WORLDS[name], 2 * max(each, len(WORLDS[name].jobs())), rng)
        found |= {task.id: task for task in rng.sample(drawn, each)}
    return list(found.values())[:count]


def _requests(most: int) -> list[Task]:
    """Tasks of requests of SGD, as our reader reads them; empty without its files."""
    if not (Path(os.environ.get("HEADRACE_TEST_DATA", "")) / "real_queries").is_dir():
        print("    no real_queries in HEADRACE_TEST_DATA: no task is made of them", flush=True)
        return []
    requests = real_requests()
    worlds, reader = compile_worlds(requests), Reader(list(requests.worlds.values()))
    tasks: dict[str, Task] = {}
    texts = random.Random(SEED).sample([row.text for row in requests.labelled("whole")], 4 * most)
    for text, candidates in reader.candidates(texts):
        if len(tasks) == most:
            break
        choice = reader.choose(text, candidates)
        try:
            task = task_of_reading(worlds[choice.frame.intent.world.world.name], choice.frame.intent.intent, choice, text.text)
        except NotAdmitted:
            continue
        tasks.setdefault(task.id, task)
    return list(tasks.values())


def write_release(root: Path, tasks: Sequence[Task]) -> tuple[Store, str]:
    """A store with the tasks, their experts and their worlds, and its release: split `rl` has the tasks, `seed` the experts."""
    store, worlds = Store(root), sorted({task.world for task in tasks})
    experts = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
    parts = [
        store.write("tasks", part_id("tasks", [], {}, 1), tasks_frame(tasks)),
        store.write("trajectories", part_id("trajectories", [], {}, 1), trajectories_frame(experts, tasks)),
        store.write("worlds", part_id("worlds", [], {}, 1), worlds_frame(worlds)),
    ]
    parts += [store.write("tools", part_id("tools", [name], {}, 1), tools_frame(WORLDS[name].tools)) for name in worlds]
    store.commit(parts)
    splits = {
        "rl": [ReleaseItem("task", task.id, task.id) for task in tasks],
        "seed": [ReleaseItem("trajectory", expert.id, expert.task_id) for expert in experts],
    }
    return store, make_release(store, "cluster", splits, {})
