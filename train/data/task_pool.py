"""Draws the cascade's tasks: siblings of frames from queries and from blueprints.

One idea: a *source* is a frame with its origin and division. Tasks are drawn from the sources in turn; three of five come from queries, and
every query gives equally many: with twelve or more queries, none gives more than 5 %. A sibling is a function of its frame, index and use,
so any set of tasks can be drawn again. Sets of different uses are disjoint: the solver separates their world seeds and individuals; a task
whose frame names no individual may read the same in every world, so a hash of its content decides its use.
A held-out frame is a source only if no seed or probe frame has the same need, individuals aside: if training uses siblings of
`close_order(o17)`, then `close_order(o42)` is not really held out.

What it does not do: write tasks; the cascade does.
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
"""First index of the cascade's siblings; lower indices belong to the admission of frames (funnel, synthesis)."""
_MISSES = 24
_TURNS = (0, 1, 0, 1, 0)


@dataclass(frozen=True)
class Source:
    """A frame and its origin: exactly one of query_id and blueprint_id is set."""

    frame: Frame
    division: Division
    difficulty: int
    query_id: str | None
    blueprint_id: str | None


def sources(store: Store, *, worlds: Sequence[str], max_difficulty: int) -> list[Source]:
    """Frames of admitted tasks in these worlds up to a difficulty, in a fixed order; a frame of both origins counts as a query's.

    A held-out frame is left out if a seed or probe frame, of any difficulty, has the same need.
    The siblings that the cascade adds to the store are left out: their slots differ from those of their frame. So the result does not
    depend on the progress of a cascade.
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
    """World, intent, and the slots that name no individual, as JSON: frames with equal needs have siblings of one distribution."""
    individuals = _individuals(frame)
    return canonical_json([frame.world, frame.intent, {name: value for name, value in frame.slots.items() if name not in individuals}])


def draw(
    pool: Sequence[Source], count: int, *, use: Use, language: Language, first_index: int = FIRST_INDEX, fewest: int | None = None
) -> list[Task]:
    """`count` distinct tasks, three from queries for every two from blueprints; from one kind alone if the other has no source.

    fewest: smallest number of tasks that is accepted if the pool cannot give `count`; None: `count`.

    Raises:
        HeadraceError: the pool gives too few.
    """
    fewest = count if fewest is None else fewest
    kinds = [kind for kind in ([s for s in pool if s.query_id], [s for s in pool if s.blueprint_id and not s.query_id]) if kind]
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
        f"only {len(tasks)} of {count} {use} tasks could be drawn from {len(pool)} frames; curate more queries or ask for fewer"
    )


def shown_hash(task: Task) -> str:
    """Hash of a task's opening, plan and answer, which a policy could memorise; it does not depend on the world's seed."""
    return content_id("shown", [message.to_openai() for message in task.messages], task.plan.model_dump(mode="json"))


def fresh(frame: Frame, index: int, *, language: Language, use: Use, origin: Source | Task) -> Task:
    """Sibling `index` of a frame for this use, with its origin's division, query and blueprint.

    Raises:
        NotAdmitted: no seed gave a task, or the task is set aside for another use.
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
    is_set_aside = int(shown_hash(task)[-8:], 16) % 4 == 3
    if not _individuals(frame) & set(frame.slots) and is_set_aside != (use != "train"):
        raise NotAdmitted("set_aside", "what it shows is kept for another use")
    return task


def _individuals(frame: Frame) -> set[str]:
    """Names of the intent's slots that name an individual."""
    return {slot.name for slot in WORLDS[frame.world].intents[frame.intent].slots if slot.is_entity}


def _siblings(pool: Sequence[Source], use: Use, language: Language, first_index: int) -> Iterator[Task]:
    """Siblings of the pool's sources in turn, index by index; a source that fails `_MISSES` times in a row is dropped."""
    misses = [0] * len(pool)
    for index in itertools.count(first_index):
        alive = [position for position, missed in enumerate(misses) if missed < _MISSES]
        if not alive:
            return
        for position in alive:
            source = pool[position]
            try:
                task = fresh(source.frame, index, language=language, use=use, origin=source)
            except NotAdmitted:
                misses[position] += 1
                continue
            misses[position] = 0
            yield task
