"""A synthesis run: tools -> clusters -> cells -> blueprints -> executed, accepted trajectories, in rounds.

Calibration comes first: some 300 unsteered conversations set the complexity bands and serve as the control of the figures. Then, in each
round, several blueprints are planned for each conversation, and those that add most per token are executed (`candidates.py`); or, with
`evolution.objective: rarity`, the controller draws cells, each for at most one conversation. A round is a set of store parts whose ids
follow from the round before. A run that was killed reads the stored rounds, rebuilds the state from their rows, and continues. The
proposals of a round are independent, so an executor can work on them in parallel with the same result.

Conversations use frames of the seed division, training worlds and training individuals only, so nothing leaks into an evaluation. An
accepted one gives a task, and its course, with other frames, one each for probing and for evaluation. Drills (`single_goal.py`) are single
tasks of all divisions; held-out tasks are in worlds that are set aside.

If language models play roles (`role_engines.py`), calibration is scripted all the same. Answers are stored before they are used, so a run
that was killed, or stopped by its budget, pays for no answer twice.

A run in vain is not paid for in silence: it warns after 20 proposals, and stops after `patience` proposals in a row without an accepted
conversation. Its last round is cut to end there, so a repeated call stops at the same proposal.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import polars as pl

from storage.errors import HeadraceError
from storage.execution import Executor, Progress, subtask
from storage.records import Cost, content_id
from storage.store import Store
from synth.blueprints.blueprint import Bands, Blueprint
from synth.blueprints.cell import BANDS
from synth.blueprints.diversity import Figure
from synth.engines.base import EngineUnusable
from synth.engines.budget import BudgetSpent
from synth.roles.judge_calibration import ASKED, Agreement, label_conversations
from synth.roles.role_engines import RoleEngines, open_role_engines
from synth.run.config import SynthesisConfig
from synth.run.evolution.candidates import Choice
from synth.run.evolution.controller import Controller, Draw
from synth.run.evolution.failure_targeting import build_controller, focus_of
from synth.run.evolution.round_jobs import RoundJobs
from synth.run.outcomes import reason_in_words, reason_key
from synth.run.patience import Patience
from synth.run.proposals import (
    JOBS_A_BATCH,
    REPEATED,
    Job,
    Proposal,
    decision_rows,
    propose,
    propose_with_models,
    report,
    without_repeats,
)
from synth.run.result import Preview, SynthesisResult
from synth.run.round_parts import CALIBRATION, RoundParts
from synth.run.run_state import RunState, vectors_of
from synth.run.setup import SynthesisSetup
from synth.tasks.split import STANDARD, DivisionConfig

_COMMIT_ROUNDS = 5
"""Rounds per commit, if all roles are scripted."""


def synthesize(
    store: Store,
    config: SynthesisConfig,
    *,
    divisions: DivisionConfig = STANDARD,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda text: None,
    executor: Executor | None = None,
    engines: RoleEngines | None = None,
) -> SynthesisResult:
    """Starts or continues a run, and commits it. If the budget is spent, the run ends early, with a note.

    Args:
        divisions: those of the funnel; with others, evaluation tasks would leak.
        progress: gets the numbers of accepted and of requested trajectories.
        warn: gets a line as soon as 20 proposals have given no accepted conversation.
        executor: works on the proposals of a round if all roles are scripted; None: this thread.
        engines: of the roles; None: the engines that `config.roles` names are opened.

    Raises:
        BadInput: the catalogue of tools cannot be used, one of its tools has the name of another tool of its world, an engine does not
            serve, or there are no failures to focus on (`evolution.focus_weight`).
        HeadraceError: the tools form no cluster in which a conversation could be planned, too few calibration conversations passed, an
            engine stopped answering, or `config.patience` is over. Complete rounds stay in the store.
    """
    with _open(config, store, engines) as opened:
        return _Run(store, config, divisions, progress, warn, opened, executor).result()


def preview(
    store: Store,
    config: SynthesisConfig,
    *,
    divisions: DivisionConfig = STANDARD,
    proposals: int = 20,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda text: None,
    engines: RoleEngines | None = None,
) -> Preview:
    """Works on the first proposals of a run, to learn their cost. Commits only the answers of engines, so that the run need not pay again.

    The cost of measuring the judge is not included.

    Raises:
        BudgetSpent: the budget was spent before the end of the preview.
        BadInput, HeadraceError: as `synthesize`.
    """
    with _open(config, store, engines) as opened:
        return _Run(store, config, divisions, progress, warn, opened).preview(proposals)


def _open(config: SynthesisConfig, store: Store, engines: RoleEngines | None) -> AbstractContextManager[RoleEngines]:
    return nullcontext(engines) if engines is not None else open_role_engines(config.roles, store, store.root.parent / "logs")


class _Run:
    """A run.

    steered: parameters of steered rounds: the setup's, the patience, the settings of models, and the focus.
    """

    def __init__(
        self,
        store: Store,
        config: SynthesisConfig,
        divisions: DivisionConfig,
        progress: Progress | None,
        warn: Callable[[str], None],
        engines: RoleEngines,
        executor: Executor | None = None,
    ) -> None:
        self.store, self.config, self.executor, self.engines = store, config, executor, engines
        self.progress: Progress = progress or (lambda label, done, total: None)
        self.setup = SynthesisSetup(store, config, divisions)
        self.writer, self.notes = self.setup.writer, self.setup.notes
        self.focus = focus_of(store, config) if config.evolution.focus_weight else None
        self.steered = (
            self.setup.parameters | {"patience": config.patience} | ({"roles": roles} if (roles := config.roles.identity()) else {})
        )
        self.steered |= {"focus": self.focus.id} if self.focus is not None else {}
        self.run = content_id("synthesis", self.steered, self.setup.versions)
        self.rounds = RoundParts(self.setup, self.run, self.steered)
        self.state, self.is_spent = RunState(), False
        played_by = content_id("roles", self.steered["roles"]) if "roles" in self.steered else ""
        self.jobs = RoundJobs(self.setup, self.state, self.focus, played_by, executor)
        self.patience = Patience(config, self.state, warn, is_scripted=engines.is_scripted)
        engines.begin(self.run)

    def result(self) -> SynthesisResult:
        if self.focus is not None:
            self.writer.add(self.focus.write(self.store))
        self.setup.write()
        try:
            rounds, unsteered = self._play_rounds()
        finally:
            self._commit()
        return SynthesisResult(
            run=self.run,
            parts=tuple(sorted(part.part_id for part in self.writer.parts)),
            rounds=rounds,
            accepted=self.state.accepted,
            proposals=self.state.proposals,
            tasks=self.state.tasks,
            rejected=dict(self.state.rejected.most_common()),
            figures=tuple(self._figures()),
            unsteered=unsteered,
            alarms=tuple(self.state.alarms),
            notes=(*self.notes, *self._shortfall_notes()),
            is_spent=self._ran_out_of_budget(),
        )

    def _play_rounds(self) -> tuple[int, tuple[Figure, ...]]:
        """Plays rounds until the run is over or the budget is spent. Returns their number, and the figures of calibration."""
        ids, controller, bands, unsteered = self._calibrate()
        number, previous = 0, ids["blueprints"]
        try:
            self.engines = replace(self.engines, judge_agreement=self._measure_judge(previous))
            while not self._is_over(controller):
                self.patience.check()
                previous = self._play_round(number, previous, controller, bands)
                number += 1
                if number % (_COMMIT_ROUNDS if self.engines.is_scripted else 1) == 0:
                    self._commit()
        except EngineUnusable as error:
            kept = f"{self.state.accepted:,} of {self.config.accepted:,} conversations are accepted and kept"
            raise EngineUnusable(f"{error} (stopped in round {number}; {kept})") from error
        except BudgetSpent as spent:
            self.is_spent = True
            self.notes += (f"stopped in round {number}: {spent}; what was answered is kept, and is not paid for again",)
        return number, unsteered

    def preview(self, proposals: int) -> Preview:
        self.setup.write()
        _, controller, bands, _ = self._calibrate()
        try:
            results = self._propose(self._jobs(0, controller, bands)[1][:proposals], "preview")
        finally:
            if self.engines.answers is not None:
                self.engines.answers.commit()
        accepted, cost = sum(one.accepted for one in results), sum((one.cost for one in results), Cost())
        limit = self.config.max_proposals
        expected = min(limit, math.ceil(self.config.accepted * len(results) / accepted)) if accepted else limit
        return Preview(
            proposals=len(results),
            accepted=accepted,
            outcomes=Counter(one.outcome for one in results),
            cost=cost,
            expected_proposals=expected,
            expected_cost=cost.times(expected / len(results)),
        )

    def _is_over(self, controller: Controller) -> bool:
        return self.state.accepted >= self.config.accepted or self.state.proposals >= self.config.max_proposals or controller.is_done()

    def _ran_out_of_budget(self) -> bool:
        return self.is_spent or (self.engines.budget is not None and self.engines.budget.is_spent)

    def _shortfall_notes(self) -> list[str]:
        """Why fewer trajectories were accepted than requested, and what to do; empty if enough were accepted."""
        got, target = self.state.accepted, self.config.accepted
        if got >= target:
            return []
        if self._ran_out_of_budget():
            return [f"{got:,} of {target:,} accepted when the budget was spent"]
        if self.state.proposals >= self.config.max_proposals:
            return [f"stopped at {got:,} of {target:,} accepted: all {self.config.max_proposals:,} proposals are used up (max_proposals)"]
        rounds = self.config.evolution.stop_idle_rounds
        return [
            f"stopped at {got:,} of {target:,} accepted: the last rounds ({rounds}) brought nothing new; more worlds would, or raise "
            "evolution.stop_idle_rounds for more of the same"
        ]

    # ---- calibration ------------------------------------------------------------------------------------------------------

    def _calibrate(self) -> tuple[dict[str, str], Controller, Bands, tuple[Figure, ...]]:
        """Ids of the calibration's parts, a new controller, the complexity bands, and the figures of unsteered conversations."""
        domains = sorted(self.setup.by_domain)
        ids = self.rounds.ids(CALIBRATION, self.writer.parts[-1].part_id)
        parts = self.rounds.find(ids)
        if parts is None:
            stored = self._make_calibration(ids)
        else:
            self.state.blueprints.update(self.writer.read(parts["blueprints"])["blueprint_id"])
            stored = self.rounds.read_figures(parts["diversity"])
            # of a run with other engines or another focus, which shares this calibration
            if self.writer.read(parts["diversity"])["run"][0] != self.run:
                copy_id = self.writer.id("diversity", [ids["diversity"]], {"run": self.run})
                self.writer.find_or_write("diversity", copy_id, lambda: self.rounds.diversity_rows(CALIBRATION, stored))
        by_name = {figure.metric: figure.value for figure in stored}
        bands = Bands(by_name["complexity_low_to"], by_name["complexity_high_from"])
        return ids, build_controller(domains, self.config.evolution, self.focus, bands, self.setup.domain_weights), bands, stored

    def _make_calibration(self, ids: Mapping[str, str]) -> tuple[Figure, ...]:
        rng = random.Random(content_id("calibration", self.config.seed))
        count = self.config.calibration
        jobs = [self.jobs.job("calibration", index, [rng.choice(self.setup.clusters)], None, None) for index in range(count)]
        proposals = self._propose(jobs, "calibrating")
        accepted = [one for one in proposals if one.accepted]
        distinct = sum(one.reason != REPEATED for one in proposals)
        if len(accepted) < distinct / 3 or not accepted:
            reasons = Counter(reason_key(one.reason) for one in proposals if one.reason)
            why = f"most of the others: {reason_in_words(reasons.most_common(1)[0][0])}"
            raise HeadraceError(
                f"only {len(accepted)} of {distinct} calibration conversations passed; {why}; the worlds do not fit together"
            )
        profiles = [one.simulated.profile for one in accepted if one.simulated is not None]
        low, high = np.quantile([profile.complexity for profile in profiles], [1 / 3, 2 / 3])
        figures = self.rounds.figures(profiles, vectors_of(accepted))
        figures += [
            Figure("complexity_low_to", round(float(low), 6), None, len(accepted)),
            Figure("complexity_high_from", round(float(high), 6), None, len(accepted)),
        ]
        self.state.blueprints.update(one.id for one in accepted)
        self.rounds.write(CALIBRATION, ids, accepted, figures, None)
        return tuple(figures)

    def _measure_judge(self, calibration: str) -> Agreement | None:
        """The agreement of a model judge with labelled conversations of the calibration's blueprints; None if the judge is scripted."""
        if self.engines.judge is None:
            return None

        def measure() -> pl.DataFrame:
            part = self.store.find(calibration)
            assert part is not None
            specs = self.writer.read(part)["spec"].drop_nulls()[: self.config.roles.judge_labelled]
            labelled = label_conversations([Blueprint.model_validate_json(spec) for spec in specs])
            return self.rounds.diversity_rows(CALIBRATION, self.engines.judge_figures(labelled, self.progress))

        id = self.writer.id("diversity", [calibration], {"judge": self.run})
        stored = self.rounds.read_figures(self.writer.find_or_write("diversity", id, measure))
        return Agreement.of({figure.metric: figure for figure in stored}, ASKED)

    # ---- rounds -------------------------------------------------------------------------------------------------------------

    def _play_round(self, number: int, previous: str, controller: Controller, bands: Bands) -> str:
        """Plays a round, or reads it from the store. Returns the id of the part that the next round builds on."""
        ids = self.rounds.ids(number, previous)
        parts = self.rounds.find(ids)
        if parts is None:
            subtask(f"round {number} of conversations", lambda: self._make_round(number, ids, controller, bands))
        else:
            tables = ("blueprints", "trajectories", "tasks", *(["provenance"] if "provenance" in parts else []))
            for outcome in self.state.add_stored(**{table: self.writer.read(parts[table]) for table in tables}):
                controller.record(outcome)
            specs = self.writer.read(parts["blueprints"]).filter(pl.col("status") == "accepted")["spec"]
            self.jobs.cover(map(Blueprint.model_validate_json, specs))
            self.patience.watch()
        controller.end_round()
        self.state.alarms += [f"round {number}: {alarm}" for alarm in controller.alarms()]
        self.progress("synthesize", min(self.state.accepted, self.config.accepted), self.config.accepted)
        return ids["blueprints"]

    def _make_round(self, number: int, ids: Mapping[str, str], controller: Controller, bands: Bands) -> None:
        draws, jobs = self._jobs(number, controller, bands)
        proposals = self._trim_round(self._propose(jobs, f"round {number}"))
        self.jobs.cover(one.blueprint for one in proposals if one.accepted)
        for one in proposals:
            outcome = report(one, bands)
            if outcome is not None:
                controller.record(outcome)
        self.state.add(proposals)
        accepted, rated = self.state.accepted, self.state.proposals - self.state.unrated
        shares = controller.band_shares()
        figures = self._figures()
        figures += [Figure(f"band_share_{band}", round(shares[band], 6), None, accepted) for band in BANDS]
        figures += [Figure("accepted_share", round(accepted / rated, 6), None, rated)] if rated else []
        figures += self._user_adherence(proposals)
        decisions = decision_rows(self.run, number, draws[: len(proposals)], proposals, bands)
        self.rounds.write(number, ids, proposals, figures, bands, decisions, self.engines)

    def _jobs(self, number: int, controller: Controller, bands: Bands) -> tuple[Sequence[Draw | Choice], list[Job]]:
        most = min(self.config.evolution.proposals_per_round, self.config.max_proposals - self.state.proposals)
        return self.jobs.of_round(number, self.patience.limit(most), controller, bands)

    def _figures(self) -> list[Figure]:
        """Diversity of all accepted conversations; empty if there are none."""
        return self.rounds.figures(self.state.profiles, self.state.all_vectors()) if self.state.profiles else []

    def _user_adherence(self, proposals: Sequence[Proposal]) -> list[Figure]:
        """How often a model user followed its script at the first try in this round; empty if the user is scripted."""
        if self.engines.user is None:
            return []
        turns, adhered = (sum(one.simulated.user_turns[at] for one in proposals if one.simulated is not None) for at in (0, 1))
        return [Figure("user_adherence", round(adhered / turns, 6), None, turns)] if turns else []

    def _trim_round(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """The proposals up to the acceptance that reaches the target; those after it do not count."""
        room, out = self.config.accepted - self.state.accepted, []
        for one in proposals:
            if room == 0:
                break
            out.append(one)
            room -= one.accepted
        return out

    def _propose(self, jobs: Sequence[Job], label: str) -> list[Proposal]:
        finished: list[Proposal] = []

        def show_progress(label: str, done: int, total: int) -> None:
            self.patience.watch(finished)
            self.progress(label, done, total)

        if label != "calibrating" and not self.engines.is_scripted:
            return without_repeats(propose_with_models(jobs, self.engines, label, show_progress, finished), self.state.blueprints)
        batches = [jobs[start : start + JOBS_A_BATCH] for start in range(0, len(jobs), JOBS_A_BATCH)]
        run = self.executor.map if self.executor is not None else map
        for batch in run(propose, batches):
            finished += batch
            show_progress(label, len(finished), len(jobs))
        return without_repeats(finished, self.state.blueprints)

    def _commit(self) -> None:
        if self.engines.answers is not None:
            self.engines.answers.commit()
        self.writer.commit()
