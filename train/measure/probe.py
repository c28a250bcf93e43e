"""Measures policies: certainty on probe tasks, success on held-out tasks.

One idea: the tasks follow from the store and the configuration alone, and every measurement is a part of the store, so it is made once.

What it does not do: compute statistics of draws (`filters/certainty/certainty.py`, `train/measure/evaluate.py`), or promote
(`train/measure/gate.py`).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import polars as pl

from filters.certainty.certainty import RATED, certainty
from filters.certainty.certainty import VERSION as CERTAINTY_VERSION
from filters.certainty.difficulty_prior import add_priors, task_groups
from storage.errors import HeadraceError
from storage.execution import subtask
from storage.parts import read_part
from storage.record_rows import tasks_frame
from storage.records import Division, Task, content_id
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.engines.base import Engine, EngineFailure, EngineUnusable, check_window
from synth.engines.budget import BudgetSpent
from synth.rollouts.draws import Draws, rollout_parts
from train.config import CascadeConfig
from train.data.task_pool import Source, Use, check_tasks, draw, sources
from train.measure.evaluate import VERSION as EVALUATION_VERSION
from train.measure.evaluate import evaluation_rows, facets
from train.policies import OwnEngines, Policy, find_policy, open_policy_engine, promoted_policy

VERSION = 1
AGAIN = 1_000
"""Number of the first draw of a second probe, above all draws of the first."""
Progress = Callable[[str, int, int], None]


def tag(
    store: Store, config: CascadeConfig, *, policy: str | None = None, again: int = 0, progress: Progress | None = None
) -> Policy | None:
    """Tags every task that has no static tag, and tags the probe tasks by certainty for a policy, if there is one; returns the policy.

    A static tag is a row with a difficulty, no policy, and purpose `static`.

    policy: its id, or an engine's name; None: the one promoted last, if any.
    again: number of probe tasks that are probed a second time with new draws (purpose `probe_again`), to measure how many regions change.

    Raises:
        BadInput: the policy does not exist or cannot answer. BudgetSpent, EngineFailure: see `Prober.rollouts`.
    """
    probed = promoted_policy(store) if policy is None else find_policy(store, policy)
    with contextlib.nullcontext() if probed is None else _prober(store, config, probed, "tag", progress) as prober:
        _tag_statically(store)
        if probed is not None and prober is not None:
            prober.probe(probed)
            if again:
                prober.probe_again(probed, again)
    return probed


def _tag_statically(store: Store) -> None:
    untagged = store.query(
        """SELECT task_id, any_value(difficulty) AS difficulty FROM tasks
           WHERE task_id NOT IN (SELECT task_id FROM tags WHERE purpose = 'static') GROUP BY task_id ORDER BY task_id"""
    )
    if untagged.is_empty():
        return
    part = part_id("tags", untagged["task_id"].to_list(), {"purpose": "static"}, VERSION)
    absent = {
        name: pl.lit(None, dtype) for name, dtype in TABLES["tags"].columns.items() if name not in ("task_id", "difficulty", "purpose")
    }
    rows = untagged.with_columns(**absent, purpose=pl.lit("static")).select(list(TABLES["tags"].columns))
    store.commit([store.find(part) or store.write("tags", part, rows)])


def evaluate(store: Store, config: CascadeConfig, *, policy: str | None = None, progress: Progress | None = None) -> Policy:
    """Measures a policy on both kinds of held-out tasks, unless the store has the measurement.

    policy: its id, or an engine's name; None: the one promoted last.

    Raises:
        BadInput: the policy does not exist, none was promoted yet, or it cannot answer. BudgetSpent, EngineFailure: see `Prober.rollouts`.
    """
    measured = find_policy(store, policy)
    with _prober(store, config, measured, "evaluate", progress) as prober:
        prober.evaluate(measured)
    return measured


@contextlib.contextmanager
def _prober(store: Store, config: CascadeConfig, policy: Policy, what: str, progress: Progress | None) -> Iterator[Prober]:
    """A prober for one policy. The budget belongs to the measurement: a repeated call continues with the remaining budget."""
    check_tasks(store, worlds=config.worlds, max_difficulty=config.max_difficulty)
    run = content_id("run", what, policy.id, config.model_dump(mode="json", exclude={"engine", "cluster", "backend", "stages", "rollouts"}))
    with open_policy_engine(store, policy, config.engine, run) if policy.engine else contextlib.nullcontext() as engine:
        prober = Prober(store, config, progress, engine)
        with prober.own_engines:
            yield prober


class Prober:
    """Measures policies of a store by a configuration.

    engine: engine of the only policy that is measured; None: each policy is a model folder of the cascade, which is loaded when one of its
        rollouts is missing (`own_engines`, to be closed at the end).
    """

    def __init__(self, store: Store, config: CascadeConfig, progress: Progress | None = None, engine: Engine | None = None) -> None:
        self.store, self.config, self.engine = store, config, engine
        self.own_engines = OwnEngines(config.rollouts)
        self.progress: Progress = progress or (lambda *_: None)
        every_source = sources(store, worlds=config.worlds, max_difficulty=config.max_difficulty)
        self.sources = {division: [s for s in every_source if s.division == division] for division in ("seed", "probe", "held_out")}

    def tasks(self, divisions: Sequence[Division], count: int, use: Use, *, fewest: int | None = None) -> list[Task]:
        """`count` tasks, written to the store. fewest: smallest number that is accepted, as in `draw`."""
        return self.draw([source for division in divisions for source in self.sources[division]], count, use, fewest=fewest)

    def draw(self, pool: Sequence[Source], count: int, use: Use, *, fewest: int | None = None) -> list[Task]:
        """`count` tasks from these sources, written to the store."""
        tasks = draw(pool, count, use=use, language=self.config.language, fewest=fewest, context=self.config.context) if count else []
        if not tasks:
            return []
        self.commit("tasks", part_id("tasks", [task.id for task in tasks], {}, VERSION), lambda: tasks_frame(tasks))
        return tasks

    def draws(self) -> Draws:
        """Draws of a probe task: until its region is settled."""
        draws, regions = self.config.draws, self.config.route.regions
        rule = {"draws": draws.model_dump(), "regions": regions.model_dump()}
        return Draws(draws.looks, lambda successes, rated, remaining: draws.is_settled(successes, rated, remaining, regions), rule)

    def probe(self, policy: Policy) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Certainty and prior of the probe tasks for a policy, and its rollouts, by this configuration.

        The store has one tag per task, policy and k (rated rollouts): the first tag stays, with the region by the thresholds of its time
        and the prior by the other tasks of its probe. A release states the thresholds of its routing.
        """
        return subtask(f"probe of {policy.name}", lambda: self._tag(policy, self.probe_tasks(), "probe"))

    def probe_tasks(self) -> list[Task]:
        return self.tasks(["probe"], self.config.probe_tasks, "train")

    def probe_again(self, policy: Policy, count: int) -> None:
        """Probes the first `count` probe tasks a second time, with new draws."""
        self._tag(policy, self.probe_tasks()[:count], "probe_again", first_draw=AGAIN)

    def _tag(self, policy: Policy, tasks: Sequence[Task], purpose: str, first_draw: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
        rollouts = self.rollouts(policy, tasks, self.draws(), purpose, temperature=1.0, first_draw=first_draw)
        groups = task_groups(tasks)
        measured = add_priors(certainty(rollouts, groups, self.config.route.regions, purpose=purpose), groups)
        tagged = self.store.query("SELECT task_id, k FROM tags WHERE policy_id = ? AND purpose = ?", [policy.id, purpose])
        fresh = measured.join(tagged, on=["task_id", "k"], how="anti").sort("task_id")
        if fresh.height:
            parameters = {"draws": dict(self.draws().rule), "seed": self.config.seed} | ({} if purpose == "probe" else {"purpose": purpose})
            self.commit("tags", part_id("tags", [policy.id, *fresh["task_id"]], parameters, CERTAINTY_VERSION), lambda: fresh)
        return measured, rollouts

    def evaluate(self, policy: Policy) -> tuple[list[Task], pl.DataFrame]:
        """Measures a policy on both kinds of held-out tasks; returns the tasks of `eval_in` and their sampled rollouts.

        If the store has few held-out frames with a new need, `eval_out` is smaller or, with a warning, left out.

        Raises:
            HeadraceError: no rollout could be rated. Others: see `rollouts`.
        """
        tasks = self.tasks(["seed", "probe"], self.config.eval_tasks, "eval_in")
        sampled = subtask(f"evaluation of {policy.name}, eval_in", lambda: self._evaluate(policy, tasks, "eval_in"))
        unseen = self.tasks(["held_out"], self.config.eval_out_tasks, "eval_out", fewest=0)
        if unseen:
            subtask(f"evaluation of {policy.name}, eval_out", lambda: self._evaluate(policy, unseen, "eval_out"))
        else:
            warnings.warn(
                f"{policy.name} is not measured on eval_out: every held-out frame in {self.store.root} asks for what a seed or probe frame "
                "asks for too, individuals aside; curate more queries or synthesise more blueprints",
                stacklevel=2,
            )
        return tasks, sampled

    def _evaluate(self, policy: Policy, tasks: Sequence[Task], use: Use) -> pl.DataFrame:
        """Rolls out sampled and greedy, and writes rows of `evaluations`; returns the sampled rollouts."""
        sampled = self.rollouts(policy, tasks, self.config.eval_samples, use, temperature=1.0)
        greedy = self.rollouts(policy, tasks, 1, f"{use}_greedy", temperature=0.0)
        task_facets = facets(tasks)
        for decoding, rollouts in (("sampled", sampled), ("greedy", greedy)):
            if not rollouts["outcome"].is_in(RATED).any():
                why = f"`headrace explain {rollouts['rollout_id'][0]}` says why the first one failed"
                raise HeadraceError(f"{policy.name}, {use}, {decoding}: none of {rollouts.height:,} rollouts could be rated; {why}")
            settings = (self.config.seed, self.config.eval_samples if decoding == "sampled" else 1, self._answer_tokens(policy))
            evaluation_id = content_id("evaluation", policy.id, use, decoding, settings, [task.id for task in tasks], EVALUATION_VERSION)
            part = part_id("evaluations", [evaluation_id], {}, EVALUATION_VERSION)
            about = {"evaluation_id": evaluation_id, "policy_id": policy.id, "use": use, "decoding": decoding}
            self.commit("evaluations", part, partial(evaluation_rows, rollouts, task_facets, **about))
        return sampled

    def _answer_tokens(self, policy: Policy) -> int:
        return self.config.engine.answer_tokens if policy.engine else self.config.policy_tokens

    def rollouts(
        self, policy: Policy, tasks: Sequence[Task], k: int | Draws, purpose: str, *, temperature: float, first_draw: int = 0
    ) -> pl.DataFrame:
        """Rollouts of a policy from the store; missing ones are made and committed.

        Raises:
            BadInput: the engine's window is too small for the longest opening and an answer.
            BudgetSpent, EngineFailure, EngineUnusable: the budget is spent, or the engine fails. Finished tasks and all answers are kept.
        """
        reached = 0
        max_tokens = self._answer_tokens(policy)
        if policy.engine:
            longest = max(tasks, key=lambda task: sum(len(message.content or "") for message in task.messages))
            assert self.engine is not None
            check_window(self.engine, longest.messages, max_tokens)

        def report(_: str, done: int, total: int) -> None:
            nonlocal reached
            reached = done
            self.progress(f"{policy.name}: {purpose}", done, total)

        try:
            parts = rollout_parts(
                self.store,
                self.engine or partial(self.own_engines, policy),
                tasks,
                k,
                purpose=purpose,
                policy_id=policy.id,
                temperature=temperature,
                seed=self.config.seed,
                max_tokens=max_tokens,
                first_draw=first_draw,
                in_flight=self.config.engine.in_flight,
                progress=report,
            )
        except (BudgetSpent, EngineFailure, EngineUnusable) as stopped:
            whole = reached // (k if isinstance(k, int) else k.most)
            raise type(stopped)(
                f"{stopped}. {purpose}: {whole:,} of {len(tasks):,} tasks are done and kept, as is all that a server answered"
            ) from stopped
        self.store.commit(parts)
        columns = ["rollout_id", "task_id", "policy_id", "draw", "outcome", "reward", "messages"]
        return pl.concat([read_part(self.store.root, part.path, columns) for part in parts]).sort("task_id", "draw")

    def commit(self, table: str, part: str, make: Callable[[], pl.DataFrame]) -> Part:
        """Commits the part with this id; calls `make` for its rows if it does not exist."""
        committed = self.store.find(part) or self.store.write(table, part, make())
        self.store.commit([committed])
        return committed
