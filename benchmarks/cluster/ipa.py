"""IPA on long chains: chunk-level credit beside GRPO, and starts in the middle of tasks beside starts at the request.

The tasks are those of the retail world with three calls or more. Each seed has one seed SFT, and each arm makes equally many rollouts from
it, on the same tasks:

    grpo            the loss grpo
    ipa             the loss ipa with the credit chunk_return
    rollback        ipa, with starts that are rolled back from the expert's tail, and imitation up to the crucial turn
    resampled       rollback without imitation: what the starts alone are worth

Each batch is learned from twice, so that ratios are not all 1. Success is measured at temperature 1 on held-out siblings, other ones than
settings were chosen on. The intervals are over seeds and tasks (`train.measure.evaluate.bootstrap`). `rollback` sees what the first two
arms do not: the expert's conversations of RL's tasks.

The toy is a chain of 5 choices among 4, rewarded only if all are right. Its learning rate is one at which plain policy gradient, which sees
some four rewards, stays at chance; at ten times that rate these are enough in most seeds. Sequential rollback, by the anchors of
`train/rl/rollback.py`, must solve it. `parallel_toy_success`: starts at random places, which the paper calls parallelised initialisation.

What a killed call has trained is not trained again, unless the code has changed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment.routing.lab import Lab, RoutingSettings
from benchmarks.harness import ROOT, Deadline, Figures, code_mark
from storage.releases.release import ReleaseItem
from synth.blueprints.single_goal import draw_drills
from synth.tasks.split import DivisionConfig
from synth.worlds import WORLDS
from train.backends.base import run_stage
from train.backends.local import LocalBackend
from train.child_process import start_worker
from train.config import CascadeConfig
from train.data.task_pool import FIRST_INDEX
from train.measure.evaluate import bootstrap
from train.rl.rollback import Anchors
from train.spec import RLSettings

Floats = NDArray[np.float64]
SEEDS = (10, 11, 12)
WORLD, DRILLS, FEWEST_CALLS = "retail", 480, 3
EXPERTS, TASKS, HELD_OUT = 200, 400, 200
FIRST_HELD_OUT = FIRST_INDEX + 10_000
_IPA = {"loss": "ipa", "credit": "chunk_return"}
_EVERY_ARM = {"max_steps": 160, "updates_a_batch": 2, "learning_rate": 3e-4, "checkpoint_steps": 0}
ARMS: Mapping[str, Mapping[str, Any]] = {
    "grpo": {"loss": "grpo"},
    "ipa": _IPA,
    "rollback": {**_IPA, "start": "rollback"},
    "resampled": {**_IPA, "start": "rollback", "rollback_imitation": 0.0},
}
"""Changes to the settings of RL."""
SEED_SFT = "seed_sft"
COMPARED = {"ipa_minus_grpo": ("ipa", "grpo"), "rollback_minus_plain": ("rollback", "ipa"), "resampled_minus_plain": ("resampled", "ipa")}
MINUTES = 30

Start = Literal["plain", "parallel", "rollback"]
STARTS: tuple[Start, ...] = ("plain", "parallel", "rollback")
TOY_TURNS, TOY_CHOICES, TOY_STEPS, TOY_DRAWS, TOY_SEEDS, TOY_RATE = 5, 4, 250, 16, 10, 0.4
KEYS = (
    *(f"{key}{end}" for key in COMPARED for end in ("", "_lo95", "_hi95")),
    *(f"long_chain_{name}" for name in (SEED_SFT, *ARMS)),
    *(f"{start}_toy_success" for start in STARTS),
    "ipa_cpu_minutes",
)


@dataclass(frozen=True)
class SeedResult:
    """success: of each policy, by held-out task in a fixed order. cpu_s: of the seed's trainings and measurements."""

    success: Mapping[str, Floats]
    cpu_s: float


def measure(deadline: Deadline) -> Figures:
    """The figures of `KEYS`; `long_chain_*` are success rates at temperature 1."""
    deadline.allows(MINUTES)
    home = ROOT / ".cache" / "bench" / "cluster" / f"ipa-{code_mark()}"
    with get_context("spawn").Pool(2, start_worker, (os.getpid(),)) as pool:
        results = pool.map(partial(run_seed, home), SEEDS, chunksize=1)
    figures = {f"long_chain_{name}": float(np.mean([one.success[name] for one in results])) for name in (SEED_SFT, *ARMS)}
    for key, (of, to) in COMPARED.items():
        estimate = bootstrap([one.success[of] - one.success[to] for one in results])
        figures |= {key: estimate.mean, f"{key}_lo95": estimate.low, f"{key}_hi95": estimate.high}
    toys = {f"{start}_toy_success": float(np.mean([toy_success(start, seed) for seed in range(TOY_SEEDS)])) for start in STARTS}
    return figures | toys | {"ipa_cpu_minutes": sum(one.cpu_s for one in results) / 60}


# ---- long chains -----------------------------------------------------------------------------------------------------------------


def run_seed(home: Path, seed: int) -> SeedResult:
    """Trains a seed's policies and measures them."""
    begun = _cpu_s()
    lab = long_chain_lab(home / str(seed), seed)
    first = lab.stage(SEED_SFT, None, {"seed": lab.experts()}, lab.config.stage("sft1").settings)
    policies = {SEED_SFT: first}
    items = [ReleaseItem("task", task.id, task.id) for task in lab.pool()]
    for name, changed in ARMS.items():
        settings = RLSettings.model_validate(lab.config.stage("rl").settings.model_dump() | _EVERY_ARM | changed)
        policies[name] = lab.stage(name, first, {"rl": items}, settings)
    measured = {name: lab.success(policy).sampled for name, policy in policies.items()}
    success = {name: np.array([rates[task] for task in sorted(rates)]) for name, rates in measured.items()}
    return SeedResult(success, _cpu_s() - begun)


def long_chain_lab(home: Path, seed: int) -> Lab:
    """A seed's store, in which experts, RL's tasks and held-out tasks are siblings of frames whose plan has `FEWEST_CALLS` or more."""
    cascade = CascadeConfig(worlds=(WORLD,), expert_budget=EXPERTS, probe_tasks=TASKS, eval_tasks=HELD_OUT)
    settings = RoutingSettings(drills=DRILLS, cascade=cascade, first_eval=FIRST_HELD_OUT)
    lab = Lab(home, seed, settings, partial(run_stage, LocalBackend()))
    drills = draw_drills(WORLDS[WORLD], DRILLS, [], DivisionConfig(), seed=0)
    long = {drill.task.frame_id for drill in drills if len(drill.task.plan.calls) >= FEWEST_CALLS}
    found = lab.prober.sources
    lab.prober.sources = {division: [one for one in sources if one.frame.id in long] for division, sources in found.items()}
    return lab


def _cpu_s() -> float:
    """Of this process and its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# ---- the toy ---------------------------------------------------------------------------------------------------------------------


def toy_success(start: Start, seed: int) -> float:
    """Chance of a chain of right choices by a policy of one softmax a place, after policy gradient with the group's mean as baseline.

    start: plain, at the first choice; parallel, at a random one for each step; rollback, at the place of an anchor.
    """
    rng, logits, anchors = np.random.default_rng(seed), np.zeros((TOY_TURNS, TOY_CHOICES)), Anchors(RLSettings().rollback_mastered)
    given = {"plain": lambda: 0, "parallel": lambda: int(rng.integers(TOY_TURNS)), "rollback": lambda: anchors.given("toy", TOY_TURNS)}
    for _ in range(TOY_STEPS):
        first = given[start]()
        chances = _softmax(logits)
        chosen = np.array([rng.choice(TOY_CHOICES, TOY_DRAWS, p=row) for row in chances[first:]]).T
        rewards = (chosen == 0).all(axis=1)
        worth = rewards - rewards.mean()
        for place in range(first, TOY_TURNS):
            moves = np.eye(TOY_CHOICES)[chosen[:, place - first]] - chances[place]
            logits[place] += TOY_RATE * (worth[:, None] * moves).mean(axis=0)
        anchors.add("toy", first, rewards.tolist())
        anchors.move("toy")
    return float(_softmax(logits)[:, 0].prod())


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
