"""The held-out set: interactive conversations in domains that no arm and no setting has seen, in eight strata and three bands.

The user is simulated: it answers questions and goes on after an answer that passes; the end state, the facts and the refusals are verified
by code (`synth/conversations/conversation_judge.py`). A conversation belongs to one stratum alone: a plain act, a plain look-up, or one of
the six things that a plain request has not. The bands of a stratum are the terciles of complexity of the conversations drawn for it.

The primary figure, named before any arm ran: the mean over the eight strata of the success at temperature 0.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.experiment.conversations import executed
from benchmarks.experiment.prompts import prompted_task
from benchmarks.worlds_sections.evolution import clusters_by_domain
from storage.files import replace_atomically
from storage.records import Message, Outcome, RefusalReason, Task
from synth.blueprints.blueprint import Blueprint
from synth.blueprints.cell import BANDS, Band
from synth.blueprints.conversation_template import OPERATORS, IntentPool, draw_template, intent_pool
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.conversations.conversation_task import conversation_task
from synth.rollouts.draws import rollout
from synth.tasks.solver import NotAdmitted
from synth.tasks.split import is_in_division
from synth.worlds import WORLDS
from synth.worlds.base import World

Stratum = Literal["act", "look-up", "several goals", "ask", "refuse: missing information", "refuse: no tool", "repair", "parallel"]
STRATA: tuple[Stratum, ...] = get_args(Stratum)
EACH = 150
ANSWER_TOKENS = 64
_CANDIDATES = 3
"""Conversations that are drawn for a stratum, as a multiple of EACH; the bands are theirs."""
_REFUSALS: dict[Stratum, RefusalReason] = {
    "refuse: missing information": RefusalReason.MISSING_INFORMATION,
    "refuse: no tool": RefusalReason.MISSING_TOOL,
}
_MOST_TRIES = 40
_OPERATOR: dict[Stratum, str] = {"ask": "withhold", "repair": "inject_fault", "parallel": "merge_goals"}
"""Operators that are applied to the templates of a stratum."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A held-out conversation, its stratum and its band within the stratum."""

    task: Task
    stratum: Stratum
    band: Band


def stratum_of(blueprint: Blueprint) -> Stratum | None:
    """The stratum of a conversation; None if it belongs to none, or to several."""
    goals = [goal for goal in blueprint.goals if not goal.is_abandoned]
    if len(goals) < len(blueprint.goals) or any(turn.cues and turn.cues != ("together",) for turn in blueprint.turns):
        return None
    refusals = [goal.refusal for goal in goals if goal.refusal is not None]
    marks: list[Stratum] = []
    marks += ["several goals"] if len(goals) > 1 else []
    marks += ["ask"] if any(turn.withholds for turn in blueprint.turns) else []
    marks += ["refuse: missing information"] if RefusalReason.MISSING_INFORMATION in refusals else []
    marks += ["refuse: no tool"] if RefusalReason.MISSING_TOOL in refusals else []
    marks += ["repair"] if any(one.kind == "error" for one in blueprint.perturbations) else []
    marks += ["parallel"] if any(turn.cues for turn in blueprint.turns) else []
    if any(one.kind != "error" for one in blueprint.perturbations) or len(refusals) > sum(mark.startswith("refuse") for mark in marks):
        return None
    if set(marks) == {"several goals", "parallel"} and not refusals:
        return "parallel"
    if marks:
        return marks[0] if len(marks) == 1 else None
    return ("act" if goals[0].changes else "look-up") if blueprint.nodes else None


def held_out_set(
    worlds: Sequence[type[World]], folder: Path, each: int = EACH, division: Literal["held_out", "probe"] = "held_out"
) -> tuple[HeldOut, ...]:
    """`each` conversations of every stratum, a third in each band, evenly over the domains as far as they go.

    division: of their frames; `probe` for tasks that failures are looked for in, in the domains of training.

    Raises:
        RuntimeError: the domains do not give so many.
    """
    path = folder / f"{division.replace('_', '-')}-{each}-{_VERSION}.pickle"
    if not path.exists():
        drawn = [one for stratum in STRATA for one in _draw(stratum, worlds, each, division)]
        folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, lambda draft: draft.write_bytes(pickle.dumps(drawn)) and None)
    return tuple(pickle.loads(path.read_bytes()))


def _draw(stratum: Stratum, worlds: Sequence[type[World]], each: int, division: Literal["held_out", "probe"]) -> list[HeldOut]:
    rng = random.Random(f"{division.replace('_', '-')}/{stratum}")
    planner, by_domain = Planner(is_in_division(division), chinese_share=0.0), clusters_by_domain([world.name for world in worlds])
    domains = sorted(by_domain)
    found: dict[str, tuple[Blueprint, Task]] = {}
    for number in range(_CANDIDATES * each * _MOST_TRIES):
        if len(found) == _CANDIDATES * each:
            break
        domain = domains[number % len(domains)]
        cluster = rng.choice(by_domain[domain])
        offer = planner.offer(cluster)
        pool = intent_pool(offer.world, offer.tools)
        if stratum in _REFUSALS:
            refusing = [name for name in pool.by_domain.get(domain, ()) if offer.world.intents[name].refusal is _REFUSALS[stratum]]
            if not refusing:
                continue
            pool = IntentPool(offer.world, offer.tools, tuple(refusing))
        template = draw_template(pool, rng, domain=domain)
        if stratum in _OPERATOR:
            template = OPERATORS[_OPERATOR[stratum]](template, pool, rng) or template
        try:
            blueprint = planner.draft(replace(template, is_parallel=stratum == "parallel"), offer, rng)
            if stratum_of(blueprint) != stratum or executed(blueprint) is None:
                continue
            task = conversation_task(WORLDS[blueprint.world], blueprint, division=division, use="eval_out")
        except (PlanFailed, NotAdmitted):
            continue
        found.setdefault(f"{blueprint.world} {blueprint.turns[0].text}", (blueprint, prompted_task(task)))
    candidates = sorted(found.values(), key=lambda pair: (pair[0].complexity, pair[1].id))
    chosen = []
    for band, part in zip(BANDS, np.array_split(np.arange(len(candidates)), len(BANDS)), strict=True):
        if len(part) < each // len(BANDS):
            raise RuntimeError(f"only {len(candidates)} held-out conversations of stratum {stratum!r} were found")
        picked = sorted(rng.sample(part.tolist(), each // len(BANDS)))
        chosen += [HeldOut(candidates[at][1], stratum, band) for at in picked]
    return chosen


def measure(model: Any, tokenizer: Any, tasks: Sequence[HeldOut], *, temperature: float, seed: int = 0, draws: int = 1) -> list[bool]:
    """Whether the policy succeeds at each conversation; of several draws, those of a conversation are adjacent.

    Raises:
        RuntimeError: a conversation was not rated: it failed through no fault of the policy.
    """
    from synth.engines.local.hf import HFEngine

    engine = HFEngine(model, tokenizer, policy_version="experiment")
    rated = rollout(engine, [one.task for one in tasks], draws, temperature=temperature, max_tokens=ANSWER_TOKENS, seed=seed)
    if failed := [one for one in rated if not one.outcome.is_rated]:
        raise RuntimeError(
            f"{len(failed)} of {len(rated)} held-out conversations failed through no fault of the policy: {failed[0].failure}"
        )
    return [one.outcome is Outcome.SUCCESS for one in rated]


def expert_messages_of(one: HeldOut) -> tuple[Message, ...]:
    """The expert's conversation of a held-out task, as a policy would read it: for its loss, and for the vocabulary."""
    from synth.roles.scripted import ScriptedAssistant

    assert one.task.conversation is not None
    from synth.conversations.conversation_play import blueprint_of, run_conversation

    return run_conversation(WORLDS[one.task.world], one.task, ScriptedAssistant(blueprint_of(one.task)).act)[0]
