"""The cascade: a list of stages, each trained from its parent's policy, then evaluated and gated.

One idea: every step writes a part of the store whose id is made from its inputs. A step whose part exists is skipped, so a killed cascade
resumes, and the same configuration on the same store gives the same bytes.
The seed split has synthesised conversations and experts of single tasks. A stage with a routed split trains on what a probe measured; by
default seed SFT -> probe -> second SFT -> RL. Expert trajectories are limited by a budget, because they cost money; verifiable tasks are
nearly free, so RL can use more of them.
After every stage the new policy is evaluated on held-out tasks and compared once with the policy promoted last. A stage that fails does
not change that one.

What it does not do: list the stages (`train/stages.py`), train (`train/run.py`, which a backend starts), measure
(`train/measure/probe.py`), or choose tasks (`train/data/task_pool.py`).
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from filters.certainty.certainty import VERSION as CERTAINTY_VERSION
from filters.certainty.certainty import histogram
from filters.certainty.route import VERSION as ROUTE_VERSION
from filters.certainty.route import route
from filters.certainty.running_tags import PURPOSE as RUNNING
from filters.code_hash import code_hash
from storage.errors import HeadraceError
from storage.health.weights import refuse_pruned
from storage.records import Task, Trajectory, content_id
from storage.releases.release import ReleaseItem, make_release
from storage.store import Part, Store, part_id
from storage.tables import TABLES
from synth.conversations.expert import expert_trajectory
from synth.engines.vllm import VLLMConfig, check_installed
from synth.roles.scripted import TEACHER
from synth.roles.simulate import trajectories_frame
from synth.worlds import WORLDS
from train.backends.base import TAGS, Backend, run_stage
from train.backends.named import BACKENDS
from train.config import CascadeConfig
from train.data.general_data import SPLIT as GENERAL_SPLIT
from train.data.general_data import choose_chats, store_chats
from train.data.seed_split import explain_shortage, rough_tokens, synthesised_conversations
from train.data.task_pool import check_tasks
from train.measure.evaluate import facets
from train.measure.gate import gate
from train.measure.probe import Prober, Progress
from train.measure.suites.overlap import check_release_overlap, held_out_questions
from train.models.base_model import check_base_model, model_id, resolve_model, window_of
from train.policies import Policy, promoted_policy
from train.spec import RLSettings, SFTSettings, StageSpec, TinyConfig
from train.stages import SPLITS, Stage
from train.teacher import oracle_tries, teach

VERSION = 1
RunStage = Callable[[Backend[Any], StageSpec, Path], dict[str, Any]]
"""Runs a stage with a backend and returns its result.json, as `train.backends.base.run_stage`."""


@dataclass
class CascadeResult:
    """Result of a cascade.

    policies: in the order of training.
    promoted: the policy that the store promoted last; it may be older than the cascade.
    passed: stage -> whether its policy passed the gate.
    """

    policies: list[Policy] = field(default_factory=list)
    promoted: Policy | None = None
    passed: dict[str, bool] = field(default_factory=dict)


def run_cascade(store: Store, config: CascadeConfig, *, run: RunStage | None = None, progress: Progress | None = None) -> CascadeResult:
    """Trains, probes, evaluates and gates all stages; steps whose results are in the store are skipped.

    run: runs one stage; None: `run_stage`.

    Raises:
        BadInput: the base model cannot be trained for tool use, or the store has no task in these worlds up to this difficulty.
        BadInput: a release overlaps a suite of `held_out`, or a suite that it names is not installed.
        HeadraceError: too few frames in the store, a split that would be empty, a stage that failed.
    """
    check_tasks(store, worlds=config.worlds, max_difficulty=config.max_difficulty)
    questions = held_out_questions(config.held_out)
    cascade = Cascade(store, config, run=run, progress=progress)
    with cascade.prober.own_engines:
        result = CascadeResult()
        experts = cascade.seed_items()
        policies: dict[str, Policy] = {}
        for stage in config.cascade:
            parent = policies[stage.parent] if stage.parent is not None else None
            probed = config.probed_stage(stage)
            release = cascade.release(stage, policies[probed] if probed is not None else None, experts)
            check_release_overlap(store, release, questions)
            policies[stage.name] = cascade.stage(stage.name, parent, release, SPLITS[stage.split].part, stage.settings, stage.backend)
            cascade.judge(policies[stage.name], result)
        result.promoted = promoted_policy(store)
        return result


class Cascade:
    """The steps of a cascade on one store: releases, stages, and gates.

    Raises:
        BadInput: the base model cannot be trained for tool use.
    """

    def __init__(self, store: Store, config: CascadeConfig, *, run: RunStage | None = None, progress: Progress | None = None) -> None:
        self.store, self.config = store, config
        self.prober = Prober(store, config, progress)
        self.run = run or self._run
        self.base = resolve_model(config.model) if config.model is not None else None
        if self.base is not None:
            check_base_model(self.base)
        self.window = window_of(self.base) if self.base is not None else TinyConfig().positions
        self.chats = choose_chats(config.chat_counts, self.window)
        if config.rollouts == "vllm":
            check_installed(VLLMConfig(model=config.model or "."))

    def _run(self, backend: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
        return run_stage(backend, spec, folder, lambda done, most, _: self.prober.progress(f"stage {spec.name}", done, most))

    # ---- releases ------------------------------------------------------------------------------------------------------

    def seed_items(self) -> list[ReleaseItem]:
        """The items of the seed split, both kinds in turn: synthesised conversations, and experts of single tasks.

        Raises:
            HeadraceError: the store gives too few of a kind that the configuration asks for.
        """
        config = self.config
        synthesised = self.synthesised(round(config.expert_budget * config.synthesised_share))
        single = [source for source in self.prober.sources["seed"] if source.conversation is None]
        experts = self.experts(self.prober.draw(single, config.expert_budget - len(synthesised), "train"))
        kinds = itertools.zip_longest(synthesised, experts, self.general("chosen"))
        return [item for turn in kinds for item in turn if item is not None]

    def general(self, use: Literal["chosen", "held_out"]) -> list[ReleaseItem]:
        """The general conversations to train on (`chosen`), or those that are kept aside; none without `mix`."""
        return [item for name, chats in self.chats.items() for item in store_chats(self.store, name, getattr(chats, use))]

    def synthesised(self, count: int) -> list[ReleaseItem]:
        """Accepted conversations; where they are too few, also siblings of them, made as experts are. With a context, siblings alone: the
        accepted conversations were held without it."""
        config = self.config
        accepted = synthesised_conversations(
            self.store,
            worlds=config.worlds,
            language=config.language,
            max_difficulty=config.max_difficulty,
            max_tokens=self.window,
            count=0 if config.context.is_on else count,
            sources=config.source_weights,
        )
        courses = [source for source in self.prober.sources["seed"] if source.conversation is not None]
        if count and not accepted and not courses:
            raise HeadraceError(f"{self.store.root}: {explain_shortage(self.store, worlds=config.worlds, language=config.language)}")
        return accepted + self.experts(self.prober.draw(courses, count - len(accepted), "train", fewest=0), is_needed=not accepted)

    def experts(self, tasks: Sequence[Task], *, is_needed: bool = True) -> list[ReleaseItem]:
        """Expert conversations of tasks, by the configured engine or the scripted solver; those that fit into the policy's window.

        is_needed: whether it is an error if the engine solves no task.
        """
        if not tasks:
            return []
        experts = self.config.experts
        if experts.engine is not None:
            return self.taught(tasks, dict.fromkeys((task.id for task in tasks), experts.best_of), is_needed=is_needed)
        return self.scripted_experts(tasks)

    def taught(self, tasks: Sequence[Task], tries: Mapping[str, int], *, is_needed: bool) -> list[ReleaseItem]:
        return teach(self.store, self.config, tasks, tries, self.prober.progress, window=self.window, is_needed=is_needed)

    def scripted_experts(self, tasks: Sequence[Task]) -> list[ReleaseItem]:
        """Writes the executed plans of tasks to the store."""
        part = part_id("trajectories", [task.id for task in tasks], {"teacher": "scripted"}, VERSION)
        trajectories: list[Trajectory] = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
        self.prober.commit("trajectories", part, lambda: trajectories_frame(trajectories, tasks))
        return [
            ReleaseItem("trajectory", trajectory.id, task.id)
            for trajectory, task in zip(trajectories, tasks, strict=True)
            if rough_tokens(trajectory.messages) <= self.window
        ]

    def release(self, stage: Stage, probed: Policy | None, experts: list[ReleaseItem]) -> str:
        """The release that a stage reads. probed: the policy whose probe routes it; None if its split is not routed."""
        split = SPLITS[stage.split]
        if not split.is_routed:
            return self.seed_release(experts)
        assert probed is not None
        return self.routed_release(split.release, probed, experts)

    def seed_release(self, items: list[ReleaseItem]) -> str:
        """The release for the first stage."""
        config = self.config
        manifest = {
            "expert_budget": config.expert_budget,
            "synthesised_share": config.synthesised_share,
            "experts": config.experts.engine or TEACHER,
            "mix": [[Path(name).name, share] for name, share in config.mix.items()],
        }
        return make_release(self.store, "seed", {"seed": items} | self._held_out(), manifest)

    def _held_out(self) -> dict[str, list[ReleaseItem]]:
        """The split on which stages measure what is forgotten; none without `mix`."""
        return {GENERAL_SPLIT: held_out} if (held_out := self.general("held_out")) else {}

    def routed_release(self, name: str, policy: Policy, experts: list[ReleaseItem]) -> str:
        """Probes the policy, tags the probe tasks, and freezes the splits that routing makes of the tags."""
        tags, rollouts = self.prober.probe(policy)
        queries = dict(self.store.query("SELECT DISTINCT task_id, query_id FROM tasks WHERE query_id IS NOT NULL").iter_rows())
        splits = route(experts, tags, rollouts, queries, self.config.route)
        if self.config.experts.oracle and name == SPLITS["second"].release:
            tries = oracle_tries(tags, self.config.experts.best_of)
            asked = [task for task in self.prober.probe_tasks() if task.id in tries]
            splits["sft2"] += self.taught(asked, tries, is_needed=False)
        manifest = {
            "probed_policy": policy.id,
            "histogram": {str(successes): tasks for successes, tasks in histogram(tags).items()},
            "routing": self.config.route.model_dump(),
            "oracle": self.config.experts.engine if self.config.experts.oracle else None,
            "version": ROUTE_VERSION,
        }
        return make_release(self.store, name, {split: items for split, items in splits.items() if items} | self._held_out(), manifest)

    # ---- stages ------------------------------------------------------------------------------------------------------------

    def stage(
        self,
        name: str,
        parent: Policy | None,
        release_id: str,
        split: str,
        settings: SFTSettings | RLSettings,
        backend: str | None = None,
    ) -> Policy:
        """The policy that a stage trains from its parent; trains only if the store does not have it.

        split: its name in the release. backend: name; None: that of the configuration.

        Raises:
            BadInput: the parent's model was pruned.
        """
        stage_id = self._stage_id(name, parent, release_id, split, settings)
        folder = self.store.root / "models" / stage_id
        earlier = self.store.query("SELECT policy_id FROM policies WHERE stage_id = ?", [stage_id])
        if earlier.height:
            return Policy(earlier.item(), name, folder / "model")
        if parent is not None:
            refuse_pruned(parent.path)
        model_in = parent.path if parent else self.base
        spec = self.config.spec(
            name, settings, store=self.store.root, release=release_id, split=split, model_in=model_in, model_out=folder / "model"
        )
        backend = backend or self.config.backend
        started = time.monotonic()
        self.prober.own_engines.close()
        result = self.run(BACKENDS[backend](self.config.cluster), spec, folder)
        for note in result.get("notes", ()):
            warnings.warn(f"stage {name}: {note}", stacklevel=2)
        about = {"stage_id": stage_id, "backend": backend, "input_policy_id": parent.id if parent else None}
        policy = self._commit_stage(spec, result, about | {"seconds": time.monotonic() - started})
        self.prober.progress(f"stage {name}", settings.max_steps, settings.max_steps)
        return policy

    def _stage_id(self, name: str, parent: Policy | None, release_id: str, split: str, settings: SFTSettings | RLSettings) -> str:
        """Id made from everything that decides the stage's result, so not from the backend, the checkpoint interval and how many workers
        play rollouts."""
        facts = {
            "name": name,
            "settings": settings.model_dump(exclude={"checkpoint_steps", "vllm_memory_share", "reward_url", "rollout_workers"}),
            "seed": self.config.seed,
            "split": split,
            "worlds": list(self.config.worlds),
        }
        if getattr(settings, "rollout_workers", None) is not None:
            facts["plays"] = "trajectories"
        if parent is None and self.base is not None:
            facts["model"] = model_id(self.base)
        return content_id("stage", release_id, parent.id if parent else None, facts, VERSION)

    def _commit_stage(self, spec: StageSpec, result: Mapping[str, Any], about: Mapping[str, Any]) -> Policy:
        """Writes the rows of a finished stage and its policy. about: columns of the stage's row that are not in spec and result."""
        stage_id, folder = about["stage_id"], spec.model_out.parent
        policy = Policy(content_id("policy", stage_id, result["weights_hash"]), spec.name, spec.model_out)
        stage_row = {
            **about,
            "name": spec.name,
            "algorithm": spec.algorithm,
            "release_id": spec.release_id,
            "split": spec.split,
            "output_policy_id": policy.id,
            "spec": spec.model_dump_json(),
            "code_hash": result.get("code_hash") or code_hash("filters", "synth", "train"),
            "metrics": json.dumps(result["metrics"]),
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
                *([self._running_tags(policy, folder)] if spec.algorithm == "rl" and (folder / TAGS).exists() else []),
            ]
        )
        return policy

    def _running_tags(self, policy: Policy, folder: Path) -> Part:
        """Writes RL's running tags of its split's tasks as tags of the new policy; verl and ROLL leave none."""
        rows = [json.loads(line) | {"policy_id": policy.id} for line in (folder / TAGS).read_text().splitlines()]
        frame = pl.DataFrame(rows, schema=TABLES["tags"].columns)
        return self.store.write("tags", part_id("tags", [policy.id], {"purpose": RUNNING}, CERTAINTY_VERSION), frame)

    # ---- evaluation and gate -------------------------------------------------------------------------------------------

    def judge(self, policy: Policy, result: CascadeResult) -> None:
        """Evaluates a policy on both kinds of held-out tasks and promotes it if it passes the gate; an earlier verdict stays."""
        tasks, sampled = self.prober.evaluate(policy)
        passed = self._verdict(policy)
        if passed is None:
            rival = promoted_policy(self.store)
            against = self._sample(rival, tasks) if rival else None
            earlier = [self._sample(one, tasks) for one in result.policies if one != rival]
            verdict = gate(sampled, against, facets(tasks), self.config.gate, earlier=earlier)
            row = {"policy_id": policy.id, "position": len(result.policies), "passed": verdict.passed, "checks": json.dumps(verdict.checks)}
            part = part_id("promotions", [policy.id, rival.id if rival else ""], self.config.gate.model_dump(), VERSION)
            self.prober.commit("promotions", part, lambda: _frame([row]))
            passed = verdict.passed
        result.policies.append(policy)
        result.passed[policy.name] = passed

    def _sample(self, policy: Policy, tasks: Sequence[Task]) -> pl.DataFrame:
        return self.prober.rollouts(policy, tasks, self.config.eval_samples, "eval_in", temperature=1.0)

    def _verdict(self, policy: Policy) -> bool | None:
        promotions = self.store.query("SELECT passed FROM promotions WHERE policy_id = ?", [policy.id])
        return bool(promotions["passed"][0]) if promotions.height else None


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)
