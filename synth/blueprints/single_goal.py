"""Drills: blueprints of one goal each, drawn evenly over a world's intents and over all divisions.

One idea: the controller steers towards long and varied conversations; a small policy learns from short and numerous ones. A drill is a
frame with a task; no conversation is simulated for it. So training has tasks besides the siblings of raw queries, and probing and
evaluation have frames of every intent. Drills do not count in the figures of diversity.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from storage.records import CODE_TOOL, Frame, Task, canonical_json, content_id
from storage.tables import TABLES
from synth.clusters.business_clusters import Cluster
from synth.tasks.solver import NotAdmitted, Use, admit_any, training_seed, world_seeds
from synth.tasks.split import STANDARD, DivisionConfig, division
from synth.tasks.wording import render
from synth.worlds.base import Intent, World

VERSION = 3
_OPTIONAL_SHARE = 0.35
_SEEDS = 24
_TRIES = 40


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill. cluster_id: the cluster whose tools it uses. domain: domain of its intent."""

    blueprint_id: str
    cluster_id: str | None
    domain: str
    task: Task


def draw_drills(
    world: type[World], count: int, clusters: Sequence[Cluster], divisions: DivisionConfig, *, seed: int, programs: bool = False
) -> list[Drill]:
    """`count` drills of a world with distinct frames, intents in turn; fewer if an intent has no more frames.

    Intents that are refusals or need no tool get a turn in four.
    programs: drills of the intents that need a program, and of no others; none where the world has no such intent.
    """
    rng = random.Random(content_id("drills", world.name, seed))
    intents = _intents(world, programs=programs)
    if not intents:
        return []
    acting = [intent for intent in intents if intent.refusal is None and not intent.needs_no_tool]
    others = [intent for intent in intents if intent not in acting]
    acting_turns, other_turns = itertools.cycle(acting), itertools.cycle(others)
    drills: dict[str, Drill] = {}
    for turn in range(count):
        intent = next(other_turns if others and turn % 4 == 3 else acting_turns)
        drill = _draw(world, intent, clusters, divisions, drills, rng)
        if drill is not None:
            drills[drill.task.frame_id] = drill
    return list(drills.values())


def has_programs(world: type[World]) -> bool:
    """Whether any intent of the world needs a program."""
    return bool(_intents(world, programs=True))


def _intents(world: type[World], *, programs: bool) -> list[Intent]:
    return [intent for intent in world.intents.values() if (CODE_TOOL in intent.shape(_required_slots(intent)).tools) is programs]


def _required_slots(intent: Intent) -> frozenset[str]:
    return frozenset(slot.name for slot in intent.slots if slot.is_required)


def _draw(
    world: type[World], intent: Intent, clusters: Sequence[Cluster], divisions: DivisionConfig, drills: dict[str, Drill], rng: random.Random
) -> Drill | None:
    for _ in range(_TRIES):
        frame = _draw_frame(world, intent, rng)
        if frame.id in drills:
            continue
        try:
            task = _admit(world, frame, divisions, rng)
        except NotAdmitted:
            continue
        return Drill(content_id("blueprint", "drill", frame.id), _cluster_of(task, clusters), intent.domain, task)
    return None


def why_not_drawn(world: type[World], intent: str, *, seed: int) -> str:
    """The most frequent reason why draws of an intent give no task; empty if one of them gave a task."""
    rng = random.Random(content_id("not drawn", world.name, intent, seed))
    reasons: Counter[str] = Counter()
    for _ in range(_TRIES):
        try:
            _admit(world, _draw_frame(world, world.intents[intent], rng), STANDARD, rng)
        except NotAdmitted as refused:
            reasons[refused.reason] += 1
            continue
        return ""
    return reasons.most_common(1)[0][0]


def _draw_frame(world: type[World], intent: Intent, rng: random.Random) -> Frame:
    names = frozenset(slot.name for slot in intent.slots if slot.is_required or rng.random() < _OPTIONAL_SHARE)
    slots = world(training_seed(rng.randrange(2**20))).draw_slots(intent.name, names, rng)
    return Frame(world=world.name, intent=intent.name, slots=slots)


def _admit(world: type[World], frame: Frame, divisions: DivisionConfig, rng: random.Random) -> Task:
    """The task of a frame. Raises NotAdmitted."""
    side = division(frame.id, divisions)
    use: Use = "eval_out" if side == "held_out" else "train"
    language = world.language_near("en")
    return admit_any(
        world,
        frame,
        text=render(world, frame, language, rng, canonical=True),
        language=language,
        seeds=world_seeds(frame.id, 0, use, _SEEDS),
        division=side,
        use=use,
        blueprint_id=content_id("blueprint", "drill", frame.id),
    )


def _cluster_of(task: Task, clusters: Sequence[Cluster]) -> str | None:
    """The first cluster of the task's world that holds all tools of its plan, else the first of its world."""
    tools = {call.tool for call in task.plan.calls}
    here = [cluster for cluster in clusters if cluster.world == task.world]
    fitting = [cluster for cluster in here if tools <= cluster.tool_names]
    return (fitting or here)[0].id if here else None


def drill_rows(drills: Sequence[Drill]) -> pl.DataFrame:
    """Rows of table `blueprints`; their round is null: they belong to no round of the controller."""
    columns = TABLES["blueprints"].columns
    rows = [
        dict.fromkeys(columns)
        | {
            "blueprint_id": drill.blueprint_id,
            "cluster_id": drill.cluster_id,
            "world": drill.task.world,
            "world_seed": drill.task.world_seed,
            "domain": drill.domain,
            "status": "accepted",
            "spec": canonical_json(
                {"goal": {"intent": drill.task.intent, "slots": drill.task.slots}, "plan": drill.task.plan.model_dump()}
            ),
        }
        for drill in drills
    ]
    return pl.DataFrame(rows, schema=columns)
