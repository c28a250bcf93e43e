"""What the second SFT learns from: own traces of every solved task against those of certain and mastered tasks alone.

Three seeds, each with one seed SFT, one probe of it, and both second SFTs from it, with equal steps. Success at temperature 1 on the same
500 held-out tasks, task by task; bootstrap over seeds and tasks.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from benchmarks.experiment.routing.lab import Lab, RoutingSettings
from benchmarks.harness import ROOT, Deadline, Figures, code_mark
from filters.certainty.route import RouteConfig, route
from train.backends.base import run_stage
from train.backends.local import LocalBackend
from train.config import CascadeConfig
from train.measure.evaluate import paired_difference

SEEDS = (0, 1, 2)
MINUTES = 8
"""Of one seed."""
KEPT = ROOT / ".cache" / "bench" / "links" / "second"


def measure(deadline: Deadline) -> Figures:
    rates: dict[str, list[pl.DataFrame]] = {"solved": [], "certain": []}
    for seed in SEEDS:
        deadline.allows(MINUTES)
        for second, table in _seed(KEPT / code_mark() / str(seed), seed).items():
            rates[second].append(table)
    gain = paired_difference(rates["certain"], rates["solved"])
    return {"sft2_all_solved_minus_certain": gain.mean, "sft2_all_solved_minus_certain_lo95": gain.low}


def lab_of(home: Path, seed: int) -> Lab:
    """The store of a seed in this folder; what a killed call has trained and rolled out is found again."""
    settings = RoutingSettings(cascade=CascadeConfig(worlds=("retail",), expert_budget=240, probe_tasks=480, eval_tasks=500))
    return Lab(home / "store", seed, settings, lambda spec, folder: run_stage(LocalBackend(), spec, folder))


def _seed(home: Path, seed: int) -> dict[str, pl.DataFrame]:
    """Rule -> rate of each held-out task."""
    lab = lab_of(home, seed)
    first, experts = lab.first(), lab.experts()
    tags, rollouts = lab.probe(first)
    found: dict[str, pl.DataFrame] = {}
    for second in ("solved", "certain"):
        splits = route(experts, tags, rollouts, {}, RouteConfig(second=second))
        policy = lab.stage(f"{second}-sft2", first, {"sft2": splits["sft2"]}, lab.config.stage("sft2").settings)
        sampled = lab.success(policy).sampled
        found[second] = pl.DataFrame({"task_id": list(sampled), "rate": list(sampled.values())})
        print(f"    seed {seed}, {second}: {len(splits['sft2']) - len(experts)} own traces, {found[second]['rate'].mean():.3f}", flush=True)
    return found
