"""Policies measured: certainty on the probe tasks, success on held-out ones.

One idea: what a policy is measured on follows from the store and the configuration alone, and everything measured is a part of the store:
a measurement is there already, or made.

What it does not do: say what draws mean (`filters/certainty.py`, `train/evaluate.py`), or promote (`train/gate.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import polars as pl

from filters.certainty import VERSION as CERTAINTY_VERSION
from filters.certainty import certainty
from storage.errors import BadInput
from storage.records import Division, Task, content_id
from storage.rows import tasks_frame
from storage.schema import TABLES
from storage.store import Part, Store, part_id
from synth.rollouts import Draws, rollout_parts
from train.config import CascadeConfig
from train.evaluate import VERSION as EVALUATION_VERSION
from train.evaluate import evaluation_rows, facets
from train.policies import Policy, engine_of, known_policy, promoted_policy
from train.supply import Use, draw, sources

VERSION = 1
AGAIN = 1_000
"""Number of the first draw of a second probe, beyond any of the first."""
Progress = Callable[[str, int, int], None]


def tag(store: Store, config: CascadeConfig, *, again: int = 0, progress: Progress | None = None) -> Policy | None:
    """Tags every task that has no static tag yet, and the probe tasks by certainty for the policy promoted last, if there is one.

    Returns that policy. A static tag is a row with difficulty alone: no policy, purpose `static`.

    again: so many of the probe tasks are probed a second time, with draws of their own (purpose `probe_again`), and say how many
        regions are luck.
    """
    untagged = store.query(
        """SELECT task_id, any_value(difficulty) AS difficulty FROM tasks
           WHERE task_id NOT IN (SELECT task_id FROM tags WHERE purpose = 'static') GROUP BY task_id ORDER BY task_id"""
    )
    if untagged.height:
        part = part_id("tags", untagged["task_id"].to_list(), {"purpose": "static"}, VERSION)
        absent = {
            name: pl.lit(None, dtype) for name, dtype in TABLES["tags"].columns.items() if name not in ("task_id", "difficulty", "purpose")
        }
        rows = untagged.with_columns(**absent, purpose=pl.lit("static")).select(list(TABLES["tags"].columns))
        store.commit([store.find(part) or store.write("tags", part, rows)])
    policy = promoted_policy(store)
    if policy is not None:
        prober = Prober(store, config, progress)
        prober.probe(policy)
        if again:
            prober.probe_again(policy, again)
    return policy


def evaluate(store: Store, config: CascadeConfig, *, policy_id: str | None = None, progress: Progress | None = None) -> Policy:
    """Measures a policy (None: the one promoted last) on both kinds of held-out tasks; what the store has is not measured again.

    Raises:
        BadInput: there is no such policy, or none was promoted yet.
    """
    policy = promoted_policy(store) if policy_id is None else known_policy(store, policy_id)
    if policy is None:
        raise BadInput(f"{store.root} has no promoted policy yet: train one first, or name a policy")
    Prober(store, config, progress).evaluate(policy)
    return policy


class Prober:
    """Measures the policies of one store, as one configuration has it."""

    def __init__(self, store: Store, config: CascadeConfig, progress: Progress | None = None) -> None:
        self.store, self.config = store, config
        self.progress: Progress = progress or (lambda *_: None)
        found = sources(store, worlds=config.worlds, max_difficulty=config.max_difficulty)
        self.sources = {division: [s for s in found if s.division == division] for division in ("seed", "probe", "held_out")}

    def tasks(self, divisions: Sequence[Division], count: int, use: Use, *, fewest: int | None = None) -> list[Task]:
        """`count` tasks, written to the store (uncommitted work is found again by the part's id); as many as there are, from `fewest` on,
        where that is given."""
        found = [source for division in divisions for source in self.sources[division]]
        drawn = draw(found, count, use=use, language=self.config.language, fewest=fewest)
        if not drawn:
            return []
        self.commit("tasks", part_id("tasks", [task.id for task in drawn], {}, VERSION), lambda: tasks_frame(drawn))
        return drawn

    def draws(self) -> Draws:
        """Of a probed task: until its region is settled."""
        own, regions = self.config.draws, self.config.route.regions
        rule = {"draws": own.model_dump(), "regions": regions.model_dump()}
        return Draws(own.looks, lambda successes, rated, left: own.is_settled(successes, rated, left, regions), rule)

    def probe(self, policy: Policy) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Certainty of the probe tasks for a policy, and the rollouts that it was measured on, both as measured for this configuration.

        In the store a task is tagged once a policy and k (the rollouts rated): what was measured first stays, with its region by the
        thresholds of then. A release says the thresholds that it was routed by.
        """
        return self._tagged(policy, self.tasks(["probe"], self.config.probe_tasks, "train"), "probe")

    def probe_again(self, policy: Policy, count: int) -> None:
        """A second probe of the first probe tasks, independent of the first."""
        self._tagged(policy, self.tasks(["probe"], self.config.probe_tasks, "train")[:count], "probe_again", first_draw=AGAIN)

    def _tagged(self, policy: Policy, tasks: Sequence[Task], purpose: str, first_draw: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
        rollouts = self.rollouts(policy, tasks, self.draws(), purpose, temperature=1.0, first_draw=first_draw)
        difficulty = pl.DataFrame({"task_id": [task.id for task in tasks], "difficulty": [task.difficulty for task in tasks]})
        measured = certainty(rollouts, difficulty, self.config.route.regions, purpose=purpose)
        tagged = self.store.query("SELECT task_id, k FROM tags WHERE policy_id = ? AND purpose = ?", [policy.id, purpose])
        fresh = measured.join(tagged, on=["task_id", "k"], how="anti").sort("task_id")
        if fresh.height:
            parameters = {"draws": dict(self.draws().rule), "seed": self.config.seed} | ({} if purpose == "probe" else {"purpose": purpose})
            self.commit("tags", part_id("tags", [policy.id, *fresh["task_id"]], parameters, CERTAINTY_VERSION), lambda: fresh)
        return measured, rollouts

    def evaluate(self, policy: Policy) -> tuple[list[Task], pl.DataFrame]:
        """Measures a policy on both kinds of held-out tasks; the tasks of `eval_in` and the sampled rollouts of them.

        Held-out frames that are new to training may be few in a small store: `eval_out` is then smaller, or, with a warning, left out.
        """
        tasks = self.tasks(["seed", "probe"], self.config.eval_tasks, "eval_in")
        sampled = self._evaluate(policy, tasks, "eval_in")
        unseen = self.tasks(["held_out"], self.config.eval_tasks, "eval_out", fewest=0)
        if unseen:
            self._evaluate(policy, unseen, "eval_out")
        else:
            warnings.warn(
                f"{policy.name} is not measured on eval_out: every held-out frame in {self.store.root} asks for what a seed or probe frame "
                "asks for too, individuals aside; curate more queries or synthesise more blueprints",
                stacklevel=2,
            )
        return tasks, sampled

    def _evaluate(self, policy: Policy, tasks: Sequence[Task], use: Use) -> pl.DataFrame:
        """Sampled and greedy rollouts, their rows in `evaluations`; returns the sampled rollouts."""
        sampled = self.rollouts(policy, tasks, self.config.eval_samples, use, temperature=1.0)
        greedy = self.rollouts(policy, tasks, 1, f"{use}_greedy", temperature=0.0)
        for decoding, rollouts in (("sampled", sampled), ("greedy", greedy)):
            made = (self.config.seed, self.config.eval_samples if decoding == "sampled" else 1)
            evaluation_id = content_id("evaluation", policy.id, use, decoding, made, [task.id for task in tasks], EVALUATION_VERSION)
            part = part_id("evaluations", [evaluation_id], {}, EVALUATION_VERSION)
            about = {"evaluation_id": evaluation_id, "policy_id": policy.id, "use": use, "decoding": decoding}
            self.commit("evaluations", part, partial(evaluation_rows, rollouts, facets(tasks), **about))
        return sampled

    def rollouts(
        self, policy: Policy, tasks: Sequence[Task], k: int | Draws, purpose: str, *, temperature: float, first_draw: int = 0
    ) -> pl.DataFrame:
        """Rollouts of a policy, committed; made now unless the store has them."""
        parts = rollout_parts(
            self.store,
            engine_of(policy),
            tasks,
            k,
            purpose=purpose,
            policy_id=policy.id,
            temperature=temperature,
            seed=self.config.seed,
            first_draw=first_draw,
            progress=lambda _, done, total: self.progress(f"{policy.name}: {purpose}", done, total),
        )
        self.store.commit(parts)
        columns = ["rollout_id", "task_id", "policy_id", "draw", "outcome", "reward", "messages"]
        return pl.concat([pl.read_parquet(self.store.root / part.path, columns=columns) for part in parts]).sort("task_id", "draw")

    def commit(self, table: str, part: str, make: Callable[[], pl.DataFrame]) -> Part:
        """Commits the part of this id; `make` is asked for its rows where it is not there."""
        found = self.store.find(part) or self.store.write(table, part, make())
        self.store.commit([found])
        return found
