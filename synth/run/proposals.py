"""One proposal of a round: a cell becomes a blueprint, an executed conversation, and perhaps a task, or a reason why not.

A proposal depends on nothing but its `Job`, so any process may work on it, beside any others.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import polars as pl

from storage.execution import Progress
from storage.records import Cost, Frame, Message, Outcome, Task, canonical_json, content_id
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import Band, Cell, mode_family
from synth.blueprints.draft import FrameFilter, PlanFailed
from synth.blueprints.planner import Planner
from synth.clusters.business_clusters import Cluster
from synth.engines.base import EngineFailure, is_dead, side_by_side
from synth.gc_paused import no_collection
from synth.roles.role_engines import RoleEngines
from synth.roles.simulate import Simulated
from synth.run.controller import Draw, Report
from synth.tasks.solver import NotAdmitted, admit
from synth.tasks.split import DivisionConfig, division
from synth.worlds import WORLDS

SCRIPTED = RoleEngines()
_ONE_AT_A_TIME = threading.Lock()
"""Scripted planners share their cookbooks, and are quick."""


@dataclass(frozen=True, slots=True)
class Job:
    """One proposal: everything that its outcome depends on.

    clusters: to be tried in this order. cell: None while calibrating.
    veiled_share: of steered conversations, those that are made harder to see through. tries: how often the cell's domain was asked for
    before: cookbooks of domains that are asked for more are thicker. code_share: of conversations, those that are to need `run_python`;
    None where it is not on offer. played_by: hash of who plays the roles and how, empty where all are scripted: the same plan, played by
    others, is a blueprint of its own. factors: by world and intent, how many times as likely its recipes are; 1 where it is not here."""

    key: str
    clusters: tuple[Cluster, ...]
    cell: Cell | None
    failures: int
    bands: Bands | None
    chinese_share: float
    divisions: DivisionConfig
    veiled_share: float = 0.0
    tries: int = 0
    else_families: tuple[str, ...] = ()
    used_modes: Mapping[str, int] = field(default_factory=dict)
    code_share: float | None = None
    played_by: str = ""
    factors: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a job: nothing but a reason, or an executed conversation and, for one goal in one go, its task."""

    job: Job
    cluster: Cluster
    blueprint: Blueprint | None = None
    simulated: Simulated | None = None
    task: Task | None = None
    reason: str = ""
    planning: Cost = field(default_factory=Cost)
    """What the blueprint took, or the attempt at it."""

    @property
    def is_held_against_nobody(self) -> bool:
        """Whether it says nothing of the cell that was asked for: an engine, a tool, the user or the judge failed."""
        return self.reason == Outcome.INFRA_FAILURE if self.simulated is None else not self.simulated.trajectory.outcome.is_rated

    @property
    def accepted(self) -> bool:
        return self.simulated is not None and self.simulated.accepted

    @property
    def outcome(self) -> str:
        """That of the conversation, or why there is none."""
        return self.reason if self.simulated is None else self.simulated.trajectory.outcome.value

    @property
    def cost(self) -> Cost:
        return self.planning if self.simulated is None else self.simulated.trajectory.cost

    @property
    def status(self) -> str:
        """As stored of its blueprint."""
        if self.blueprint is None:
            return "unplanned"
        return "calibration" if self.job.cell is None else "accepted" if self.accepted else "rejected"

    @property
    def id(self) -> str:
        return self.blueprint.id if self.blueprint is not None else content_id("blueprint", "unplanned", self.job.key, *_salt(self.job))


def propose(jobs: Sequence[Job]) -> list[Made]:
    """Plans, simulates and judges some proposals, all roles scripted.

    Garbage is not collected meanwhile: hardly anything here refers to itself, and what would be looked through, again and again, are the
    worlds and cookbooks that stay."""
    with no_collection():
        return [make_proposal(job) for job in jobs]


def held(jobs: Sequence[Job], cast: RoleEngines, label: str, progress: Progress) -> list[Made]:
    """Proposals in which models play, side by side, in their order.

    Raises:
        BudgetSpent: nothing more may be asked. EngineFailure: so many got no answer that an engine is gone.
    """
    proposals = side_by_side(lambda job: make_proposal(job, cast), jobs, cast.config.in_flight, label, progress)
    unanswered = [one for one in proposals if one.outcome == Outcome.INFRA_FAILURE]
    if is_dead(len(unanswered), len(proposals)):
        why = next((one.simulated.failure for one in unanswered if one.simulated is not None), "no plan was answered")
        raise EngineFailure(
            f"{len(unanswered)} of {len(proposals)} conversations of {label} got no answer ({why}); nothing of it is stored"
        )
    return proposals


@lru_cache(maxsize=64)
def _is_seed(divisions: DivisionConfig) -> FrameFilter:
    """Whether frames are to be trained on: one function for one way of dividing, so that planners can remember what it said."""
    return lambda frame_id: division(frame_id, divisions) == "seed"


def make_proposal(job: Job, cast: RoleEngines = SCRIPTED) -> Made:
    """Plans, simulates and judges one proposal; many threads may do so at once.

    Raises:
        BudgetSpent: nothing more may be asked of an engine.
    """
    rng = random.Random(job.key)
    planner = Planner(
        _is_seed(job.divisions), job.chinese_share, job.bands, job.veiled_share, job.tries, job.used_modes, job.code_share, job.factors
    )
    model = cast.plans(planner)
    try:
        if job.cell is None:
            cluster, blueprint = job.clusters[0], planner.draw_unsteered(job.clusters[0], rng)
        elif model is not None:
            cluster, blueprint = model.propose(job.cell, job.clusters, job.failures, rng)
        else:
            with _ONE_AT_A_TIME:
                cluster, blueprint = planner.propose(job.cell, job.clusters, job.failures, rng, job.else_families)
    except (PlanFailed, EngineFailure) as failed:
        reason = failed.reason if isinstance(failed, PlanFailed) else Outcome.INFRA_FAILURE.value
        return Made(job, job.clusters[0], reason=reason, planning=Cost() if model is None else model.cost)
    if job.played_by:
        blueprint = blueprint.model_copy(update={"id": content_id("blueprint", blueprint.id, *_salt(job))})
    planning = Cost() if model is None else model.cost
    simulated = cast.simulate(blueprint)
    simulated = simulated.with_cost(planning) if planning != Cost() else simulated
    task = single_task(blueprint, simulated) if simulated.accepted and job.cell is not None else None
    return Made(job, cluster, blueprint, simulated, task, simulated.reason, planning)


def _salt(job: Job) -> tuple[str, ...]:
    return (job.played_by,) if job.played_by else ()


def single_task(blueprint: Blueprint, simulated: Simulated) -> Task | None:
    """The task of a conversation that has one goal and no disturbance, opened as the conversation was up to its first call; None if it
    is not of that kind, or is not admitted."""
    goal = blueprint.goals[0]
    is_plain = len(blueprint.goals) == 1 and not blueprint.perturbations and not any(node.is_check for node in blueprint.nodes)
    asks_first = any(turn.is_question and turn.steps for turn in blueprint.turns)
    if not is_plain or asks_first:
        return None
    opening = _opening(simulated.trajectory.messages)
    try:
        return admit(
            WORLDS[blueprint.world],
            Frame(world=blueprint.world, intent=goal.intent, slots=goal.slots),
            text="\n".join(message.content or "" for message in opening if message.role == "user"),
            language=blueprint.language,
            seed=blueprint.world_seed,
            division="seed",
            blueprint_id=blueprint.id,
            messages=opening,
            offers_code=blueprint.code_tool,
        )
    except NotAdmitted:
        return None


def _opening(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Everything up to the last user message."""
    last = max(index for index, message in enumerate(messages) if message.role == "user")
    return tuple(messages[: last + 1])


def report(proposal: Made, bands: Bands) -> Report | None:
    """What the controller is to be told; None where it is nothing."""
    assert proposal.job.cell is not None
    if proposal.is_held_against_nobody:
        return None
    if proposal.simulated is None or not proposal.accepted:
        return Report(proposal.job.cell, was_planned=proposal.blueprint is not None)
    profile = proposal.simulated.profile
    got = Cell(profile.domain, mode_family(profile.coarse), bands.band(profile.complexity))
    return Report(proposal.job.cell, profile.coarse, got)


def decision_rows(run: str, number: int, draws: Sequence[Draw], proposals: Sequence[Made], bands: Bands) -> pl.DataFrame:
    """Rows of table `decisions`: what was asked for and why (draws), and what came of it (made), proposal by proposal."""
    rows = []
    for position, (draw, one) in enumerate(zip(draws, proposals, strict=True)):
        outcome = report(one, bands)
        got = None if outcome is None else outcome.got
        rows.append(
            {
                "run": run,
                "round": number,
                "position": position,
                "blueprint_id": one.id,
                "cluster_id": one.cluster.id,
                "domain": draw.cell.domain,
                "mode_family": draw.cell.family,
                "complexity_band": draw.cell.band,
                "domain_bits": round(draw.domain_bits, 6),
                "family_bits": round(draw.family_bits, 6),
                "band_deficit": round(draw.band_deficit, 6),
                "feasibility": round(draw.feasibility, 6),
                "measured_on": draw.measured_on,
                "probability": round(draw.probability, 9),
                "operators": [] if one.blueprint is None else list(one.blueprint.operators),
                "status": one.status,
                "reason": one.reason or None,
                "got_domain": None if got is None else got.domain,
                "got_mode_family": None if got is None else got.family,
                "got_complexity_band": None if got is None else got.band,
                "focus": round(draw.focus, 6),
            }
        )
    return pl.DataFrame(rows, schema=TABLES["decisions"].columns)


def blueprint_rows(number: int, proposals: Sequence[Made]) -> pl.DataFrame:
    """Rows of table `blueprints`. Domain, family and band are those of the cell that was asked for, or the blueprint's own."""
    rows = []
    for one in proposals:
        cell, blueprint = one.job.cell, one.blueprint
        band: Band | None = None if cell is None else cell.band
        rows.append(
            {
                "blueprint_id": one.id,
                "cluster_id": one.cluster.id,
                "world": one.cluster.world,
                "world_seed": None if blueprint is None else blueprint.world_seed,
                "domain": cell.domain if cell is not None else blueprint.domain if blueprint is not None else None,
                "mode_family": cell.family if cell is not None else blueprint.family if blueprint is not None else None,
                "complexity_band": band,
                "round": number,
                "status": one.status,
                "reason": one.reason or None,
                "spec": None if blueprint is None else canonical_json(blueprint.model_dump(mode="json")),
            }
        )
    return pl.DataFrame(rows, schema=TABLES["blueprints"].columns)
