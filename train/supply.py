"""Where the cascade's tasks come from: siblings of frames that the funnel kept, and of frames that blueprints made.

One idea: a *source* is a frame with its origin and its division; tasks are drawn from sources in turn, so that queries give more than half
of them and no single query more than its share. A sibling is a function of its frame, its index and its use, so any set of tasks can be
drawn again, and sets of different uses never meet: the solver keeps their world seeds and individuals apart, and a task whose frame names
no individual, which may read the same in every world, goes to one use by a hash of what it shows.

What it does not do: keep anything; the cascade writes what it draws.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from storage.errors import HeadraceError
from storage.records import Division, Frame, Language, Task, content_id
from storage.store import Store
from synth.solver import NotAdmitted, sibling
from synth.worlds import WORLDS

Use = Literal["train", "eval_in", "eval_out"]
FIRST_INDEX = 1_000
"""Siblings of lower index are for whoever admits a frame (the funnel, synthesis)."""
_MISSES = 24
_TURNS = (0, 1, 0, 1, 0)


@dataclass(frozen=True)
class Source:
    """A frame and where it came from: exactly one of query_id and blueprint_id is set."""

    frame: Frame
    division: Division
    difficulty: int
    query_id: str | None
    blueprint_id: str | None


def sources(store: Store, *, worlds: Sequence[str], max_difficulty: int) -> list[Source]:
    """All frames of admitted tasks in these worlds up to a difficulty, in a fixed order; a frame of both origins counts as a query's.

    Siblings, which the cascade itself adds to the store, are told by their slots: they are not those of their frame. So the answer does
    not depend on how far a cascade has come.
    """
    rows = store.query(
        """SELECT frame_id, world, intent, json_extract(spec, '$.slots')::VARCHAR AS slots, division, difficulty, query_id, blueprint_id
           FROM tasks WHERE list_contains(?, world) AND difficulty <= ? ORDER BY frame_id, query_id NULLS LAST, blueprint_id, difficulty""",
        [list(worlds), max_difficulty],
    )
    found: dict[str, Source] = {}
    for frame_id, world, intent, slots, division, difficulty, query_id, blueprint_id in rows.iter_rows():
        frame = Frame(world=world, intent=intent, slots=json.loads(slots))
        if frame.id == frame_id and (query_id or blueprint_id):
            found.setdefault(frame_id, Source(frame, division, difficulty, query_id, blueprint_id))
    return list(found.values())


def draw(found: Sequence[Source], count: int, *, use: Use, language: Language, first_index: int = FIRST_INDEX) -> list[Task]:
    """`count` distinct tasks, three from queries for every two from blueprints (from one kind alone where the other has no source).

    Raises:
        HeadraceError: the sources cannot give so many.
    """
    kinds = [kind for kind in ([s for s in found if s.query_id], [s for s in found if s.blueprint_id and not s.query_id]) if kind]
    if not kinds:
        raise HeadraceError(f"no frame to draw {use} tasks from: curate more queries or synthesise more blueprints of the cascade's worlds")
    streams = [_siblings(kind, use, language, first_index) for kind in kinds]
    turns = [streams[position] for position in (_TURNS if len(streams) == 2 else (0,))]
    tasks: dict[str, Task] = {}
    for task in itertools.chain.from_iterable(itertools.zip_longest(*turns)):
        if task is not None:
            tasks.setdefault(task.id, task)
        if len(tasks) == count:
            return list(tasks.values())
    raise HeadraceError(
        f"only {len(tasks)} of {count} {use} tasks could be drawn from {len(found)} frames; curate more queries or ask for fewer"
    )


def what_it_shows(task: Task) -> str:
    """A hash of a task's opening, plan and answer: all that a policy could have learnt by heart. Equal in worlds of different seeds."""
    return content_id("shown", [message.to_openai() for message in task.messages], task.plan.model_dump(mode="json"))


def fresh(frame: Frame, index: int, *, language: Language, use: Use, origin: Source | Task) -> Task:
    """Sibling `index` of a frame, of those that `use` may see; it has its origin's division, query and blueprint.

    Raises:
        NotAdmitted: no seed gave a task, or this one is kept for another use.
    """
    task = sibling(
        frame,
        index=index,
        language=language,
        division=origin.division,
        use=use,
        query_id=origin.query_id,
        blueprint_id=origin.blueprint_id,
    )
    individuals = {slot.name for slot in WORLDS[frame.world].intents[frame.intent].slots if slot.is_entity}
    is_set_aside = int(what_it_shows(task)[-8:], 16) % 4 == 3
    if not individuals & set(frame.slots) and is_set_aside != (use != "train"):
        raise NotAdmitted("set_aside", "what it shows is kept for another use")
    return task


def _siblings(found: Sequence[Source], use: Use, language: Language, first_index: int) -> Iterator[Task]:
    """Siblings of each source in turn, index by index; a source that misses several times running is dropped."""
    misses = [0] * len(found)
    for index in itertools.count(first_index):
        alive = [position for position, missed in enumerate(misses) if missed < _MISSES]
        if not alive:
            return
        for position in alive:
            source = found[position]
            try:
                task = fresh(source.frame, index, language=language, use=use, origin=source)
            except NotAdmitted:
                misses[position] += 1
                continue
            misses[position] = 0
            yield task
