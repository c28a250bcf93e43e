"""Proposals of a round: a cell becomes a blueprint, an executed conversation, and perhaps a task, or a reason why not.

A proposal depends on its `Job` alone, so processes can work on proposals in parallel.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import polars as pl

from storage.execution import Progress
from storage.records import Cost, Division, Frame, Message, Outcome, Task, canonical_json, content_id
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import Cell
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.blueprints.redraw import redraw
from synth.clusters.business_clusters import Cluster
from synth.conversations.conversation_task import conversation_task
from synth.engines.base import EngineFailure, has_failed, side_by_side
from synth.gc_paused import pause_gc
from synth.roles.role_engines import RoleEngines
from synth.roles.simulate import Simulated
from synth.run.evolution.candidates import Choice
from synth.run.evolution.controller import Draw, Report
from synth.run.outcomes import Example, conversation_example, unplanned_example
from synth.tasks.solver import NotAdmitted, Use, admit
from synth.tasks.split import DivisionConfig, is_in_division
from synth.worlds import WORLDS

SCRIPTED = RoleEngines()
REPEATED = "repeated"
"""Reason of a proposal whose blueprint was drawn before."""
_COUNTERPARTS: tuple[tuple[Division, Use], ...] = (("probe", "train"), ("held_out", "eval_out"))
_PLANNER_LOCK = threading.Lock()
"""Scripted planners share their template libraries, and are quick."""


JOBS_A_BATCH = 10
"""Jobs that an executor gets at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a proposal depends on.

    key: seed of its random draws.
    clusters: tried in this order.
    cell: the requested cell; None for calibration.
    failures: number of earlier proposals that missed the cell.
    bands: complexity bands; None for calibration.
    chinese_share: share of conversations in Chinese.
    veiled_share: share of steered conversations that are made harder.
    tries: number of earlier proposals in the cell's domain; template libraries grow with it.
    else_families, used_modes: see `Planner`.
    code_share: share of conversations that should need `run_python`; None if it is not offered.
    played_by: hash of the model roles' settings, part of the blueprint's id; empty if all roles are scripted.
    factors: (world, intent) -> weight of the intent's templates; 1 for intents that are missing.
    planned: the blueprint, if it is already chosen; a planner that is a model plans for its cell instead.
    """

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
    planned: Blueprint | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of a job: an executed conversation, or the reason why there is none.

    task: the conversation's task, if it is accepted and the task is admitted.
    counterparts: tasks of the same course in the other divisions, which are probed and evaluated.
    reason: why it was not accepted; empty if it was.
    planning: cost of the blueprint, or of the attempt.
    failure: message of the engine that could not plan it; empty if it could.
    """

    job: Job
    cluster: Cluster
    blueprint: Blueprint | None = None
    simulated: Simulated | None = None
    task: Task | None = None
    counterparts: tuple[Task, ...] = ()
    reason: str = ""
    planning: Cost = field(default_factory=Cost)
    failure: str = ""

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (*([self.task] if self.task is not None else []), *self.counterparts)

    @property
    def is_rated(self) -> bool:
        """Whether it counts for the requested cell: not if an engine, a tool, the user or the judge failed."""
        return self.reason != Outcome.INFRA_FAILURE if self.simulated is None else self.simulated.trajectory.outcome.is_rated

    @property
    def accepted(self) -> bool:
        return self.simulated is not None and self.simulated.accepted

    @property
    def outcome(self) -> str:
        """The outcome of the conversation, or the reason why there is none."""
        return self.reason if self.simulated is None else self.simulated.trajectory.outcome.value

    @property
    def cost(self) -> Cost:
        return self.planning if self.simulated is None else self.simulated.trajectory.cost

    @property
    def status(self) -> str:
        """As stored in table `blueprints`."""
        if self.blueprint is None:
            return "unplanned"
        return "calibration" if self.job.cell is None else "accepted" if self.accepted else "rejected"

    @property
    def example(self) -> Example:
        """This proposal as an example of its reason; it must be of a requested cell."""
        if self.simulated is not None:
            return conversation_example(self.simulated.trajectory.id, self.simulated.trajectory.messages, self.simulated.failure)
        assert self.job.cell is not None
        return unplanned_example(self.id, self.job.cell.domain, self.job.cell.family, self.job.cell.band)

    @property
    def id(self) -> str:
        return self.blueprint.id if self.blueprint is not None else content_id("blueprint", "unplanned", self.job.key, *_salt(self.job))


def propose(jobs: Sequence[Job]) -> list[Proposal]:
    """Plans, simulates and judges proposals with scripted roles.

    Garbage collection is off: there are hardly any reference cycles here, and it would scan all worlds and template libraries again and
    again."""
    with pause_gc():
        return [make_proposal(job) for job in jobs]


def propose_with_models(
    jobs: Sequence[Job], engines: RoleEngines, label: str, progress: Progress, finished: list[Proposal]
) -> list[Proposal]:
    """Plans, simulates and judges proposals with language models, in threads; results in the order of the jobs.

    finished: gets each proposal when it has ended, before `progress` is called.

    Raises:
        BudgetSpent: the budget is used up.
        EngineUnusable: an engine will answer nothing more. EngineFailure: half of the conversations got no answer.
    """

    def work(job: Job) -> Proposal:
        proposal = make_proposal(job, engines)
        finished.append(proposal)
        return proposal

    proposals = side_by_side(work, jobs, engines.config.in_flight, label, progress)
    unanswered = [one for one in proposals if one.outcome == Outcome.INFRA_FAILURE]
    if has_failed(len(unanswered), len(proposals)):
        why = unanswered[0].failure if unanswered[0].simulated is None else unanswered[0].simulated.failure
        raise EngineFailure(f"{len(unanswered)} of {len(proposals)} conversations of {label} got no answer ({why}); none of them is stored")
    return proposals


def without_repeats(proposals: Sequence[Proposal], known: Set[str]) -> list[Proposal]:
    """The proposals, in order; one whose blueprint was drawn before counts as a proposal without a plan. A small world has few blueprints.

    known: ids of earlier blueprints.
    """
    seen = set(known)
    distinct: list[Proposal] = []
    for one in proposals:
        is_repeat = one.blueprint is not None and one.blueprint.id in seen
        distinct.append(Proposal(one.job, one.cluster, reason=REPEATED, planning=one.cost) if is_repeat else one)
        seen.add(one.id)
    return distinct


def make_proposal(job: Job, engines: RoleEngines = SCRIPTED) -> Proposal:
    """Plans, simulates and judges one proposal. Thread-safe. Raises BudgetSpent, EngineUnusable."""
    rng = random.Random(job.key)
    planner = Planner(
        is_in_division("seed", job.divisions),
        job.chinese_share,
        job.bands,
        job.veiled_share,
        job.tries,
        job.used_modes,
        job.code_share,
        job.factors,
    )
    model = engines.plans(planner)
    try:
        if job.cell is None:
            cluster, blueprint = job.clusters[0], planner.draw_unsteered(job.clusters[0], rng)
        elif job.planned is not None and model is None:
            cluster, blueprint = job.clusters[0], job.planned
        elif model is not None:
            cluster, blueprint = model.propose(job.cell, job.clusters, job.failures, rng)
        else:
            with _PLANNER_LOCK:
                cluster, blueprint = planner.propose(job.cell, job.clusters, job.failures, rng, job.else_families)
    except (PlanFailed, EngineFailure) as failed:
        reason, failure = (failed.reason, "") if isinstance(failed, PlanFailed) else (Outcome.INFRA_FAILURE.value, str(failed))
        return Proposal(job, job.clusters[0], reason=reason, planning=Cost() if model is None else model.cost, failure=failure)
    if job.played_by:
        blueprint = blueprint.model_copy(update={"id": content_id("blueprint", blueprint.id, *_salt(job))})
    planning = Cost() if model is None else model.cost
    simulated = engines.simulate(blueprint)
    simulated = simulated.with_cost(planning) if planning != Cost() else simulated
    task, counterparts = None, tuple[Task, ...]()
    if simulated.accepted and job.cell is not None:
        if is_plain(blueprint):
            task = single_task(blueprint, simulated)
        else:
            task, counterparts = conversation_tasks(blueprint, job.divisions)
    return Proposal(job, cluster, blueprint, simulated, task, counterparts, simulated.reason, planning)


def _salt(job: Job) -> tuple[str, ...]:
    return (job.played_by,) if job.played_by else ()


def conversation_tasks(blueprint: Blueprint, divisions: DivisionConfig) -> tuple[Task | None, tuple[Task, ...]]:
    """The task of a conversation, and those of its counterparts in the divisions `probe` and `held_out`; each only if it is admitted."""
    world = WORLDS[blueprint.world]
    try:
        task = conversation_task(world, blueprint, division="seed")
    except NotAdmitted:
        return None, ()
    counterparts: list[Task] = []
    for side, use in _COUNTERPARTS:
        try:
            frames = is_in_division(side, divisions)
            drawn = redraw(world, blueprint, key=blueprint.id, index=0, language=blueprint.language, use=use, is_allowed=frames)
            counterparts.append(conversation_task(world, drawn, division=side, use=use, blueprint_id=blueprint.id))
        except (PlanFailed, NotAdmitted):
            continue
    return task, tuple(counterparts)


def is_plain(blueprint: Blueprint) -> bool:
    """Whether a conversation has one goal and nothing happens around it, so that its task needs no simulated user."""
    is_disturbed = blueprint.perturbations or any(turn.cues for turn in blueprint.turns) or any(node.is_check for node in blueprint.nodes)
    return len(blueprint.goals) == 1 and not is_disturbed


def single_task(blueprint: Blueprint, simulated: Simulated) -> Task | None:
    """The task of a plain conversation, which opens like the conversation up to its first call; None if it is not admitted."""
    goal = blueprint.goals[0]
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


def report(proposal: Proposal, bands: Bands) -> Report | None:
    """The report on a proposal for the controller; None if the proposal is not rated."""
    assert proposal.job.cell is not None
    if not proposal.is_rated:
        return None
    if proposal.simulated is None or not proposal.accepted:
        return Report(proposal.job.cell, was_planned=proposal.blueprint is not None)
    profile = proposal.simulated.profile
    return Report(proposal.job.cell, profile.coarse, bands.cell(profile.domain, profile.coarse, profile.complexity))


def decision_rows(run: str, number: int, draws: Sequence[Draw | Choice], proposals: Sequence[Proposal], bands: Bands) -> pl.DataFrame:
    """Rows of table `decisions`: for each proposal the drawn or chosen cell, why, and the result. The columns of the other way are null."""
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
                **dict.fromkeys(_WHY),
                **_why(draw),
                "operators": [] if one.blueprint is None else list(one.blueprint.operators),
                "status": one.status,
                "reason": one.reason or None,
                "got_domain": None if got is None else got.domain,
                "got_mode_family": None if got is None else got.family,
                "got_complexity_band": None if got is None else got.band,
            }
        )
    return pl.DataFrame(rows, schema=TABLES["decisions"].columns)


_WHY = ("domain_bits", "family_bits", "band_deficit", "feasibility", "measured_on", "probability", "focus", "gain", "tokens")


def _why(draw: Draw | Choice) -> dict[str, float | str]:
    """The terms of a draw by rarity, or of a choice by coverage."""
    if isinstance(draw, Choice):
        return {"gain": round(draw.gain, 6), "tokens": draw.tokens}
    return {
        "domain_bits": round(draw.domain_bits, 6),
        "family_bits": round(draw.family_bits, 6),
        "band_deficit": round(draw.band_deficit, 6),
        "feasibility": round(draw.feasibility, 6),
        "measured_on": draw.measured_on,
        "probability": round(draw.probability, 9),
        "focus": round(draw.focus, 6),
    }


def blueprint_rows(number: int, proposals: Sequence[Proposal]) -> pl.DataFrame:
    """Rows of table `blueprints`. Domain, family and band are those of the requested cell; without one, those of the blueprint."""
    rows = []
    for one in proposals:
        cell, blueprint = one.job.cell, one.blueprint
        rows.append(
            {
                "blueprint_id": one.id,
                "cluster_id": one.cluster.id,
                "world": one.cluster.world,
                "world_seed": None if blueprint is None else blueprint.world_seed,
                "domain": cell.domain if cell is not None else blueprint.domain if blueprint is not None else None,
                "mode_family": cell.family if cell is not None else blueprint.family if blueprint is not None else None,
                "complexity_band": None if cell is None else cell.band,
                "round": number,
                "status": one.status,
                "reason": one.reason or None,
                "spec": None if blueprint is None else canonical_json(blueprint.model_dump(mode="json")),
            }
        )
    return pl.DataFrame(rows, schema=TABLES["blueprints"].columns)
