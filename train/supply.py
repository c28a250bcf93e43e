"""Where the cascade's tasks come from: siblings of frames that the funnel kept, and of frames that blueprints made.

One idea: a *source* is a frame with its origin and its division; tasks are drawn from sources in turn, so that queries give more than half
of them and no single query more than its share. A sibling is a function of its frame, its index and its use, so any set of tasks can be
drawn again, and sets of different uses never meet (the solver keeps their world seeds apart).

What it does not do: keep anything; the cascade writes what it draws.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from storage.errors import HeadraceError
from storage.records import Division, Frame, Language, Task
from storage.store import Store
from synth.solver import NotAdmitted, sibling

Use = Literal["train", "eval_in", "eval_out"]
FIRST_INDEX = 1_000
"""Siblings of lower index are for whoever admits a frame (the funnel, synthesis)."""
_MISSES = 12
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
                task = sibling(source.frame, index=index, language=language, division=source.division, use=use, query_id=source.query_id)
            except NotAdmitted:
                misses[position] += 1
                continue
            misses[position] = 0
            yield task if source.query_id else task.model_copy(update={"blueprint_id": source.blueprint_id})
