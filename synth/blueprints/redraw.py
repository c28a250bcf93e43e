"""Draws a blueprint again: the same course of a conversation in a world of another seed.

A sibling has the goals, the values that name no individual, the disturbances and the cues of its origin, and other individuals: it relates
to its origin as the sibling of a frame to the frame (`synth/tasks/solver.py`). A counterpart has other values too, from frames that are
given to it. Both are worded anew, in short plain words, without distractors and noise.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from storage.records import JSON, Language, content_id, frame_id
from synth.blueprints.blueprint import Blueprint, static_checks
from synth.blueprints.draft import Draft, FrameFilter, Offer, PlanFailed
from synth.blueprints.phrases import entities_of
from synth.blueprints.schedule import ConversationTemplate, GoalTemplate
from synth.clusters.business_clusters import Cluster
from synth.tasks.solver import Use, are_evaluation_slots, world_seeds
from synth.worlds.base import World

SEEDS = 12
"""World seeds that are tried for one blueprint."""
_PLAIN_PERSONA = "terse"


def redraw(
    world: type[World], blueprint: Blueprint, *, key: str, index: int, language: Language, use: Use, is_allowed: FrameFilter | None = None
) -> Blueprint:
    """Sibling `index` of a blueprint, or its counterpart.

    Args:
        world: the blueprint's.
        key: id of what it asks for. The draw depends on key, index, language and use alone, so every blueprint of one key gives the same.
        is_allowed: the frames of a counterpart; None for a sibling.
        use: `train` takes training seeds and individuals; other uses take only those that are set aside. What the user points at in an
            answer is not chosen, and may be of either kind in an evaluation.

    Raises:
        PlanFailed: no seed gave one.
    """
    rng = random.Random(content_id("redraw", key, index, language, use))
    failure = PlanFailed("no_entities_left", "all that were drawn are kept for another use")
    for seed in world_seeds(key, index, use, SEEDS):
        try:
            return _draft(world, blueprint, seed, language, use, is_allowed, rng)
        except PlanFailed as failed:
            failure = failed
    raise failure


def _draft(
    world: type[World],
    blueprint: Blueprint,
    seed: int,
    language: Language,
    use: Use,
    is_allowed: FrameFilter | None,
    rng: random.Random,
) -> Blueprint:
    cluster = Cluster(
        id=blueprint.cluster_id,
        domain=blueprint.domain,
        world=world.name,
        tool_ids=tuple(f"{world.name}.{tool}" for tool in blueprint.tools),
        edges=(),
        rank=0,
    )
    entities = {goal.intent: entities_of(world, goal.intent) for goal in blueprint.goals}

    def is_usable(goal: GoalTemplate, slots: Mapping[str, JSON]) -> bool:
        if is_allowed is not None and not is_allowed(frame_id(world.name, goal.intent, slots)):
            return False
        names_any = bool(entities[goal.intent] & slots.keys())
        if use != "train" and (goal.is_chained or not names_any):
            return True
        return are_evaluation_slots(goal.intent, slots, entities[goal.intent]) == (use != "train")

    draft = Draft(
        ConversationTemplate(world, blueprint.template, blueprint.is_parallel, blueprint.operators),
        Offer(cluster, has_code=blueprint.code_tool),
        frozenset(),
        language,
        is_usable,
        rng,
        base_slots=[goal.slots for goal in blueprint.goals] if is_allowed is None else (),
        seed=seed,
        persona=_PLAIN_PERSONA,
    )
    drawn = draft.write()
    tools = {tool.name: tool for tool in world.tools if tool.name in drawn.tools}
    if problems := static_checks(drawn, tools):
        raise PlanFailed("static_checks", "; ".join(problems))
    return drawn
