"""The cascade: seed SFT -> probe -> second SFT -> probe -> RL, each stage evaluated and gated.

One idea: every step is a part of the store with an id made from what it was made from, so the whole is a chain of "there already, or make
it": a killed cascade goes on where it was, and the same configuration on the same store gives the same bytes.
Tagger and trainer alternate: what a probe measures of one policy decides what the next one trains on. Expert trajectories are a
budget (in life they cost money); verifiable tasks are nearly free, which is why RL has something to add.
After every stage the new policy is evaluated on held-out tasks and judged once, against the policy that the store had promoted last; a
stage that fails leaves that one in place.

What it does not do: train (`train/run.py`, in a child process that `launch` starts), or choose tasks (`train/supply.py`).
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.certainty import VERSION as CERTAINTY_VERSION
from filters.certainty import DrawsConfig, certainty, histogram
from filters.code_hash import code_hash
from filters.route import VERSION as ROUTE_VERSION
from filters.route import RouteConfig, route
from storage.errors import BadInput
from storage.graph import PROMOTED_POLICY_SQL
from storage.records import Division, Language, Task, Trajectory, content_id
from storage.release import ReleaseItem, make_release
from storage.rows import tasks_frame
from storage.schema import TABLES
from storage.store import Part, Store, part_id
from synth.rollouts import Draws, rollout_parts
from synth.simulate import expert_trajectory, trajectories_frame
from synth.worlds import WorldName
from train.backends import local
from train.evaluate import VERSION as EVALUATION_VERSION
from train.evaluate import evaluation_rows
from train.gate import GateConfig, gate
from train.on_cpu import keep_freed_memory
from train.spec import RLSettings, SFTSettings, StageSpec
from train.supply import Use, draw, sources

if TYPE_CHECKING:
    from synth.engines.hf import HFEngine

VERSION = 1
AGAIN = 1_000
"""Number of the first draw of a second probe, beyond any of the first."""
Progress = Callable[[str, int, int], None]
Launch = Callable[[StageSpec, Path], dict[str, Any]]


class CascadeConfig(BaseModel):
    """What the cascade trains on, with which budgets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: tuple[WorldName, ...] = Field(("retail", "library"), min_length=1, description="Worlds whose tasks are trained on.")
    max_difficulty: int = Field(3, ge=-1, le=5, description="Tasks above this static difficulty are left out.")
    language: Language = Field("en", description="Language in which siblings are worded; a frame has none of its own.")
    expert_budget: int = Field(480, ge=1, description="Expert trajectories that the seed SFT may use.")
    probe_tasks: int = Field(720, ge=1, description="Tasks that certainty is measured on.")
    draws: DrawsConfig = Field(default_factory=DrawsConfig, description="How often a probed task is rolled out.")
    eval_tasks: int = Field(120, ge=1, description="Held-out tasks of each kind, eval_in and eval_out.")
    eval_samples: int = Field(4, ge=1, description="Rollouts at temperature 1 of every held-out task; one greedy beside them.")
    sft1: SFTSettings = Field(
        SFTSettings(max_steps=250, plateau_window=25), description="Seed SFT, on expert trajectories, to a plateau of the loss."
    )
    sft2: SFTSettings = Field(
        SFTSettings(max_steps=150, learning_rate=1e-3), description="Second SFT: short and soft, so that entropy survives for RL."
    )
    rl: RLSettings = Field(default_factory=RLSettings, description="RL on fresh siblings of the probed tasks.")
    route: RouteConfig = Field(default_factory=RouteConfig, description="Which region of certainty goes where.")
    gate: GateConfig = Field(default_factory=GateConfig, description="What a policy must pass to be promoted.")
    seed: int = Field(0, ge=0, description="Of the weights, the order of batches, and every rollout.")


@dataclass(frozen=True)
class Policy:
    """A trained policy; `path` is its model folder."""

    id: str
    name: str
    path: Path


@dataclass
class CascadeResult:
    """All policies in the order of training, whether each passed the gate, and the policy that the store has promoted last: one of them, or
    an earlier one that they did not beat."""

    policies: list[Policy] = field(default_factory=list)
    promoted: Policy | None = None
    passed: dict[str, bool] = field(default_factory=dict)


def run_cascade(
    store: Store, config: CascadeConfig, *, launch: Launch = local.launch, backend: str = "local", progress: Progress | None = None
) -> CascadeResult:
    """Trains, probes, evaluates and gates all stages; what the store has already is not done again.

    launch: runs one stage; backend: what that is, as the store names it.

    Raises:
        HeadraceError: too few frames in the store, a split that would be empty, a stage that failed.
    """
    cascade = _Cascade(store, config, launch, backend, progress)
    result = CascadeResult()

    experts = cascade.experts()
    sft1 = cascade.stage("sft1", None, cascade.seed_release(experts), "seed")
    cascade.judge(sft1, result)

    sft2 = cascade.stage("sft2", sft1, cascade.routed_release("second", sft1, experts), "sft2")
    cascade.judge(sft2, result)

    cascade.judge(cascade.stage("rl", sft2, cascade.routed_release("rl", sft2, experts), "rl"), result)
    result.promoted = promoted_policy(store)
    return result


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
        cascade = _Cascade(store, config, progress=progress)
        cascade.probe(policy)
        if again:
            cascade.probe_again(policy, again)
    return policy


def evaluate(store: Store, config: CascadeConfig, *, policy_id: str | None = None, progress: Progress | None = None) -> Policy:
    """Measures a policy (None: the one promoted last) on both kinds of held-out tasks; what the store has is not measured again.

    Raises:
        BadInput: there is no such policy, or none was promoted yet.
    """
    policy = promoted_policy(store) if policy_id is None else _known_policy(store, policy_id)
    if policy is None:
        raise BadInput(f"{store.root} has no promoted policy yet: train one first, or name a policy")
    _Cascade(store, config, progress=progress).evaluate(policy)
    return policy


def promoted_policy(store: Store) -> Policy | None:
    """The policy that passed the gate last."""
    found = store.query(PROMOTED_POLICY_SQL)
    return _known_policy(store, found.item()) if found.height else None


def _known_policy(store: Store, policy_id: str) -> Policy:
    found = store.query("SELECT name, path FROM policies LEFT JOIN stages USING (stage_id) WHERE policy_id = ?", [policy_id])
    if found.is_empty():
        known = store.query("SELECT policy_id, name FROM policies LEFT JOIN stages USING (stage_id) ORDER BY name, policy_id")
        raise BadInput(
            f"{store.root} has no policy {policy_id}; it has {', '.join(f'{each} ({name})' for each, name in known.iter_rows()) or 'none'}"
        )
    name, path = found.row(0)
    return Policy(policy_id, name or policy_id, store.root / path)


class _Cascade:
    """One run: the store, the configuration, and how stages are launched."""

    def __init__(
        self,
        store: Store,
        config: CascadeConfig,
        launch: Launch = local.launch,
        backend: str = "local",
        progress: Progress | None = None,
    ) -> None:
        self.store, self.config, self.launch, self.backend = store, config, launch, backend
        self.progress: Progress = progress or (lambda *_: None)
        found = sources(store, worlds=config.worlds, max_difficulty=config.max_difficulty)
        self.sources = {division: [s for s in found if s.division == division] for division in ("seed", "probe", "held_out")}

    # ---- tasks and releases --------------------------------------------------------------------------------------------

    def tasks(self, divisions: Sequence[Division], count: int, use: Use, *, fewest: int | None = None) -> list[Task]:
        """`count` tasks, written to the store (uncommitted work is found again by the part's id); as many as there are, from `fewest` on,
        where that is given."""
        found = [source for division in divisions for source in self.sources[division]]
        drawn = draw(found, count, use=use, language=self.config.language, fewest=fewest)
        if not drawn:
            return []
        self._commit("tasks", part_id("tasks", [task.id for task in drawn], {}, VERSION), lambda: tasks_frame(drawn))
        return drawn

    def experts(self) -> list[ReleaseItem]:
        """Expert trajectories of seed tasks, as many as the budget allows, written to the store."""
        tasks = self.tasks(["seed"], self.config.expert_budget, "train")
        part = part_id("trajectories", [task.id for task in tasks], {"teacher": "scripted"}, VERSION)
        trajectories: list[Trajectory] = [expert_trajectory(task) for task in tasks]
        self._commit("trajectories", part, lambda: trajectories_frame(trajectories, tasks))
        return [
            ReleaseItem(kind="trajectory", item_id=trajectory.id, task_id=task.id, weight=1.0)
            for trajectory, task in zip(trajectories, tasks, strict=True)
        ]

    def seed_release(self, experts: list[ReleaseItem]) -> str:
        """The experts as the release that the first stage reads."""
        return make_release(self.store, "seed", {"seed": experts}, {"expert_budget": self.config.expert_budget})

    def routed_release(self, name: str, policy: Policy, experts: list[ReleaseItem]) -> str:
        """Probes the policy, tags the probe tasks, and freezes the splits that the tags call for."""
        tags, rollouts = self.probe(policy)
        queries = dict(self.store.query("SELECT DISTINCT task_id, query_id FROM tasks WHERE query_id IS NOT NULL").iter_rows())
        splits = route(experts, tags, rollouts, queries, self.config.route)
        manifest = {
            "probed_policy": policy.id,
            "histogram": {str(successes): tasks for successes, tasks in histogram(tags).items()},
            "routing": self.config.route.model_dump(),
            "version": ROUTE_VERSION,
        }
        return make_release(self.store, name, {split: items for split, items in splits.items() if items}, manifest)

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
        rollouts = self._rollouts(policy, tasks, self.draws(), purpose, temperature=1.0, first_draw=first_draw)
        difficulty = pl.DataFrame({"task_id": [task.id for task in tasks], "difficulty": [task.difficulty for task in tasks]})
        measured = certainty(rollouts, difficulty, self.config.route.regions, purpose=purpose)
        tagged = self.store.query("SELECT task_id, k FROM tags WHERE policy_id = ? AND purpose = ?", [policy.id, purpose])
        fresh = measured.join(tagged, on=["task_id", "k"], how="anti").sort("task_id")
        if fresh.height:
            parameters = {"draws": dict(self.draws().rule), "seed": self.config.seed} | ({} if purpose == "probe" else {"purpose": purpose})
            self._commit("tags", part_id("tags", [policy.id, *fresh["task_id"]], parameters, CERTAINTY_VERSION), lambda: fresh)
        return measured, rollouts

    # ---- stages ------------------------------------------------------------------------------------------------------------

    def stage(self, name: str, parent: Policy | None, release_id: str, split: str) -> Policy:
        """The policy that this stage makes of its parent; trained now unless the store has it."""
        algorithm = "rl" if name == "rl" else "sft"
        settings: SFTSettings | RLSettings = getattr(self.config, name)
        facts = {
            "name": name,
            "settings": settings.model_dump(),
            "seed": self.config.seed,
            "split": split,
            "worlds": list(self.config.worlds),
        }
        stage_id = content_id("stage", release_id, parent.id if parent else None, facts, VERSION)
        folder = self.store.root / "models" / stage_id
        known = self.store.query("SELECT policy_id FROM policies WHERE stage_id = ?", [stage_id])
        if known.height:
            return Policy(known.item(), name, folder / "model")
        self.progress(f"stage {name}", 0, 1)
        spec = StageSpec(
            name=name,
            algorithm=algorithm,
            store=self.store.root,
            release_id=release_id,
            split=split,
            model_in=parent.path if parent else None,
            model_out=folder / "model",
            worlds=self.config.worlds,
            language=self.config.language,
            seed=self.config.seed,
            **{algorithm: settings},
        )
        started = time.monotonic()
        result = self.launch(spec, folder)
        policy = Policy(content_id("policy", stage_id, result["weights_hash"]), name, folder / "model")
        stage_row = {
            "stage_id": stage_id,
            "name": name,
            "algorithm": algorithm,
            "backend": self.backend,
            "release_id": release_id,
            "split": split,
            "input_policy_id": parent.id if parent else None,
            "output_policy_id": policy.id,
            "spec": spec.model_dump_json(),
            "code_hash": code_hash("filters", "synth", "train"),
            "metrics": json.dumps(result["metrics"]),
            "seconds": time.monotonic() - started,
        }
        policy_row = {
            "policy_id": policy.id,
            "stage_id": stage_id,
            "path": str(policy.path.relative_to(self.store.root)),
            "weights_hash": result["weights_hash"],
        }
        self.store.commit(
            [
                self.store.write("stages", part_id("stages", [stage_id], {}, VERSION), _frame([stage_row])),
                self.store.write("policies", part_id("policies", [stage_id], {}, VERSION), _frame([policy_row])),
            ]
        )
        self.progress(f"stage {name}", 1, 1)
        return policy

    # ---- evaluation and gate -------------------------------------------------------------------------------------------

    def judge(self, policy: Policy, result: CascadeResult) -> None:
        """Evaluates a policy on both kinds of held-out tasks, and promotes it if it passes the gate; a verdict that is there stands."""
        tasks, sampled = self.evaluate(policy)
        passed = self._verdict(policy)
        if passed is None:
            rival = promoted_policy(self.store)
            against = self._rollouts(rival, tasks, self.config.eval_samples, "eval_in", temperature=1.0) if rival else None
            verdict = gate(sampled, against, _facets(tasks), self.config.gate)
            row = {"policy_id": policy.id, "position": len(result.policies), "passed": verdict.passed, "checks": json.dumps(verdict.checks)}
            part = part_id("promotions", [policy.id, rival.id if rival else ""], self.config.gate.model_dump(), VERSION)
            self._commit("promotions", part, lambda: _frame([row]))
            passed = verdict.passed
        result.policies.append(policy)
        result.passed[policy.name] = passed

    def _verdict(self, policy: Policy) -> bool | None:
        found = self.store.query("SELECT passed FROM promotions WHERE policy_id = ?", [policy.id])
        return bool(found["passed"][0]) if found.height else None

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
        sampled = self._rollouts(policy, tasks, self.config.eval_samples, use, temperature=1.0)
        greedy = self._rollouts(policy, tasks, 1, f"{use}_greedy", temperature=0.0)
        for decoding, rollouts in (("sampled", sampled), ("greedy", greedy)):
            made = (self.config.seed, self.config.eval_samples if decoding == "sampled" else 1)
            evaluation_id = content_id("evaluation", policy.id, use, decoding, made, [task.id for task in tasks], EVALUATION_VERSION)
            part = part_id("evaluations", [evaluation_id], {}, EVALUATION_VERSION)
            rows = evaluation_rows(rollouts, _facets(tasks), evaluation_id=evaluation_id, policy_id=policy.id, use=use, decoding=decoding)
            self._commit("evaluations", part, lambda rows=rows: rows)
        return sampled

    def _rollouts(
        self, policy: Policy, tasks: Sequence[Task], k: int | Draws, purpose: str, *, temperature: float, first_draw: int = 0
    ) -> pl.DataFrame:
        parts = rollout_parts(
            self.store,
            _engine(policy),
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

    def _commit(self, table: str, part: str, make: Callable[[], pl.DataFrame]) -> Part:
        found = self.store.find(part) or self.store.write(table, part, make())
        self.store.commit([found])
        return found


@lru_cache(maxsize=2)
def _engine(policy: Policy) -> HFEngine:
    """The policy in process, on one thread: its rollouts are then the same in every run."""
    import torch

    from synth.engines.hf import HFEngine

    keep_freed_memory()
    torch.set_num_threads(1)
    return HFEngine(policy.path, policy_version=policy.id)


def _facets(tasks: Sequence[Task]) -> pl.DataFrame:
    columns = ("intent", "language", "difficulty")
    return pl.DataFrame({"task_id": [task.id for task in tasks], **{name: [getattr(task, name) for task in tasks] for name in columns}})


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)
