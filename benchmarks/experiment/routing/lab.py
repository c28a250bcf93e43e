"""What one seed of the routing experiments shares: a store, the seed SFT's policy, the pool that is probed, and held-out tasks.

The tasks are plain ones of one world; experts, pool and held-out tasks are siblings of the same frames. What a killed call has done
(rollouts in parts of a store, trained stages in their folders) is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from storage.errors import HeadraceError
from storage.record_rows import tasks_frame
from storage.records import Task, content_id
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.blueprints.single_goal import draw_drills
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.rollouts.draws import Draws
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from train.config import CascadeConfig
from train.data.task_pool import FIRST_INDEX, draw
from train.measure.probe import Prober
from train.policies import Policy
from train.spec import RLSettings, SFTSettings, StageSpec

VERSION = 1
FIRST = "sft1"
Launch = Callable[[StageSpec, Path], Mapping[str, Any]]


class RoutingSettings(BaseModel):
    """The cascade is the sample's in one world, with half as many experts, which leaves RL more to add."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drills: int = Field(480, description="Frames at most, of each world, that experts, pool and held-out tasks are siblings of.")
    cascade: CascadeConfig = CascadeConfig(worlds=("retail",), expert_budget=240, probe_tasks=480, eval_tasks=500)
    first_eval: int = Field(FIRST_INDEX, description="Index of the first siblings measured on; other ones where settings are chosen.")


@dataclass(frozen=True)
class Success:
    """Of a policy on the held-out tasks: by task id, the share of the draws at temperature 1, and whether the greedy one succeeded."""

    sampled: dict[str, float]
    greedy: dict[str, float]


class Lab:
    """The store of a seed, what is drawn and trained in it, and how its policies are measured: the pool as the cascade probes it."""

    def __init__(self, root: Path, seed: int, settings: RoutingSettings, launch: Launch) -> None:
        self.seed, self.settings, self.launch = seed, settings, launch
        certain = settings.cascade.route.model_copy(update={"second": "certain"})
        self.config = settings.cascade.model_copy(update={"seed": seed, "route": certain})
        store = Store(root)
        tasks = [
            drill.task
            for world in self.config.worlds
            for drill in draw_drills(WORLDS[world], settings.drills, [], DivisionConfig(), seed=0)
        ]
        part = part_id("tasks", [task.id for task in tasks], {}, VERSION)
        store.commit([store.find(part) or store.write("tasks", part, tasks_frame(tasks))])
        self.prober = Prober(store, self.config)

    def first(self) -> Policy:
        return self.stage(FIRST, None, {"seed": self.experts()}, self.config.stage("sft1").settings)

    def pool(self) -> list[Task]:
        return self.prober.tasks(["probe"], self.config.probe_tasks, "train")

    def experts(self) -> list[ReleaseItem]:
        tasks = self.prober.tasks(["seed"], self.config.expert_budget, "train")
        made = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
        part = part_id("trajectories", [task.id for task in tasks], {"teacher": "scripted"}, VERSION)
        self.prober.commit("trajectories", part, lambda: trajectories_frame(made, tasks))
        return [ReleaseItem("trajectory", one.id, task.id) for one, task in zip(made, tasks, strict=True)]

    def stage(
        self,
        name: str,
        parent: Policy | None,
        splits: Mapping[str, Sequence[ReleaseItem]],
        settings: SFTSettings | RLSettings,
        manifest: Mapping[str, Any] = MappingProxyType({}),
    ) -> Policy:
        """The policy of a stage that is trained on the one split; trained now unless its folder is there. manifest: of its release."""
        (split,), store = splits, self.prober.store
        release = make_release(store, name, splits, {"routing": self.config.route.model_dump(), "seed": self.seed, **manifest})
        algorithm = "rl" if isinstance(settings, RLSettings) else "sft"
        stage = content_id("stage", name, release, parent and parent.id, settings.model_dump(), self.seed, VERSION)
        folder = store.root / "models" / stage
        spec = StageSpec(
            name=name,
            algorithm=algorithm,
            store=store.root,
            release_id=release,
            split=split,
            model_in=parent.path if parent else None,
            model_out=folder / "model",
            worlds=self.config.worlds,
            language=self.config.language,
            seed=self.seed,
            **{algorithm: settings},
        )
        self.launch(spec, folder)
        return Policy(stage, name, spec.model_out)

    def success(self, policy: Policy) -> Success:
        """On held-out siblings of the frames that experts and pool are siblings of."""
        found, config = [source for division in ("seed", "probe") for source in self.prober.sources[division]], self.config
        tasks = draw(found, config.eval_tasks, use="eval_in", language=config.language, first_index=self.settings.first_eval)
        self.prober.commit("tasks", part_id("tasks", [task.id for task in tasks], {}, VERSION), lambda: tasks_frame(tasks))
        sampled = self.rollouts(policy, tasks, config.eval_samples, "eval_in")
        return Success(_rates(sampled), _rates(self.rollouts(policy, tasks, 1, "eval_in_greedy", temperature=0.0)))

    def probe(self, policy: Policy) -> tuple[pl.DataFrame, pl.DataFrame]:
        tags, rollouts = self.prober.probe(policy)
        return tags, _rated(rollouts)

    def rollouts(self, policy: Policy, tasks: Sequence[Task], draws: int | Draws, purpose: str, temperature: float = 1.0) -> pl.DataFrame:
        return _rated(self.prober.rollouts(policy, tasks, draws, purpose, temperature=temperature))


def _rated(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Raises HeadraceError where one failed by no doing of the policy's."""
    spoilt = rollouts.filter(~pl.col("outcome").is_in(("success", "policy_failure")))
    if spoilt.height:
        raise HeadraceError(f"{spoilt.height} of {rollouts.height} rollouts failed by no doing of the policy's: {spoilt['outcome'][0]}")
    return rollouts


def _rates(rollouts: pl.DataFrame) -> dict[str, float]:
    rates = rollouts.group_by("task_id").agg((pl.col("outcome") == "success").mean()).sort("task_id")
    return dict(rates.iter_rows())
