"""One cell of the routing experiment: a rule and a training seed, from the shared seed SFT to the policy that RL leaves, as one JSON file.

One idea: a rule is nothing but a table that says of every task of the pool in which region it is to be taken to be;
`filters.certainty.route` makes splits of it, and everything after is the same for all rules: as many own traces for the second SFT, as many
steps of it, and RL for what is left of one budget of rollouts.

    certainty   the regions that were measured, by adaptive probes of the seed SFT's policy and again of the second SFT's
    static      the easiest tasks by static difficulty are certain (refusals, at -1, before all), the others uncertain
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
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.harness import code_mark
from filters.certainty.certainty import Region
from filters.certainty.route import route
from storage.errors import HeadraceError
from storage.files import replace_atomically
from storage.record_rows import tasks_frame
from storage.records import Task, content_id
from storage.releases.release import ReleaseItem, make_release
from storage.store import Store, part_id
from synth.blueprints.single_goal import draw_drills
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.rollouts.draws import PART_TASKS, Draws
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from train.backends.base import run_stage
from train.backends.local import LocalBackend
from train.config import CascadeConfig
from train.data.task_pool import FIRST_INDEX, draw
from train.measure.probe import Prober
from train.policies import Policy
from train.spec import RLSettings, SFTSettings, StageSpec

VERSION = 1
Rule = Literal["certainty", "static", "random"]
RULES: tuple[Rule, ...] = get_args(Rule)
FIRST = "sft1"
TRACE_LOOKS = (1, 2, 4, 8)
Launch = Callable[[StageSpec, Path], Mapping[str, Any]]


class RoutingSettings(BaseModel):
    """What all cells share. The cascade is the sample's in one world, with half as many experts, which leaves RL more to add."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drills: int = Field(480, description="Frames at most, of each world, that experts, pool and held-out tasks are siblings of.")
    cascade: CascadeConfig = CascadeConfig(worlds=("retail",), expert_budget=240, probe_tasks=480, eval_tasks=500)
    budget: int = Field(20_000, description="Rollouts that a rule may spend in all: probes, own traces, and RL.")
    first_eval: int = Field(FIRST_INDEX, description="Index of the first siblings measured on; other ones where settings are chosen.")


@dataclass(frozen=True)
class Success:
    """Of a policy on the held-out tasks: by task id, the share of the draws at temperature 1, and whether the greedy one succeeded."""

    sampled: dict[str, float]
    greedy: dict[str, float]


@dataclass(frozen=True)
class Cell:
    """What came of a rule and a seed (or of `sft1`, which all rules start from: then `sft2` is empty and nothing was spent).

    spent: rollouts by what they were for. own_traces: of the second SFT, beside the experts. code: the commit that it was finished at,
    which may be an earlier one than the other figures' are of; empty where that was not noted.
    """

    rule: str
    seed: int
    final: Success
    sft2: Success | None
    spent: dict[str, int]
    own_traces: int
    cpu_s: float
    code: str = ""


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
    """Where the cells of these settings lie: named by VERSION, and by what differs from the defaults."""
    return folder / content_id("routing", settings.model_dump(mode="json", exclude_defaults=True), VERSION)


def read_cell(path: Path) -> Cell:
    row = json.loads(path.read_text())
    final, sft2 = Success(**row.pop("final")), row.pop("sft2")
    return Cell(**row, final=final, sft2=Success(**sft2) if sft2 else None)


def run_cell(home: Path, rule: str, seed: int, settings: RoutingSettings, *, launch: Launch | None = None) -> Cell:
    """The cell as its file has it, or run now; rules other than certainty want certainty's cell of this seed.

    Raises:
        HeadraceError: the pool gives too few traces, the budget is spent before RL, a stage failed.
    """
    path = home / f"{rule}-{seed}.json"
    if not path.exists():
        begun = _cpu_s()
        lab = Lab(home / f"store-{seed}", seed, settings, launch or partial(run_stage, LocalBackend()))
        if rule == FIRST:
            cell = Cell(FIRST, seed, lab.success(lab.first()), None, {}, 0, 0.0)
        else:
            wanted = None if rule == "certainty" else read_cell(home / f"certainty-{seed}.json").own_traces
            cell = _routed(lab, rule, seed, wanted)
        row = asdict(cell) | {"cpu_s": round(_cpu_s() - begun, 1), "code": code_mark()}
        replace_atomically(path, lambda draft: draft.write_text(json.dumps(row)) and None)
    return read_cell(path)


def _cpu_s() -> float:
    """Of this process and its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _routed(lab: Lab, rule: str, seed: int, wanted: int | None) -> Cell:
    first, experts, config = lab.first(), lab.experts(), lab.config
    spent = {"probe": 0, "traces": 0, "rl": 0}
    if wanted is None:
        tags, rollouts = lab.probe(first)
        spent["probe"] = rollouts.height
    else:
        tags, rollouts, spent["traces"] = _found_traces(lab, first, ordered(lab.pool(), rule, seed), wanted)
    splits = route(experts, tags, rollouts, {}, config.route)
    sft2 = lab.stage(f"{rule}-sft2", first, {"sft2": splits["sft2"]}, config.stage("sft2").settings)
    if wanted is None:
        tags, rollouts = lab.probe(sft2)
        spent["probe"] += rollouts.height
        splits["rl"] = route(experts, tags, rollouts, {}, config.route)["rl"]
    rl = config.stage("rl").settings
    steps = rl_steps(lab.settings.budget, sum(spent.values()), rl)
    spent["rl"] = steps * rl.tasks_a_step * rl.draws
    final = lab.stage(f"{rule}-rl", sft2, {"rl": splits["rl"]}, rl.model_copy(update={"max_steps": steps}))
    return Cell(rule, seed, lab.success(final), lab.success(sft2), spent, len(splits["sft2"]) - len(experts), 0.0)


def ordered(pool: Sequence[Task], rule: str, seed: int) -> list[Task]:
    """The pool in the order in which a rule without a probe takes tasks for the second SFT; equal difficulties by a seeded coin."""
    shuffled = sorted(pool, key=lambda task: task.id)
    random.Random(f"coin/{seed}").shuffle(shuffled)
    return shuffled if rule == "random" else sorted(shuffled, key=lambda task: task.difficulty)


def _found_traces(lab: Lab, policy: Policy, pool: Sequence[Task], wanted: int) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Tags that call the tasks certain that had to be tried for so many different verified traces, and the others uncertain; the traces;
    and how many rollouts they took."""
    draws = Draws(TRACE_LOOKS, lambda successes, rated, left: successes > 0, {"until": "success", "most": TRACE_LOOKS[-1]})
    places = pl.DataFrame({"task_id": [task.id for task in pool]}).with_row_index("place")
    tried, made, found = 0, pl.DataFrame(), pl.DataFrame()
    while found.height < wanted:
        if tried >= len(pool):
            raise HeadraceError(f"the pool gave {found.height} traces where certainty found {wanted}; make it larger")
        tried += PART_TASKS
        made = lab.rollouts(policy, pool[:tried], draws, "traces").join(places, on="task_id").sort("place", "draw")
        successes = made.filter(pl.col("outcome") == "success").unique("task_id", keep="first", maintain_order=True)
        found = successes.unique("messages", keep="first", maintain_order=True)
    regions = [Region.CERTAIN if position < tried else Region.UNCERTAIN for position in range(len(pool))]
    rated = dict(made.group_by("task_id").len().iter_rows())
    tags = pl.DataFrame(
        {
            "task_id": [task.id for task in pool],
            "region": [region.value for region in regions],
            "learnability": [float(region is Region.UNCERTAIN) for region in regions],
            "successes": [int(task.id in set(found["task_id"])) for task in pool],
            "k": [rated.get(task.id, 0) for task in pool],
        }
    )
    return tags, found.head(wanted), made.height


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
        self, name: str, parent: Policy | None, splits: Mapping[str, Sequence[ReleaseItem]], settings: SFTSettings | RLSettings
    ) -> Policy:
        """The policy of a stage that is trained on the one split; trained now unless its folder is there."""
        (split,), store = splits, self.prober.store
        release = make_release(store, name, splits, {"routing": self.config.route.model_dump(), "seed": self.seed})
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
