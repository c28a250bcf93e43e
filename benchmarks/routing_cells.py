"""One cell of the routing experiment: a rule and a training seed, from the shared seed SFT to the policy that RL leaves, as one JSON file.

One idea: a rule is nothing but a table that says of every task of the pool in which region it is to be taken to be; `filters.route` makes
splits of it, and everything after is the same for all rules: as many own traces for the second SFT, as many steps of it, and RL for
what is left of one budget of rollouts.

    certainty   the regions that were measured, by adaptive probes of the seed SFT's policy and again of the second SFT's
    static      the easiest tasks by static difficulty are certain, the others uncertain
    random      the first tasks of a seeded shuffle are certain, the others uncertain

A rule without a probe rolls its certain tasks out until each has a verified trace (8 draws at most), in its order, until it has as many
traces as certainty found. What a killed cell has done (rollouts in parts of a store, trained stages in their folders) is not done again.
"""

from __future__ import annotations

import json
import random
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from filters.certainty import DrawsConfig, Region, certainty
from filters.route import RouteConfig, route
from storage.errors import HeadraceError
from storage.files import replace_atomically
from storage.records import Task, content_id
from storage.release import ReleaseItem, make_release
from storage.rows import tasks_frame
from storage.store import Store, part_id
from synth.division import DivisionConfig
from synth.drills import draw_drills
from synth.rollouts import PART_TASKS, Draws, rollout_parts
from synth.simulate import expert_trajectory, trajectories_frame
from train.backends import local
from train.spec import RLSettings, SFTSettings, StageSpec
from train.supply import FIRST_INDEX, Source, draw, sources

VERSION = 1
Rule = Literal["certainty", "static", "random"]
RULES: tuple[Rule, ...] = get_args(Rule)
FIRST = "sft1"
TRACE_LOOKS = (1, 2, 4, 8)
Launch = Callable[[StageSpec, Path], Mapping[str, Any]]


class RoutingSettings(BaseModel):
    """What all cells share. Stages, draws and regions are the sample's cascade's; half as many experts leave RL more to add (the second SFT
    and RL of certainty gave .07 each on seed 0, on siblings from index 300,000 on)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: str = "retail"
    max_difficulty: int = 3
    drills: int = Field(480, description="Frames at most that experts, pool and held-out tasks are siblings of.")
    experts: int = Field(240, description="Expert traces of the seed SFT, in the second SFT again.")
    pool: int = Field(480, description="Tasks that a rule routes.")
    budget: int = Field(20_000, description="Rollouts that a rule may spend in all: probes, own traces, and RL.")
    eval_tasks: int = 500
    eval_samples: int = 4
    first_eval: int = Field(FIRST_INDEX, description="Index of the first siblings measured on; other ones where settings are chosen.")
    draws: DrawsConfig = DrawsConfig()
    route: RouteConfig = RouteConfig()
    sft1: SFTSettings = SFTSettings(max_steps=250, plateau_window=25)
    sft2: SFTSettings = SFTSettings(max_steps=150, learning_rate=1e-3)
    rl: RLSettings = RLSettings()


@dataclass(frozen=True)
class Success:
    """Of a policy on the held-out tasks: by task id, the share of the draws at temperature 1, and whether the greedy one succeeded."""

    sampled: dict[str, float]
    greedy: dict[str, float]


@dataclass(frozen=True)
class Cell:
    """What came of a rule and a seed (or of `sft1`, which all rules start from: then `sft2` is empty and nothing was spent).

    spent: rollouts by what they were for. certain, uncertain: tasks that went to the second SFT, and to RL beyond its uniform floor.
    """

    rule: str
    seed: int
    final: Success
    sft2: Success | None
    spent: dict[str, int]
    own_traces: int
    certain: int
    uncertain: int
    cpu_s: float


def rl_steps(budget: int, spent: int, settings: RLSettings) -> int:
    """Whole steps that what is left of the budget pays for: less than one step's rollouts stay unspent.

    Raises:
        HeadraceError: not even one.
    """
    steps = (budget - spent) // (settings.tasks_a_step * settings.draws)
    if steps < 1:
        raise HeadraceError(f"{spent} of {budget} rollouts are spent before RL: raise the budget, or probe fewer tasks")
    return steps


def home_of(folder: Path, settings: RoutingSettings) -> Path:
    """Where the cells of these settings lie, whatever code has made them."""
    return folder / content_id("routing", settings.model_dump(mode="json"), VERSION)


def read_cell(path: Path) -> Cell:
    row = json.loads(path.read_text())
    final, sft2 = Success(**row.pop("final")), row.pop("sft2")
    return Cell(**row, final=final, sft2=Success(**sft2) if sft2 else None)


def run_cell(home: Path, rule: str, seed: int, settings: RoutingSettings, *, launch: Launch = local.launch) -> Cell:
    """The cell as its file has it, or run now; rules other than certainty want certainty's cell of this seed.

    Raises:
        HeadraceError: the pool gives too few traces, the budget is spent before RL, a stage failed.
    """
    path = home / f"{rule}-{seed}.json"
    if not path.exists():
        begun = _cpu_s()
        lab = _Lab(home / f"store-{seed}", seed, settings, launch)
        if rule == FIRST:
            cell = Cell(FIRST, seed, lab.success(lab.first()), None, {}, 0, 0, 0, 0.0)
        else:
            wanted = None if rule == "certainty" else read_cell(home / f"certainty-{seed}.json").own_traces
            cell = _routed(lab, rule, seed, wanted)
        row = asdict(cell) | {"cpu_s": round(_cpu_s() - begun, 1)}
        replace_atomically(path, lambda draft: draft.write_text(json.dumps(row)) and None)
    return read_cell(path)


def _cpu_s() -> float:
    """Of this process and its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _routed(lab: _Lab, rule: str, seed: int, wanted: int | None) -> Cell:
    settings, first, experts = lab.settings, lab.first(), lab.experts()
    spent = {"probe": 0, "traces": 0, "rl": 0}
    if rule == "certainty":
        tags, rollouts = lab.probe(first)
        spent["probe"] += rollouts.height
    else:
        assert wanted is not None
        tags, rollouts, spent["traces"] = _found_traces(lab, first, ordered(lab.pool(), rule, seed), wanted)
    splits = route(experts, tags, rollouts, {}, settings.route)
    sft2 = lab.stage(f"{rule}-sft2", first, {"sft2": splits["sft2"]}, settings.sft2)
    if rule == "certainty":
        tags, rollouts = lab.probe(sft2)
        spent["probe"] += rollouts.height
        splits |= {"rl": route(experts, tags, rollouts, {}, settings.route)["rl"]}
    steps = rl_steps(settings.budget, spent["probe"] + spent["traces"], settings.rl)
    spent["rl"] = steps * settings.rl.tasks_a_step * settings.rl.draws
    final = lab.stage(f"{rule}-rl", sft2, {"rl": splits["rl"]}, settings.rl.model_copy(update={"max_steps": steps}))
    regions = dict(tags.group_by("region").len().iter_rows())
    return Cell(
        rule=rule,
        seed=seed,
        final=lab.success(final),
        sft2=lab.success(sft2),
        spent=spent,
        own_traces=len(splits["sft2"]) - len(experts),
        certain=regions.get(Region.CERTAIN, 0) + regions.get(Region.MASTERED, 0),
        uncertain=regions[Region.UNCERTAIN],
        cpu_s=0.0,
    )


def ordered(pool: Sequence[Task], rule: str, seed: int) -> list[Task]:
    """The pool in the order in which a rule without a probe takes tasks for the second SFT; equal difficulties by a seeded coin."""
    shuffled = sorted(pool, key=lambda task: task.id)
    random.Random(f"coin/{seed}").shuffle(shuffled)
    return shuffled if rule == "random" else sorted(shuffled, key=lambda task: task.difficulty)


def _found_traces(lab: _Lab, policy: Path, pool: Sequence[Task], wanted: int) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Tags that call the tasks certain that had to be tried for so many different verified traces, and the others uncertain; the traces;
    and how many rollouts they took."""
    draws = Draws(TRACE_LOOKS, lambda successes, rated, left: successes > 0, {"until": "success", "most": TRACE_LOOKS[-1]})
    tried, made, found = 0, pl.DataFrame(), pl.DataFrame()
    while found.height < wanted:
        if tried >= len(pool):
            raise HeadraceError(f"the pool gave {found.height} traces where certainty found {wanted}; make it larger")
        tried += PART_TASKS
        made = lab.rollouts(policy, pool[:tried], draws, "traces")
        successes = made.filter(pl.col("outcome") == "success").unique("task_id", keep="first", maintain_order=True)
        found = successes.unique("messages", keep="first", maintain_order=True)
    regions = [Region.CERTAIN if position < tried else Region.UNCERTAIN for position in range(len(pool))]
    tags = pl.DataFrame(
        {
            "task_id": [task.id for task in pool],
            "region": [region.value for region in regions],
            "learnability": [float(region is Region.UNCERTAIN) for region in regions],
            "successes": [int(task.id in set(found["task_id"])) for task in pool],
        }
    )
    return tags, found.head(wanted), made.height


class _Lab:
    """The store of a seed, what is drawn and trained in it, and how policies are measured. A policy is its stage's folder."""

    def __init__(self, root: Path, seed: int, settings: RoutingSettings, launch: Launch) -> None:
        self.store, self.seed, self.settings, self.launch = Store(root), seed, settings, launch
        drills = [drill.task for drill in draw_drills(settings.world, settings.drills, [], DivisionConfig(), seed=0)]
        self._keep(drills)
        self.sources = sources(self.store, worlds=[settings.world], max_difficulty=settings.max_difficulty)

    def first(self) -> Path:
        return self.stage(FIRST, None, {"seed": self.experts()}, self.settings.sft1)

    def pool(self) -> list[Task]:
        return self._tasks(self._of("probe"), self.settings.pool)

    def experts(self) -> list[ReleaseItem]:
        tasks = self._tasks(self._of("seed"), self.settings.experts)
        made = [expert_trajectory(task) for task in tasks]
        part = part_id("trajectories", [task.id for task in tasks], {"teacher": "scripted"}, VERSION)
        self.store.commit([self.store.find(part) or self.store.write("trajectories", part, trajectories_frame(made, tasks))])
        return [ReleaseItem("trajectory", one.id, task.id) for one, task in zip(made, tasks, strict=True)]

    def stage(
        self, name: str, parent: Path | None, splits: Mapping[str, Sequence[ReleaseItem]], settings: SFTSettings | RLSettings
    ) -> Path:
        """The folder of a stage that was trained on the one split; trained now unless it is there."""
        (split,) = splits
        manifest = {"routing": self.settings.route.model_dump(), "seed": self.seed}
        release = make_release(self.store, name, splits, manifest)
        algorithm = "rl" if isinstance(settings, RLSettings) else "sft"
        folder = self.store.root / "models" / content_id(name, release, parent and parent.name, settings.model_dump(), self.seed, VERSION)
        spec = StageSpec(
            name=name,
            algorithm=algorithm,
            store=self.store.root,
            release_id=release,
            split=split,
            model_in=parent / "model" if parent else None,
            model_out=folder / "model",
            worlds=(self.settings.world,),
            seed=self.seed,
            **{algorithm: settings},
        )
        self.launch(spec, folder)
        return folder

    def probe(self, policy: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Tags of the pool by certainty, and the rollouts that they were measured on: as many of each task as settle its region."""
        own, regions, tasks = self.settings.draws, self.settings.route.regions, self.pool()
        rule = {"draws": own.model_dump(), "regions": regions.model_dump()}
        draws = Draws(own.looks, lambda successes, rated, left: own.is_settled(successes, rated, left, regions), rule)
        rollouts = self.rollouts(policy, tasks, draws, "probe")
        difficulty = pl.DataFrame({"task_id": [task.id for task in tasks], "difficulty": [task.difficulty for task in tasks]})
        return certainty(rollouts, difficulty, regions, purpose="probe"), rollouts

    def success(self, policy: Path) -> Success:
        """On held-out siblings of the frames that experts and pool are siblings of."""
        found = [*self._of("seed"), *self._of("probe")]
        tasks = draw(found, self.settings.eval_tasks, use="eval_in", language="en", first_index=self.settings.first_eval)
        self._keep(tasks)
        sampled = self.rollouts(policy, tasks, self.settings.eval_samples, "eval_in")
        return Success(_rates(sampled), _rates(self.rollouts(policy, tasks, 1, "eval_in_greedy", temperature=0.0)))

    def rollouts(self, policy: Path, tasks: Sequence[Task], draws: int | Draws, purpose: str, *, temperature: float = 1.0) -> pl.DataFrame:
        """In the order of the tasks and then of the draws.

        Raises:
            HeadraceError: one was spoilt by no doing of the policy's.
        """
        parts = rollout_parts(
            self.store,
            self._engine(policy),
            tasks,
            draws,
            purpose=purpose,
            policy_id=policy.name,
            temperature=temperature,
            seed=self.seed,
        )
        self.store.commit(parts)
        columns = ["rollout_id", "task_id", "policy_id", "draw", "outcome", "reward", "messages"]
        made = pl.concat([pl.read_parquet(self.store.root / part.path, columns=columns) for part in parts])
        spoilt = made.filter(~pl.col("outcome").is_in(("success", "policy_failure")))
        if spoilt.height:
            raise HeadraceError(f"{spoilt.height} of {made.height} rollouts ({purpose}) failed by no doing of the policy's")
        return made

    def _engine(self, policy: Path) -> Any:
        if getattr(self, "_loaded", (None, None))[0] != policy:
            import torch

            from synth.engines.hf import HFEngine
            from train.on_cpu import keep_freed_memory

            keep_freed_memory()
            torch.set_num_threads(1)
            self._loaded = (policy, HFEngine(policy / "model", policy_version=policy.name))
        return self._loaded[1]

    def _of(self, division: str) -> list[Source]:
        return [source for source in self.sources if source.division == division]

    def _tasks(self, found: Sequence[Source], count: int) -> list[Task]:
        tasks = draw(found, count, use="train", language="en")
        self._keep(tasks)
        return tasks

    def _keep(self, tasks: Sequence[Task]) -> None:
        part = part_id("tasks", [task.id for task in tasks], {}, VERSION)
        self.store.commit([self.store.find(part) or self.store.write("tasks", part, tasks_frame(tasks))])


def _rates(rollouts: pl.DataFrame) -> dict[str, float]:
    rates = rollouts.group_by("task_id").agg((pl.col("outcome") == "success").mean()).sort("task_id")
    return dict(rates.iter_rows())
