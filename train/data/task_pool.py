"""Where the cascade's tasks come from: siblings of frames that the funnel kept, and of frames that blueprints made.

One idea: a *source* is a frame with its origin and its division; tasks are drawn from sources in turn, so that queries give three in five
of them, each as many as the others: no single query more than 5 %, as long as there are twelve or more queries (with fewer, each gives
more). A sibling is a function of its frame, its index and its use, so any set of tasks can be drawn again, and sets of different uses
never meet: the solver keeps their world seeds and individuals apart, and a task whose frame names no individual, which may read the same
in every world, goes to one use by a hash of what it shows.
Held-out frames are sources only if no seed or probe frame asks for the same, individuals aside: where siblings of `close_order(o17)` are
trained on, `close_order(o42)` is held out in name alone.

What it does not do: keep anything; the cascade writes what it draws.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from storage.errors import HeadraceError
from storage.records import Division, Frame, Language, Task, canonical_json, content_id
from storage.store import Store
from synth.tasks.solver import NotAdmitted, sibling
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

    A held-out frame is left out where a seed or probe frame, of any difficulty, has the same need.
    Siblings, which the cascade itself adds to the store, are told by their slots: they are not those of their frame. So the answer does
    not depend on how far a cascade has come.
    """
    rows = store.query(
        """SELECT frame_id, world, intent, json_extract(spec, '$.slots')::VARCHAR AS slots, division, difficulty, query_id, blueprint_id
           FROM tasks WHERE list_contains(?, world) ORDER BY frame_id, query_id NULLS LAST, blueprint_id, difficulty""",
        [list(worlds)],
    )
    by_frame: dict[str, Source] = {}
    not_held_out: set[str] = set()
    for frame_id, world, intent, slots, division, difficulty, query_id, blueprint_id in rows.iter_rows():
        frame = Frame(world=world, intent=intent, slots=json.loads(slots))
        if division != "held_out":
            not_held_out.add(need(frame))
        if frame.id == frame_id and (query_id or blueprint_id) and difficulty <= max_difficulty:
            by_frame.setdefault(frame_id, Source(frame, division, difficulty, query_id, blueprint_id))
    return [source for source in by_frame.values() if source.division != "held_out" or need(source.frame) not in not_held_out]


def need(frame: Frame) -> str:
    """World, intent, and the slots that name no individual: frames of equal needs have siblings of one distribution."""
    individuals = _individuals(frame)
    return canonical_json([frame.world, frame.intent, {name: value for name, value in frame.slots.items() if name not in individuals}])


def draw(
    sources: Sequence[Source], count: int, *, use: Use, language: Language, first_index: int = FIRST_INDEX, fewest: int | None = None
) -> list[Task]:
    """`count` distinct tasks, three from queries for every two from blueprints (from one kind alone where the other has no source).

    fewest: where the sources cannot give `count`, all that they give will do from this number on (None: `count`).

    Raises:
        HeadraceError: the sources cannot give so many.
    """
    fewest = count if fewest is None else fewest
    kinds = [kind for kind in ([s for s in sources if s.query_id], [s for s in sources if s.blueprint_id and not s.query_id]) if kind]
    if not kinds and fewest == 0:
        return []
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
    if len(tasks) >= fewest:
        return list(tasks.values())
    raise HeadraceError(
        f"only {len(tasks)} of {count} {use} tasks could be drawn from {len(sources)} frames; curate more queries or ask for fewer"
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
        WORLDS[frame.world],
        frame,
        index=index,
        language=language,
        division=origin.division,
        use=use,
        query_id=origin.query_id,
        blueprint_id=origin.blueprint_id,
    )
    is_set_aside = int(what_it_shows(task)[-8:], 16) % 4 == 3
    if not _individuals(frame) & set(frame.slots) and is_set_aside != (use != "train"):
        raise NotAdmitted("set_aside", "what it shows is kept for another use")
    return task


def _individuals(frame: Frame) -> set[str]:
    """Names of its intent's slots that name an individual."""
    return {slot.name for slot in WORLDS[frame.world].intents[frame.intent].slots if slot.is_entity}


def _siblings(sources: Sequence[Source], use: Use, language: Language, first_index: int) -> Iterator[Task]:
    """Siblings of each source in turn, index by index; a source that misses several times running is dropped."""
    misses = [0] * len(sources)
    for index in itertools.count(first_index):
        alive = [position for position, missed in enumerate(misses) if missed < _MISSES]
        if not alive:
            return
        for position in alive:
            source = sources[position]
            try:
                task = fresh(source.frame, index, language=language, use=use, origin=source)
            except NotAdmitted:
                misses[position] += 1
                continue
            misses[position] = 0
            yield task
