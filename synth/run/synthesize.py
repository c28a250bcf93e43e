"""Synthesis as a whole: tools -> clusters -> cells -> blueprints -> executed, accepted trajectories, in rounds.

First 300 or so unsteered conversations set the complexity bands (and stand beside the figures as the control); they count as nothing.
Then every round the controller draws its cells, each cell becomes at most one conversation, and what was accepted moves the controller. A
round is a set of store parts whose ids follow from the rounds before: a killed run finds the rounds that are there, reads the
controller's state back from their rows, and goes on. The proposals of a round do not depend on each other, so an executor may work on
them side by side, and the outcome is the same.

Conversations use frames of the seed division only, in training worlds and with training individuals: nothing here can leak into an
evaluation. Drills (`single_goal.py`) are single tasks of all divisions, held-out ones in worlds that are set aside.

Where language models play roles (`roles/cast.py`), calibration is scripted all the same; the conversations of a round are held side by
side, and what was answered is in the store before it is used, so a run that was killed, or stopped by its budget, pays for nothing twice.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.errors import HeadraceError
from storage.execution import Executor, Progress
from storage.record_rows import tasks_frame
from storage.records import CODE_TOOL, Cost, content_id
from storage.store import Store
from storage.tables import TABLES
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import BANDS, Cell
from synth.blueprints.diversity import Figure, Profile, figures
from synth.clusters.business_clusters import Cluster
from synth.engines.budget import BudgetSpent
from synth.roles.judge_calibration import ASKED, Agreement, label_conversations
from synth.roles.role_engines import RoleEngines, open_role_engines, provenance_frame
from synth.roles.simulate import simulated_frame
from synth.run.config import SynthesisConfig
from synth.run.controller import Controller, Draw
from synth.run.failure_targeting import controller_of, factors, focus_of, in_turn
from synth.run.proposals import Job, Made, blueprint_rows, decision_rows, held, propose, report
from synth.run.result import Preview, SynthesisResult
from synth.run.run_state import SoFar, vectors_of
from synth.run.setup import SynthesisSetup
from synth.tasks.split import STANDARD, DivisionConfig

CALIBRATION = -1
"""The round number under which calibration is stored."""
_BATCH = 10
_COMMIT_ROUNDS = 5
_CLUSTERS_TRIED = 3


def synthesize(
    store: Store,
    config: SynthesisConfig,
    *,
    divisions: DivisionConfig = STANDARD,
    progress: Progress | None = None,
    executor: Executor | None = None,
    cast: RoleEngines | None = None,
) -> SynthesisResult:
    """Runs synthesis, or what is left of it, and commits it. Where the budget is spent it ends early, and says so in its notes.

    Args:
        divisions: those of the funnel, or evaluation tasks leak.
        progress: told how many trajectories are accepted of those wanted.
        executor: works on the proposals of a round, where all roles are scripted; one after another in this thread by default.
        cast: who plays the roles; None: the engines that `config.roles` names are opened.

    Raises:
        BadInput: the catalogue of tools cannot be used, one of its tools is called like another of a world, an engine does not serve, or
            there are no failures to focus on (`evolution.focus_weight`).
        HeadraceError: the tools form no cluster in which a conversation could be planned, calibration yielded next to nothing, or an engine
            stopped answering.
    """
    tell = progress or (lambda label, done, total: None)
    if cast is not None:
        return _Run(store, config, divisions, tell, executor, cast).result()
    with open_role_engines(config.roles, store, store.root.parent / "logs") as engines:
        return _Run(store, config, divisions, tell, executor, engines).result()


def preview(
    store: Store,
    config: SynthesisConfig,
    *,
    divisions: DivisionConfig = STANDARD,
    proposals: int = 20,
    progress: Progress | None = None,
    cast: RoleEngines | None = None,
) -> Preview:
    """Runs the first proposals of a run, for what they cost, and commits nothing but the answers, which the run then has for nothing.

    What measuring the judge takes is not in it.

    Raises:
        BudgetSpent: before the preview was over. HeadraceError: no world executes any of the tools. All else as `synthesize`.
    """
    tell = progress or (lambda label, done, total: None)
    if cast is not None:
        return _Run(store, config, divisions, tell, None, cast).preview(proposals)
    with open_role_engines(config.roles, store, store.root.parent / "logs") as engines:
        return _Run(store, config, divisions, tell, None, engines).preview(proposals)


# ---- the run --------------------------------------------------------------------------------------------------------


class _Run:
    def __init__(
        self,
        store: Store,
        config: SynthesisConfig,
        divisions: DivisionConfig,
        progress: Progress,
        executor: Executor | None,
        cast: RoleEngines,
    ) -> None:
        self.store, self.config, self.progress, self.executor, self.cast = store, config, progress, executor, cast
        self.ground = SynthesisSetup(store, config, divisions)
        self.ledger, self.notes = self.ground.ledger, self.ground.notes
        self.focus = focus_of(store, config) if config.evolution.focus_weight else None
        self.factors = factors(self.focus.by_intent(), config.evolution.focus_weight) if self.focus is not None else {}
        """How many times as often an intent's frames are to be taken, by world and intent; 1 for those that are not here."""
        self.steered = self.ground.parameters | ({"roles": roles} if (roles := config.roles.identity()) else {})
        self.steered |= {"focus": self.focus.id} if self.focus is not None else {}
        """The parameters of what models and failures have a part in; calibration and drills are those of a scripted run."""
        self.played_by = content_id("roles", self.steered["roles"]) if "roles" in self.steered else ""
        self.run = content_id("synthesis", self.steered, self.ground.versions)
        self.so_far = SoFar()
        cast.begin(self.run)

    def result(self) -> SynthesisResult:
        self.ledger.keep(None if self.focus is None else self.focus.write(self.store))
        self.ground.lay()
        try:
            number, unsteered = self._rounds()
        finally:
            self._commit()
        return SynthesisResult(
            run=self.run,
            parts=tuple(sorted(part.part_id for part in self.ledger.parts)),
            rounds=number,
            accepted=len(self.so_far.profiles),
            proposals=self.so_far.proposals,
            tasks=self.so_far.tasks,
            rejected=dict(self.so_far.rejected.most_common()),
            figures=tuple(self._figures(self.so_far.profiles, self.so_far.all_vectors())) if self.so_far.profiles else (),
            unsteered=unsteered,
            alarms=tuple(self.so_far.alarms),
            notes=(*self.notes, *self._stopped_short()),
        )

    def _rounds(self) -> tuple[int, tuple[Figure, ...]]:
        """How many rounds there are when it is over, and the figures of unsteered conversations.

        Where the budget is spent before that, they are what there was by then."""
        calibration = self._round_ids(CALIBRATION, self.ledger.parts[-1].part_id)
        domains = sorted(self.ground.by_domain)
        bands, unsteered = self._calibrate(calibration)
        controller = controller_of(domains, self.config.evolution, self.focus, bands)
        number, previous = 0, calibration["blueprints"]
        try:
            self.cast = replace(self.cast, judge_agreement=self._judge_measured(calibration["blueprints"]))
            while not self._is_over(controller):
                previous = self._round(number, previous, controller, bands)
                number += 1
                if number % (_COMMIT_ROUNDS if self.cast.is_scripted else 1) == 0:
                    self._commit()
        except BudgetSpent as spent:
            self.notes += (f"stopped in round {number}: {spent}; what was answered is kept, and is not paid for again",)
        return number, unsteered

    def preview(self, proposals: int) -> Preview:
        self.ground.lay()
        domains = sorted(self.ground.by_domain)
        bands, _ = self._calibrate(self._round_ids(CALIBRATION, self.ledger.parts[-1].part_id))
        controller = controller_of(domains, self.config.evolution, self.focus, bands)
        try:
            rated = self._work(self._jobs(0, controller, bands)[1][:proposals], "preview")
        finally:
            if self.cast.answers is not None:
                self.cast.answers.commit()
        accepted, cost = sum(one.accepted for one in rated), sum((one.cost for one in rated), Cost())
        limit = self.config.max_proposals
        expected = min(limit, math.ceil(self.config.accepted * len(rated) / accepted)) if accepted else limit
        return Preview(
            proposals=len(rated),
            accepted=accepted,
            outcomes=Counter(one.outcome for one in rated),
            cost=cost,
            expected_proposals=expected,
            expected_cost=cost.times(expected / len(rated)),
        )

    def _is_over(self, controller: Controller) -> bool:
        enough = len(self.so_far.profiles) >= self.config.accepted or self.so_far.proposals >= self.config.max_proposals
        return enough or controller.is_done()

    def _stopped_short(self) -> list[str]:
        """Why fewer trajectories were accepted than wanted, if so, and what to do."""
        got, target = len(self.so_far.profiles), self.config.accepted
        if got >= target:
            return []
        if self.cast.budget is not None and self.cast.budget.is_spent:
            return [f"{got:,} of {target:,} accepted when the budget was spent"]
        if self.so_far.proposals >= self.config.max_proposals:
            return [f"stopped at {got:,} of {target:,} accepted: all {self.config.max_proposals:,} proposals are used up (max_proposals)"]
        rounds = self.config.evolution.stop_idle_rounds
        return [
            f"stopped at {got:,} of {target:,} accepted: the last rounds ({rounds}) brought nothing new; more worlds would, or raise "
            "evolution.stop_idle_rounds for more of the same"
        ]

    # ---- calibration ------------------------------------------------------------------------------------------------------

    def _calibrate(self, ids: Mapping[str, str]) -> tuple[Bands, tuple[Figure, ...]]:
        """The complexity bands, and the figures of unsteered conversations."""
        there = {table: self.store.find(part) for table, part in ids.items()}
        if all(there.values()):
            self.ledger.keep(*there.values())
            rows = self.ledger.read(there["diversity"])
            stored = tuple(Figure(row["metric"], row["value"], row["sd"], row["n"]) for row in rows.to_dicts())
            if rows["run"][0] != self.run:  # another run's, who plays the roles apart: this one stands on the same figures
                part_id = self.ledger.id("diversity", [ids["diversity"]], {"run": self.run})
                self.ledger.kept("diversity", part_id, lambda: self._diversity_rows(CALIBRATION, stored))
        else:
            stored = self._make_calibration(ids)
        by_name = {figure.metric: figure.value for figure in stored}
        return Bands(by_name["complexity_low_to"], by_name["complexity_high_from"]), stored

    def _make_calibration(self, ids: Mapping[str, str]) -> tuple[Figure, ...]:
        rng = random.Random(content_id("calibration", self.config.seed))
        jobs = [self._job("calibration", index, [rng.choice(self.ground.clusters)], None, None) for index in range(self.config.calibration)]
        accepted = [one for one in self._work(jobs, "calibrating") if one.accepted]
        if len(accepted) < self.config.calibration / 3:
            raise HeadraceError(
                f"only {len(accepted)} of {self.config.calibration} calibration conversations passed; the worlds do not fit together"
            )
        profiles = [one.simulated.profile for one in accepted if one.simulated is not None]
        low, high = np.quantile([profile.complexity for profile in profiles], [1 / 3, 2 / 3])
        measures = self._figures(profiles, vectors_of(accepted))
        measures += [
            Figure("complexity_low_to", round(float(low), 6), None, len(accepted)),
            Figure("complexity_high_from", round(float(high), 6), None, len(accepted)),
        ]
        self._write_round(CALIBRATION, ids, accepted, None, measures)
        return tuple(measures)

    def _judge_measured(self, calibration: str) -> Agreement | None:
        """What the judge's verdicts are worth, if it is a model: measured on labelled conversations of calibration's blueprints."""
        judge = self.cast.judge
        if judge is None:
            return None
        part_id = self.ledger.id("diversity", [calibration], {"judge": self.run})

        def measure_judge() -> pl.DataFrame:
            count = self.config.roles.judge_labelled
            specs = self.ledger.read(self.store.find(calibration))["spec"].drop_nulls()[:count]
            split = label_conversations([Blueprint.model_validate_json(spec) for spec in specs])
            return self._diversity_rows(CALIBRATION, self.cast.judge_figures(split, self.progress))

        part = self.ledger.kept("diversity", part_id, measure_judge)
        stored = [Figure(row["metric"], row["value"], row["sd"], row["n"]) for row in self.ledger.read(part).to_dicts()]
        return Agreement.of({figure.metric: figure for figure in stored}, ASKED)

    # ---- rounds -------------------------------------------------------------------------------------------------------------

    def _round(self, number: int, previous: str, controller: Controller, bands: Bands) -> str:
        """One round, made or read back; returns the part id that the next round builds on."""
        ids = self._round_ids(number, previous)
        there = {table: self.store.find(part) for table, part in ids.items()}
        if all(there.values()):
            self.ledger.keep(*there.values())
            rows = {table: self.ledger.read(there[table]) for table in ("blueprints", "trajectories", "tasks")}
            for outcome in self.so_far.add_stored(**rows):
                controller.record(outcome)
        else:
            self._make_round(number, ids, controller, bands)
        controller.end_round()
        self.so_far.alarms += [f"round {number}: {alarm}" for alarm in controller.alarms()]
        self.progress("synthesize", min(len(self.so_far.profiles), self.config.accepted), self.config.accepted)
        return ids["blueprints"]

    def _make_round(self, number: int, ids: Mapping[str, str], controller: Controller, bands: Bands) -> None:
        draws, jobs = self._jobs(number, controller, bands)
        proposals = self._trim_round(self._work(jobs, f"round {number}"))
        for one in proposals:
            outcome = report(one, bands)
            if outcome is not None:
                controller.record(outcome)
        self.so_far.add(proposals)
        measures = self._figures(self.so_far.profiles, self.so_far.all_vectors()) if self.so_far.profiles else []
        shares = controller.band_shares()
        measures += [Figure(f"band_share_{band}", round(shares[band], 6), None, len(self.so_far.profiles)) for band in BANDS]
        rated = self.so_far.proposals - self.so_far.unrated
        measures += [Figure("accepted_share", round(len(self.so_far.profiles) / rated, 6), None, rated)] if rated else []
        measures += self._adherence(proposals)
        self._write_round(
            number, ids, proposals, bands, measures, decision_rows(self.run, number, draws[: len(proposals)], proposals, bands)
        )

    def _jobs(self, number: int, controller: Controller, bands: Bands) -> tuple[list[Draw], list[Job]]:
        """What a round asks for."""
        rng = random.Random(content_id("round", self.config.seed, number))
        planned = self.config.evolution.proposals_per_round
        draws = controller.draw_round(rng, min(planned, self.config.max_proposals - self.so_far.proposals))
        code_shares = self._owed_code([draw.cell for draw in draws])
        jobs, use, used_modes = [], self.so_far.cluster_use.copy(), controller.used_modes.copy()
        for index, draw in enumerate(draws):
            clusters = in_turn(self.ground.by_domain[draw.cell.domain], draw.cell.domain, use, self.factors)
            use[clusters[0].id] += 1
            jobs.append(
                replace(
                    self._job(number, index, clusters[:_CLUSTERS_TRIED], draw.cell, bands),
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

    def _adherence(self, proposals: Sequence[Made]) -> list[Figure]:
        """How often a user that is a model kept to its script at once, in this round."""
        if self.cast.user is None:
            return []
        turns, adhered = (sum(one.simulated.user_turns[at] for one in proposals if one.simulated is not None) for at in (0, 1))
        return [Figure("user_adherence", round(adhered / turns, 6), None, turns)] if turns else []

    def _owed_code(self, cells: Sequence[Cell]) -> list[float | None]:
        """The code share of each of a round's proposals: all, or nothing. So many are to need a program that the share of all that could
        comes to what is wanted, those of high complexity first: a program hardly fits into a lower band."""
        if self.ground.code_share is None:
            return [None] * len(cells)
        done = [profile for profile in self.so_far.profiles if profile.domain in self.ground.coding]
        able = [at for at, cell in enumerate(cells) if cell.domain in self.ground.coding]
        lacking = self.ground.code_share * (len(done) + len(able)) - sum(CODE_TOOL in profile.tools for profile in done)
        able.sort(key=lambda at: -BANDS.index(cells[at].band))
        with_code = set(able[: max(0, round(lacking))])
        return [float(at in with_code) for at in range(len(cells))]

    def _trim_round(self, proposals: Sequence[Made]) -> list[Made]:
        """A round up to the acceptance that reaches the target; the proposals after it are as if never made."""
        room, out = self.config.accepted - len(self.so_far.profiles), []
        for one in proposals:
            if room == 0:
                break
            out.append(one)
            room -= one.accepted
        return out

    # ---- work, rows, parts ----------------------------------------------------------------------------------------------------

    def _job(self, round_: int | str, index: int, clusters: Sequence[Cluster], cell: Cell | None, bands: Bands | None) -> Job:
        steered_by = (self.focus.id,) if self.focus is not None and cell is not None else ()
        key = content_id("proposal", self.config.seed, round_, index, *steered_by)
        about = (self.config.chinese_share, self.ground.divisions)
        by = self.played_by if cell is not None else ""
        return Job(key, tuple(clusters), cell, 0, bands, *about, code_share=self.ground.code_share, played_by=by)

    def _work(self, jobs: Sequence[Job], label: str) -> list[Made]:
        if label != "calibrating" and not self.cast.is_scripted:
            return held(jobs, self.cast, label, self.progress)
        batches = [jobs[start : start + _BATCH] for start in range(0, len(jobs), _BATCH)]
        run = self.executor.map if self.executor is not None else map
        proposals: list[Made] = []
        for batch in run(propose, batches):
            proposals += batch
            self.progress(label, len(proposals), len(jobs))
        return proposals

    def _figures(self, profiles: Sequence[Profile], vectors: NDArray[np.float32]) -> list[Figure]:
        measure_judge = figures(
            profiles,
            domains=tuple(sorted(self.ground.by_domain)),
            universe=[(tool.world or tool.server, tool.name) for tool in self.ground.tools],
            vectors=vectors,
            size=self.config.subsample,
            seed=self.config.seed,
        )
        return [Figure(f.metric, round(f.value, 6), None if f.sd is None else round(f.sd, 6), f.n) for f in measure_judge]

    def _write_round(
        self,
        number: int,
        ids: Mapping[str, str],
        proposals: Sequence[Made],
        bands: Bands | None,
        measures: Sequence[Figure],
        decisions: pl.DataFrame | None = None,
    ) -> None:
        done = [(one.blueprint, one.simulated, one.task) for one in proposals if one.blueprint is not None and one.simulated is not None]
        frames = {
            "blueprints": blueprint_rows(number, proposals),
            "trajectories": simulated_frame(done, bands),
            "tasks": tasks_frame([one.task for one in proposals if one.task is not None]),
            "diversity": self._diversity_rows(number, measures),
        }
        if decisions is not None:
            frames["decisions"] = decisions
        if "provenance" in ids:
            frames["provenance"] = provenance_frame([simulated for _, simulated, _ in done], self.cast)
        self.ledger.keep(*(self.store.write(table, ids[table], frames[table]) for table in ids))

    def _diversity_rows(self, number: int, measures: Sequence[Figure]) -> pl.DataFrame:
        rows = [{"run": self.run, "round": number, "metric": f.metric, "value": f.value, "sd": f.sd, "n": f.n} for f in measures]
        return pl.DataFrame(rows, schema=TABLES["diversity"].columns)

    def _round_ids(self, number: int, previous: str) -> dict[str, str]:
        """Ids of the parts of a round; nothing is decided in calibration."""
        parameters = {"config": self.ground.parameters if number == CALIBRATION else self.steered, "round": number}
        tables = ("trajectories", "tasks", "diversity", "blueprints", *(() if number == CALIBRATION else ("decisions",)))
        tables += ("provenance",) if number != CALIBRATION and "roles" in self.steered else ()
        return {table: self.ledger.id(table, [previous], parameters) for table in tables}

    def _commit(self) -> None:
        if self.cast.answers is not None:
            self.cast.answers.commit()
        self.ledger.commit()
