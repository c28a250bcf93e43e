"""The jobs of a round: what the controller draws, or the planned blueprints that cover most per token."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from storage.execution import Executor
from storage.records import CODE_TOOL, content_id
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import BANDS, Cell
from synth.blueprints.token_coverage import Coverage, features
from synth.clusters.business_clusters import Cluster
from synth.run.evolution.candidates import Candidate, Choice, PlanSettings, candidate_jobs, choose, plan_candidates
from synth.run.evolution.controller import Controller, Draw
from synth.run.evolution.failure_targeting import Focus, factors, order_clusters
from synth.run.proposals import JOBS_A_BATCH, Job
from synth.run.run_state import RunState
from synth.run.setup import SynthesisSetup

_CLUSTERS_TRIED = 3


class RoundJobs:
    """Makes the jobs of each round of a run.

    coverage: of the features of the conversations accepted so far; empty if the objective is rarity.
    factors: (world, intent) -> how many times as often its frames are drawn; 1 for those that are missing.
    """

    def __init__(self, setup: SynthesisSetup, state: RunState, focus: Focus | None, played_by: str, executor: Executor | None) -> None:
        """played_by: hash of the settings of models; empty if all roles are scripted."""
        self.setup, self.config, self.state, self.focus, self.executor = setup, setup.config, state, focus, executor
        self.played_by, self.coverage = played_by, Coverage()
        weight, sources = self.config.evolution.focus_weight, self.config.source_weights
        self.factors = factors(focus.by_intent(), weight) if focus is not None else {}
        self._own_draws = (
            *((focus.id,) if focus is not None else ()),
            *((content_id("weights", sources.model_dump(mode="json")),) if sources is not None else ()),
        )
        """Part of the key of every draw: what makes them others than those of another run with the same seed."""

    def of_round(self, number: int, most: int, controller: Controller, bands: Bands) -> tuple[Sequence[Draw | Choice], list[Job]]:
        """The controller's draws for a round, or what covers most, and the job of each; at most so many."""
        if self.config.evolution.objective == "coverage":
            chosen, jobs = self._covering_jobs(number, most, bands)
            if jobs:  # else all candidates were drawn before: the cells of the controller may have others
                return chosen, jobs
        draws, jobs = controller.draw_round(random.Random(content_id("round", self.config.seed, number)), most), []
        code_shares = self._code_shares([draw.cell for draw in draws])
        use, used_modes = self.state.cluster_use.copy(), controller.used_modes.copy()
        for index, draw in enumerate(draws):
            clusters = order_clusters(self.setup.by_domain[draw.cell.domain], draw.cell.domain, use, self.factors)
            use[clusters[0].id] += 1
            jobs.append(
                replace(
                    self.job(number, index, clusters[:_CLUSTERS_TRIED], draw.cell, bands),
                    failures=controller.failures(draw.cell),
                    tries=controller.tries(draw.cell.domain),
                    veiled_share=self.config.veiled_share,
                    else_families=draw.else_families,
                    used_modes=used_modes,
                    code_share=code_shares[index],
                    factors=self.factors,
                )
            )
        return draws, jobs

    def _covering_jobs(self, number: int, most: int, bands: Bands) -> tuple[list[Choice], list[Job]]:
        """The blueprints that cover most per token, of several planned for each; and why each was chosen."""
        config, per_proposal = self.config, self.config.evolution.candidates_per_proposal
        jobs = candidate_jobs(
            self.setup.by_domain,
            self.setup.domain_weights,
            most * per_proposal,
            (config.seed, number, *self._own_draws),
            PlanSettings(bands, config.chinese_share, config.veiled_share, self.setup.code_share, self.setup.divisions),
        )
        run = self.executor.map if self.executor is not None else map
        batches = run(plan_candidates, [jobs[start : start + JOBS_A_BATCH] for start in range(0, len(jobs), JOBS_A_BATCH)])
        planned = {one.blueprint.id: one for batch in batches for one in batch if one is not None}
        fresh = [one for id, one in planned.items() if id not in self.state.blueprints]
        chosen = choose(fresh, Coverage(counts=self.coverage.counts), most, bands, self._wanted(bands))
        return chosen, [
            replace(self.job(number, at, [one.candidate.cluster], one.cell, bands), planned=one.candidate.blueprint)
            for at, one in enumerate(chosen)
        ]

    def _wanted(self, bands: Bands) -> Callable[[Candidate], float]:
        """How many times as often a candidate is wanted: by the weight of its world and source, and the focus on its domain, on its mode
        family in its band, and on the most urgent of its intents."""
        weights, sources, focus = self.config.world_weights, self.config.source_weights, self.config.evolution.focus_weight
        of_domain = factors(self.focus.by_domain(), focus) if self.focus is not None else {}
        of_mode = factors(self.focus.by_mode(bands), focus) if self.focus is not None else {}

        def wanted(one: Candidate) -> float:
            blueprint = one.blueprint
            cell = bands.cell(blueprint.domain, blueprint.mode_coarse, blueprint.complexity)
            intents = [self.factors.get((blueprint.world, goal.intent), 1.0) for goal in blueprint.goals]
            labels = {"world": blueprint.world, "cluster": one.cluster.id, "mode": cell.family}
            of_source = sources.weight(labels[sources.by]) if sources is not None and sources.by in labels else 1.0
            urgency = of_domain.get(cell.domain, 1.0) * of_mode.get((cell.family, cell.band), 1.0) * max(intents, default=1.0)
            return weights.get(blueprint.world, 1.0) * of_source * urgency

        return wanted

    def cover(self, accepted: Iterable[Blueprint | None]) -> None:
        """Counts the features of accepted conversations."""
        if self.config.evolution.objective == "coverage":
            for blueprint in accepted:
                assert blueprint is not None
                self.coverage.add(features(blueprint))

    def job(self, round_: int | str, index: int, clusters: Sequence[Cluster], cell: Cell | None, bands: Bands | None) -> Job:
        steered_by = self._own_draws if cell is not None else ()
        return Job(
            key=content_id("proposal", self.config.seed, round_, index, *steered_by),
            clusters=tuple(clusters),
            cell=cell,
            failures=0,
            bands=bands,
            chinese_share=self.config.chinese_share,
            divisions=self.setup.divisions,
            code_share=self.setup.code_share,
            played_by=self.played_by if cell is not None else "",
        )

    def _code_shares(self, cells: Sequence[Cell]) -> list[float | None]:
        """The code share of each proposal of a round: 0 or 1, so that conversations in code domains reach their target share.

        Cells of high complexity come first: a program hardly fits into a lower band."""
        if self.setup.code_share is None:
            return [None] * len(cells)
        accepted = [profile for profile in self.state.profiles if profile.domain in self.setup.code_domains]
        candidates = [at for at, cell in enumerate(cells) if cell.domain in self.setup.code_domains]
        deficit = self.setup.code_share * (len(accepted) + len(candidates)) - sum(CODE_TOOL in profile.tools for profile in accepted)
        candidates.sort(key=lambda at: -BANDS.index(cells[at].band))
        with_code = set(candidates[: max(0, round(deficit))])
        return [float(at in with_code) for at in range(len(cells))]
