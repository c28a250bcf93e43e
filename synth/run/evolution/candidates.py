"""Candidates of coverage: blueprints that are planned for a round, and the choice of those that are executed.

Domains are drawn by their weights, templates as the planner draws them, and an operator changes half of the templates. Of the planned
blueprints, `token_coverage.py` chooses. Languages and conversations with a program keep their shares: each group of candidates gets as
many places as its share among the candidates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from storage.records import CODE_TOOL, content_id
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import Cell
from synth.blueprints.draft import PlanFailed
from synth.blueprints.planner import Planner
from synth.blueprints.token_coverage import Coverage, estimated_tokens, features
from synth.clusters.business_clusters import Cluster
from synth.gc_paused import pause_gc
from synth.tasks.split import DivisionConfig, is_in_division

EVOLVED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What all candidates of a round share; see `synth.run.proposals.Job`."""

    bands: Bands
    chinese_share: float
    veiled_share: float
    code_share: float | None
    divisions: DivisionConfig


@dataclass(frozen=True, slots=True)
class CandidateJob:
    """What a candidate depends on. key: seed of its draws. domain: of its first goal."""

    key: str
    cluster: Cluster
    domain: str
    settings: PlanSettings


@dataclass(frozen=True, slots=True)
class Candidate:
    cluster: Cluster
    blueprint: Blueprint


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen candidate. gain: what it adds to the worth of all features, without its factor. tokens: estimated."""

    candidate: Candidate
    gain: float
    tokens: int
    cell: Cell


def candidate_jobs(
    by_domain: Mapping[str, Sequence[Cluster]], weights: Mapping[str, float], count: int, key: Sequence[object], settings: PlanSettings
) -> list[CandidateJob]:
    """`count` jobs, in domains drawn by weight (1 where it is missing). key: seed of the draws."""
    rng = random.Random(content_id("candidates", *key))
    domains = sorted(by_domain)
    drawn = rng.choices(domains, [weights.get(domain, 1.0) for domain in domains], k=count)
    return [
        CandidateJob(content_id("candidate", *key, at), rng.choice(by_domain[domain]), domain, settings) for at, domain in enumerate(drawn)
    ]


def plan_candidates(jobs: Sequence[CandidateJob]) -> list[Candidate | None]:
    """Plans each candidate; None where no plan was found."""
    with pause_gc():
        return [_plan(job) for job in jobs]


def _plan(job: CandidateJob) -> Candidate | None:
    settings = job.settings
    planner = Planner(
        is_in_division("seed", settings.divisions),
        settings.chinese_share,
        bands=settings.bands,
        veiled_share=settings.veiled_share,
        code_share=settings.code_share,
    )
    try:
        blueprint = planner.draw_unsteered(job.cluster, random.Random(job.key), domain=job.domain, evolved_share=EVOLVED_SHARE)
    except PlanFailed:
        return None
    return Candidate(job.cluster, blueprint)


def choose(
    candidates: Sequence[Candidate],
    coverage: Coverage,
    count: int,
    bands: Bands,
    wanted: Callable[[Candidate], float] = lambda _: 1.0,
) -> list[Choice]:
    """The `count` candidates that add most per token; counts them in `coverage`.

    wanted: how many times as often conversations like a candidate are wanted.
    """
    groups: dict[tuple[str, bool], list[Candidate]] = {}
    for one in candidates:
        groups.setdefault((one.blueprint.language, any(node.tool == CODE_TOOL for node in one.blueprint.nodes)), []).append(one)
    chosen: list[Choice] = []
    for (_, group), places in zip(sorted(groups.items()), _places(groups, count), strict=True):
        offered = [(features(one.blueprint), estimated_tokens(one.blueprint)) for one in group]
        scale = [wanted(one) ** 0.5 for one in group]
        before = Coverage(coverage.weights, coverage.counts)
        for at in coverage.choose(offered, places, scale):
            covered, tokens = offered[at]
            blueprint = group[at].blueprint
            cell = bands.cell(blueprint.domain, blueprint.mode_coarse, blueprint.complexity)
            chosen.append(Choice(group[at], before.gain(covered), tokens, cell))
            before.add(covered)
    return chosen


def _places(groups: Mapping[tuple[str, bool], Sequence[Candidate]], count: int) -> list[int]:
    """How many of `count` each group gets, in the order of its key: by its share, remainders to the largest fractions."""
    total = sum(map(len, groups.values()))
    count = min(count, total)
    exact = [count * len(groups[key]) / total for key in sorted(groups)]
    places = [int(share) for share in exact]
    for at in sorted(range(len(exact)), key=lambda at: places[at] - exact[at])[: count - sum(places)]:
        places[at] += 1
    return places
