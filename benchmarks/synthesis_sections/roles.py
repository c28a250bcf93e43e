"""What simulated users and judges are worth, on one labelled split: good conversations and planted bad ones
(`synth/roles/judge_calibration.py`).

`judge_agreement`: how often the scripted judge says of a conversation what it is; `user_adherence`: share of the scripted user's turns
that keep to their script by the checks that every user is held to, so what it lacks of 1 is the checks' own false alarm. `*_vllm`: the
same of a real vLLM server with the tiny model of the tests, which was never taught to judge or to talk: with answers forced into the
schema a judge is a coin, and without words of its own a user keeps to no script. Both figures say that the whole way works, and nothing
about any real model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.harness import Deadline, Figures, Section
from benchmarks.synthesis_sections.vllm_server import WORK, tiny

if TYPE_CHECKING:
    from synth.blueprints.blueprint import Blueprint

WORLDS = ("retail", "city", "library", "banking", "hotel")
BLUEPRINTS = 400
BY_VLLM = 100
"""Blueprints, of which half give a good and half a bad conversation."""
MAX_MODEL_LEN = 16_384


def sections() -> list[Section]:
    return [
        Section("roles: scripted", ("judge_agreement", "user_adherence"), measure_scripted, minutes=3),
        Section("roles: vllm", ("judge_agreement_vllm", "user_adherence_vllm"), measure_vllm, minutes=6),
    ]


def measure_scripted(_: Deadline) -> Figures:
    from storage.records import Message
    from synth.roles.judge_calibration import agreement, label_conversations
    from synth.roles.user_script import script_of, script_problems

    blueprints = _drawn(BLUEPRINTS)
    split = label_conversations(blueprints)
    found = agreement(split, [one.simulated.grades for one in split])
    print(f"    judge: {found.agreed} of {found.labelled}, kappa {found.kappa:.2f}; passed {dict(found.missed)}", flush=True)
    turns = kept = 0
    for blueprint in blueprints:
        script, dialogue = script_of(blueprint), list[Message]()
        for turn, plan in enumerate(blueprint.turns):
            kept += not script_problems(script, turn, plan.text, dialogue)
            turns += 1
            dialogue += [Message(role="user", content=plan.text), Message(role="assistant", content=plan.reply)]
    print(f"    user: {kept} of {turns} turns", flush=True)
    return {"judge_agreement": found.rate, "user_adherence": kept / turns}


def measure_vllm(_: Deadline) -> Figures:
    from synth.engines.vllm import vllm_engine
    from synth.roles.judge_calibration import agreement, label_conversations
    from synth.roles.role_engines import RoleEngines, RolesConfig

    blueprints = _drawn(BY_VLLM)
    split = label_conversations(blueprints)
    with vllm_engine(tiny(MAX_MODEL_LEN), WORK / "roles.log") as engine, ThreadPoolExecutor(16) as threads:
        judge = RoleEngines(RolesConfig(judge=engine.name), judge=engine)
        found = agreement(split, list(threads.map(judge.grade, split)))
        user = RoleEngines(RolesConfig(user=engine.name), user=engine)
        played = list(threads.map(user.simulate, blueprints))
    turns, kept = (sum(one.user_turns[at] for one in played) for at in (0, 1))
    print(f"    judge: {found.agreed} of {found.labelled}, kappa {found.kappa:.2f}; user: {kept} of {turns} turns", flush=True)
    return {"judge_agreement_vllm": found.rate, "user_adherence_vllm": kept / turns}


def _drawn(count: int) -> Sequence[Blueprint]:
    from synth.blueprints.draft import PlanFailed
    from synth.blueprints.planner import Planner
    from synth.clusters.business_clusters import cluster_tools
    from synth.worlds import WORLDS as KNOWN

    clusters = {world: cluster_tools(KNOWN[world].tools) for world in WORLDS}
    found: list[Blueprint] = []
    for index in range(10 * count):
        rng = random.Random(f"labelled {index}")
        try:
            found.append(Planner(lambda _: True).draw_unsteered(rng.choice(clusters[WORLDS[index % len(WORLDS)]]), rng))
        except PlanFailed:
            continue
        if len(found) == count:
            break
    return found
