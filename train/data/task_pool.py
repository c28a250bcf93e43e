"""Draws the cascade's tasks: siblings of frames from queries and from blueprints.

One idea: a *source* is a frame, or the course of a conversation, with its origin and division. Tasks are drawn from the sources in turn: of
ten, five come from queries, two from single blueprint goals, three from conversations; every query gives equally many: with ten or more
queries, none gives more than 5 %. A sibling is a function of its source, index and use, so any set of tasks can be drawn again. Sets of
different uses are disjoint: the solver separates their world seeds and individuals; a task whose frame names no individual may read the
same in every world, so a hash of its content decides its use. A held-out source is left out if a goal of it has the need of a seed or probe
frame, individuals aside: if training uses siblings of `close_order(o17)`, then `close_order(o42)` is not really held out.

What it does not do: write tasks; the cascade does.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from storage.by_hand.hand_rows import WITHHELD_TASKS
from storage.context.settings import PolicyContext
from storage.errors import BadInput, HeadraceError
from storage.records import Division, Frame, Language, Task, content_id
from storage.store import Store
from synth.conversations.conversation_task import conversation_frame, conversation_sibling, goal_frames
from synth.conversations.task_in_context import in_context, without_context
from synth.tasks.needs import individual_slots, need
from synth.tasks.solver import NotAdmitted, sibling
from synth.worlds import WORLDS
from synth.worlds.base import World

Use = Literal["train", "eval_in", "eval_out"]
FIRST_INDEX = 1_000
"""First index of the cascade's siblings; lower indices belong to the admission of frames (funnel, synthesis)."""
_MISSES = 24
_TURNS = ("query", "conversation", "query", "goal", "query", "conversation", "query", "goal", "query", "conversation")
"""Kinds of the sources that tasks are drawn from in turn. Single goals and conversations stand in for each other where one has no source;
without any of both, or without queries, the other kind alone is drawn from."""
_STAND_IN = {"goal": "conversation", "conversation": "goal"}


@dataclass(frozen=True)
class Source:
    """A frame and its origin: exactly one of query_id and blueprint_id is set.

    conversation: the task whose course siblings have; None for a task with one request. Its frame is that of its first goal with calls.
    """

    frame: Frame
    division: Division
    difficulty: int
    query_id: str | None
    blueprint_id: str | None
    conversation: Task | None = None

    @classmethod
    def of(cls, task: Task) -> Source:
        frame = Frame(world=task.world, intent=task.intent, slots=task.slots)
        conversation = without_context(task) if task.conversation is not None else None
        return cls(frame, task.division, task.difficulty, task.query_id, task.blueprint_id, conversation)

    def __hash__(self) -> int:
        return hash((self.frame.id, self.division, self.query_id, self.blueprint_id))

    @property
    def kind(self) -> str:
        return "query" if self.query_id else "goal" if self.conversation is None else "conversation"


def sources(store: Store, *, worlds: Sequence[str], max_difficulty: int) -> list[Source]:
    """Frames of admitted tasks in these worlds up to a difficulty, in a fixed order; a frame of both origins counts as a query's.

    Left out are tasks of requests that a person dropped by hand, or reads otherwise. A held-out frame is left out if a seed or probe frame,
    of any difficulty, has the same need.
    The siblings that the cascade adds to the store are left out: their slots differ from those of their frame, or they have a context. So
    the result does not depend on the progress of a cascade.
    """
    rows = store.query(
        f"""SELECT frame_id, world, intent, json_extract(spec, '$.slots')::VARCHAR AS slots, division, difficulty, query_id, blueprint_id,
             CASE WHEN json_type(spec, '$.conversation') = 'OBJECT' THEN spec END AS conversation
           FROM tasks WHERE list_contains(?, world) AND coalesce(json_type(spec, '$.context'), 'NULL') = 'NULL'
             AND task_id NOT IN {WITHHELD_TASKS}
           ORDER BY frame_id, query_id NULLS LAST, blueprint_id, difficulty""",
        [list(worlds)],
    )
    by_frame: dict[str, Source] = {}
    needs_of: dict[str, set[str]] = {}
    not_held_out: set[str] = set()
    for frame_id, world, intent, slots, division, difficulty, query_id, blueprint_id, spec in rows.iter_rows():
        frame = Frame(world=world, intent=intent, slots=json.loads(slots))
        if spec is not None and conversation_frame(json.loads(spec)["conversation"]) != frame_id:
            continue  # a sibling, which needs what its origin does
        conversation = None if spec is None else Task.model_validate_json(spec)
        needs = {need(one) for one in ([frame] if conversation is None else goal_frames(conversation))}
        if division != "held_out":
            not_held_out |= needs
        is_own = conversation is not None or frame.id == frame_id
        if is_own and (query_id or blueprint_id) and difficulty <= max_difficulty:
            needs_of[frame_id] = needs
            by_frame.setdefault(frame_id, Source(frame, division, difficulty, query_id, blueprint_id, conversation))
    return [source for frame_id, source in by_frame.items() if source.division != "held_out" or not needs_of[frame_id] & not_held_out]


def check_tasks(store: Store, *, worlds: Sequence[str], max_difficulty: int) -> None:
    """Checks that the store has tasks in one of these worlds up to a difficulty.

    Raises BadInput: it has none; the message names the key of the configuration to change, or the command that makes tasks.
    """
    easiest = dict(store.query("SELECT world, min(difficulty) FROM tasks GROUP BY world ORDER BY world").iter_rows())
    if not easiest:
        kept = store.query("SELECT count(DISTINCT query_id) FROM verdicts WHERE kept").item()
        why = (
            f": no world executes its {kept:,} curated queries; synthesize conversations first"
            if kept
            else " yet: curate or synthesize first"
        )
        raise BadInput(f"{store.root} holds no tasks{why}")
    here = [difficulty for world, difficulty in easiest.items() if world in worlds]
    if not here:
        raise BadInput(
            f"train.worlds is {', '.join(worlds)}, but the tasks of {store.root} are in {', '.join(easiest)}: "
            "name these in train.worlds, or leave it out"
        )
    if min(here) > max_difficulty:
        raise BadInput(f"train.max_difficulty is {max_difficulty}, but the easiest task in {', '.join(worlds)} has {min(here)}: raise it")


def draw(
    pool: Sequence[Source],
    count: int,
    *,
    use: Use,
    language: Language,
    first_index: int = FIRST_INDEX,
    fewest: int | None = None,
    context: PolicyContext | None = None,
) -> list[Task]:
    """`count` distinct tasks from the kinds of sources in turn (`_TURNS`).

    fewest: smallest number of tasks that is accepted if the pool cannot give `count`; None: `count`.
    context: how the policy sees them; None: as they are. A process that measures several policies draws the same tasks for each: the latest
    draws are kept.

    Raises:
        HeadraceError: the pool gives too few.
    """
    worlds = tuple(WORLDS[name] for name in sorted({source.frame.world for source in pool}))
    return list(_draw(tuple(pool), worlds, count, use, language, first_index, count if fewest is None else fewest, context))


@lru_cache(maxsize=8)
def _draw(
    pool: tuple[Source, ...],
    _: tuple[type[World], ...],
    count: int,
    use: Use,
    language: Language,
    first_index: int,
    fewest: int,
    context: PolicyContext | None,
) -> tuple[Task, ...]:
    """See `draw`. The worlds are part of the key, because another world may be registered under the same name."""
    kinds = {kind: [source for source in pool if source.kind == kind] for kind in dict.fromkeys(_TURNS)}
    streams = {kind: _siblings(of_kind, use, language, first_index, context) for kind, of_kind in kinds.items() if of_kind}
    if not streams and fewest == 0:
        return ()
    if not streams:
        raise HeadraceError(f"no frame to draw {use} tasks from: curate more queries or synthesise more blueprints of the cascade's worlds")
    turns = [streams[kind] for kind in (each if each in streams else _STAND_IN.get(each) for each in _TURNS) if kind in streams]
    tasks: dict[str, Task] = {}
    for task in itertools.chain.from_iterable(itertools.zip_longest(*turns)):
        if task is not None:
            tasks.setdefault(task.id, task)
        if len(tasks) == count:
            break
    if len(tasks) >= fewest:
        return tuple(tasks.values())
    raise HeadraceError(
        f"only {len(tasks)} of {count} {use} tasks could be drawn from {len(pool)} frames; curate more queries or ask for fewer"
    )


def shown_hash(task: Task) -> str:
    """Hash of a task's opening, plan and answer, which a policy could memorise; it does not depend on the world's seed."""
    return content_id("shown", [message.to_openai() for message in task.messages], task.plan.model_dump(mode="json"))


def fresh(origin: Source, index: int, *, language: Language, use: Use, context: PolicyContext | None = None) -> Task:
    """Sibling `index` of a source for this use, with its division, query and blueprint; in the world's own language if it has no other,
    and in a context, if one is given.

    Raises:
        NotAdmitted: no seed gave a task, or the task is set aside for another use.
    """
    world = WORLDS[origin.frame.world]
    language = world.language_near(language)
    if origin.conversation is not None:
        task = conversation_sibling(world, origin.conversation, index, language=language, division=origin.division, use=use)
    else:
        task = sibling(
            world,
            origin.frame,
            index=index,
            language=language,
            division=origin.division,
            use=use,
            query_id=origin.query_id,
            blueprint_id=origin.blueprint_id,
        )
    if is_for_evaluation(task) not in (None, use != "train"):
        raise NotAdmitted("set_aside", "what it shows is kept for another use")
    return task if context is None else in_context(world, task, context)


def is_for_evaluation(task: Task) -> bool | None:
    """Whether a task that names no individual of its own choice is kept for evaluation, by a hash of what it shows; None if it names one.
    Individuals that the user points at in an answer are not chosen."""
    chained = [] if task.conversation is None else [goal["is_chained"] for goal in task.conversation["template"]]
    frames = [frame for at, frame in enumerate(goal_frames(task)) if not (chained and chained[at])]
    if any(individual_slots(frame) & set(frame.slots) for frame in frames):
        return None
    return int(shown_hash(task)[-8:], 16) % 4 == 3


def _siblings(pool: Sequence[Source], use: Use, language: Language, first_index: int, context: PolicyContext | None) -> Iterator[Task]:
    """Siblings of the pool's sources in turn, index by index; a source that fails `_MISSES` times in a row is dropped."""
    misses = [0] * len(pool)
    for index in itertools.count(first_index):
        alive = [position for position, missed in enumerate(misses) if missed < _MISSES]
        if not alive:
            return
        for position in alive:
            source = pool[position]
            try:
                task = fresh(source, index, language=language, use=use, context=context)
            except NotAdmitted:
                misses[position] += 1
                continue
            misses[position] = 0
            yield task
