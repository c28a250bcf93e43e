"""The arms of the cascade experiment: what one training seed's cascade gives, and what else its seed SFT or second SFT could have become.

    cascade        seed SFT -> probe -> second SFT -> probe -> RL, by configs/ladder.yaml: `run_cascade` itself
    longer_sft1    seed SFT, from scratch on the same traces, for as many steps as both SFTs
    more_sft       the second SFT continued on its own split, for RL's CPU seconds
    shuffled       RL under success that was dealt out anew among all rollouts of a step
    rft            rejection sampling on RL's tasks: rounds of as many draws a task, then an epoch of SFT on the second SFT's split and
                   every verified trajectory so far, until RL's CPU seconds are spent
    more_experts   the second SFT continued on as many new expert traces as RL used tasks, for RL's CPU seconds
    rl_uniform     RL on tasks drawn uniformly over all that were probed, whatever their region
    grpo, gspo ... RL by another loss. staleness1 ... RL whose rollouts are so many updates old

All but `longer_sft1` begin with the cascade's second SFT. CPU seconds are those of the stage's process less what a stage of one step takes
(`Lab._start_up`: imports, loading). An arm's policy is measured on `eval_in` as the gate measures it (4 draws at temperature 1 a task, one
greedy) and on a second held-out set of siblings, none of which shows what one of `eval_in` does, that no setting was ever chosen on.

What a killed arm has done (parts of the store, trained stages) is not done again; only a cascade, whose CPU time is a figure, begins anew.
What a killed round of rejection sampling had spent is not counted: that arm then gets more than its due.
"""

from __future__ import annotations

import json
import math
import resource
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.harness import code_mark
from filters.certainty.route import route
from flows.config import Config
from storage.files import replace_atomically
from storage.record_rows import tasks_frame
from storage.records import Task, content_id
from storage.releases.release import ReleaseItem, load_split, make_release
from storage.store import Store, part_id
from synth.conversations.expert import expert_trajectory
from synth.roles.simulate import trajectories_frame
from synth.worlds import WORLDS
from train.backends.base import Backend, run_stage
from train.backends.local import LocalBackend
from train.cascade import Cascade, run_cascade
from train.config import CascadeConfig
from train.data.task_pool import FIRST_INDEX, Source, Use, draw, shown_hash
from train.measure.evaluate import facets
from train.measure.probe import Prober
from train.policies import Policy, known_policy
from train.rl.task_sampler import FreshTasks
from train.spec import METRICS, RLSettings, SFTSettings, StageSpec

VERSION = 3
FRESH_INDEX = FIRST_INDEX + 50_000
EXPERT_INDEX = FIRST_INDEX + 20_000
ROUND_TASKS = 800
RUNGS = ("sft1", "sft2", "rl")
Launch = Callable[[StageSpec, Path], dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """Of one policy: by task id, the share of the draws that succeeded. cpu_s: of its stage, in all; steps: of its stage."""

    eval_in: dict[str, float]
    eval_in_greedy: dict[str, float]
    fresh: dict[str, float]
    cpu_s: float
    steps: int


@dataclass(frozen=True)
class Cell:
    """An arm of a seed. policies: by name, `RUNGS` of a cascade, the arm's own of another. cpu_s: of the arm, measuring included.
    told: further figures of the arm. tasks: those of `eval_in`, a cascade's: their facets, and whether the seed split has their intent.
    code: the commit that it was finished at."""

    arm: str
    seed: int
    policies: dict[str, Measured]
    cpu_s: float
    told: dict[str, float] = field(default_factory=dict)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    code: str = ""


def home_of(folder: Path, config: Config) -> Path:
    """Where the cells of a configuration lie: named by VERSION and by all that it says."""
    return folder / content_id("cascade", config.model_dump(mode="json", exclude={"store"}), VERSION)


def read_cell(path: Path) -> Cell:
    row = json.loads(path.read_text())
    return Cell(**row | {"policies": {name: Measured(**one) for name, one in row["policies"].items()}})


def run_cell(home: Path, arm: str, seed: int, config: CascadeConfig, base: Callable[[], Path], *, launch: Launch | None = None) -> Cell:
    """The cell as its file has it, or run now; all arms but `cascade` want the cascade's of this seed.

    base: gives the store that a cascade begins with, whose frames tasks are drawn from, whatever arms have added to the seed's own store.
    """
    path = home / f"{arm}-{seed}.json"
    if not path.exists():
        root = home / f"store-{seed}"
        if arm == "cascade":
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(base(), root)
        begun = cpu_s()
        found = Prober(Store(base()), config).sources
        lab = Lab(Store(root), config.model_copy(update={"seed": seed}), launch or partial(run_stage, LocalBackend()), found)
        if arm == "cascade":
            policies, told = lab.cascade()
        else:
            made, told = lab.arm(arm, read_cell(home / f"cascade-{seed}.json"))
            policies = {arm: lab.measured(made)}
        tasks = lab.tasks() if arm == "cascade" else []
        cell = Cell(arm, seed, policies, round(cpu_s() - begun, 1), told, tasks, code_mark())
        replace_atomically(path, lambda draft: draft.write_text(json.dumps(asdict(cell))) and None)
    return read_cell(path)


def cpu_s() -> float:
    """Of this process and its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Lab:
    """A seed's store, and what is trained and measured in it.

    found: what tasks are drawn from, by division. RL's tasks are siblings of siblings, so those that an arm keeps in the store would pass
    for frames of their own.
    """

    def __init__(self, store: Store, config: CascadeConfig, launch: Launch, found: dict[str, list[Source]]) -> None:
        self.config, self._launch = config, launch
        self.steps = Cascade(store, config, run=self._run)
        self.prober, self.store = self.steps.prober, store
        self.prober.sources = found

    # ---- arms --------------------------------------------------------------------------------------------------------------

    def cascade(self) -> tuple[dict[str, Measured], dict[str, float]]:
        begun = cpu_s()
        result = run_cascade(self.store, self.config, run=self._run)
        told = {"cascade_cpu_s": cpu_s() - begun} | {f"passed_{name}": float(passed) for name, passed in result.passed.items()}
        told |= {f"{policy.name}_eval_out": self._rate_of(policy, "eval_out") for policy in result.policies}
        return {policy.name: self.measured(policy) for policy in result.policies}, told

    def arm(self, name: str, cascade: Cell) -> tuple[Policy, dict[str, float]]:
        """The arm's policy, and figures of it.

        Raises:
            KeyError: there is no such arm.
        """
        arms: dict[str, Callable[[Cell], tuple[Policy, dict[str, float]]]] = {
            "longer_sft1": self._longer_sft1,
            "more_sft": self._more_sft,
            "rft": self._rft,
            "more_experts": self._more_experts,
            "rl_uniform": self._rl_uniform,
        }
        return arms[name](cascade) if name in arms else self._other_rl(name, VARIANTS[name])

    def _longer_sft1(self, cascade: Cell) -> tuple[Policy, dict[str, float]]:
        steps = sum(cascade.policies[rung].steps for rung in ("sft1", "sft2"))
        settings = self.config.stage("sft1").settings.model_copy(update={"max_steps": steps, "plateau_window": 0})
        return self.steps.stage("longer_sft1", None, self.steps.seed_release(self.steps.seed_items()), "seed", settings), {}

    def _more_sft(self, cascade: Cell) -> tuple[Policy, dict[str, float]]:
        return self._continued("more_sft", self._second(), "sft2", self._sft_steps(cascade)), {}

    def _more_experts(self, cascade: Cell) -> tuple[Policy, dict[str, float]]:
        rl = self.config.stage("rl").settings
        wanted = rl.max_steps * rl.tasks_a_step
        tasks = self._drawn(wanted, EXPERT_INDEX, use="train", fewest=wanted // 2)
        made = [expert_trajectory(WORLDS[task.world], task) for task in tasks]
        part = part_id("trajectories", [task.id for task in tasks], {"teacher": "scripted"}, VERSION)
        self.prober.commit("trajectories", part, lambda: trajectories_frame(made, tasks))
        items = [ReleaseItem("trajectory", one.id, task.id) for one, task in zip(made, tasks, strict=True)]
        release = make_release(self.store, "more_experts", {"seed": items}, {})
        return self._continued("more_experts", release, "seed", self._sft_steps(cascade)), {"expert_traces": len(items)}

    def _rl_uniform(self, _: Cell) -> tuple[Policy, dict[str, float]]:
        even = self.config.route.model_copy(update={"rl_uniform": 1.0})
        tags, rollouts = self.prober.probe(self._probed())
        splits = route(self.steps.seed_items(), tags, rollouts, {}, even)
        release = make_release(self.store, "rl_uniform", {"rl": splits["rl"]}, {"routing": even.model_dump()})
        return self.steps.stage("rl_uniform", self._policy("sft2"), release, "rl", self.config.stage("rl").settings), {}

    def _other_rl(self, name: str, changed: dict[str, Any]) -> tuple[Policy, dict[str, float]]:
        """RL with settings changed; the figures are the means of its metrics over all steps."""
        settings = RLSettings(**self.config.stage("rl").settings.model_dump() | changed)
        policy = self.steps.stage(name, self._policy("sft2"), self._routed(), "rl", settings)
        return policy, dict(zip(*_means(policy.path.parent / METRICS), strict=True))

    def _rft(self, cascade: Cell) -> tuple[Policy, dict[str, float]]:
        """Rounds until RL's CPU seconds are spent; the last one may go over them. Each is an epoch of all that was found, and takes the
        next of RL's tasks, after the last one the first again."""
        budget, policy, rounds = self._rl_cpu_s(cascade), self._policy("sft2"), 0
        found = self._released(self._second(), "sft2")
        tasks, spent = self._rl_tasks(), 0.0
        while spent < budget:
            begun = cpu_s()
            first = rounds * ROUND_TASKS % len(tasks)
            chosen = tasks[first : first + ROUND_TASKS]
            self._keep(chosen)
            rollouts = self.prober.rollouts(policy, chosen, self.config.stage("rl").settings.draws, "rft", temperature=1.0)
            good = rollouts.filter(pl.col("outcome") == "success").unique(["task_id", "messages"], keep="first", maintain_order=True)
            found += [ReleaseItem("rollout", item, task) for item, task in good.select("rollout_id", "task_id").iter_rows()]
            release = make_release(self.store, f"rft{rounds}", {"rft": found}, {})
            settings = self.config.stage("sft2").settings
            settings = settings.model_copy(update={"max_steps": math.ceil(len(found) / settings.batch_size)})
            policy = self.steps.stage(f"rft{rounds}", policy, release, "rft", settings)
            cost = _noted(policy.path.parent / "round_cpu_s.json", cpu_s() - begun) - self._start_up()
            rounds, spent = rounds + 1, spent + max(cost, 1.0)
        return policy, {"rounds": rounds, "rft_cpu_s": spent, "traces": len(found)}

    # ---- what arms are made of ---------------------------------------------------------------------------------------------

    def _policy(self, rung: str) -> Policy:
        return known_policy(self.store, rung)

    def _second(self) -> str:
        """The release that the second SFT was trained on."""
        return self.steps.routed_release("second", self._policy("sft1"), self.steps.seed_items())

    def _routed(self) -> str:
        return self.steps.routed_release("rl", self._probed(), self.steps.seed_items())

    def _probed(self) -> Policy:
        """The policy whose probe routes RL."""
        probed = self.config.probed_stage(self.config.stage("rl"))
        assert probed is not None
        return self._policy(probed)

    def _released(self, release: str, split: str) -> list[ReleaseItem]:
        return [one.item for one in load_split(self.store, release, split)]

    def _continued(self, name: str, release: str, split: str, steps: int) -> Policy:
        settings = self.config.stage("sft2").settings.model_copy(update={"max_steps": steps})
        return self.steps.stage(name, self._policy("sft2"), release, split, settings)

    def _rl_tasks(self) -> list[Task]:
        """The tasks that RL drew, in its order."""
        rl, release = self.config.stage("rl").settings, self._routed()
        items = load_split(self.store, release, "rl")
        spec = StageSpec(
            name="rl",
            algorithm="rl",
            store=self.store.root,
            release_id=release,
            split="rl",
            model_out=Path("none"),
            seed=self.config.seed,
            language=self.config.language,
            rl=rl,
        )
        source = FreshTasks(items, spec, rl, self.config.route)
        return [task for step in range(rl.max_steps) for task in source(step)]

    def _drawn(self, count: int, first_index: int, *, use: Use, fewest: int | None = None) -> list[Task]:
        found = [source for division in ("seed", "probe") for source in self.prober.sources[division]]
        tasks = draw(found, count, use=use, language=self.config.language, first_index=first_index, fewest=fewest)
        self._keep(tasks)
        return tasks

    def _keep(self, tasks: Sequence[Task]) -> None:
        self.prober.commit("tasks", part_id("tasks", [task.id for task in tasks], {}, VERSION), lambda: tasks_frame(tasks))

    def tasks(self) -> list[dict[str, Any]]:
        """The tasks of `eval_in`: their facets, and whether the seed split has their intent."""
        known = {(task.world, task.intent) for task in self.prober.tasks(["seed"], self.config.expert_budget, "train")}
        rows = facets(self.prober.tasks(["seed", "probe"], self.config.eval_tasks, "eval_in")).to_dicts()
        return [row | {"is_earlier": (row["world"], row["intent"]) in known} for row in rows]

    # ---- costs and measures ------------------------------------------------------------------------------------------------

    def _run(self, _: Backend[Any], spec: StageSpec, folder: Path) -> dict[str, Any]:
        """Trains in a child process, and notes what that took beside the model."""
        begun = cpu_s()
        result = self._launch(spec, folder)
        _noted(folder / "cpu_s.json", cpu_s() - begun)
        return result

    def _start_up(self) -> float:
        """CPU seconds of a stage of one step."""
        release, settings = self.steps.seed_release(self.steps.seed_items()), SFTSettings(max_steps=1)
        return self._cost(self.steps.stage("start_up", None, release, "seed", settings))

    def _rl_cpu_s(self, cascade: Cell) -> float:
        return cascade.policies["rl"].cpu_s - self._start_up()

    def _sft_steps(self, cascade: Cell) -> int:
        """Steps of SFT that RL's CPU seconds pay for."""
        second = cascade.policies["sft2"]
        return math.ceil(self._rl_cpu_s(cascade) / ((second.cpu_s - self._start_up()) / second.steps))

    def _cost(self, policy: Policy) -> float:
        return float(json.loads((policy.path.parent / "cpu_s.json").read_text()))

    def measured(self, policy: Policy) -> Measured:
        tasks = self.prober.tasks(["seed", "probe"], self.config.eval_tasks, "eval_in")
        shown = {shown_hash(task) for task in tasks}
        drawn = self._drawn(self.config.eval_tasks * 5 // 4, FRESH_INDEX, use="eval_in", fewest=self.config.eval_tasks)
        fresh = [task for task in drawn if shown_hash(task) not in shown][: self.config.eval_tasks]
        return Measured(
            self._rates(policy, tasks, self.config.eval_samples, "eval_in", 1.0),
            self._rates(policy, tasks, 1, "eval_in_greedy", 0.0),
            self._rates(policy, fresh, self.config.eval_samples, "fresh", 1.0),
            self._cost(policy),
            len((policy.path.parent / METRICS).read_text().splitlines()),
        )

    def _rate_of(self, policy: Policy, use: str) -> float:
        """As its evaluation has it."""
        found = self.store.query(
            "SELECT rate FROM evaluations WHERE policy_id = ? AND use = ? AND facet = 'all' AND decoding = 'sampled'", [policy.id, use]
        )
        return float(found["rate"][0])

    def _rates(self, policy: Policy, tasks: Sequence[Task], draws: int, purpose: str, temperature: float) -> dict[str, float]:
        rollouts = self.prober.rollouts(policy, tasks, draws, purpose, temperature=temperature)
        rated = rollouts.filter(pl.col("outcome").is_in(("success", "policy_failure")))
        rates = rated.group_by("task_id").agg((pl.col("outcome") == "success").mean()).sort("task_id")
        return dict(rates.iter_rows())


def _noted(path: Path, measured: float) -> float:
    """What was measured when this was done first."""
    if not path.exists():
        replace_atomically(path, lambda draft: draft.write_text(json.dumps(measured)) and None)
    return float(json.loads(path.read_text()))


def _means(metrics: Path) -> tuple[list[str], list[float]]:
    """Of every metric but the step, over all steps."""
    rows = pl.read_ndjson(metrics).drop("step")
    return rows.columns, list(rows.mean().row(0))


VARIANTS: dict[str, dict[str, Any]] = {
    "shuffled": {"reward": "shuffled"},
    "grpo": {"loss": "grpo"},
    "gspo": {"loss": "gspo", "updates_a_batch": 2, "resample_rounds": 0},
    "grpo_twice": {"loss": "grpo", "updates_a_batch": 2},
    "staleness1": {"staleness": 1},
    "staleness2": {"staleness": 2},
    "staleness4": {"staleness": 4},
}
"""RL with settings changed, by the arm's name."""
