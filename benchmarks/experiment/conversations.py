"""Conversations of the experiments: drawn, executed and read as a policy reads them, and pools of them.

A pool is a list of accepted conversations in the order in which they were drawn, in one file that is whole or absent, so that a killed
benchmark draws none twice. The teacher is scripted, the same in every pool. Refusals for a rule's sake are left out everywhere: a policy of
this size cannot compare a sum or a date with a rule that it reads.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.experiment.prompts import prompted, shown_tools
from benchmarks.worlds_sections.evolution import clusters_by_domain
from storage.files import replace_atomically
from storage.records import Message, RefusalReason
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster
from synth.roles.simulate import Simulated, simulate
from synth.run.evolution.candidates import EVOLVED_SHARE
from synth.run.evolution.controller import Controller, Report
from synth.tasks.split import is_in_division
from synth.worlds.base import World

PoolName = Literal["random", "even", "evolved", "controller"]
ZIPF_EXPONENT = 1.0
"""Of the shares of domains in pool `random`."""
SEED_FRAMES = is_in_division("seed")
_CALIBRATION = 300
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Conversation:
    """An accepted conversation. messages: with the prompt of `prompts.py`."""

    blueprint: Blueprint
    messages: tuple[Message, ...]


def executed(blueprint: Blueprint) -> Simulated | None:
    """The simulated conversation of a blueprint, if it is accepted and refuses nothing for a rule's sake."""
    if any(goal.refusal is RefusalReason.RULE for goal in blueprint.goals):
        return None
    simulated = simulate(blueprint)
    return simulated if simulated.accepted else None


def as_prompted(blueprint: Blueprint, simulated: Simulated) -> Conversation:
    tools = shown_tools(blueprint.world, [node.tool for node in blueprint.nodes], blueprint.tools, blueprint.id)
    return Conversation(blueprint, prompted(simulated.trajectory.messages, tools))


def make_pool(name: PoolName, worlds: Sequence[type[World]], size: int, seed: int, folder: Path) -> list[Conversation]:
    """The first `size` conversations of a pool, drawn now unless the folder has them."""
    path = folder / f"{name}-{seed}-{size}-{_VERSION}.pickle"
    if not path.exists():
        source = _controller(worlds, seed) if name == "controller" else _unsteered(name, worlds, seed)
        pool = [conversation for conversation, _ in zip(source, range(size), strict=False)]
        folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(path, lambda draft: draft.write_bytes(pickle.dumps(pool)) and None)
    found: list[Conversation] = pickle.loads(path.read_bytes())
    return found


def _unsteered(name: PoolName, worlds: Sequence[type[World]], seed: int) -> Iterator[Conversation]:
    """Conversations as the planner draws them. `random`: shares of domains by Zipf's law, in an order drawn by the seed; `even`: equal;
    `evolved`: equal, and half of the templates are changed by an operator, as the candidates of coverage are."""
    rng = random.Random(f"{name}/{seed}")
    by_domain = clusters_by_domain([world.name for world in worlds])
    domains = rng.sample(sorted(by_domain), len(by_domain))
    weights = [rank**-ZIPF_EXPONENT if name == "random" else 1.0 for rank in range(1, len(domains) + 1)]
    draw = drawer(SEED_FRAMES, rng, evolved_share=EVOLVED_SHARE if name == "evolved" else 0.0)
    while True:
        (domain,) = rng.choices(domains, weights)
        drawn = draw(rng.choice(by_domain[domain]), domain)
        if drawn is not None:
            yield drawn


def drawer(is_allowed: Callable[[str], bool], rng: random.Random, *, evolved_share: float = 0.0) -> Callable[..., Conversation | None]:
    """A function (cluster, domain, is_wanted) that draws one conversation, and executes it if its blueprint is wanted; None if it is
    not, or is not accepted."""
    planner = Planner(is_allowed, chinese_share=0.0)

    def draw(cluster: Cluster, domain: str, is_wanted: Callable[[Blueprint], bool] = lambda _: True) -> Conversation | None:
        try:
            blueprint = planner.draw_unsteered(cluster, rng, domain=domain, evolved_share=evolved_share)
        except PlanFailed:
            return None
        simulated = executed(blueprint) if is_wanted(blueprint) else None
        return None if simulated is None else as_prompted(blueprint, simulated)

    return draw


def _controller(worlds: Sequence[type[World]], seed: int) -> Iterator[Conversation]:
    """Conversations of cells that the rarity controller draws, round by round, as `synthesize` steers with `objective: rarity`."""
    rng = random.Random(f"controller/{seed}")
    by_domain = clusters_by_domain([world.name for world in worlds])
    domains = sorted(by_domain)
    draw = drawer(SEED_FRAMES, rng)
    calibration = [draw(rng.choice(by_domain[domain := rng.choice(domains)]), domain) for _ in range(_CALIBRATION)]
    low, high = np.quantile([one.blueprint.complexity for one in calibration if one is not None], [1 / 3, 2 / 3])
    bands, controller = Bands(float(low), float(high)), Controller(domains)
    while True:
        for drawn in controller.draw_round(rng, controller.config.proposals_per_round):
            planner = Planner(
                SEED_FRAMES,
                chinese_share=0.0,
                bands=bands,
                tries=controller.tries(drawn.cell.domain),
                used_modes=controller.used_modes.copy(),
            )
            clusters = rng.sample(by_domain[drawn.cell.domain], len(by_domain[drawn.cell.domain]))[:3]
            try:
                _, blueprint = planner.propose(drawn.cell, clusters, controller.failures(drawn.cell), rng, drawn.else_families)
            except PlanFailed:
                controller.record(Report(drawn.cell, was_planned=False))
                continue
            simulated = executed(blueprint)
            if simulated is None:
                controller.record(Report(drawn.cell))
                continue
            profile = simulated.profile
            controller.record(Report(drawn.cell, profile.coarse, bands.cell(profile.domain, profile.coarse, profile.complexity)))
            yield as_prompted(blueprint, simulated)
        controller.end_round()
